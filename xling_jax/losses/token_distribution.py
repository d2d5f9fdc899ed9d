"""The generative objectives of Mao et al. (2021): a sentence vector predicts a set of tokens.

From the pooled vector of each side of a pair, one distribution over the vocabulary is predicted and
compared with a label distribution over the other side's tokens, a token masked in the encoder's
input, or both. Labels are a few ids with weights, never an array over the vocabulary.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from xling_jax.losses.fused_softmax import fused_loss, output_softmax, real_rows
from xling_jax.registry import check_choice

TASKS = ("mlm", "smlm", "xtr", "ugt")


class Masked(NamedTuple):
    """Pairs with one masked token each.

    Attributes:
        source_tokens: [batch, length] int32.
        target_tokens: [batch, length] int32.
        side: [batch] int32, the side with the masked token: 0 source, 1 target.
        token: [batch] int32, id of the masked token; that of padding if none is masked.
    """

    source_tokens: jax.Array
    target_tokens: jax.Array
    side: jax.Array
    token: jax.Array


class Labels(NamedTuple):
    """Label distributions, q(ids) = weights and 0 elsewhere.

    Attributes:
        ids: [batch, k] int32.
        weights: [batch, k] float32, 0 where the id is to be ignored.
        scales: [k] float32, the weight of the distribution that an entry belongs to, already a
            factor of its weights; None if it is 1 everywhere.
    """

    ids: jax.Array
    weights: jax.Array
    scales: np.ndarray | None = None


def mask_one_token(
    key: jax.Array,
    source_tokens: jax.Array,
    target_tokens: jax.Array,
    maskable: ArrayLike,
    *,
    mask_id: int,
    pad_id: int,
) -> Masked:
    """Masks one token of each pair.

    A fair coin chooses the side, then all its maskable positions are equally likely. If one side
    has none, the other is chosen; if neither has any, nothing is masked (the published code then
    loops forever). The result does not depend on the amount of padding.

    Args:
        key: PRNG key.
        source_tokens: [batch, length] int32, padded on the right.
        target_tokens: [batch, length] int32, likewise for the translations.
        maskable: [vocab] bool, ids that may be masked: neither punctuation nor special tokens.
        mask_id: replaces the masked token.
        pad_id: id of padding; it is never masked.
    """
    sides = (source_tokens, target_tokens)
    maskable = jnp.asarray(maskable, bool)
    candidates = [maskable[tokens] & (tokens != pad_id) for tokens in sides]
    counts = jnp.stack([candidate.sum(1) for candidate in candidates])
    coin_key, place_key = jax.random.split(key)
    coin = jax.random.bernoulli(coin_key, shape=counts.shape[1:])
    side = jnp.where((counts > 0).all(0), coin, counts[1] > 0).astype(jnp.int32)
    number = jax.random.randint(place_key, counts.shape, 0, jnp.maximum(counts, 1))
    hidden = [
        candidate & (jnp.cumsum(candidate, axis=1) == number[i][:, None] + 1) & (side == i)[:, None]
        for i, candidate in enumerate(candidates)
    ]
    # At most one position of a pair is masked; the sum is its id.
    found = (counts > 0).any(0)
    token = sum(jnp.where(h, tokens, 0).sum(1) for h, tokens in zip(hidden, sides))
    masked = [jnp.where(h, mask_id, tokens) for h, tokens in zip(hidden, sides)]
    return Masked(*masked, side, jnp.where(found, token, pad_id).astype(jnp.int32))


def _sentence_labels(tokens: jax.Array, pad_id: int, duplicates: str) -> Labels:
    """Eq. 3: q(w) = N_w / ‖S‖ for w in S, as the weight of its first occurrence."""
    real = tokens != pad_id
    same = (tokens[:, :, None] == tokens[:, None, :]) & real[:, None, :]
    earlier = jnp.tril(jnp.ones(same.shape[1:], bool), -1)
    first = real & ~(same & earlier).any(2)
    times = same.sum(2) if duplicates == "count" else 1
    weights = jnp.where(first, times, 0) / jnp.maximum(real.sum(1, keepdims=True), 1)
    return Labels(tokens, weights.astype(jnp.float32))


def _unified_labels(other: Labels, token: jax.Array, here: jax.Array) -> Labels:
    """Eq. 4: ½ at the masked token and ½ of the other sentence's label; Eq. 3 if not masked here.

    The masked token is [batch] int32; `here`, [batch] bool, tells whether this side has it.
    """
    half = jnp.where(here, 0.5, 0.0)[:, None]
    weights = other.weights * (1 - half)
    found = (other.ids == token[:, None]) & (weights > 0)
    alone = half * ~found.any(1, keepdims=True)
    ids = jnp.concatenate([other.ids, token[:, None]], axis=1)
    return Labels(ids, jnp.concatenate([weights, alone], axis=1))


def label_distributions(
    tasks: Mapping[str, float],
    source_tokens: jax.Array,
    target_tokens: jax.Array,
    masked: Masked | None,
    *,
    pad_id: int,
    duplicates: str = "once",
) -> tuple[Labels, Labels]:
    """Builds the distributions that both sides of each pair must predict.

        xtr   q(w) = N_w / ‖S'‖ for w in the other sentence S'                      (Eq. 3)
        mlm   q(w_t) = 1 for the side in which w_t is masked, nothing for the other one
        smlm  q(w_t) = 1 for both sides                                             (Eq. 1)
        ugt   ½ at w_t and N_w / (2 ‖S'‖) for w in S' for the side in which w_t is masked,
              Eq. 3 for the other one, and for both if nothing is masked            (Eq. 4);
              as in the published code, a w_t that is also in S' has the weight from S' alone

    A pair with an empty side, such as a row of padding, has no weights. The entries of several
    tasks are concatenated, which adds their losses.

    Args:
        tasks: of the above -> weight of its loss.
        source_tokens: [batch, length] int32, unmasked (the published code takes S' from the masked
            sentences).
        target_tokens: [batch, length] int32, likewise for the translations.
        masked: the pairs as encoded; only `xtr` needs none.
        pad_id: id of padding.
        duplicates: for a token that occurs more than once: `once` (published code: N_w = 1, though
            ‖S'‖ counts every occurrence, so the label sums to less than 1) or `count` (N_w is the
            number of occurrences).

    Returns:
        Labels of source and target. k is 1 for `mlm` and `smlm`, otherwise the other side's length,
        plus 1 if the masked token has an entry; summed over tasks. Within a task each id has a
        weight at most once in a row, and the weights of a row sum to at most the task's weight.

    Raises:
        ValueError: for an unknown option, or if `masked` is missing.
    """
    for task in tasks:
        check_choice("task", task, TASKS)
    check_choice("duplicates", duplicates, ("once", "count"))
    if masked is None and tasks.keys() - {"xtr"}:
        raise ValueError("masked=None: all tasks but xtr need the pairs with a masked token")
    order = sorted(tasks, reverse=True)
    source_real, target_real = (
        (tokens != pad_id).any(1, keepdims=True) for tokens in (source_tokens, target_tokens)
    )
    kept = jnp.logical_and(source_real, target_real)
    result = []
    for side, tokens in enumerate((target_tokens, source_tokens)):
        sentence = _sentence_labels(tokens, pad_id, duplicates)
        parts = []
        for task in order:
            if task == "xtr":
                parts.append(sentence)
                continue
            token, hidden = masked.token, masked.token != pad_id
            here = hidden if task == "smlm" else hidden & (masked.side == side)
            if task == "ugt":
                parts.append(_unified_labels(sentence, token, here))
            else:
                parts.append(Labels(token[:, None], here[:, None].astype(jnp.float32)))
        labels = _concatenate(parts, [tasks[task] for task in order])
        result.append(labels._replace(weights=jnp.where(kept, labels.weights, 0)))
    return tuple(result)


def _concatenate(parts: Sequence[Labels], task_weights: Sequence[float]) -> Labels:
    """Joins label distributions, each with the weight of its task."""
    ids = jnp.concatenate([labels.ids for labels in parts], axis=1)
    weighted = [weight * labels.weights for weight, labels in zip(task_weights, parts)]
    scales = [np.full(ls.ids.shape[1], w, np.float32) for w, ls in zip(task_weights, parts)]
    return Labels(ids, jnp.concatenate(weighted, axis=1), np.concatenate(scales))


def _chunk_loss(hidden, table, bias, ids, label_weights, *, scales, vocab_size, with_gradient):
    """KL and cross-entropy of one chunk and, on demand, the gradient of its logits."""
    softmax = output_softmax(hidden, table, bias, vocab_size)
    logits = jnp.take_along_axis(softmax.logits, ids, axis=1)
    total = label_weights.sum(1)
    # q log q is 0 at q = 0.
    own_weights = label_weights if scales is None else label_weights / scales
    log_label = jnp.log(jnp.where(label_weights > 0, own_weights, 1))
    cross_entropy = total * softmax.log_normalizer - (label_weights * logits).sum(1)
    divergence = cross_entropy + (label_weights * log_label).sum(1)
    sums = (divergence.sum(), cross_entropy.sum())
    if not with_gradient:
        return sums, None
    gradient = softmax.exponentials * (total[:, None] / softmax.normalizer)
    subtract = jax.vmap(lambda row, ids, values: row.at[ids].add(-values))
    return sums, subtract(gradient, ids, label_weights)


def token_distribution_kl(
    hidden: jax.Array,
    output_table: jax.Array,
    labels: Labels,
    *,
    output_bias: jax.Array | None = None,
    vocab_size: int | None = None,
    max_logits: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Divergence of the predicted token distributions from the labels, summed over rows.

        KL(q ‖ p) = Σ_w q(w) (log q(w) − log p(w))
        p = softmax(hidden · output_tableᵀ + output_bias)

    Eq. 2; with the argument order and sign printed there, it would be infinite where q = 0. Its
    minimum is not zero if q sums to less than 1; watch the cross-entropy, which has the same
    gradient.

    Args:
        hidden: [batch, width], from the sentence vectors.
        output_table: [rows, width] float32, or a copy for each device; rows beyond `vocab_size`
            are padding and not part of the softmax.
        labels: q, a constant; ids with a weight are below `vocab_size`. Two entries of a row with
            the same id belong to two distributions, whose divergences are added.
        output_bias: [rows] float32; None for none.
        vocab_size: V; all rows if None.
        max_logits: see `fused_softmax.fused_loss`.

    Returns:
        The sum of KL in nats (float32; differentiable in hidden, output_table and
        output_bias), and that of −Σ_w q log p (a metric, not differentiable).

    Raises:
        ValueError: if vocab_size is out of range.
    """
    vocab_size = real_rows(vocab_size, output_table)
    targets = (labels.ids, labels.weights.astype(jnp.float32))
    loss = functools.partial(_chunk_loss, scales=labels.scales, vocab_size=vocab_size)
    return fused_loss(loss, max_logits, hidden, output_table, output_bias, targets)
