r"""No layers at all: the mean of weighted token vectors, trained by in-batch contrast.

Reproduces no paper. It is the baseline every larger encoder here is measured against: word
content alone goes very far in retrieval. 32,000 unigram pieces, 512 wide, one learned weight a
piece, cosine times 20, both directions, 1,024 pairs a batch, Adam 5e-3 with cosine decay.

`:phase=2` trains it on against more and harder negatives: 4,096 pairs a batch, an additive margin
of 0.2, equal sentences no negatives, a fifth of the tokens dropped, small pairs more often.

Hardware: two CPU cores; on 1.5 million pairs phase 1 took 61 minutes beside other work, phase 2 15.
Argument: `phase=1` (default) or 2, and a size: `paper` (default, two CPU cores) or `smoke`.

    xling train --config configs/static.py --workdir runs/static \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)" --config.train.total_steps=12000 \
        --config.schedule.decay_steps=12000
    xling train --config configs/static.py:phase=2 --workdir runs/static_2 \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)" --config.train.model_init=runs/static \
        --config.vocab.model=runs/static/vocab/sentencepiece.model
"""

from ml_collections import ConfigDict

from xling_jax.config import apply_size, dual_config, parse_argument

PAIRS = ("de-en", "de-es", "de-fr", "de-it", "en-es", "en-fr", "en-it", "es-fr", "es-it", "fr-it")


def get_config(arg: str = ""):
    """The baseline; `arg` gives the phase and a size."""
    argument = parse_argument(arg, phase=1)
    if argument["phase"] not in (1, 2):
        raise ValueError(f"config argument phase={argument['phase']} must be 1 or 2")
    config = dual_config(PAIRS, layers=0)
    config.data.bucket_lengths = (8, 12, 16, 24, 32, 48, 64, 96)
    config.data.batch_size = 1024
    config.data.sampling_exponent = 1.0
    config.cleaning.alphabet_only = False
    config.vocab.size, config.vocab.model_type = 32_000, "unigram"
    config.vocab.sample_sentences = 1_000_000
    config.encoder.init_stddev = 0.05
    config.objective.token_distribution.weight = 0.0
    config.objective.similarity_distribution.weight = 0.0
    config.objective.alignment.weight = 1.0
    config.objective.alignment.similarity = "cosine"
    config.objective.alignment.scale = 20.0
    config.optimizer = ConfigDict({"name": "adam", "b1": 0.9, "b2": 0.999})
    config.optimizer.clip_global_norm = config.optimizer.l2_penalty = 0.0
    config.schedule = ConfigDict({"name": "cosine_decay_schedule", "init_value": 5e-3})
    config.schedule.decay_steps = 12_000
    config.train.total_steps = 12_000
    if argument["phase"] == 2:
        config.data.batch_size, config.data.sampling_exponent = 4096, 0.7
        config.encoder.token_dropout, config.dropout_generator = 0.2, "hash"
        config.objective.alignment.margin = 0.2
        config.objective.alignment.ignore_equal = True
        config.schedule.init_value = 2e-3
        config.schedule.decay_steps = config.train.total_steps = 1_000
    apply_size(config, argument["size"])
    return config.lock()
