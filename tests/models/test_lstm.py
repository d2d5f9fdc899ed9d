import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import laser_reference as reference
from tests.models.tlaser_reference import as_float64, random_params
from xling_jax.models.lstm import LstmLayer, recurrence

LENGTH, BATCH, IN, WIDTH = 6, 5, 7, 4
LENGTHS = np.array([3, 6, 1, 0, 5])
MASK = np.arange(LENGTH)[:, None] < LENGTHS


def plain_scan(projected, constant, mask, kernel, feed_kernel, feed_mask, hidden, cell):
    """The equations of `recurrence`, left to JAX to differentiate."""
    mask = jnp.ones(projected[0].shape[:1]) if mask is None else mask[..., None]

    def step(carry, inputs):
        hidden, cell = carry
        gates_in, real, feed = inputs
        gates = jnp.stack(gates_in) + constant + jnp.einsum("dba,dac->dbc", hidden, kernel)
        if feed_kernel is not None:
            gates += jnp.einsum("dba,dac->dbc", hidden * feed, feed_kernel)
        i, f, g, o = jnp.split(gates, 4, -1)
        cell = jax.nn.sigmoid(2 * f) * cell + jax.nn.sigmoid(2 * i) * jnp.tanh(g)
        cell = jnp.where(real, cell, 0)
        hidden = jax.nn.sigmoid(2 * o) * jnp.tanh(cell)
        return (hidden, cell), tuple(hidden)

    return jax.lax.scan(step, (hidden, cell), (projected, mask, feed_mask))[1]


def operands(directions, feeding):
    """Of `recurrence`; a decoder has no padding and a constant of each sentence."""
    random = np.random.default_rng(0)
    draw = lambda *shape: random.normal(size=shape).astype(np.float32)
    kernel = lambda: draw(directions, WIDTH, 4 * WIDTH)
    feed_mask = (random.random((LENGTH, directions, BATCH, WIDTH)) < 0.6) / 0.6
    initial = lambda: draw(directions, BATCH, WIDTH)
    return (
        tuple(draw(directions, LENGTH, BATCH, 4 * WIDTH)),
        draw(directions, BATCH if feeding else 1, 4 * WIDTH),
        None if feeding else np.stack([MASK, MASK[::-1]], 1)[:, :directions],
        kernel(),
        kernel() if feeding else None,
        feed_mask.astype(np.float32) if feeding else None,
        initial(),
        initial(),
    )


@pytest.mark.parametrize("directions, feeding", [(2, False), (1, True), (1, False)])
def test_recurrence_and_its_gradient_are_those_of_a_plain_scan(directions, feeding):
    weights = np.random.default_rng(3).normal(size=(directions, LENGTH, BATCH, WIDTH))
    differentiable = (0, 1, 3, 4, 6, 7) if feeding else (0, 1, 3, 6, 7)

    def run(operands):
        def both(function):
            loss = lambda *operands: (jnp.stack(function(*operands)) * weights).sum()
            return function(*operands), jax.grad(loss, differentiable)(*operands)

        return both(recurrence), both(plain_scan)

    found, expected = jax.jit(run)(operands(directions, feeding))
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-5)
    jax.tree.map(close, found, expected)


def layer_and_params(width=WIDTH, **options):
    layer = LstmLayer(width, **options)
    inputs, mask = jnp.zeros((LENGTH, 1, IN)), jnp.ones((LENGTH, 1), bool)
    return layer, random_params(lambda: layer.init(jax.random.key(0), inputs, mask)["params"])


@pytest.fixture(scope="module")
def inputs():
    """[length, batch, in], with large values at padding."""
    values = np.random.default_rng(1).normal(size=(LENGTH, BATCH, IN))
    return np.where(MASK[..., None], values, 50.0).astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {"bidirectional": True},
        {"bidirectional": True, "published_parameters": True},
        {"bidirectional": False},
    ],
)
def test_a_layer_equals_the_formulas_and_is_zero_at_padding(inputs, options):
    layer, params = layer_and_params(**options)
    found = np.asarray(jax.jit(layer.apply)({"params": params}, inputs, MASK))
    for row, length in enumerate(LENGTHS):
        expected = reference.lstm_layer(as_float64(params), inputs[:length, row].astype(float))
        np.testing.assert_allclose(found[:length, row], expected, atol=2e-6)
        assert not found[length:, row].any()


def test_padding_gets_no_gradient_and_gives_none(inputs):
    layer, params = layer_and_params(bidirectional=True)

    def gradients(inputs):
        loss = lambda *arguments: (layer.apply({"params": arguments[0]}, *arguments[1:]) ** 2).sum()
        return jax.grad(loss, (0, 1))(params, inputs, MASK)

    gradients = jax.jit(gradients)
    of_params, of_inputs = gradients(inputs)
    assert not of_inputs[~MASK].any()
    assert of_inputs[MASK].any(1).all()
    for other in (0.0, 1e4):
        changed = np.where(MASK[..., None], inputs, other).astype(np.float32)
        assert_same = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5)
        jax.tree.map(assert_same, gradients(changed)[0], of_params)
