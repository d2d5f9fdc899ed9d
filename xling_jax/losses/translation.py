"""Label-smoothed cross-entropy of a translation, summed over its tokens.

The output layer is part of the loss, so that the [tokens, vocab] logits exist one chunk at a time
and once: the gradient with respect to hidden states and output table is formed in the forward pass,
while the chunk's logits are at hand, and only scaled in the backward pass.
"""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def decoder_tokens(
    target_tokens: jax.Array, *, eos_id: int, pad_id: int, drop_first: bool
) -> tuple[jax.Array, jax.Array]:
    """Decoder inputs and labels from a target sentence in the encoder's form.

    Args:
        target_tokens: [batch, length] int32, [y_1 .. y_m, </s>] or [<s>, y_1 .. y_m, </s>],
            padded on the right.
        eos_id: id of </s>.
        pad_id: id of padding.
        drop_first: the sentence starts with <s> and the decoder shall not learn to emit it.
            (T-LASER's published code lets it.)

    Returns:
        previous, labels: [batch, length] int32, or one shorter with `drop_first`:
        [</s>, y_1 .. y_m] and [y_1 .. y_m, </s>], or with <s> in front of y_1 in both.
        Labels are `pad_id` where there is nothing to predict.
    """
    first = jnp.where(target_tokens[:, :1] == pad_id, pad_id, eos_id)
    labels = target_tokens[:, 1:] if drop_first else target_tokens
    previous = jnp.concatenate([first, labels[:, :-1]], axis=1)
    # What stands behind a sentence's last label is no input of it.
    return jnp.where(labels == pad_id, pad_id, previous), labels


def _num_chunks(batch: int, length: int, vocab: int, max_logits: int) -> int:
    """Smallest divisor of the batch that keeps a chunk's logits within `max_logits` elements."""
    for chunks in range(1, batch + 1):
        if batch % chunks == 0 and batch // chunks * length * vocab <= max_logits:
            return chunks
    return batch


def _to_chunks(array: jax.Array, chunks: int) -> jax.Array:
    """[batch, ...] -> [chunks, batch / chunks, ...]; chunk j takes rows j, j + chunks, ….

    Strided, so that a batch sharded over devices stays in place on them.
    """
    return jnp.moveaxis(array.reshape(-1, chunks, *array.shape[1:]), 1, 0)


def _from_chunks(array: jax.Array) -> jax.Array:
    return jnp.moveaxis(array, 0, 1).reshape(-1, *array.shape[2:])


def _chunk_loss(hidden, table, bias, labels, weights, smoothing, vocab_size, with_gradient):
    """Loss sums of one chunk and, on demand, its gradients by hidden, table and bias."""
    logits = jax.lax.dot_general(
        hidden, table, (((hidden.ndim - 1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )
    logits = logits if bias is None else logits + bias
    real = jnp.arange(table.shape[0]) < vocab_size
    padded = table.shape[0] > vocab_size
    largest = (jnp.where(real, logits, -jnp.inf) if padded else logits).max(-1, keepdims=True)
    # Formed once; the probabilities of the gradient are these over their sum.
    exponentials = jnp.exp(logits - largest)
    exponentials = jnp.where(real, exponentials, 0) if padded else exponentials
    normalizer = exponentials.sum(-1, keepdims=True)
    log_normalizer = (largest + jnp.log(normalizer))[..., 0]
    label_logit = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    # The mean of the logits is the logit of the mean row: no pass over [tokens, vocab].
    mean_row = jnp.where(real[:, None], table, 0).sum(0, dtype=jnp.float32) / vocab_size
    mean_logit = hidden.astype(jnp.float32) @ mean_row
    if bias is not None:
        mean_logit += jnp.where(real, bias, 0).sum() / vocab_size
    negative_log_likelihood = log_normalizer - label_logit
    smooth = log_normalizer - mean_logit
    per_token = (1 - smoothing) * negative_log_likelihood + smoothing * smooth
    sums = ((weights * per_token).sum(), (weights * negative_log_likelihood).sum())
    if not with_gradient:
        return sums, None
    target = smoothing / vocab_size * real + (1 - smoothing) * (
        jnp.arange(table.shape[0]) == labels[..., None]
    )
    gradient = exponentials * (weights[..., None] / normalizer) - target * weights[..., None]
    bias_gradient = None if bias is None else gradient.sum(range(gradient.ndim - 1))
    gradient = gradient.astype(hidden.dtype)
    hidden_gradient = jax.lax.dot_general(
        gradient, table, (((hidden.ndim - 1,), (0,)), ((), ())), preferred_element_type=jnp.float32
    )
    # [width, rows], then turned: as [rows, width] a CPU would first turn the large operand.
    table_gradient = jnp.matmul(
        hidden.reshape(-1, hidden.shape[-1]).T,
        gradient.reshape(-1, gradient.shape[-1]),
        preferred_element_type=jnp.float32,
    ).T
    return sums, (hidden_gradient.astype(hidden.dtype), table_gradient, bias_gradient)


def _run(static, hidden, table, bias, labels, weights, with_gradient):
    smoothing, vocab_size, max_logits = static
    computed = table.astype(hidden.dtype)
    chunks = _num_chunks(*labels.shape, table.shape[0], max_logits)
    loss = functools.partial(
        _chunk_loss, smoothing=smoothing, vocab_size=vocab_size, with_gradient=with_gradient
    )
    if chunks == 1:
        return loss(hidden, computed, bias, labels, weights)

    def body(carry, chunk):
        chunk_hidden, chunk_labels, chunk_weights = chunk
        sums, gradients = loss(chunk_hidden, computed, bias, chunk_labels, chunk_weights)
        if not with_gradient:
            return jax.tree.map(jnp.add, carry, (sums, None)), None
        return jax.tree.map(jnp.add, carry, (sums, gradients[1:])), gradients[0]

    zero = jnp.zeros((), jnp.float32)
    of_weights = jax.tree.map(jnp.zeros_like, (table, bias)) if with_gradient else None
    split = tuple(_to_chunks(array, chunks) for array in (hidden, labels, weights))
    (totals, of_weights), hidden_gradient = jax.lax.scan(body, ((zero, zero), of_weights), split)
    if not with_gradient:
        return totals, None
    return totals, (_from_chunks(hidden_gradient), *of_weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(static, hidden, table, bias, labels, weights):
    return _run(static, hidden, table, bias, labels, weights, with_gradient=False)[0]


def _fused_forward(static, hidden, table, bias, labels, weights):
    return _run(static, hidden, table, bias, labels, weights, with_gradient=True)


def _fused_backward(static, gradients, cotangents):
    scale, _ = cotangents  # the unsmoothed sum is a metric; nobody differentiates it
    by_hidden, *by_weights = gradients
    scaled = jax.tree.map(lambda gradient: gradient * scale, by_weights)
    return (by_hidden * scale).astype(by_hidden.dtype), *scaled, None, None


_fused.defvjp(_fused_forward, _fused_backward)


def translation_loss(
    hidden: jax.Array,
    output_table: jax.Array,
    labels: jax.Array,
    weights: ArrayLike,
    *,
    output_bias: jax.Array | None = None,
    label_smoothing: float = 0.1,
    vocab_size: int | None = None,
    max_logits: int = 1 << 26,
) -> tuple[jax.Array, jax.Array]:
    """Summed cross-entropy of labels under logits = hidden · output_tableᵀ + output_bias.

    Per token ℓ = (1 − ε)(−log p_y) + (ε / V) Σ_v (−log p_v), the smoothed sum over all V entries,
    the true one included (fairseq before 2020-10; T-LASER).

    Args:
        hidden: [batch, length, width], decoder states.
        output_table: [rows, width] float32; rows beyond `vocab_size` are padding for the hardware:
            they take no part in the softmax, nor in the smoothing.
        labels: [batch, length] int32.
        weights: [batch, length] bool or float, of each token; 0 where there is none to predict.
        output_bias: [rows] float32; None for none.
        label_smoothing: ε in [0, 1).
        vocab_size: V; all rows if None.
        max_logits: logits alive at a time, in elements; the batch is cut into chunks to stay below.

    Returns:
        The weighted sum of ℓ in nats (float32; differentiable in hidden, output_table and
        output_bias), and that of −log p_y (a metric, not differentiable).

    Raises:
        ValueError: if label_smoothing or vocab_size are out of range.
    """
    vocab_size = output_table.shape[0] if vocab_size is None else vocab_size
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing={label_smoothing} must be in [0, 1)")
    if not 0 < vocab_size <= output_table.shape[0]:
        raise ValueError(
            f"vocab_size={vocab_size} must be between 1 and the {output_table.shape[0]} rows of "
            "output_table"
        )
    weights = jnp.asarray(weights, jnp.float32)
    static = (float(label_smoothing), int(vocab_size), int(max_logits))
    return _fused(static, hidden, output_table, output_bias, labels, weights)
