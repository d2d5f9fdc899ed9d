"""The train state, and one update of it: gradients of sums, divided once, then the optimizer."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from xling_jax.sharding import batch_sharding, replicated, rows_over, state_sharding
from xling_jax.train.loss_scale import loss_scale, scale_metrics
from xling_jax.train.objective import LossFn
from xling_jax.train.optimizer import with_constants
from xling_jax.train.terms.term import Sums


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


class Steps(NamedTuple):
    """The compiled functions of a run.

    Attributes:
        train: (state, batch, index) -> (state, sums); an update of one micro-batch.
        first: (state, batch, index) -> accumulator; the first of several micro-batches.
        more: (accumulator, state, batch, index) -> accumulator; adds one more.
        apply: (state, accumulator) -> (state, sums); completes an update of several.
    """

    train: Any
    first: Any
    more: Any
    apply: Any


def copy_to_devices(params: Any, mesh: Mesh) -> Any:
    """Makes the token table [rows, width] a copy for each device, [devices, rows, width].

    Of a table that is read as input and as output, each device then adds its two gradients, and
    what is communicated is their sum. XLA would communicate each of them.
    """
    table = params["encoder"]["embedding"]
    copies = jnp.broadcast_to(table, (mesh.size, *table.shape))
    copies = jax.lax.with_sharding_constraint(copies, batch_sharding(mesh))
    return {**params, "encoder": {**params["encoder"], "embedding": copies}}


def make_steps(
    loss_fn: LossFn,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    shapes: TrainState,
    seed: int,
    read_twice: bool = False,
    trained: Any = None,
) -> Steps:
    """Jits the step functions on a mesh; the old state and accumulator are donated.

    The randomness of micro-batch `index` (dropout, negatives) is a function of (seed, index). The
    gradients of an accumulator are multiplied by the loss scale, if the optimizer has one.
    `read_twice` says that `copy_to_devices` is to copy the token table. What is not `trained` (see
    `optimizer.trained_parts`; None for all), which the optimizer must not change, has no gradient.
    """
    optimizer = optax.with_extra_args_support(optimizer)
    state_shardings = state_sharding(mesh, shapes)
    everywhere, rows = replicated(mesh), batch_sharding(mesh)
    gathered = (state_shardings.params, everywhere)  # of an accumulator

    def loss_of_whole(params: Any, *arguments: Any):
        # Makes devices exchange parameters and gradients, never activations. Otherwise the compiler
        # may compute on parts of some arrays and gather the batch's states and logits.
        params = jax.lax.with_sharding_constraint(params, everywhere)
        if read_twice and mesh.size > 1:
            params = copy_to_devices(params, mesh)
        return loss_fn(params, *arguments)

    def gradients(state: TrainState, batch: Mapping[str, jax.Array], index: jax.Array):
        key = jax.random.fold_in(jax.random.key(seed), index)
        multiplier = loss_scale(state.opt_state)

        def loss(params: Any) -> tuple[jax.Array, Sums]:
            if trained is not None:
                params = with_constants(params, trained)
            value, sums = loss_of_whole(params, batch, key, True)
            return (value if multiplier is None else value * multiplier), sums

        with rows_over(mesh):
            (_, sums), gradient = jax.value_and_grad(loss, has_aux=True)(state.params)
        # The constraint above makes gradients replicated. Unless they are sharded before anything
        # else reads them, such as the norm, XLA cannot turn their all-reduce into a reduce-scatter.
        return jax.lax.with_sharding_constraint(gradient, state_shardings.params), sums

    def apply(state: TrainState, accumulator: tuple[Any, Sums]):
        gradient, sums = accumulator
        scale = 1.0 / jnp.maximum(sums["normalizer"], 1.0)
        if (multiplier := loss_scale(state.opt_state)) is not None:
            scale /= multiplier
        # Of the sums, which are in memory; what is divided is not, but a part of what reads it.
        norm = scale * optax.global_norm(gradient)
        gradient = jax.tree.map(lambda g: g * scale, gradient)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params, norm=norm)
        params = optax.apply_updates(state.params, updates)
        sums = sums | {"gradient_norm": norm}
        sums |= scale_metrics(state.opt_state, opt_state)
        return TrainState(state.step + 1, params, opt_state), sums

    def train(state: TrainState, batch: Mapping[str, jax.Array], index: jax.Array):
        return apply(state, gradients(state, batch, index))

    def more(accumulator, state, batch, index):
        return jax.tree.map(jnp.add, accumulator, gradients(state, batch, index))

    takes, updated = (state_shardings, rows, None), (state_shardings, everywhere)
    donates = functools.partial(jax.jit, donate_argnums=0)
    return Steps(
        train=donates(train, in_shardings=takes, out_shardings=updated),
        first=jax.jit(gradients, in_shardings=takes, out_shardings=gathered),
        more=donates(more, in_shardings=(gathered, *takes), out_shardings=gathered),
        apply=donates(apply, in_shardings=(state_shardings, gathered), out_shardings=updated),
    )
