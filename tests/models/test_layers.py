import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from tests.models.tlaser_reference import random_params
from xling_jax.models.layers import Attention, Dropout, TransformerLayer, pool
from xling_jax.models.numpy_encoders import sinusoidal_positions


def test_sinusoids_are_all_sines_then_all_cosines():
    positions = sinusoidal_positions(3, 8, first=2)
    frequencies = 10000.0 ** -np.array([0, 1 / 3, 2 / 3, 1])
    for row, position in zip(positions, (2, 3, 4)):
        np.testing.assert_allclose(row[:4], np.sin(position * frequencies), atol=1e-6)
        np.testing.assert_allclose(row[4:], np.cos(position * frequencies), atol=1e-6)


@pytest.mark.parametrize("generator", ["threefry", "hash"])
def test_dropout_zeroes_its_share_and_keeps_the_mean(generator, key):
    ones = jnp.ones((200, 300))
    drop = Dropout(0.3, generator)
    run = jax.jit(lambda key: drop.apply({}, ones, False, rngs={"dropout": key}))
    dropped = np.asarray(run(key))
    np.testing.assert_allclose((dropped == 0).mean(), 0.3, atol=0.01)
    np.testing.assert_allclose(dropped[dropped > 0], 1 / 0.7, rtol=1e-6)
    np.testing.assert_array_equal(run(key), dropped)
    # As for independent draws: neighbors in both directions, and another key.
    zero, other = dropped == 0, np.asarray(run(jax.random.key(1))) == 0
    for pairs in (zero[1:] & zero[:-1], zero[:, 1:] & zero[:, :-1], zero & other):
        np.testing.assert_allclose(pairs.mean(), 0.09, atol=0.01)


def test_dropout_is_the_identity_when_deterministic_or_zero(key):
    ones = jnp.ones((2, 3))
    assert Dropout(0.3).apply({}, ones, True) is ones
    assert Dropout(0.0).apply({}, ones, False) is ones
    with pytest.raises(ValueError, match="dropout_generator='lcg'"):
        Dropout(0.3, "lcg").apply({}, ones, False, rngs={"dropout": key})


@pytest.mark.parametrize(
    "pooling, expected", [("first", [[1, 5], [0, 0]]), ("mean", [[2, 3], [0, 0]]), ("max", None)]
)
def test_pooling_sees_real_tokens_only_and_gives_zeros_for_none(pooling, expected):
    states = jnp.array([[[1.0, 5], [3, 1], [90, 90]], [[7.0, 7], [8, 8], [9, 9]]])
    mask = jnp.array([[True, True, False], [False, False, False]])
    expected = expected or [[3, 5], [0, 0]]
    np.testing.assert_allclose(pool(states, mask, pooling), expected)
    gradient = jax.grad(lambda states: pool(states, mask, pooling).sum())(states)
    assert np.isfinite(gradient).all()
    assert not gradient[~mask].any()


def test_an_unknown_pooling_and_heads_that_do_not_divide_the_width_are_refused(key):
    with pytest.raises(ValueError, match="pooling='median'"):
        pool(jnp.ones((1, 2, 3)), jnp.ones((1, 2), bool), "median")
    with pytest.raises(ValueError, match="heads=3 must divide width=8"):
        Attention(8, 3).init(key, jnp.ones((1, 2, 8)), jnp.ones((1, 2, 8)), True, True)


# Block of a layer -> its last projection, with which it adds to the states.
OUTPUTS = {
    "attention": ("attention", "output"),
    "memory": ("memory_output",),
    "ffn": ("ffn", "outer"),
}


@pytest.mark.parametrize(
    "rate, reached",
    [
        ("dropout", ["attention", "memory", "ffn"]),
        ("attention_dropout", ["attention"]),
        ("activation_dropout", ["ffn"]),
    ],
)
def test_each_dropout_of_a_layer_reaches_its_blocks_alone(rate, reached, key):
    layer = TransformerLayer(8, 2, 16, **{rate: 0.5})
    states, memory = np.random.default_rng(0).normal(size=(2, 5, 8)), np.ones((2, 3))
    inputs = (states.astype(np.float32), np.ones((2, 1, 5), bool), False, memory)
    params = random_params(lambda: layer.init(key, *inputs)["params"])

    @jax.jit
    def change(params):
        rngs = {"dropout": jax.random.key(1)}
        plain = layer.clone(**{rate: 0.0}).apply({"params": params}, *inputs)
        return layer.apply({"params": params}, *inputs, rngs=rngs) - plain

    found = []
    for block in OUTPUTS:
        # The others add nothing to the states.
        alone = flatten_dict(params)
        for path in (path for other, path in OUTPUTS.items() if other != block):
            for leaf in ("kernel", "bias"):
                alone[*path, leaf] = np.zeros_like(alone[*path, leaf])
        found += [block] if np.abs(change(unflatten_dict(alone))).max() > 1e-3 else []
    assert found == reached
