r"""Any encoder with any decoder, for comparisons that no paper makes.

Reproduces nothing. Pooling, objective terms and batches are keys as everywhere, so that one thing
changes at a time: a T-LASER encoder with mean pooling and LASER's decoder is

    xling train --config configs/mixed.py:encoder=tlaser,decoder=laser,small --workdir runs/mixed \
        --config.encoder.pooling=mean --config.data.corpora="('moses:corpora/europarl-v7.de-en', …)"

and `--config.objective.similarity.weight=1.0`, `--config.objective.distance.weight=0.25` or
`--config.data.both_directions=True` go with each. The recipe is T-LASER's.

Hardware: as t_laser.py.
Argument: `encoder=tlaser|laser` and `decoder=tlaser|laser` (defaults laser, tlaser), and a size as
in t_laser.py.
"""

from xling_jax.config import (
    apply_size,
    decoder_config,
    default_config,
    encoder_config,
    parse_argument,
)


def get_config(arg: str = ""):
    """T-LASER's recipe for the two families that `arg` names."""
    argument = parse_argument(arg, encoder="laser", decoder="tlaser")
    config = default_config()
    config.encoder = encoder_config(argument["encoder"])
    config.decoder = decoder_config(argument["decoder"])
    config.train.total_epochs = 20.0
    apply_size(config, argument["size"])
    return config.lock()
