"""Losses of a softmax over the vocabulary, computed chunk by chunk, with every logit formed once.

The output layer is part of the loss: the gradients of hidden states and output table are computed
in the forward pass, while the chunk's logits exist, and only scaled in the backward pass.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from xling_jax.products import kernel_gradient
from xling_jax.sharding import by_device, num_devices

# Of the gradient of float16 logits, which is at most 1 in size for a weight of 1: half of the
# probabilities of a large vocabulary are too small for float16.
_FLOAT16_SCALE = 2.0**12


class Softmax(NamedTuple):
    """p = exponentials / normalizer, and what else a loss needs.

    Attributes:
        logits: [..., rows] float32, −∞ in padding rows.
        exponentials: [..., rows] float32, exp(logits − largest), 0 in padding rows.
        normalizer: [..., 1] float32, their sum.
        log_normalizer: [...] float32, log Σ_v exp(logit_v) over the vocabulary.
        real: [rows] bool, rows of the vocabulary.
    """

    logits: jax.Array
    exponentials: jax.Array
    normalizer: jax.Array
    log_normalizer: jax.Array
    real: jax.Array


def output_softmax(
    hidden: jax.Array, table: jax.Array, bias: jax.Array | None, vocab_size: int
) -> Softmax:
    """The softmax of hidden · tableᵀ + bias over the first `vocab_size` rows of the table.

    Hidden is [..., width], the table [rows, width] in its dtype, the bias [rows] float32 or None.
    """
    logits = jax.lax.dot_general(
        hidden, table, (((hidden.ndim - 1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )
    logits = logits if bias is None else logits + bias
    if table.shape[0] > vocab_size:
        # Written in place; a selection between two arrays of this size would be a pass over both.
        padding = jnp.full((*logits.shape[:-1], table.shape[0] - vocab_size), -jnp.inf)
        logits = jax.lax.dynamic_update_slice_in_dim(logits, padding, vocab_size, axis=-1)
    real = jnp.arange(table.shape[0]) < vocab_size
    largest, normalizer = (of_row[..., None] for of_row in largest_and_normalizer(logits))
    exponentials = jnp.exp(logits - largest)
    log_normalizer = (largest + jnp.log(normalizer))[..., 0]
    return Softmax(logits, exponentials, normalizer, log_normalizer, real)


def largest_and_normalizer(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """max_v l_v and Σ_v exp(l_v − max_v l_v) of [..., rows] float32 logits, both [...].

    On a GPU in one pass, which memory limits: sums of parts are rescaled to their common maximum.
    """
    if jax.default_backend() != "gpu":
        largest = logits.max(-1)
        return largest, jnp.exp(logits - largest[..., None]).sum(-1)
    return one_pass_normalizer(logits)


def one_pass_normalizer(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`largest_and_normalizer`, reading the logits once; not differentiable."""

    def join(left: tuple[jax.Array, ...], right: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        largest = jnp.maximum(left[0], right[0])
        rescaled = [total * jnp.exp(of_part - largest) for of_part, total in (left, right)]
        return largest, rescaled[0] + rescaled[1]

    lowest = jnp.finfo(jnp.float32).min  # not −∞, whose difference from itself is no number
    initial = jnp.float32(lowest), jnp.float32(0)
    return jax.lax.reduce((logits, jnp.ones_like(logits)), initial, join, (logits.ndim - 1,))


def real_rows(vocab_size: int | None, table: jax.Array) -> int:
    """The vocabulary size, all rows of the table if None; raises ValueError if out of range."""
    rows = table.shape[-2]
    vocab_size = rows if vocab_size is None else vocab_size
    if not 0 < vocab_size <= rows:
        raise ValueError(
            f"vocab_size={vocab_size} must be between 1 and the {rows} rows of output_table"
        )
    return int(vocab_size)


def _input_gradients(gradient, hidden, table, bias):
    """From the gradient of the logits to those of hidden states, table and bias."""
    axes = tuple(range(gradient.ndim - 1))
    bias_gradient = None if bias is None else gradient.sum(axes, dtype=jnp.float32)
    is_float16 = hidden.dtype == jnp.float16
    gradient = (gradient * _FLOAT16_SCALE if is_float16 else gradient).astype(hidden.dtype)
    hidden_gradient = jax.lax.dot_general(
        gradient, table, (((hidden.ndim - 1,), (0,)), ((), ())), preferred_element_type=jnp.float32
    )
    table_gradient = kernel_gradient(hidden, gradient).T
    if is_float16:
        unscale = 1 / _FLOAT16_SCALE
        return hidden_gradient * unscale, table_gradient * unscale, bias_gradient
    return hidden_gradient.astype(hidden.dtype), table_gradient, bias_gradient


def _run(chunk_loss, max_logits, dtype, hidden, table, bias, targets, with_gradient):
    computed = table.astype(dtype)
    batch, logits_of_row = len(hidden), math.prod(hidden.shape[1:-1]) * table.shape[0]
    chunks = -(-batch // max(1, max_logits // logits_of_row))

    def loss(hidden, targets):
        hidden = hidden.astype(dtype)
        sums, gradient = chunk_loss(hidden, computed, bias, *targets, with_gradient=with_gradient)
        return sums, _input_gradients(gradient, hidden, computed, bias) if with_gradient else None

    if chunks == 1:
        return loss(hidden, targets)

    def body(carry, chunk):
        sums, gradients = loss(*chunk)
        if not with_gradient:
            return jax.tree.map(jnp.add, carry, (sums, None)), None
        return jax.tree.map(jnp.add, carry, (sums, gradients[1:])), gradients[0]

    zero = jnp.zeros((), jnp.float32)
    of_weights = jax.tree.map(jnp.zeros_like, (table, bias)) if with_gradient else None

    def to_chunks(array):
        """Chunk j has rows j, j + chunks, …; rows added to make them equal have no weight.

        Strided, so that the rows of a sharded batch stay on their devices.
        """
        array = jnp.pad(array, [(0, -batch % chunks), *[(0, 0)] * (array.ndim - 1)])
        return jnp.moveaxis(array.reshape(-1, chunks, *array.shape[1:]), 1, 0)

    split = jax.tree.map(to_chunks, (hidden, targets))
    (totals, of_weights), hidden_gradient = jax.lax.scan(body, ((zero, zero), of_weights), split)
    if not with_gradient:
        return totals, None
    hidden_gradient = jnp.moveaxis(hidden_gradient, 0, 1).reshape(-1, *hidden.shape[1:])[:batch]
    return totals, (hidden_gradient, *of_weights)


# The default on a GPU where a kernel writes the gradient in the place of bfloat16 logits, which
# takes a third of the memory.
LOGITS_IN_PLACE = 1 << 30


def default_max_logits(rows: int) -> int:
    """Most logits of a device at a time, over a table of `rows`.

    On a CPU those of 512 tokens, which fit its caches. Accelerators take more, since each part of a
    batch adds to a gradient as large as the table.
    """
    return {"cpu": 512 * rows, "gpu": 1 << 28}.get(jax.default_backend(), 1 << 26)


def fused_loss(
    chunk_loss: Callable[..., tuple[tuple[jax.Array, jax.Array], jax.Array | None]],
    max_logits: int,
    hidden: jax.Array,
    table: jax.Array,
    bias: jax.Array | None,
    targets: tuple[Any, ...],
) -> tuple[jax.Array, jax.Array]:
    """Sums a loss of the output layer, and one metric, over the batch.

    Args:
        chunk_loss: (hidden, table, bias, *targets, with_gradient) of a block of rows -> the sums of
            loss and metric, and the gradient of the logits (None unless `with_gradient`).
        max_logits: most logits of a device in memory at a time, in elements; its rows are split
            accordingly. 0 for `default_max_logits`.
        hidden: [batch, ..., width].
        table: [rows, width] float32; `chunk_loss` gets it in the dtype of hidden. It may be
            [devices, rows, width], a copy for each of the devices that the batch is split over
            (`sharding.rows_over`), each of which computes the loss of its rows.
        bias: [rows] float32 or None.
        targets: arrays [batch, ...] for `chunk_loss`; constants.

    Returns:
        The sum of the loss, float32, differentiable in hidden, table and bias, and the sum of the
        metric, not differentiable.
    """
    if max_logits < 0:
        raise ValueError(f"max_logits={max_logits} must be at least 1, or 0 for the default")
    max_logits = max_logits or default_max_logits(table.shape[-2])
    dtype = hidden.dtype
    # Gradients in float16 need the loss scale, which comes in only in the backward pass.
    hidden = hidden.astype(jnp.float32) if dtype == jnp.float16 else hidden
    devices = num_devices()
    if devices == 1:
        return _fused_loss(chunk_loss, max_logits, dtype, hidden, table, bias, targets)
    repeat = lambda array: jnp.broadcast_to(array, (devices, *array.shape))
    table = repeat(table) if table.ndim == 2 else table
    bias = None if bias is None else repeat(bias)

    def of_device(hidden, copies, targets):
        table, bias = jax.tree.map(lambda copy: copy[0], copies)
        sums = _fused_loss(chunk_loss, max_logits, dtype, hidden, table, bias, targets)
        return jax.tree.map(lambda total: total[None], sums)

    return jax.tree.map(jnp.sum, by_device(of_device, hidden, (table, bias), targets))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _fused_loss(chunk_loss, max_logits, dtype: DTypeLike, hidden, table, bias, targets):
    """`fused_loss` computed in `dtype`; the gradient of the hidden states is in their own."""
    return _run(chunk_loss, max_logits, dtype, hidden, table, bias, targets, with_gradient=False)[0]


def _forward(chunk_loss, max_logits, dtype, hidden, table, bias, targets):
    return _run(chunk_loss, max_logits, dtype, hidden, table, bias, targets, with_gradient=True)


def _backward(chunk_loss, max_logits, dtype, gradients, cotangents):
    scale, _ = cotangents  # the metric is not differentiable
    by_hidden, *by_weights = gradients
    scaled = jax.tree.map(lambda gradient: gradient * scale, by_weights)
    return (by_hidden * scale).astype(by_hidden.dtype), *scaled, None


_fused_loss.defvjp(_forward, _backward)
