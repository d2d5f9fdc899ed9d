r"""cLASER_6 (Li and Mak 2020): LASER_6 with the distance constraint of cT-LASER.

Reproduces: Table 4, row cLASER_6: MLDoc accuracy cross 72.6, same 87.8, all 75.6, which is 2.3
cross-lingual points above LASER_6. Expect within 1.5 points. MLDoc's texts are licensed and not
part of this repository.

Hardware: one Titan RTX, 9,600 words a second in the paper, about 12 hours an epoch of Europarl v7.
Argument: `layers=N` (default 6), and a size as in laser.py.

    xling train --config configs/claser.py --workdir runs/claser_6 \
        --config.data.corpora="('moses:corpora/europarl-v7.de-en', …)"
"""

from xling_jax.config import apply_size, laser_config, parse_argument


def get_config(arg: str = ""):
    """The published setting; `arg` gives the depth, the size, or both."""
    argument = parse_argument(arg, layers=6)
    config = laser_config(argument["layers"])
    config.objective.translation.weight = 0.5
    config.objective.distance.weight = 0.25
    config.train.total_epochs = 20.0
    apply_size(config, argument["size"])
    return config
