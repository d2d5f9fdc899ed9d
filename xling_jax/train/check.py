"""Settings that do not fit each other or the devices, found before hours of preparation."""

import jax
from ml_collections import ConfigDict

from xling_jax.train.build import build
from xling_jax.train.mesh import make_mesh


def check_batch_multiple(batch_multiple: int) -> None:
    """Raises ValueError if the devices cannot share a batch evenly."""
    devices = jax.device_count()
    if batch_multiple % devices:
        raise ValueError(
            f"data.batch_multiple={batch_multiple} must be a multiple of the {devices} devices "
            f"that share a batch; use {-(-batch_multiple // devices) * devices}"
        )


def check_config(config: ConfigDict) -> None:
    """Builds everything a config describes that needs no data, in the abstract.

    Args:
        config: completed, see `xling_jax.config`.

    Raises:
        ValueError: for the first thing that cannot be built.
    """
    check_batch_multiple(build(config).data.batch_multiple)
    make_mesh(**config.mesh)
