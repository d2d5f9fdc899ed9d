import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, AxisType

from xling_jax.sharding import AXES, make_mesh
from xling_jax.train.optimizer import frozen, make_optimizer, trained_parts
from xling_jax.train.step import abstract_state, make_steps

START = np.array([1.0, -2.0, 0.5], np.float32)


def loss_fn(params, batch, key, train):
    """Weighted least squares, summed over rows."""
    del train
    error = batch["inputs"] @ params["w"] - batch["targets"]
    loss = 0.5 * (batch["weights"] * error**2).sum()
    return loss, {
        "loss": loss,
        "normalizer": batch["weights"].sum(),
        "draw": jax.random.normal(key),
    }


def make_batch(seed, rows=4):
    random = np.random.default_rng(seed)
    draw = lambda *shape: random.normal(size=shape).astype(np.float32)
    weights = (random.random(rows) < 0.7).astype(np.float32)
    return {"inputs": draw(rows, 3), "targets": draw(rows), "weights": weights}


def gradient_of(batch, params):
    """Sum of the gradients over rows, and the normalizer, in float64."""
    x, y, weights = (batch[k].astype(np.float64) for k in ("inputs", "targets", "weights"))
    return (weights * (x @ params - y)) @ x, weights.sum()


def make(optimizer, seed=0):
    def init_params(key):
        del key
        return {"w": jnp.asarray(START)}

    init, shapes = abstract_state(init_params, optimizer, seed)
    return init(), make_steps(loss_fn, optimizer, make_mesh(1, 1), shapes, seed)


def test_an_update_divides_the_summed_gradient_by_the_normalizer():
    state, steps = make(optax.sgd(0.1))
    batch = make_batch(0)
    state, sums = steps.train(state, batch, np.int32(0))
    gradient, normalizer = gradient_of(batch, START)
    np.testing.assert_allclose(state.params["w"], START - 0.1 * gradient / normalizer, rtol=1e-5)
    np.testing.assert_allclose(
        sums["gradient_norm"], np.linalg.norm(gradient / normalizer), rtol=1e-5
    )
    assert state.step == 1


def test_clipping_comes_after_the_division():
    state, steps = make(make_optimizer("sgd", schedule=lambda _: 0.1, clip_global_norm=0.25))
    batch = make_batch(0)
    state, sums = steps.train(state, batch, np.int32(0))
    gradient, normalizer = gradient_of(batch, START)
    gradient = gradient / normalizer
    norm = np.linalg.norm(gradient)
    assert norm > 0.25
    expected = START - 0.1 * gradient * 0.25 / norm
    np.testing.assert_allclose(state.params["w"], expected, rtol=1e-5)
    np.testing.assert_allclose(sums["gradient_norm"], norm, rtol=1e-5)  # as it was


def test_what_is_not_trained_counts_neither_in_the_norm_nor_in_clipping():
    def with_bias(params, batch, key, train):
        loss, sums = loss_fn({"w": params["w"]}, batch, key, train)
        return loss + 100 * params["b"].sum(), sums

    optimizer = make_optimizer("sgd", schedule=lambda _: 0.1, clip_global_norm=0.25)
    init_params = lambda key: {"w": jnp.asarray(START), "b": jnp.ones(2)}
    trained = trained_parts(init_params(None), ("b",))
    init, shapes = abstract_state(init_params, frozen(optimizer, trained), 0)
    arguments = (frozen(optimizer, trained), make_mesh(1, 1), shapes, 0)
    steps = make_steps(with_bias, *arguments, trained=trained)
    state, sums = steps.train(init(), make_batch(0), np.int32(0))
    alone, steps = make(optimizer)
    alone, expected = steps.train(alone, make_batch(0), np.int32(0))
    np.testing.assert_allclose(sums["gradient_norm"], expected["gradient_norm"], rtol=1e-6)
    np.testing.assert_allclose(state.params["w"], alone.params["w"], rtol=1e-6)
    np.testing.assert_array_equal(state.params["b"], np.ones(2))


def test_accumulated_micro_batches_equal_one_large_batch():
    one, two = make_batch(0), make_batch(1)
    assert one["weights"].sum() != two["weights"].sum()  # means of means would differ
    double = {k: np.concatenate([one[k], two[k]]) for k in one}
    state, steps = make(optax.adam(0.1))
    accumulator = steps.first(state, one, np.int32(0))
    accumulator = steps.more(accumulator, state, two, np.int32(1))
    accumulated, sums = steps.apply(state, accumulator)
    state, steps = make(optax.adam(0.1))
    whole, whole_sums = steps.train(state, double, np.int32(0))
    np.testing.assert_allclose(accumulated.params["w"], whole.params["w"], rtol=1e-6)
    np.testing.assert_allclose(sums["loss"], whole_sums["loss"], rtol=1e-6)
    assert sums["normalizer"] == whole_sums["normalizer"]
    assert accumulated.step == 1


def test_a_batch_without_anything_to_learn_changes_nothing():
    state, steps = make(optax.sgd(0.1))
    batch = make_batch(0) | {"weights": np.zeros(4, np.float32)}
    state, _ = steps.train(state, batch, np.int32(0))
    np.testing.assert_array_equal(state.params["w"], START)


def test_randomness_is_a_function_of_seed_and_micro_batch():
    state, steps = make(optax.sgd(0.1), seed=5)
    draws = [steps.first(state, make_batch(0), np.int32(i))[1]["draw"] for i in (3, 3, 4)]
    expected = jax.random.normal(jax.random.fold_in(jax.random.key(5), 3))
    np.testing.assert_allclose(draws[0], expected, rtol=1e-6)
    assert draws[0] == draws[1] != draws[2]


def test_with_fsdp_nothing_reads_replicated_gradients():
    optimizer = make_optimizer("sgd", schedule=lambda _: 0.1, clip_global_norm=1.0)
    _, shapes = abstract_state(lambda key: {"w": jnp.zeros((256, 128))}, optimizer, 0)
    batch = {
        "inputs": jnp.zeros((16, 256)),
        "targets": jnp.zeros((16, 128)),
        "weights": jnp.zeros((16, 1)),
    }
    mesh = AbstractMesh((1, 8), AXES, axis_types=(AxisType.Auto,) * 2)
    steps = make_steps(loss_fn, optimizer, mesh, shapes, seed=0)
    program = steps.train.trace(shapes, batch, 0).jaxpr

    is_constraint = lambda equation: equation.primitive.name == "sharding_constraint"
    of_parameters, of_gradient, of_shards = filter(is_constraint, program.eqns)
    assert of_parameters.params["sharding"].is_fully_replicated
    assert of_gradient.params["sharding"].is_fully_replicated
    assert not of_shards.params["sharding"].is_fully_replicated
    (replicated,) = of_gradient.outvars
    assert [e for e in program.eqns if replicated in e.invars] == [of_shards]
