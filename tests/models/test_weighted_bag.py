"""Sums of table rows: the values and gradients of the plain equation."""

import jax
import jax.numpy as jnp
import numpy as np

from xling_jax.models.layers import weighted_bag

RANDOM = np.random.default_rng(0)
TABLE, WEIGHTS, PROBE = (
    RANDOM.normal(size=shape).astype(np.float32) for shape in ((9, 4), (8, 5), (8, 4))
)
TOKENS = RANDOM.integers(0, 9, (8, 5)).astype(np.int32)


def value(table, weights, tokens, probe, sums=weighted_bag):
    return (sums(table, weights, tokens) * probe).sum()


def plain(table, weights, tokens):
    return jnp.einsum("bl,blw->bw", weights, table[tokens])


def test_sums_and_gradients_are_those_of_the_plain_equation():
    arrays = (TABLE, WEIGHTS, TOKENS)
    np.testing.assert_allclose(jax.jit(weighted_bag)(*arrays), plain(*arrays), rtol=1e-5, atol=1e-6)
    ours = jax.jit(jax.grad(value, (0, 1)))(*arrays, PROBE)
    expected = jax.grad(lambda *arrays: value(*arrays, sums=plain), (0, 1))(*arrays, PROBE)
    for found, wanted in zip(ours, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
