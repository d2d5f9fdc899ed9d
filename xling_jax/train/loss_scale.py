"""Dynamic loss scaling, for gradients in float16 (Micikevicius et al. 2018, section 3.2).

Below 6e-8 float16 is 0 and above 65,504 infinite. The loss is multiplied by a scale, so that the
gradients of the backward pass lie between, and the summed gradient of an update is divided by it.
If that gradient is not finite, the update is skipped and the scale halved; after `_GROWTH_UPDATES`
good updates it is doubled.

`flax.training.dynamic_scale` does the same for a single gradient; it cannot judge the sum over the
micro-batches of an update.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

# Choice: between fairseq's 2^7 and PyTorch's 2^16. If it is too large, every halving costs one
# update; if it is too small, every doubling takes 2,000, in which small gradients are lost.
INITIAL_SCALE = 2.0**15
# PyTorch's; fairseq's is 2^14 micro-batches, about 2,000 updates on the 8 GPUs of a machine.
_GROWTH_UPDATES = 2000
# fairseq's. Gradients that overflow with it are infinite before any scaling.
MINIMUM_SCALE = 1e-4
# Choice: PyTorch and fairseq have no maximum. Where nothing overflows in float16, as with sums of
# table rows, the scaled gradients would grow until the square of their norm overflows float32.
MAXIMUM_SCALE = 2.0**24


class LossScaled(NamedTuple):
    """The state of an optimizer, and the loss scale, a power of two.

    `good_updates` counts those since the scale last changed; both are scalars, float32 and int32.
    """

    inner: Any
    scale: jax.Array
    good_updates: jax.Array


def with_loss_scale(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """Skips updates whose gradient is not finite, and adapts the scale of the loss.

    The gradient comes divided by the scale. In a skipped update the optimizer's state, with its
    moments and the count of its schedule, stays as it is.
    """
    optimizer = optax.with_extra_args_support(optimizer)

    def init(params: Any) -> LossScaled:
        scale = jnp.full((), INITIAL_SCALE, jnp.float32)
        return LossScaled(optimizer.init(params), scale, jnp.zeros((), jnp.int32))

    def update(
        gradient: Any, state: LossScaled, params: Any, **more: Any
    ) -> tuple[Any, LossScaled]:
        finite = all_finite(gradient)
        updates, inner = optimizer.update(gradient, state.inner, params, **more)
        updates = jax.tree.map(lambda new: jnp.where(finite, new, 0), updates)
        inner = jax.tree.map(lambda new, old: jnp.where(finite, new, old), inner, state.inner)
        good = state.good_updates + 1
        grows = good == _GROWTH_UPDATES
        factor = jnp.where(finite, jnp.where(grows, 2.0, 1.0), 0.5)
        good = jnp.where(finite & ~grows, good, 0)
        return updates, LossScaled(inner, jnp.minimum(state.scale * factor, MAXIMUM_SCALE), good)

    return optax.GradientTransformationExtraArgs(init, update)


def all_finite(arrays: Any) -> jax.Array:
    """Whether all numbers in a pytree are finite."""
    return jnp.all(jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(arrays)]))


def loss_scale(opt_state: Any) -> jax.Array | None:
    """The scale of the loss, None if it is not scaled."""
    return opt_state.scale if isinstance(opt_state, LossScaled) else None


def scale_metrics(before: Any, after: Any) -> dict[str, jax.Array]:
    """Metrics of an update, from the optimizer states before and after it; {} without a scale."""
    if not isinstance(after, LossScaled):
        return {}
    skipped = after.scale < before.scale
    return {"loss_scale": after.scale, "skipped_updates": skipped.astype(jnp.float32)}
