"""Every key a config has, with its default: the published T-LASER (Li and Mak 2020).

A config file calls `default_config()`, changes what it is about and returns it. The keys of
`encoder`, `decoder`, `objective`, `optimizer` and `schedule` are the arguments of what they build
(`models.registry`, `train.objective`, `train.optimizer`); those of encoder and decoder depend on
their family.
"""

from typing import Any

from ml_collections import ConfigDict, config_dict

from xling_jax.config_models import decoder_config, encoder_config

__all__ = [
    "SIZES",
    "apply_size",
    "decoder_config",
    "default_config",
    "dual_config",
    "encoder_config",
    "laser_config",
    "lawdr_config",
    "parse_argument",
    "set_dual_objective",
    "set_width",
]

SIZES = ("paper", "base", "small", "smoke")


def default_config() -> ConfigDict:
    """The complete config; a key that is not here is refused."""
    config = ConfigDict()
    config.seed = 0
    config.languages = ("de", "en", "es", "fr", "it")
    config.compute_dtype = "auto"  # bfloat16 on GPU and TPU, float32 on CPU
    config.dropout_generator = "threefry"  # "hash" is cheaper on CPU, see models.layers.hash_bits

    config.data = ConfigDict()
    config.data.corpora = ()  # "tsv:GLOB", "moses:PREFIX", "tmx:GLOB", "gettext:PATH", "tfds:NAME"
    config.data.exclude = ()  # evaluation files whose texts may not be trained on
    config.data.pairs = ("de-en", "de-es", "en-es", "es-en", "fr-en", "fr-es", "it-en", "it-es")
    config.data.sampling_exponent = 0.0  # 0: pairs uniform as published; 1: by corpus size
    config.data.both_directions = False  # train a-b and b-a in the same batch where both are listed
    config.data.bucket_lengths = (*range(8, 65, 3), *range(68, 129, 6))
    config.data.max_tokens = 4096  # longer side x rows of a micro-batch, padding included
    config.data.batch_size = 0  # rows of a micro-batch at every length, in place of max_tokens
    config.data.accumulation_steps = 32  # micro-batches, each of one pair, per update
    config.data.batch_multiple = 8  # rows are a multiple; the devices must divide it
    config.data.truncate = False  # cut longer sentences to the longest bucket; else leave them out
    config.data.reader = "auto"  # "tf.data", "numpy", or whichever is there

    config.cleaning = ConfigDict()  # arguments of data.cleaning
    config.cleaning.min_words = 1
    config.cleaning.max_words = 100
    config.cleaning.max_chars = 1000
    config.cleaning.max_length_ratio = 1.5
    config.cleaning.length_ratio_slack = 0  # words added to the shorter side before the ratio
    config.cleaning.drop_identical = True
    config.cleaning.require_letters = True
    config.cleaning.min_script_share = 0.5
    config.cleaning.alphabet_only = False
    config.cleaning.max_tokens_per_sentence = 0

    config.vocab = ConfigDict()
    config.vocab.model = ""  # an existing SentencePiece model; empty trains one
    config.vocab.size = 50000
    config.vocab.model_type = "bpe"
    config.vocab.lowercase = True
    config.vocab.character_coverage = 0.9995
    config.vocab.sample_sentences = 5_000_000
    config.vocab.sampling_exponent = 1.0  # 1: from all pairs joined, as published; 0: pairs equal

    config.encoder = encoder_config("tlaser")
    config.decoder = decoder_config("tlaser")

    config.head = ConfigDict()  # of the token distribution
    config.head.tie_embeddings = True
    config.head.width = 512  # where it is not tied
    config.head.init_stddev = 0.0

    config.objective = ConfigDict()  # one entry a term of train.objective, and the reduction
    config.objective.reduction = "sum"
    config.objective.translation = ConfigDict()
    config.objective.translation.weight = 1.0
    config.objective.translation.label_smoothing = 0.1
    config.objective.translation.decoder_bos = False
    config.objective.translation.max_logits = 1 << 26  # alive at a time, of each device
    config.objective.distance = ConfigDict()
    config.objective.distance.weight = 0.0
    config.objective.distance.margin = 0.5
    config.objective.distance.num_negatives = 20
    config.objective.distance.negative_weight = 0.5  # lambda / beta
    config.objective.distance.distance = "l2"
    config.objective.distance.scale = "norm_of_mean"
    config.objective.distance.stop_gradient_scale = False
    config.objective.distance.negatives = "permutation"
    config.objective.similarity = ConfigDict({"weight": 0.0})
    config.objective.encoder_l2 = ConfigDict({"weight": 0.0})
    config.objective.token_distribution = ConfigDict({"weight": 0.0})
    config.objective.token_distribution.task = "ugt"  # mlm, smlm, xtr, mlm+xtr, ugt
    config.objective.token_distribution.duplicates = "once"
    config.objective.token_distribution.overlap = "overwrite"
    config.objective.token_distribution.label_tokens = "original"
    config.objective.token_distribution.max_logits = 1 << 26
    config.objective.alignment = ConfigDict({"weight": 0.0})
    config.objective.alignment.similarity = "dot"  # or "cosine"
    config.objective.alignment.scale = 1.0
    config.objective.alignment.margin = 0.0
    config.objective.alignment.ignore_equal = False  # equal sentences are no negatives
    config.objective.similarity_distribution = ConfigDict({"weight": 0.0})
    config.objective.similarity_distribution.include_diagonal = True
    config.objective.similarity_distribution.reduction = "sum"
    config.objective.similarity_distribution.form = "log_cos"
    config.objective.encode_chunks = 1  # more: encode the batch in pieces, recomputed backward

    config.optimizer = ConfigDict({"name": "adamw"}, type_safe=True)
    config.optimizer.b1 = 0.9
    config.optimizer.b2 = 0.98
    config.optimizer.eps = 1e-8
    config.optimizer.weight_decay = 1e-4
    config.optimizer.clip_global_norm = 25.0
    config.optimizer.l2_penalty = 0.0  # coupled weight decay, part of the gradient

    config.schedule = ConfigDict()
    config.schedule.name = "warmup_inverse_sqrt_schedule"
    config.schedule.peak_value = 5e-4
    config.schedule.warmup_steps = 4000
    config.schedule.init_value = 1e-7

    config.train = ConfigDict()
    config.train.total_steps = 0  # updates; exactly one of steps and epochs is set
    config.train.total_epochs = 0.0  # an epoch draws as many examples as all pairs have
    config.train.log_every_steps = 50
    config.train.evaluate_every_steps = 1000
    config.train.checkpoint_every_steps = 1000
    config.train.keep_last = 2
    config.train.keep_best = 1
    config.train.best_metric = ""  # e.g. "europarl.dev/p_at_1"
    config.train.model_init = ""  # model directory or workdir whose encoder this one begins with
    config.train.word_vectors = ""  # multiCCA text file: the first embeddings of whole words
    config.train.export = "last"  # or "best", by best_metric

    config.evaluation = ConfigDict()
    config.evaluation.retrieval = ()  # TSV files with a column a language, directories of pairs
    config.evaluation.classification = ()  # directories of {train,dev,test}.LANG.tsv

    config.mesh = ConfigDict()
    config.mesh.data = -1
    config.mesh.fsdp = 1
    return config.lock()


def laser_config(layers: int = 1) -> ConfigDict:
    """The default config with LASER's model and recipe in place of T-LASER's.

    Adam at a constant 1e-3, dropout 0.1, no label smoothing (Artetxe and Schwenk 2019).

    Args:
        layers: of the BiLSTM encoder.
    """
    config = default_config()
    config.encoder = encoder_config("laser", layers=layers)
    config.decoder = decoder_config("laser")
    config.objective.translation.label_smoothing = 0.0
    config.optimizer = ConfigDict({"name": "adam", "b1": 0.9, "b2": 0.98, "clip_global_norm": 25.0})
    config.optimizer.l2_penalty = 0.0
    config.schedule = ConfigDict({"name": "constant_schedule", "value": 1e-3})
    return config.lock()


def dual_config(pairs: tuple[str, ...], layers: int = 2) -> ConfigDict:
    """The default config with the lightweight dual transformer and its recipe (Mao et al. 2021).

    Adam with amsgrad and a coupled L2 penalty, 128 pairs a batch, the unified generative task and
    both contrastive ones, weights 1, 2, 2.

    Args:
        pairs: each listed once; a batch trains both sides at once.
        layers: of the encoder; 0 for the mean of weighted token vectors.
    """
    config = default_config()
    config.languages = tuple(sorted({language for pair in pairs for language in pair.split("-")}))
    config.data.pairs = pairs
    config.data.bucket_lengths = (8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 200)
    config.data.batch_size, config.data.accumulation_steps = 128, 1
    config.data.truncate = True
    config.cleaning.alphabet_only = True
    config.cleaning.max_length_ratio, config.cleaning.max_words = 100.0, 300
    config.encoder = encoder_config("dual", layers=layers)
    if not layers:
        config.encoder.pooling = "weighted_mean"
    config.objective.reduction = "mean"
    config.objective.translation.weight = 0.0
    config.objective.token_distribution.weight = 1.0
    config.objective.alignment.weight = 2.0
    config.objective.similarity_distribution.weight = 2.0
    config.optimizer = ConfigDict({"name": "amsgrad", "b1": 0.9, "b2": 0.999})
    config.optimizer.clip_global_norm = 0.0
    config.optimizer.l2_penalty = 1e-5
    config.schedule = ConfigDict({"name": "warmup_drop_schedule", "peak_value": 1e-3})
    config.schedule.warmup_steps, config.schedule.drop_step = 2000, 0
    return config.lock()


# Name -> (task of the token distribution, or none; weights of alignment and similarity).
DUAL_OBJECTIVES = {
    **{task: (task, 0.0, 0.0) for task in ("mlm", "smlm", "xtr", "mlm+xtr", "ugt")},
    "ugt+align": ("ugt", 2.0, 0.0),
    "all": ("ugt", 2.0, 2.0),
}


def set_dual_objective(config: ConfigDict, name: str) -> None:
    """Sets the generative task and contrastive weights of a config made by `dual_config`.

    Args:
        config: changed in place.
        name: key of `DUAL_OBJECTIVES`: a row of Tables 6 and 7 of Mao et al.

    Raises:
        ValueError: for another name.
    """
    if name not in DUAL_OBJECTIVES:
        raise ValueError(f"objective={name!r} must be one of {', '.join(DUAL_OBJECTIVES)}")
    task, alignment, similarity = DUAL_OBJECTIVES[name]
    config.objective.token_distribution.task = task
    config.objective.alignment.weight = alignment
    config.objective.similarity_distribution.weight = similarity


# Components of the language to remove, by encoder (Gong et al. 2021, section 4).
_LAWDR_RANKS = {"mbert": 64, "xlm": 32, "xlmr": 256}


def lawdr_config(encoder: str, pooling: str, document_mode: str, size: str = "paper") -> ConfigDict:
    """Arguments of `xling align` and `xling evaluate alignment` for LAWDR as published.

    Encoder and pooling make the model directory; here they choose `debias` and stand for the
    record. The density is taken on 16 dimensions, as by default.

    Args:
        encoder: mbert, xlm or xlmr.
        pooling: mean, or first for the special token that begins a text.
        document_mode: what of a document is encoded at once, sentences or packed ones.
        size: must be paper, as nothing is trained.

    Raises:
        ValueError: for another word.
    """
    known = {"encoder": tuple(_LAWDR_RANKS), "pooling": ("mean", "first")}
    known |= {"document_mode": ("sentences", "packed"), "size": ("paper",)}
    given = {"encoder": encoder, "pooling": pooling, "document_mode": document_mode, "size": size}
    for name, value in given.items():
        if value not in known[name]:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(known[name])}")
    config = ConfigDict({"encoder": encoder, "pooling": pooling, "document_mode": document_mode})
    config.splitter = "rule"  # of documents that are no lists of sentences; or "sentencex"
    config.debias = _LAWDR_RANKS[encoder]  # 0 for none
    config.center = False
    config.weighting = "kde"  # or "none"
    config.density_on = "raw"  # or "debiased"
    config.similarity = "margin"  # or "cosine"
    config.k = 4
    config.domain = config_dict.placeholder(str)  # the field that restricts candidates
    config.url_matching = False
    return config.lock()


def parse_argument(arg: str | None, **defaults: Any) -> dict[str, Any]:
    """Reads what stands behind the colon of `--config FILE:ARG`.

    ARG is a comma-separated list of `name=value` and at most one size: `layers=6,small`.

    Args:
        arg: the text; None or empty for the defaults.
        **defaults: the names the config knows; a value becomes the type of its default.

    Returns:
        The defaults with ARG's values, and `size`.

    Raises:
        ValueError: for an unknown name or size, or a value that cannot be read.
    """
    values = {"size": "paper"} | defaults
    for part in filter(None, (arg or "").split(",")):
        name, has_value, value = part.partition("=")
        if not has_value:
            name, value = "size", part
        if name not in values:
            raise ValueError(f"config argument {part!r}: known are {', '.join(values)}")
        try:
            values[name] = type(values[name])(value)
        except ValueError:
            raise ValueError(
                f"config argument {part!r} must be of type {type(values[name]).__name__}"
            ) from None
    if values["size"] not in SIZES:
        raise ValueError(f"config size {values['size']!r} must be one of {', '.join(SIZES)}")
    return values


def set_width(config: ConfigDict, *, width: int, layers: int, heads: int, ffn_width: int) -> None:
    """Sets encoder and decoder to one size; `layers` is the depth of a transformer encoder.

    LSTMs keep their proportions to the sentence vector, and their depth.

    Matrices start with 0.02 · √(1024 / width), LSTMs with U(±0.1 · √(1024 / width)): the published
    spread relative to the width. With the plain values a narrow model starts with sentence vectors
    that are all but equal.
    """
    growth = (1024 / width) ** 0.5
    before = config.encoder.width
    for side in (config.encoder, config.decoder):
        if side.family == "laser":
            side.embedding_width = side.embedding_width * width // before
            side.width = side.width * width // before
            side.init_scale = round(0.1 * growth, 4)
        elif side.family == "dual":
            side.ffn_width = side.ffn_width * width // before
            side.width, side.heads = width, max(1, width // 64)
        else:
            side.width, side.heads, side.ffn_width = width, heads, ffn_width
            side.init_stddev = round(0.02 * growth, 4)
    if config.encoder.family == "tlaser":
        config.encoder.layers = layers


def apply_size(config: ConfigDict, size: str) -> None:
    """Scales a config.

    Args:
        config: changed in place; at the published sizes.
        size: `paper`, `base` (one GPU, a day), `small` (two CPU cores, minutes) or
            `smoke` (seconds, tests only).

    Raises:
        ValueError: for another word.
    """
    if size not in SIZES:
        raise ValueError(f"config size {size!r} must be one of {', '.join(SIZES)}")
    if size == "base":
        set_width(config, width=512, layers=6, heads=8, ffn_width=2048)
        config.vocab.size = 32000
        config.encoder.dropout = config.decoder.dropout = 0.1
        if not config.data.batch_size:
            config.data.max_tokens, config.data.accumulation_steps = 16384, 4
        config.train.total_epochs, config.train.total_steps = 0.0, 100_000
    elif size == "small":
        set_width(config, width=256, layers=2, heads=4, ffn_width=1024)
        config.vocab.size, config.vocab.sample_sentences = 4000, 400_000
        config.vocab.sampling_exponent = 0.0
        # Too short a run to overfit; and dropout noise is as large as the first distances.
        config.encoder.dropout = config.decoder.dropout = 0.0
        config.dropout_generator = "hash"
        config.data.max_tokens, config.data.accumulation_steps = 2048, 1
        if not config.data.batch_size:
            config.data.bucket_lengths = (12, 20, 28, 36, 44, 52, 64, 80, 104)
        _set_peak(config, 2e-3, warmup_steps=100)
        config.train.total_epochs, config.train.total_steps = 0.0, 1000
        config.train.evaluate_every_steps = config.train.checkpoint_every_steps = 250
    elif size == "smoke":
        set_width(config, width=32, layers=2, heads=2, ffn_width=64)
        config.vocab.size, config.vocab.sample_sentences = 300, 10_000
        config.data.bucket_lengths = (16, 32, 64)
        config.data.batch_size = min(config.data.batch_size, 16)
        config.data.max_tokens, config.data.accumulation_steps = 512, 1
        _set_peak(config, config.schedule.get("peak_value", 0.0), warmup_steps=5)
        config.train.total_epochs, config.train.total_steps = 0.0, 8
        config.train.log_every_steps = 1
        config.train.evaluate_every_steps = config.train.checkpoint_every_steps = 4


def _set_peak(config: ConfigDict, peak: float, warmup_steps: int) -> None:
    """Sets a schedule that has a peak and a warm-up; a constant one stays as published."""
    if "peak_value" in config.schedule:
        config.schedule.peak_value, config.schedule.warmup_steps = peak, warmup_steps
