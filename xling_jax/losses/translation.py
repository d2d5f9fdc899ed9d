"""Label-smoothed cross-entropy of a translation, summed over its tokens.

The output layer is part of the loss; see `losses.fused_softmax`.
"""

import functools
from types import ModuleType

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from xling_jax import products
from xling_jax.losses.fused_softmax import fused_loss, output_softmax, real_rows


def decoder_tokens(
    target_tokens: jax.Array,
    *,
    eos_id: int,
    pad_id: int,
    drop_first: bool = False,
    append_eos: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Decoder inputs and labels from target sentences in the encoder's format.

    Args:
        target_tokens: [batch, length] int32, [y_1 .. y_m, </s>], [<s>, y_1 .. y_m, </s>] or
            [y_1 .. y_m], padded on the right.
        eos_id: id of </s>.
        pad_id: id of padding.
        drop_first: drop the leading <s>, so that the decoder does not learn to emit it (in the
            published code of T-LASER it does).
        append_eos: append the missing </s>; an empty sentence stays empty.

    Returns:
        previous, labels: [batch, length] int32, one shorter with `drop_first`, one longer with
        `append_eos`: [</s>, y_1 .. y_m] and [y_1 .. y_m, </s>], or with <s> before y_1 in both.
        Labels are `pad_id` where there is nothing to predict.
    """
    if append_eos:
        target_tokens = jnp.pad(target_tokens, ((0, 0), (0, 1)), constant_values=pad_id)
        lengths = (target_tokens != pad_id).sum(1, keepdims=True)
        ends = (jnp.arange(target_tokens.shape[1]) == lengths) & (lengths > 0)
        target_tokens = jnp.where(ends, eos_id, target_tokens)
    first = jnp.where(target_tokens[:, :1] == pad_id, pad_id, eos_id)
    labels = target_tokens[:, 1:] if drop_first else target_tokens
    previous = jnp.concatenate([first, labels[:, :-1]], axis=1)
    # What stands behind a sentence's last label is no input of it.
    return jnp.where(labels == pad_id, pad_id, previous), labels


def softmax_kernels(dtype: DTypeLike) -> ModuleType | None:
    """`xling_jax.kernels` where the gradient by the logits of hidden states in `dtype` uses them.

    Not in float16, for which most of this gradient is too small; see `fused_softmax`.
    """
    return products.kernels_for(dtype) if dtype == jnp.bfloat16 else None


def _sums(weights, log_normalizer, label_logit, mean_logit, smoothing):
    """The loss and −log p_y, summed over tokens."""
    negative_log_likelihood = log_normalizer - label_logit
    smooth = log_normalizer - mean_logit
    per_token = (1 - smoothing) * negative_log_likelihood + smoothing * smooth
    return (weights * per_token).sum(), (weights * negative_log_likelihood).sum()


def _chunk_loss(hidden, table, bias, labels, weights, *, smoothing, vocab_size, with_gradient):
    """Loss sums of one chunk and, on demand, the gradient by its logits."""
    sizes = {"smoothing": smoothing, "vocab_size": vocab_size}
    if with_gradient and (kernels := softmax_kernels(hidden.dtype)):
        # One product writes the logits, in bfloat16 as PyTorch's autocast does.
        logits = hidden @ table.T
        arguments = logits.reshape(-1, len(table)), bias, labels.reshape(-1), weights.reshape(-1)
        gradient, *parts = kernels.softmax_gradient(*arguments, **sizes)
        parts = (part.reshape(labels.shape) for part in parts)
        return _sums(weights, *parts, smoothing), gradient.reshape(logits.shape)
    softmax = output_softmax(hidden, table, bias, vocab_size)
    label_logit = jnp.take_along_axis(softmax.logits, labels[..., None], axis=-1)[..., 0]
    # The mean of the logits is the logit of the mean row: no pass over [tokens, vocab].
    mean_row = jnp.where(softmax.real[:, None], table, 0).sum(0, dtype=jnp.float32) / vocab_size
    mean_logit = hidden.astype(jnp.float32) @ mean_row
    if bias is not None:
        mean_logit += jnp.where(softmax.real, bias, 0).sum() / vocab_size
    sums = _sums(weights, softmax.log_normalizer, label_logit, mean_logit, smoothing)
    if not with_gradient:
        return sums, None
    target = smoothing / vocab_size * softmax.real + (1 - smoothing) * (
        jnp.arange(table.shape[0]) == labels[..., None]
    )
    probabilities = softmax.exponentials * (weights[..., None] / softmax.normalizer)
    return sums, probabilities - target * weights[..., None]


def translation_loss(
    hidden: jax.Array,
    output_table: jax.Array,
    labels: jax.Array,
    weights: ArrayLike,
    *,
    output_bias: jax.Array | None = None,
    label_smoothing: float = 0.1,
    vocab_size: int | None = None,
    max_logits: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Summed cross-entropy of labels under logits = hidden · output_tableᵀ + output_bias.

    Per token ℓ = (1 − ε)(−log p_y) + (ε / V) Σ_v (−log p_v), where the smoothing covers all V
    entries, including the true one (fairseq before 2020-10; T-LASER).

    Logits are float32. Where a kernel computes the gradient (`softmax_kernels`), they are rounded
    to bfloat16 first, as PyTorch's autocast does; what follows is float32 there, too.

    Args:
        hidden: [batch, length, width], decoder states.
        output_table: [rows, width] float32; rows beyond `vocab_size` are padding and not part of
            the softmax or the smoothing.
        labels: [batch, length] int32.
        weights: [batch, length] bool or float, of each token; 0 where there is nothing to predict.
        output_bias: [rows] float32; None for none.
        label_smoothing: ε in [0, 1).
        vocab_size: V; all rows if None.
        max_logits: see `fused_softmax.fused_loss`.

    Returns:
        The weighted sum of ℓ in nats (float32; differentiable in hidden, output_table and
        output_bias), and that of −log p_y (a metric, not differentiable).

    Raises:
        ValueError: if label_smoothing or vocab_size is out of range.
    """
    vocab_size = real_rows(vocab_size, output_table)
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing={label_smoothing} must be in [0, 1)")
    weights = jnp.asarray(weights, jnp.float32)
    loss = functools.partial(_chunk_loss, smoothing=float(label_smoothing), vocab_size=vocab_size)
    return fused_loss(loss, max_logits, hidden, output_table, output_bias, (labels, weights))
