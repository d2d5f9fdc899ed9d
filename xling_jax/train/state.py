"""The train state: updated by a step, stored in a checkpoint."""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from xling_jax.train.mesh import state_sharding


@flax.struct.dataclass
class TrainState:
    """Everything that changes from update to update: `step` int32, `params` nested float32 arrays.

    In float16 the state of the optimizer has the loss scale, see `train.loss_scale`.
    """

    step: jax.Array
    params: Any
    opt_state: Any


def abstract_state(
    init_params: Callable[[jax.Array], Any], optimizer: optax.GradientTransformation, seed: int
) -> tuple[Callable[[], TrainState], TrainState]:
    """Returns a function that creates the initial state, and the shapes of that state."""

    def init() -> TrainState:
        params = init_params(jax.random.key(seed))
        return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))

    return init, jax.eval_shape(init)


def sharded_shapes(mesh: Mesh, shapes: TrainState) -> TrainState:
    """Adds shardings to shapes, as needed to restore a checkpoint."""
    return jax.tree.map(
        lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding),
        shapes,
        state_sharding(mesh, shapes),
    )


def count_parameters(params: Any) -> int:
    """Number of scalars in a pytree of arrays or shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
