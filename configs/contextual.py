r"""Transformer layers on top of the static encoder: the same vectors, read in context.

Reproduces no paper. The encoder begins as that of static.py exactly (`train.model_init`): layers
have their norms in front and add to the token vectors, beginning with nothing. Contrast as in
static.py, and the tokens of the translation predicted from the sentence vector (XTR of Mao et al.
2021).

Hardware: a GPU. Two CPU cores train about 100 pairs a second, 400 without the predicted tokens and
with half the inner width (docs/experiments.md), where static.py trains thousands.
Argument: `layers=N` (1), and a size: `paper` (default) or `smoke`.

    xling train --config configs/contextual.py --workdir runs/contextual \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)" --config.train.model_init=runs/static \
        --config.vocab.model=runs/static/vocab/sentencepiece.model
"""

from ml_collections import ConfigDict

from xling_jax.config import apply_size, dual_config, parse_argument

PAIRS = ("de-en", "de-es", "de-fr", "de-it", "en-es", "en-fr", "en-it", "es-fr", "es-it", "fr-it")


def get_config(arg: str = ""):
    """The static encoder with layers; `arg` gives their number and a size."""
    argument = parse_argument(arg, layers=1)
    config = dual_config(PAIRS, argument["layers"])
    config.data.bucket_lengths = (8, 12, 16, 24, 32, 48)
    config.data.batch_size, config.data.truncate = 512, False
    config.data.sampling_exponent = 0.5
    config.cleaning.alphabet_only = False
    config.vocab.size, config.vocab.model_type = 32_000, "unigram"
    config.vocab.sample_sentences = 1_000_000
    config.encoder.norm, config.encoder.pooling = "pre", "weighted_mean"
    config.encoder.dropout = config.encoder.attention_dropout = 0.0
    config.dropout_generator = "hash"
    config.objective.token_distribution.task = "xtr"
    config.objective.token_distribution.weight = 0.1
    config.objective.similarity_distribution.weight = 0.0
    config.objective.alignment.weight = 1.0
    config.objective.alignment.similarity = "cosine"
    config.objective.alignment.scale = 20.0
    config.objective.alignment.ignore_equal = True
    config.optimizer = ConfigDict({"name": "adam", "b1": 0.9, "b2": 0.98})
    config.optimizer.clip_global_norm, config.optimizer.l2_penalty = 1.0, 0.0
    config.schedule = ConfigDict({"name": "warmup_cosine_decay_schedule", "init_value": 0.0})
    config.schedule.peak_value, config.schedule.warmup_steps = 5e-4, 200
    config.schedule.decay_steps = config.train.total_steps = 3_000
    apply_size(config, argument["size"])
    return config.lock()
