"""Settings that do not fit each other, found before hours of preparation."""

import jax
from ml_collections import ConfigDict

from xling_jax.train.batching import make_buckets
from xling_jax.train.build import build, init_params
from xling_jax.train.mesh import make_mesh
from xling_jax.train.optimizer import make_optimizer, make_schedule
from xling_jax.train.pairs import READERS, training_directions

_POSITIVE = ("log_every_steps", "evaluate_every_steps", "checkpoint_every_steps", "keep_last")
_IDS = {"bos": 0, "pad": 1, "eos": 2, "mask": 4}


def check_duration(config: ConfigDict) -> None:
    """Raises ValueError unless one of `train.total_steps` and `train.total_epochs` is set."""
    steps, epochs = config.train.total_steps, config.train.total_epochs
    if bool(steps) == bool(epochs) or steps < 0 or epochs < 0:
        raise ValueError(
            f"set one of train.total_steps={steps} and train.total_epochs={epochs} to a positive "
            "number and the other to 0"
        )


def check_batch_multiple(config: ConfigDict) -> None:
    """Raises ValueError if the devices cannot share a batch evenly."""
    devices, multiple = jax.device_count(), config.data.batch_multiple
    if multiple % devices:
        raise ValueError(
            f"data.batch_multiple={multiple} must be a multiple of the {devices} devices that "
            f"share a batch; use {-(-multiple // devices) * devices}"
        )


def check_config(config: ConfigDict) -> None:
    """Builds everything a config describes that needs no data, in the abstract.

    Raises:
        ValueError: for the first thing that cannot be built.
    """
    for name in _POSITIVE:
        if config.train[name] < 1:
            raise ValueError(f"train.{name}={config.train[name]} must be at least 1")
    if config.data.accumulation_steps < 1 or config.data.batch_multiple < 1:
        raise ValueError("data.accumulation_steps and data.batch_multiple must be at least 1")
    if config.train.export not in ("last", "best"):
        raise ValueError(f"train.export={config.train.export!r} must be 'last' or 'best'")
    if config.train.export == "best" and not config.train.best_metric:
        raise ValueError("train.export='best' needs train.best_metric, e.g. 'dev/p_at_1'")
    if config.data.reader not in READERS:
        raise ValueError(f"data.reader={config.data.reader!r} must be one of {', '.join(READERS)}")
    check_duration(config)
    check_batch_multiple(config)
    make_mesh(**config.mesh)
    make_buckets(
        config.data.bucket_lengths,
        config.data.max_tokens,
        config.data.batch_multiple,
        config.data.batch_size,
    )
    training_directions(config.data.pairs, config.data.both_directions)
    make_optimizer(schedule=make_schedule(**config.schedule), **config.optimizer)
    model, _ = build(config, config.vocab.size, _IDS)
    jax.eval_shape(init_params(model), jax.random.key(0))
