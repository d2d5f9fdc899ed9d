"""Settings that do not fit each other, found before hours of preparation."""

import jax
from ml_collections import ConfigDict

from xling_jax import options
from xling_jax.train.batches import DataSettings
from xling_jax.train.build import VocabFacts, build_objective, init_params
from xling_jax.train.durations import Epoch, resolve, resolve_schedule, run_length
from xling_jax.train.mesh import make_mesh
from xling_jax.train.optimizer import make_optimizer, make_schedule
from xling_jax.train.settings import TrainSettings

# Stands for the length of a pass over data that are not prepared yet.
ASSUMED_EPOCH = Epoch(steps=10_000.0, examples=1_000_000)


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
    data = options.build(DataSettings, config.data, "data")
    check_batch_multiple(data.batch_multiple)
    total = run_length(config.train, ASSUMED_EPOCH)
    options.build(TrainSettings, resolve(config.train, "train", ASSUMED_EPOCH, total), "train")
    make_mesh(**config.mesh)
    schedule = make_schedule(**resolve_schedule(config.schedule, ASSUMED_EPOCH, total))
    make_optimizer(schedule=schedule, **config.optimizer)
    objective = build_objective(config, VocabFacts(config.vocab.size))
    jax.eval_shape(init_params(objective.setting.model), jax.random.key(0))
