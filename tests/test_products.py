"""Products with a kernel, those of attention, and their gradients in each form."""

import flax.linen as nn
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from xling_jax import products
from xling_jax.models.layers import Dense
from xling_jax.products import kernel_gradient, project, scores


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("widths", [(3, 4), (4, 3), (5, 5)])
@pytest.mark.parametrize("shape", [(6,), (5, 6)])
def test_the_gradient_of_a_kernel_is_the_same_in_every_form(
    shape, widths, backend, devices, monkeypatch
):
    random = np.random.default_rng(0)
    inputs, gradient = (random.normal(size=(*shape, width)).astype("f") for width in widths)
    expected = np.einsum(
        "ni,no->io", inputs.reshape(-1, widths[0]), gradient.reshape(-1, widths[1])
    )
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    found = jax.jit(kernel_gradient)(inputs, gradient)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [3, 9])
def test_dense_is_that_of_linen_and_so_are_its_gradients(width):
    random = np.random.default_rng(0)
    inputs = random.normal(size=(4, 6, 5)).astype("f")
    weights = random.normal(size=(4, 6, width)).astype("f")
    params = Dense(width).init(jax.random.key(1), inputs)

    def loss(module, params, inputs):
        return (jnp.tanh(module.apply(params, inputs)) * weights).sum()

    ours, linen = (
        jax.value_and_grad(loss, argnums=(1, 2))(module(width), params, inputs)
        for module in (Dense, nn.Dense)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, linen)


@pytest.mark.parametrize("widths", [(128, 256), (256, 128)])
def test_products_in_bfloat16_and_their_transposes(widths):
    """XLA for CPUs fails when it runs a transposed product of bfloat16 with a float32 result."""
    random = np.random.default_rng(0)
    shapes = (8, 32, widths[0]), widths, (8, 32, widths[1])
    arrays = [jnp.asarray(random.normal(size=shape), "bfloat16") for shape in shapes]

    @jax.jit
    def run(inputs, kernel, slope):
        outputs, back = jax.vjp(project, inputs, kernel)
        gradient = kernel_gradient(inputs, slope)
        return outputs, outputs.T + 1, *back(slope), gradient, 2 * gradient.T

    x, w, y = (np.asarray(array, np.float64) for array in arrays)
    gradient = np.einsum("bli,blo->io", x, y)
    expected = x @ w, (x @ w).T + 1, y @ w.T, gradient, gradient, 2 * gradient.T
    for found, exact in zip(run(*arrays), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found, np.float64), exact, rtol=2**-7, atol=0.03)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("subscripts, keys", [("bqhd,bkhd->bhqk", 4), ("bqgnd,bkgd->bgnqk", 5)])
def test_scores_are_an_einsum_in_float32_with_its_gradients(subscripts, keys, dtype):
    random = np.random.default_rng(0)
    shape = (2, 7, 3, 2, 8)[: keys - 1] + (8,)
    queries = jnp.asarray(random.normal(size=shape), dtype)
    other = jnp.asarray(random.normal(size=(2, 5, 3, 8)), dtype)
    weights = random.normal(size=scores(subscripts, queries, other).shape)

    def plain(queries, keys):
        return jnp.einsum(subscripts, queries.astype(jnp.float32), keys.astype(jnp.float32))

    run = lambda function: jax.jit(
        jax.value_and_grad(lambda *arrays: (function(*arrays) * weights).sum(), (0, 1))
    )(queries, other)
    (value, gradients), (expected, slopes) = run(lambda q, k: scores(subscripts, q, k)), run(plain)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    tolerance = 1e-6 if dtype == "float32" else 0.02
    for found, slope in zip(gradients, slopes):
        assert found.dtype == dtype
        difference = np.abs(np.asarray(found, np.float32) - np.asarray(slope, np.float32))
        assert difference.max() < tolerance * np.abs(np.asarray(slope, np.float32)).max()


def test_the_gradient_of_scores_is_multiplied_in_their_dtype():
    """On an H100 products in float32, and arrays converted to it, are the slower way."""
    queries = keys = jnp.zeros((1, 4, 2, 8), jnp.bfloat16)
    loss = lambda *arrays: scores("bqhd,bkhd->bhqk", *arrays).sum()
    jaxpr = jax.make_jaxpr(jax.grad(loss, (0, 1)))(queries, keys)
    products = [e for e in jaxpr.jaxpr.eqns if e.primitive.name == "dot_general"]
    assert len(products) == 2  # and not the scores again
    assert {v.aval.dtype for e in products for v in e.invars} == {jnp.dtype(jnp.bfloat16)}


def test_an_exported_encoder_of_any_batch_and_length_has_no_kernel():
    shape = (*jax.export.symbolic_shape("batch, length", constraints=["length <= 512"]), 2, 8)
    query = jax.ShapeDtypeStruct(shape, jnp.float32)
    assert products.attention_implementation(query, query) is None
    assert products.kernels_for(jnp.float32, query.shape[0]) is None
