"""Every family in float16 against float32: vectors, losses and gradients. A CPU computes both."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xling_jax.config import load
from xling_jax.losses.fused_softmax import fused_loss
from xling_jax.losses.translation import translation_loss
from xling_jax.models.layers import pool
from xling_jax.train.training import VocabFacts, init_params, make_objective

VOCAB, ROWS, LENGTH = 300, 6, 12
SCALE = 2.0**7  # of the loss; gradients of these sizes need no more
FAMILIES = {
    "t_laser": [],
    "ct_laser": ["encoder.pooling=self_attention"],
    "laser": ["encoder.layers=2"],
    "claser": ["decoder.input_feeding=False", "decoder.output_width=16"],
    "lightweight": [],
    "lightweight:objective=mlm+xtr": ["encoder.norm=pre", "head.tie_embeddings=False"],
    "similarity_loss": [],
    "static": [],
    "contextual": [],
}


def make_batch():
    """Pairs of different lengths; the last row is padding."""
    random = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        tokens = np.full((ROWS, LENGTH), 1)
        for row, length in enumerate(random.integers(3, LENGTH + 1, ROWS - 1)):
            tokens[row, :length] = random.integers(5, VOCAB, length)
            tokens[row, 0], tokens[row, length - 1] = 0, 2
        sides.append(jnp.asarray(tokens, jnp.int32))
    language = jnp.ones(ROWS, jnp.int32)
    return {"source_tokens": sides[0], "target_tokens": sides[1], "target_language": language}


def run(family, dtype):
    """Vectors, loss and gradients of the smoke size, with all sizes but the dtype the same."""
    name, colon, argument = family.partition(":")
    words = [*FAMILIES[family], f"compute_dtype={dtype}"]
    experiment = load(
        f"{name}:{argument + ',' if colon else ''}smoke", [f"--config.{word}" for word in words]
    )
    objective = make_objective(experiment, VocabFacts(VOCAB))
    model, batch = objective.context.model, make_batch()
    params = jax.jit(init_params(model))(jax.random.key(1))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}

    def scaled(params):
        loss, _ = objective(params, batch, jax.random.key(2), False)
        return loss * SCALE, loss

    (_, loss), gradient = jax.jit(jax.value_and_grad(scaled, has_aux=True))(params)
    encode = functools.partial(model.apply, method="encode")
    vectors = jax.jit(encode)({"params": params}, batch["source_tokens"])
    return vectors, loss, jax.tree.map(lambda g: g / SCALE, gradient)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=[] if name == "t_laser" else pytest.mark.exhaustive)
        for name in FAMILIES
    ],
)
def test_float16_trains_as_float32_does(family):
    (vectors, loss, gradient), (expected, exact_loss, exact) = (
        run(family, dtype) for dtype in ("float16", "float32")
    )
    assert vectors.dtype == jnp.float32
    largest = np.abs(expected).max()
    np.testing.assert_allclose(vectors, expected, atol=4e-3 * largest)
    np.testing.assert_allclose(loss, exact_loss, rtol=2e-3)
    # As one vector: some small parts, such as the bias of keys, have gradient 0 but for rounding.
    flat = lambda tree: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    found, wanted = flat(gradient), flat(exact)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - wanted) < 0.01 * np.linalg.norm(wanted)


def test_a_mean_may_sum_to_more_than_float16_holds():
    states = jnp.full((1, 200, 2), 1000, jnp.float16)
    pooled = pool(states, jnp.ones((1, 200), bool), "mean")
    np.testing.assert_array_equal(pooled, [[1000, 1000]])


def test_gradients_of_small_probabilities_are_not_lost():
    """1e-8 each is 0 in float16; the loss scale comes too late, they are formed before it."""
    hidden = jnp.ones((1, 1, 8), jnp.float16)
    table = jnp.zeros((64, 8)).at[3].set(np.log(1e8) / 8)
    args = (jnp.full((1, 1), 3), jnp.ones((1, 1)))

    def loss(hidden, table):
        return translation_loss(hidden, table, *args, label_smoothing=0.0)[0] * SCALE

    of_hidden, of_table = jax.grad(loss, (0, 1))(hidden, table)
    exact_hidden, exact = jax.grad(loss, (0, 1))(hidden.astype(jnp.float32), table)
    assert of_hidden.dtype == jnp.float16 and of_table.dtype == jnp.float32
    others = np.arange(64) != 3
    assert 0 < np.abs(exact[others]).max() / SCALE < 2e-8
    np.testing.assert_allclose(of_table[others], exact[others], rtol=2e-2)
    np.testing.assert_allclose(of_hidden, exact_hidden, rtol=2e-2, atol=1e-7)


def test_the_loss_scale_multiplies_before_hidden_gradients_become_float16():
    """A gradient of 1e-9 per logit, times 2^20, is 1e-3; in float16 it must not have been 0."""

    def chunk_loss(hidden, table, bias, with_gradient):
        gradient = jnp.full((*hidden.shape[:-1], table.shape[0]), 1e-9)
        sums = jnp.zeros(()), jnp.zeros(())
        return sums, gradient if with_gradient else None

    def loss(hidden):
        return fused_loss(chunk_loss, 1 << 26, hidden, jnp.ones((1, 4)), None, ())[0] * 2.0**20

    gradient = jax.grad(loss)(jnp.ones((2, 4), jnp.float16))
    np.testing.assert_allclose(gradient, 1e-9 * 2.0**20, rtol=2e-2)
