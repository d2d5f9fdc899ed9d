"""Every key a config has, with its default: the published T-LASER (Li and Mak 2020).

A config file calls `default_config()`, changes what it is about and returns it. The keys of
`encoder`, `decoder`, `objective`, `optimizer` and `schedule` are the arguments of what they build
(`models.registry`, `train.objective`, `train.optimizer`).
"""

from ml_collections import ConfigDict

SIZES = ("paper", "base", "small", "smoke")
OBJECTIVES = ("t_laser", "ct_laser")


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
    config.data.bucket_lengths = (*range(8, 65, 4), *range(72, 129, 8))
    config.data.max_tokens = 4096  # longer side x rows of a micro-batch, padding included
    config.data.accumulation_steps = 32  # micro-batches, each of one pair, per update
    config.data.batch_multiple = 8  # rows are a multiple; the devices must divide it
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

    config.encoder = ConfigDict()
    config.encoder.family = "tlaser"
    config.encoder.width = 1024
    config.encoder.layers = 6
    config.encoder.heads = 16
    config.encoder.ffn_width = 4096
    config.encoder.dropout = 0.3
    config.encoder.attention_dropout = 0.0
    config.encoder.activation_dropout = 0.0
    config.encoder.pooling = "first"
    config.encoder.init_stddev = 0.02
    config.encoder.remat = False

    config.decoder = ConfigDict()
    config.decoder.family = "tlaser"
    config.decoder.width = 1024
    config.decoder.layers = 1
    config.decoder.heads = 16
    config.decoder.ffn_width = 4096
    config.decoder.dropout = 0.3
    config.decoder.language_width = 32
    config.decoder.language_at = "memory"
    config.decoder.share_embeddings = False
    config.decoder.published_parameters = False
    config.decoder.init_stddev = 0.02

    config.objective = ConfigDict()
    config.objective.translation_weight = 1.0
    config.objective.label_smoothing = 0.1
    config.objective.decoder_bos = False
    config.objective.reduction = "sum"
    config.objective.distance_weight = 0.0
    config.objective.margin = 0.5
    config.objective.num_negatives = 20
    config.objective.negative_weight = 0.5  # lambda / beta
    config.objective.distance = "l2"
    config.objective.scale = "norm_of_mean"
    config.objective.stop_gradient_scale = False
    config.objective.negatives = "permutation"
    config.objective.max_logits = 1 << 26

    config.optimizer = ConfigDict({"name": "adamw"}, type_safe=True)
    config.optimizer.b1 = 0.9
    config.optimizer.b2 = 0.98
    config.optimizer.eps = 1e-8
    config.optimizer.weight_decay = 1e-4
    config.optimizer.clip_global_norm = 25.0

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
    config.train.export = "last"  # or "best", by best_metric

    config.evaluation = ConfigDict()
    config.evaluation.retrieval = ()  # TSV files with one column a language

    config.mesh = ConfigDict()
    config.mesh.data = -1
    config.mesh.fsdp = 1
    return config.lock()


def set_width(config: ConfigDict, *, width: int, layers: int, heads: int, ffn_width: int) -> None:
    """Sets encoder and decoder to the same width; `layers` is the encoder's depth.

    Matrices start with 0.02 · √(1024 / width): the published spread relative to the width. With a
    plain 0.02 a narrow model starts with sentence vectors that are all but equal.
    """
    config.encoder.layers = layers
    for side in (config.encoder, config.decoder):
        side.width, side.heads, side.ffn_width = width, heads, ffn_width
        side.init_stddev = round(0.02 * (1024 / width) ** 0.5, 4)


def apply_size(config: ConfigDict, size: str) -> None:
    """Scales a T-LASER config.

    Args:
        config: changed in place.
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
        config.data.bucket_lengths = (12, 20, 28, 36, 44, 52, 64, 80, 104)
        config.schedule.peak_value, config.schedule.warmup_steps = 2e-3, 100
        config.train.total_epochs, config.train.total_steps = 0.0, 1000
        config.train.evaluate_every_steps = config.train.checkpoint_every_steps = 250
    elif size == "smoke":
        set_width(config, width=32, layers=2, heads=2, ffn_width=64)
        config.vocab.size, config.vocab.sample_sentences = 300, 10_000
        config.data.bucket_lengths = (16, 32, 64)
        config.data.max_tokens, config.data.accumulation_steps = 512, 1
        config.schedule.warmup_steps = 5
        config.train.total_epochs, config.train.total_steps = 0.0, 8
        config.train.log_every_steps = 1
        config.train.evaluate_every_steps = config.train.checkpoint_every_steps = 4
