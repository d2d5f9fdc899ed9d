r"""Transformer layers on top of the static encoder: the same token vectors, in context.

The encoder starts out identical to that of static.py (`train.model_init`): pre-norm layers, whose
output is initially zero, add to the token vectors. It is trained with the contrastive loss of
static.py and by predicting the tokens of the translation from the sentence vector (XTR of Mao et
al. 2021).

Reproduces   No paper; see lab/experiments.
Data         As for static.py.
Hardware     A GPU. Two CPU cores train about 100 pairs per second, or 400 without XTR and with half
             the feed-forward width; static.py trains thousands.
Argument     `layers=N` (1).
Sizes        :paper (default), :smoke.

    xling train --config contextual --workdir runs/contextual \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)" --config.train.model_init=runs/static \
        --config.vocab.model=runs/static/vocab/sentencepiece.model
"""

from ml_collections import ConfigDict

from xling_jax.config import parse_argument
from xling_jax.configs import recipes


def get_config(arg: str = ""):
    """The static encoder with layers; `arg` gives the number of layers, the size, or both."""
    argument = parse_argument(arg, sizes=("paper", "smoke"), layers=1)
    width, heads, ffn_width = {"paper": (512, 8, 1024), "smoke": (32, 1, 64)}[argument.size]

    config = ConfigDict()
    config.languages = ("de", "en", "es", "fr", "it")
    config.dropout_generator = "hash"
    config.data = {"pairs": recipes.TEN_PAIRS, "batch_size": 512, "sampling_exponent": 0.5}
    config.data.bucket_lengths = (8, 12, 16, 24, 32, 48)
    config.cleaning = {"max_length_ratio": 100.0, "max_words": 300}
    config.vocab = {"size": 32_000, "model_type": "unigram", "sample_sentences": 1_000_000}

    config.encoder = {"family": "dual", "width": width, "layers": argument.layers, "heads": heads}
    config.encoder.update(ffn_width=ffn_width, dropout=0.0, attention_dropout=0.0)
    config.encoder.update(norm="pre", pooling="weighted_mean")

    config.objective = {"reduction": "mean"}
    config.objective.alignment = {"similarity": "cosine", "scale": 20.0, "ignore_equal": True}
    config.objective.token_distribution = {"weight": 0.1, "tasks": {"xtr": 1.0}}

    config.optimizer = {"name": "adam", "b1": 0.9, "b2": 0.98, "clip_global_norm": 1.0}
    config.schedule = {"name": "warmup_cosine_decay_schedule", "init_value": 0.0}
    config.schedule.update(peak_value=5e-4, warmup_steps=200)
    config.train = {"total_steps": 3000}

    if argument.size == "smoke":
        recipes.smoke_run(config)
        config.data.batch_size = 16
    return config
