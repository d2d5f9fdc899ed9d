r"""T-LASER (Li and Mak 2020), trained by translation alone.

Reproduces: Table 4, row T-LASER: MLDoc accuracy cross 73.5, same 88.6, all 76.5 (mean over
languages, model chosen on dev). Runs of the paper differ by a few tenths; expect within 1.5 points.
MLDoc's texts are licensed and not part of this repository.

Hardware: the paper trained 13 epochs of Europarl v7 on one Titan RTX, about 5 hours an epoch.
Sizes: `:paper` (default), `:base` (one GPU), `:small` (two CPU cores, minutes), `:smoke`.

    xling train --config configs/t_laser.py --workdir runs/t_laser \
        --config.data.corpora="('moses:corpora/europarl-v7.de-en', …)"
"""

from xling_jax.config import apply_size, default_config, parse_argument


def get_config(arg: str = ""):
    """The published setting; `arg` is a size."""
    argument = parse_argument(arg)
    config = default_config()
    config.train.total_epochs = 20.0
    apply_size(config, argument["size"])
    return config
