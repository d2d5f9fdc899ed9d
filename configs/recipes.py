"""Pieces shared by several configs, each short enough to read alongside them."""

from collections.abc import Sequence

from ml_collections import ConfigDict

SIZES = ("paper", "base", "small", "smoke")

# The eight directions of Li and Mak (2020), drawn uniformly.
EUROPARL_PAIRS = ("de-en", "de-es", "en-es", "es-en", "fr-en", "fr-es", "it-en", "it-es")

# Ten pairs of five languages, each listed once, because contrastive batches train both sides.
TEN_PAIRS = ("de-en", "de-es", "de-fr", "de-it", "en-es", "en-fr", "en-it", "es-fr", "es-it")
TEN_PAIRS += ("fr-it",)

# The published corpora were filtered by length and length ratio only, and kept duplicates.
UNFILTERED = {"drop_duplicates": False, "drop_identical": False, "require_letters": False}
UNFILTERED |= {"min_script_share": 0.0, "max_chars": 10_000}


def europarl(pairs: Sequence[str]) -> tuple[str, ...]:
    """Europarl v7 as a corpus for each of the pairs, whatever their direction."""
    ordered = ("-".join(sorted(pair.split("-"))) for pair in pairs)
    return tuple(f"tfds:europarl_v7/{pair}" for pair in dict.fromkeys(ordered))


def relative(spread: float, width: int) -> float:
    """Scales a published initial spread, for width 1024, to another width.

    With the unscaled value, a narrow model starts with nearly identical sentence vectors.
    """
    return round(spread * (1024 / width) ** 0.5, 4)


def translation_run(config: ConfigDict, size: str) -> None:
    """Vocabulary, filters, batches, rate and duration of LASER and T-LASER at a size.

    Paper: text split by Moses, 50,000 BPE operations, 128,000 tokens per update in 32 micro-batches
    of one pair each, 20 epochs of Europarl v7, of which the papers compare epochs 10 to 20 on
    MLDoc's dev text. Small: a rate of 2e-3, β = 1 and λ = 8 β, with which runs of minutes learned
    most (lab/experiments).
    """
    config.vocab = {"size": 50_000, "model_type": "bpe"}
    config.data.max_tokens, config.data.accumulation_steps = 4096, 32
    config.train = {"total_epochs": 20.0, "keep_every_epochs": 1.0, "keep_from_epochs": 10.0}
    config.train.evaluate_every_epochs = 1.0
    if size == "paper":
        config.vocab.moses = True
        config.cleaning.update(UNFILTERED)
    if size == "base":  # a day on one GPU
        config.vocab.size = 32_000
        config.data.max_tokens, config.data.accumulation_steps = 16_384, 4
        config.train = {"total_steps": 100_000, "keep_every_percent": 5.0}
        config.train.keep_from_percent = 50.0
    elif size == "small":  # minutes on two CPU cores
        small_run(config)
        config.train.update(keep_every_percent=25.0, keep_from_percent=50.0)
        config.data.max_tokens, config.data.accumulation_steps = 2048, 1
        config.cleaning.length_ratio_slack = 3  # keeps more short sentences
        if "warmup_steps" in config.schedule:
            config.schedule.peak_value, config.schedule.warmup_steps = 2e-3, 100
        else:
            config.schedule.value = 2e-3
        if "distance" in config.objective:  # as published, it first draws all sentences together
            config.objective.distance.update(weight=1.0, negative_weight=8.0)
    elif size == "smoke":  # seconds, for tests
        smoke_run(config)
        config.data.max_tokens, config.data.accumulation_steps = 512, 1


def small_vocab(config: ConfigDict) -> None:
    """4,000 pieces, from all pairs equally, so that no language is split into letters."""
    config.vocab.update(size=4000, sample_sentences=400_000, sampling_exponent=0.0)


def small_run(config: ConfigDict) -> None:
    """4,000 pieces and 1,000 updates, on a CPU."""
    small_vocab(config)
    config.dropout_generator = "hash"
    config.train = {"total_steps": 1000, "evaluate_every_steps": 250, "checkpoint_every_steps": 250}


def smoke_run(config: ConfigDict) -> None:
    """Eight updates of any config."""
    config.vocab.update(size=300, sample_sentences=10_000)
    config.data.bucket_lengths = (16, 32, 64)
    if "warmup_steps" in config.schedule:
        config.schedule.warmup_steps = 5
    config.train = {"total_steps": 8, "log_every_steps": 1}
    config.train.evaluate_every_steps = config.train.checkpoint_every_steps = 4
