"""Optimizers and schedules: those of optax by name, PyTorch's amsgrad, and two schedules."""

import inspect
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib

from xling_jax import options
from xling_jax.registry import check_choice


def warmup_inverse_sqrt_schedule(
    peak_value: float, warmup_steps: int, init_value: float = 1e-7, min_value: float = 1e-9
) -> optax.Schedule:
    """Linear from `init_value` to `peak_value`, then peak · √(warmup_steps / step) ≥ `min_value`.

    fairseq's `inverse_sqrt`; T-LASER uses 1e-7, 5e-4 and 4,000 updates.
    """
    options.check_number(warmup_steps, "schedule.warmup_steps", 1)

    def schedule(step):
        step = jnp.asarray(step, jnp.float32)
        warm = init_value + (peak_value - init_value) * step / warmup_steps
        decayed = peak_value * jnp.sqrt(warmup_steps / jnp.maximum(step, 1))
        return jnp.where(step < warmup_steps, warm, jnp.maximum(decayed, min_value))

    return schedule


def warmup_drop_schedule(
    peak_value: float, warmup_steps: int, drop_steps: int = 0, drop_factor: float = 0.1
) -> optax.Schedule:
    """Linear from 0 to `peak_value`, constant, then multiplied by `drop_factor`.

    Mao et al. (2021): 1e-3, 2,000 updates, a tenth from the fourth epoch (the seventh for en-it).
    `drop_steps` are the updates before the rate drops; 0 for never.
    """
    options.check_number(warmup_steps, "schedule.warmup_steps", 1)

    def schedule(step):
        step = jnp.asarray(step, jnp.float32)
        value = peak_value * jnp.minimum(1.0, (step + 1) / warmup_steps)
        return jnp.where((step >= drop_steps) & (drop_steps > 0), drop_factor * value, value)

    return schedule


# Names of the parameters that have a row for each token.
TOKEN_TABLES = ("embedding", "token_weight")

_DECAY_RATES = ("b1", "b2", "b3", "decay", "momentum")
_OWN_SCHEDULES = {f.__name__: f for f in (warmup_drop_schedule, warmup_inverse_sqrt_schedule)}


def find_schedule(name: str) -> Callable[..., optax.Schedule]:
    """The function that makes a schedule: one of the two above or any of optax."""
    suffixes = ("_schedule", "_decay")
    known = [k for k in dir(optax.schedules) if k.endswith(suffixes) and not k.startswith("_")]
    check_choice("schedule.name", name, [*_OWN_SCHEDULES, *known])
    return _OWN_SCHEDULES.get(name) or getattr(optax.schedules, name)


def make_schedule(name: str, **arguments: Any) -> optax.Schedule:
    """Makes a learning-rate schedule by name, with arguments of that function, durations in steps.

    ValueError for an unknown name or argument, or arguments that do not fit each other.
    """
    for key, value in arguments.items():
        options.check_number(value, f"schedule.{key}", at_least=0)
    try:
        schedule = options.make(find_schedule(name), arguments, "schedule")
        schedule(0)
        return schedule
    except (TypeError, ValueError) as error:
        if str(error).startswith("schedule."):
            raise
        given = ", ".join(f"{key}={value}" for key, value in arguments.items())
        raise ValueError(
            f"schedule.name={name!r} cannot have {given}: {error} Change one of these; what is "
            "not set may follow from train.total_steps"
        ) from error


def amsgrad(
    learning_rate: optax.ScalarOrSchedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformationExtraArgs:
    """Adam with the largest second moment so far, as in PyTorch's `Adam(amsgrad=True)`.

        v_max = max(v_max, v);  update = m / (1 - b1^t) / (sqrt(v_max / (1 - b2^t)) + eps)

    Optax takes the maximum after the bias correction. There the second moment of the first update
    is its squared gradient, so that a few large gradients, or the only one of a rare token, keep
    the steps of the whole run small.
    """

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        step = optax.safe_increment(state.count)
        mu = optax.tree.update_moment(gradients, state.mu, b1, 1)
        nu = optax.tree.update_moment(gradients, state.nu, b2, 2)
        largest = jax.tree.map(jnp.maximum, state.nu_max, nu)
        corrected = optax.tree.bias_correction(mu, b1, step)
        square = optax.tree.bias_correction(largest, b2, step)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), corrected, square)
        return updates, optax.ScaleByAmsgradState(step, mu, nu, largest)

    scale = optax.GradientTransformation(optax.scale_by_amsgrad().init, update)
    return optax.chain(scale, optax.scale_by_learning_rate(learning_rate))


def find_optimizer(name: str) -> Callable[..., optax.GradientTransformation]:
    """The optimizer of a name: `amsgrad` above, or one of `optax` or `optax.contrib`, such as muon.

    Raises ValueError for others.
    """
    own = {"amsgrad": amsgrad}.get(name)
    function = own or getattr(optax, name, None) or getattr(optax.contrib, name, None)
    if not callable(function) or "learning_rate" not in inspect.signature(function).parameters:
        raise ValueError(
            f"optimizer.name={name!r} must be an optimizer of optax or optax.contrib, such as "
            "adamw, adam, amsgrad, lion or muon"
        )
    return function


def make_optimizer(
    name: str,
    *,
    schedule: optax.Schedule,
    clip_global_norm: float = 0.0,
    l2_penalty: float = 0.0,
    **arguments: Any,
) -> optax.GradientTransformation:
    """Makes an optax optimizer with gradient clipping.

    Args:
        name: such as `adamw` (decoupled weight decay, as in fairseq's adam), `adam`, `amsgrad`.
        schedule: learning rate by update.
        clip_global_norm: largest global norm of the gradient; 0 disables clipping.
        l2_penalty: adds l2_penalty · parameters to the gradient after clipping (coupled weight
            decay, PyTorch's `weight_decay`).
        **arguments: of the optimizer (b1, b2, eps, weight_decay, …).

    ValueError for an unknown name or argument, a negative number, or a decay rate of 1 or more.
    """
    function = find_optimizer(name)
    numbers = {"clip_global_norm": clip_global_norm, "l2_penalty": l2_penalty, **arguments}
    for key, value in numbers.items():
        below = 1 if key in _DECAY_RATES else math.inf
        options.check_number(value, f"optimizer.{key}", at_least=0, below=below)
    try:
        optimizer = options.make(function, arguments, "optimizer", learning_rate=schedule)
        one = jnp.zeros(2)
        jax.eval_shape(lambda: optimizer.update(one, optimizer.init(one), one))
    except TypeError as error:
        raise ValueError(
            f"optimizer.name={name!r} does not work with gradients and a schedule ({error}); use "
            "another, such as adamw"
        ) from error
    before = []
    if clip_global_norm:
        before.append(clip_by_global_norm(clip_global_norm))
    if l2_penalty:
        before.append(optax.add_decayed_weights(l2_penalty))
    return optax.chain(*before, optimizer) if before else optimizer


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformationExtraArgs:
    """As optax's, with one factor for all gradients, computed first.

    XLA fuses a product with a number into each operation that reads its result. Optax divides
    every gradient by the norm, which XLA computes once and writes to memory. `update` takes the
    norm as `norm`, if it is known.
    """

    def update(
        gradients: Any, state: Any, params: Any = None, *, norm: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        norm = optax.global_norm(gradients) if norm is None else norm
        factor = max_norm / jnp.maximum(norm, max_norm)
        return jax.tree.map(lambda gradient: gradient * factor, gradients), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def trained_parts(params: Any, names: Collection[str] = (), first_row: int | None = None) -> Any:
    """What training changes of each parameter: True, False, or its rows as [rows, 1 ..] bool.

    Args:
        params: arrays or shapes.
        names: of parameters that stay, or of modules with all that is in them, wherever they are,
            or parts of paths, such as `encoder/blocks_0`.
        first_row: of the encoder, only the rows of token tables from this one on change; None for
            no more than the names.
    """

    def changes(path: Sequence[Any], leaf: Any) -> bool | np.ndarray:
        if is_named(path, names):
            return False
        if first_row is None or path[0].key != "encoder":
            return True
        if path[-1].key not in TOKEN_TABLES or first_row >= len(leaf):
            return False
        return np.expand_dims(np.arange(len(leaf)) >= first_row, (*range(1, leaf.ndim),))

    return jax.tree_util.tree_map_with_path(changes, params)


def _choose(trained: Any, changing: Any, fixed: Any) -> Any:
    """The elements of one tree that `trained_parts` names, and the others of another."""

    def choose(part: bool | np.ndarray, changing: jax.Array, fixed: jax.Array) -> jax.Array:
        if isinstance(part, bool):
            return changing if part else fixed
        return jnp.where(part, changing, fixed)

    return jax.tree.map(choose, trained, changing, fixed)


def frozen(
    optimizer: optax.GradientTransformation, trained: Any
) -> optax.GradientTransformationExtraArgs:
    """The optimizer that changes only `trained_parts`; parameters that stay have no state.

    A gradient of zero, as of `with_constants`, does not suffice: weight decay changes them as well.
    """
    labels = jax.tree.map(lambda part: "kept" if part is False else "trained", trained)
    optimizer = optax.partition({"trained": optimizer, "kept": optax.set_to_zero()}, labels)

    def update(gradients: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params, **more)
        return _choose(trained, updates, jax.tree.map(jnp.zeros_like, updates)), state

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def with_constants(params: Any, trained: Any) -> Any:
    """The parameters; those that `frozen` keeps have no gradient, and it is not computed."""
    return _choose(trained, params, jax.lax.stop_gradient(params))


def is_named(path: Sequence[Any], names: Collection[str]) -> bool:
    """Returns whether the path of a parameter holds one of the names, or parts of paths."""
    whole = f"/{'/'.join(entry.key for entry in path)}/"
    return any(f"/{name}/" in whole for name in names)
