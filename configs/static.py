r"""The static encoder: a weighted mean of token vectors, trained with in-batch negatives.

The baseline for all larger encoders: word content alone goes very far in retrieval. 32,000 unigram
pieces of width 512 with one learned weight per piece; cosine times 20, both directions, 1,024 pairs
per batch, Adam at 5e-3 with cosine decay. `--config.encoder.features="('pairs',)"` adds vectors of
neighboring pieces.

`:phase=2` continues with more and harder negatives: 4,096 pairs per batch, an additive margin of
0.2, no equal sentences as negatives, a fifth of the tokens dropped, small language pairs upsampled.

Reproduces   No paper. Measured on 1.5 million pairs: Tatoeba error 4.8 (phase 2: 4.6), PUD P@1
             98.2 (98.8); lab/experiments.
Data         Parallel text in de, en, es, fr and it.
Hardware     Two CPU cores; phase 1 took 61 minutes on a shared machine, phase 2 15.
Argument     `phase=1` (default) or 2.
Sizes        :paper (default, an hour on two CPU cores), :smoke.

    xling train --config static --workdir runs/static \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)"
    xling train --config static:phase=2 --workdir runs/static_2 \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)" --config.train.model_init=runs/static \
        --config.vocab.model=runs/static/vocab/sentencepiece.model
"""

from ml_collections import ConfigDict

from xling_jax.config import parse_argument
from xling_jax.configs import recipes


def get_config(arg: str = ""):
    """The baseline; `arg` gives the phase and a size."""
    argument = parse_argument(arg, sizes=("paper", "smoke"), phase=(1, 2))

    config = ConfigDict()
    config.languages = ("de", "en", "es", "fr", "it")
    config.data = {"pairs": recipes.TEN_PAIRS, "batch_size": 1024, "sampling_exponent": 1.0}
    config.data.update(bucket_lengths=(8, 12, 16, 24, 32, 48, 64, 96), truncate=True)
    config.cleaning = {"max_length_ratio": 100.0, "max_words": 300}
    config.vocab = {"size": 32_000, "model_type": "unigram", "sample_sentences": 1_000_000}

    config.encoder = {"family": "static", "width": 512}

    config.objective = {"reduction": "mean"}
    config.objective.alignment = {"similarity": "cosine", "scale": 20.0}

    config.optimizer = {"name": "adam", "b1": 0.9, "b2": 0.999}
    config.schedule = {"name": "cosine_decay_schedule", "init_value": 5e-3}
    config.train = {"total_steps": 12_000}

    if argument.phase == 2:
        config.data.batch_size, config.data.sampling_exponent = 4096, 0.7
        config.encoder.token_dropout, config.dropout_generator = 0.2, "hash"
        config.objective.alignment.update(margin=0.2, ignore_equal=True)
        config.schedule.init_value = 2e-3
        config.train.total_steps = 1000
    if argument.size == "smoke":
        recipes.smoke_run(config)
        config.encoder.width, config.data.batch_size = 32, 16
    return config
