r"""cT-LASER on two languages, English and Spanish, in both directions (Li and Mak 2020, Table 6).

Reproduces: Table 6 after 10 epochs, MLDoc accuracy: cT-LASER en-es 68.0, es-en 67.7, same 90.0;
with `:objective=t_laser` (no constraint) 42.8, 60.6 and 89.4. The effect is largest here: two
languages give translation alone little reason to share a space. Expect within 3 points.

Hardware: one GPU with 24 GB, about 2 hours an epoch (estimated from the paper's words per second).
Argument: `objective=ct_laser` (default) or `objective=t_laser`, and a size of ct_laser.py.

    xling train --config configs/ct_laser_bilingual.py --workdir runs/en_es \
        --config.data.corpora="('moses:corpora/europarl-v7.es-en',)"
"""

from xling_jax.config import apply_size, default_config, parse_argument

OBJECTIVES = ("t_laser", "ct_laser")


def get_config(arg: str = ""):
    """The published setting; `arg` gives the objective, the size, or both."""
    argument = parse_argument(arg, objective="ct_laser")
    if argument["objective"] not in OBJECTIVES:
        raise ValueError(f"objective={argument['objective']!r} must be one of {OBJECTIVES}")
    config = default_config()
    config.languages = ("en", "es")
    config.data.pairs = ("en-es", "es-en")
    if argument["objective"] == "ct_laser":
        config.objective.translation.weight = 0.5
        config.objective.distance.weight = 0.25
    config.train.total_epochs = 10.0
    apply_size(config, argument["size"])
    return config
