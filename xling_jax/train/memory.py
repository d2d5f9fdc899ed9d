"""Memory of one device in an update: what the state takes, and what XLA plans beside it."""

from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from xling_jax.train.mesh import state_sharding
from xling_jax.train.state import TrainState


class Memory(NamedTuple):
    """Bytes of one device.

    Attributes:
        parameters: its share of them.
        optimizer_state: of that.
        gradients: of those, summed over micro-batches, float32.
        temporaries: everything else alive at the worst moment: activations, and with fsdp the whole
            parameters in use. Not from the shapes but XLA's plan, 0 before there is one.
    """

    parameters: int
    optimizer_state: int
    gradients: int
    temporaries: int = 0


def share_bytes(mesh: Mesh, shapes: Any) -> int:
    """Bytes of one device's part of a train state, or of a part of it.

    Args:
        mesh: from `make_mesh`, or abstract.
        shapes: pytree of arrays or shapes.
    """
    shardings = jax.tree.leaves(state_sharding(mesh, shapes))
    return sum(
        _bytes(leaf, sharding.shard_shape(leaf.shape))
        for leaf, sharding in zip(jax.tree.leaves(shapes), shardings, strict=True)
    )


def whole_bytes(mesh: Mesh, shapes: Any) -> int:
    """Bytes of arrays that every device holds in whole although fsdp splits others.

    See `share_bytes` for the arguments.
    """
    shardings = jax.tree.leaves(state_sharding(mesh, shapes))
    leaves = zip(jax.tree.leaves(shapes), shardings, strict=True)
    return sum(_bytes(leaf, leaf.shape) for leaf, split in leaves if split.is_fully_replicated)


def _bytes(array: Any, shape: tuple[int, ...]) -> int:
    size = array.dtype.itemsize
    for axis in shape:
        size *= axis
    return size


def state_memory(mesh: Mesh, shapes: TrainState) -> Memory:
    """What state and gradients take; needs no devices with an abstract mesh."""
    parameters = share_bytes(mesh, shapes.params)
    return Memory(parameters, share_bytes(mesh, shapes.opt_state), parameters)


def update_memory(mesh: Mesh, shapes: TrainState, compiled: Any, accumulates: bool) -> Memory:
    """State, gradients and the temporaries of a compiled update.

    Args:
        mesh: it was compiled for.
        shapes: abstract state.
        compiled: `Steps.train`, or `Steps.more` of an update of several micro-batches.
        accumulates: it is `Steps.more`, whose gradients are arguments, not temporaries.
    """
    memory = state_memory(mesh, shapes)
    analysis = compiled.memory_analysis()
    planned = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
    planned -= analysis.alias_size_in_bytes
    return memory._replace(temporaries=max(0, planned - (0 if accumulates else memory.gradients)))
