"""The kernels for GPUs, in Pallas's interpreter, against XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xling_jax import kernels


def normal(rng, *shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


def plain_attention(query, key, value, mask, heads):
    split = lambda array: array.reshape(*array.shape[:2], heads, -1)
    query, key, value = map(split, (query, key, value))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(query.shape[-1])
    weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(*query.shape[:2], -1)


def plain_norm(inputs, scale, bias, epsilon, dtype):
    centered = inputs - inputs.mean(-1, keepdims=True)
    variance = (centered**2).mean(-1, keepdims=True)
    return (centered / jnp.sqrt(variance + epsilon) * scale + bias).astype(dtype)


def assert_same(function, plain, arguments, gradient):
    """The same results and gradients."""
    results = []
    for compute in (function, plain):
        outputs, backward = jax.vjp(compute, *arguments)
        results.append((outputs, *backward(gradient)))
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, atol=3e-5)


@pytest.mark.parametrize(
    ("num_queries", "num_keys", "causal"),
    [
        (32, 32, False),
        (32, 32, True),
        (1, 24, False),
        (17, 17, True),
        (40, 64, False),
        (3, 3, False),
    ],
)
def test_attention(num_queries, num_keys, causal):
    rng, heads, width = np.random.default_rng(0), 2, 32
    query, gradient = normal(rng, 6, num_queries, width), normal(rng, 6, num_queries, width)
    key, value = normal(rng, 6, num_keys, width), normal(rng, 6, num_keys, width)
    # The second row has no token at all.
    lengths = np.array([num_keys, 0, num_keys // 2, 1, num_keys - 1, 2])
    mask = (np.arange(num_keys) < lengths[:, None])[:, None]
    if causal:
        mask = mask & np.tril(np.ones((num_queries, num_keys), bool))
    assert kernels.fits_attention(query, key, heads)
    assert_same(
        lambda *arrays: kernels.attention(*arrays, jnp.asarray(mask), heads),
        lambda *arrays: plain_attention(*arrays, mask, heads),
        (query, key, value),
        gradient,
    )


def test_attention_with_one_mask_for_all():
    rng = np.random.default_rng(0)
    query, key, value, gradient = (normal(rng, 3, 20, 32) for _ in range(4))
    mask = jnp.tril(jnp.ones((1, 20, 20), bool))
    assert_same(
        lambda *arrays: kernels.attention(*arrays, mask, 1),
        lambda *arrays: plain_attention(*arrays, mask, 1),
        (query, key, value),
        gradient,
    )


@pytest.mark.parametrize(
    ("length", "width", "heads", "fits"),
    [(64, 64, 4, True), (65, 64, 4, False), (32, 96, 4, False), (32, 512, 2, False)],
)
def test_fits_attention(length, width, heads, fits):
    array = jnp.zeros((1, length, width), jnp.bfloat16)
    assert kernels.fits_attention(array, array, heads) == fits


@pytest.mark.parametrize("shape", [(4, 8, 32), (5, 7, 48), (1, 100), (4100, 16)])
def test_layer_norm(shape):
    # Rows that no number of programs divides, and widths that are no power of two.
    rng = np.random.default_rng(0)
    inputs, gradient = normal(rng, *shape) * 3 + 1, normal(rng, *shape)
    scale, bias = normal(rng, shape[-1]), normal(rng, shape[-1])
    assert_same(
        lambda *arrays: kernels.layer_norm(*arrays, 1e-5, jnp.float32),
        lambda *arrays: plain_norm(*arrays, 1e-5, jnp.float32),
        (inputs, scale, bias),
        gradient,
    )


def test_layer_norm_of_large_numbers_in_half_precision():
    inputs = jnp.asarray([[30000, 30016, 30032, 30048] * 8], jnp.float16)
    outputs = kernels.layer_norm(inputs, jnp.ones(32), jnp.zeros(32), 1e-5, jnp.float16)
    expected = plain_norm(inputs.astype(jnp.float32), 1, 0, 1e-5, jnp.float16)
    np.testing.assert_allclose(outputs, expected, rtol=1e-3)
