import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.losses.helpers import shapes_in, softmax_cross_entropy
from xling_jax.losses.translation import decoder_tokens, translation_loss

BATCH, LENGTH, WIDTH, ROWS, VOCAB = 8, 3, 6, 16, 13  # three rows of the table are padding
EPSILON = 0.1


def reference(hidden, table, labels, mask, bias, epsilon, vocab_size):
    """Loss, -log p summed, and gradients of the loss, in float64 from the formula."""
    one_hot = np.eye(vocab_size)[labels]
    target = (1 - epsilon) * one_hot + epsilon / vocab_size
    log_p, gradients = softmax_cross_entropy(hidden, table, bias, target, mask, vocab_size)
    weights = mask[..., None]
    return -(weights * target * log_p).sum(), -(weights * one_hot * log_p).sum(), *gradients


NO_BIAS = np.zeros(ROWS)


def reference_loss(arrays, bias=NO_BIAS):
    return reference(*arrays, bias, EPSILON, VOCAB)


@pytest.fixture(scope="module")
def arrays():
    """hidden, table, labels, mask; row 1 fully masked."""
    random = np.random.default_rng(0)
    mask = random.random((BATCH, LENGTH)) < 0.7
    mask[0], mask[1] = True, False
    return (
        random.normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32),
        random.normal(size=(ROWS, WIDTH)).astype(np.float32),
        random.integers(0, VOCAB, (BATCH, LENGTH)),
        mask,
    )


def loss(hidden, table, labels, mask, **options):
    options = {"label_smoothing": EPSILON, "vocab_size": VOCAB} | options
    return translation_loss(hidden, table, labels, mask, **options)


@functools.cache
def with_gradients(**options):
    function = lambda *arrays: loss(*arrays, **options)
    return jax.jit(jax.value_and_grad(function, argnums=(0, 1), has_aux=True))


@pytest.mark.parametrize("chunks", [1, 2, 2.5, 8])  # 2.5: three rows, three, and two
def test_value_and_gradients_equal_the_formula(arrays, chunks):
    options = {"max_logits": int(BATCH * LENGTH * ROWS / chunks)} if chunks > 1 else {}
    (value, nll), gradients = with_gradients(**options)(*arrays)
    expected = reference_loss(arrays)
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    np.testing.assert_allclose(nll, expected[1], rtol=1e-6)
    np.testing.assert_allclose(gradients[0], expected[2], atol=1e-6)
    np.testing.assert_allclose(gradients[1], expected[3], atol=5e-6)


def test_padding_rows_of_the_table_are_in_neither_softmax_nor_smoothing(arrays):
    hidden, table, labels, mask = arrays
    huge = np.where(np.arange(ROWS)[:, None] < VOCAB, table, 1e4).astype(np.float32)
    (value, _), (_, table_gradient) = with_gradients()(hidden, huge, labels, mask)
    np.testing.assert_allclose(value, reference_loss(arrays)[0], rtol=1e-6)
    assert not table_gradient[VOCAB:].any()


def test_masked_positions_and_rows_change_nothing(arrays):
    hidden, table, labels, mask = arrays
    other = np.where(mask[..., None], hidden, 100.0).astype(np.float32)
    other_labels = np.where(mask, labels, 0)
    (value, _), (hidden_gradient, _) = with_gradients()(other, table, other_labels, mask)
    np.testing.assert_allclose(value, reference_loss(arrays)[0], rtol=1e-6)
    assert not hidden_gradient[~mask].any()


@pytest.mark.parametrize("chunks", [1, 4])
def test_output_bias_and_weights_equal_the_formula(arrays, chunks):
    hidden, table, labels, mask = arrays
    random = np.random.default_rng(1)
    # Padding rows with a bias that would win every softmax.
    bias = np.where(np.arange(ROWS) < VOCAB, random.normal(size=ROWS), 1e4).astype(np.float32)
    weights = (mask * random.uniform(0.2, 3, mask.shape)).astype(np.float32)

    def function(hidden, table, bias):
        limit = BATCH * LENGTH * ROWS // chunks
        return loss(hidden, table, labels, weights, output_bias=bias, max_logits=limit)

    operands = (hidden, table, bias)
    (value, nll), gradients = jax.jit(jax.value_and_grad(function, (0, 1, 2), True))(*operands)
    expected = reference_loss((hidden, table, labels, weights), bias)
    np.testing.assert_allclose((value, nll), expected[:2], rtol=2e-6)
    for found, formula in zip(gradients, expected[2:], strict=True):
        np.testing.assert_allclose(found, formula, atol=1e-5)
    assert not gradients[2][VOCAB:].any()
    without_gradient = jax.jit(function)(*operands)
    np.testing.assert_allclose(without_gradient, expected[:2], rtol=2e-6)


def test_a_fully_masked_batch_has_loss_and_gradient_zero(arrays):
    hidden, table, labels, mask = arrays
    (value, _), gradients = with_gradients()(hidden, table, labels, np.zeros_like(mask))
    assert value == 0
    assert not any(gradient.any() for gradient in gradients)


def test_uniform_logits_cost_log_vocabulary_for_any_smoothing(arrays):
    _, table, labels, _ = arrays
    everywhere = (np.zeros((BATCH, LENGTH, WIDTH)), table, labels, np.ones((BATCH, LENGTH)))
    values = [loss(*everywhere, label_smoothing=epsilon) for epsilon in (0.0, 0.1, 0.9)]
    np.testing.assert_allclose(values, BATCH * LENGTH * np.log(VOCAB), rtol=1e-6)


def test_bfloat16_stays_close(arrays):
    hidden, table, labels, mask = arrays
    (value, _), (hidden_gradient, table_gradient) = with_gradients()(
        jnp.asarray(hidden, jnp.bfloat16), table, labels, mask
    )
    expected = reference_loss(arrays)
    assert value.dtype == table_gradient.dtype == jnp.float32
    assert hidden_gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(value, expected[0], rtol=0.01)
    np.testing.assert_allclose(hidden_gradient.astype(np.float32), expected[2], atol=0.05)
    np.testing.assert_allclose(table_gradient, expected[3], atol=0.1)


def test_no_array_of_tokens_by_vocabulary_exists_outside_a_chunk(arrays):
    limit = BATCH * LENGTH * ROWS // 4
    program = jax.make_jaxpr(with_gradients(max_logits=limit))(*arrays).jaxpr
    logits = [np.prod(s) for s in shapes_in(program) if len(s) > 2 and ROWS in s]
    assert max(logits) == limit
    whole = jax.make_jaxpr(with_gradients())(*arrays).jaxpr
    assert max(np.prod(s) for s in shapes_in(whole) if len(s) > 2) == 4 * limit


TARGET = [[7, 8, 2, 1], [9, 2, 1, 1], [2, 1, 1, 1], [1, 1, 1, 1]]


SHIFTED = [[2, 7, 8, 1], [2, 9, 1, 1], [2, 1, 1, 1], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("tokens", "options", "previous", "labels"),
    [
        (TARGET, {}, SHIFTED, TARGET),
        ([[0, *row] if row[0] != 1 else [1, *row] for row in TARGET], {"drop_first": True})
        + (SHIFTED, TARGET),
        # With <s>, those of the published code.
        ([[0, 7, 8, 2, 1], [1] * 5], {}, [[2, 0, 7, 8, 1], [1] * 5], [[0, 7, 8, 2, 1], [1] * 5]),
        ([[5, 6, 7], [8, 1, 1], [1, 1, 1]], {"append_eos": True})
        + ([[2, 5, 6, 7], [2, 8, 1, 1], [1] * 4], [[5, 6, 7, 2], [8, 2, 1, 1], [1] * 4]),
    ],
)
def test_tokens_of_the_decoder(tokens, options, previous, labels):
    options = {"drop_first": False} | options
    found = decoder_tokens(jnp.array(tokens), eos_id=2, pad_id=1, **options)
    assert [array.tolist() for array in found] == [previous, labels]


@pytest.mark.parametrize("options", [{"label_smoothing": 1.0}, {"vocab_size": ROWS + 1}])
def test_options_out_of_range_are_refused(arrays, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        loss(*arrays, **options)
