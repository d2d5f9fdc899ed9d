"""The quickstart: a small cT-LASER on translated software messages, five languages, two CPU cores.

Reproduces no paper; it shows that the method learns. Expected results and the time they take stand
in README.md, measured with the command below.

Hardware: 2 CPU cores, under ten minutes with download and evaluation.

    make quickstart

Beside ct_laser.py, because minutes are not days: a tiny model and vocabulary, all twenty
directions, a steep schedule, and a constraint that leads instead of following: with the published
weights it waits for translation to tell sentences apart (docs/experiments.md), which takes longer.
"""

from xling_jax.config import apply_size, default_config, set_width

LANGUAGES = ("en", "de", "fr", "es", "it")


def get_config(arg: str = ""):
    """The quickstart, or with `smoke` a few steps of it for tests."""
    if arg not in ("", "smoke"):
        raise ValueError(f"argument {arg!r} must be 'smoke' or nothing")
    config = default_config()
    apply_size(config, arg or "small")
    config.languages = LANGUAGES
    config.data.pairs = tuple(f"{a}-{b}" for a in LANGUAGES for b in LANGUAGES if a != b)
    config.cleaning.length_ratio_slack = 3  # short messages: "Save" / "Änderungen speichern"
    config.objective.translation.weight = 0.5
    config.objective.distance.weight = 40.0
    config.objective.distance.negative_weight = 4.0
    if arg == "smoke":
        return config
    set_width(config, width=128, layers=2, heads=4, ffn_width=256)
    config.vocab.size = 4000
    config.data.bucket_lengths = (8, 14, 24, 44)
    config.data.max_tokens = 2560
    config.schedule.peak_value, config.schedule.warmup_steps = 4e-3, 50
    config.train.total_steps = 700
    config.train.log_every_steps = 50
    config.train.evaluate_every_steps = config.train.checkpoint_every_steps = 350
    return config
