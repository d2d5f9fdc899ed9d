"""The generative objectives of Mao et al. (2021): a sentence vector predicts tokens as a set.

One distribution over the vocabulary is predicted from the pooled vector of each side of a pair, and
compared with a label distribution made of the other side's tokens, of a token that was hidden from
the encoder, or of both. Labels are few ids with weights, never an array over the vocabulary.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from xling_jax.losses.fused_softmax import fused_loss, output_softmax

TASKS = ("mlm", "smlm", "xtr", "ugt")
DUPLICATES = ("once", "count", "renormalize")
OVERLAPS = ("overwrite", "add")
LABEL_TOKENS = ("original", "masked")


class Masked(NamedTuple):
    """Pairs with one token hidden in one side.

    Attributes:
        source_tokens: [batch, length] int32.
        target_tokens: [batch, length] int32.
        side: [batch] int32, where the token is hidden: 0 source, 1 target.
        token: [batch] int32, id of the hidden token; the padding's id where none is hidden.
    """

    source_tokens: jax.Array
    target_tokens: jax.Array
    side: jax.Array
    token: jax.Array


class Labels(NamedTuple):
    """Label distributions, q(ids) = weights and 0 elsewhere.

    Attributes:
        ids: [batch, k] int32.
        weights: [batch, k] float32, 0 where the id is of no account.
        scales: [k] float32, the weight of the distribution that an entry belongs to, which is a
            factor of its weights; None where it is 1.
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
    """Hides one token of one side of each pair.

    A fair coin chooses the side, then all its maskable positions are alike. A side that has none
    leaves it to the other one; where neither has any, nothing is hidden. (The published code then
    searches for ever.) What is drawn does not depend on the amount of padding.

    Args:
        key: PRNG key.
        source_tokens: [batch, length] int32, padded on the right.
        target_tokens: [batch, length] int32, the same of the translations.
        maskable: [vocab] bool, ids that may be hidden: neither punctuation nor special tokens.
        mask_id: what stands in the hidden token's place.
        pad_id: id of padding; it is never hidden.
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
        candidate & (jnp.cumsum(candidate, 1) == number[i][:, None] + 1) & (side == i)[:, None]
        for i, candidate in enumerate(candidates)
    ]
    # At most one position of a pair is hidden; the sum is its id.
    found = (counts > 0).any(0)
    token = sum(jnp.where(h, tokens, 0).sum(1) for h, tokens in zip(hidden, sides))
    masked = [jnp.where(h, mask_id, tokens) for h, tokens in zip(hidden, sides)]
    return Masked(*masked, side, jnp.where(found, token, pad_id).astype(jnp.int32))


def _sentence_labels(tokens: jax.Array, pad_id: int, duplicates: str) -> Labels:
    """Eq. 3: q(w) = N_w / ‖S‖ for w in S, whose weight stands at its first occurrence."""
    real = tokens != pad_id
    same = (tokens[:, :, None] == tokens[:, None, :]) & real[:, None, :]
    earlier = jnp.tril(jnp.ones(same.shape[1:], bool), -1)
    first = real & ~(same & earlier).any(2)
    times = same.sum(2) if duplicates == "count" else 1
    total = (first if duplicates == "renormalize" else real).sum(1, keepdims=True)
    weights = jnp.where(first, times, 0) / jnp.maximum(total, 1)
    return Labels(tokens, weights.astype(jnp.float32))


def _unified_labels(other: Labels, token: jax.Array, here: jax.Array, overlap: str) -> Labels:
    """Eq. 4: ½ at the hidden token and ½ of the other sentence's label; Eq. 3 if not hidden here.

    Args:
        other: label of the other sentence.
        token: [batch] int32, the hidden token.
        here: [batch] bool, whether it is hidden in this side.
        overlap: see `label_distributions`.
    """
    half = jnp.where(here, 0.5, 0.0)[:, None]
    weights = other.weights * (1 - half)
    found = (other.ids == token[:, None]) & (weights > 0)
    if overlap == "add":
        weights += half * found
    alone = half * ~found.any(1, keepdims=True)
    return _append(Labels(other.ids, weights), token, alone)


def _append(labels: Labels, token: jax.Array, weight: jax.Array) -> Labels:
    """Labels with a further entry, [batch] id and [batch, 1] weight."""
    ids = jnp.concatenate([labels.ids, token[:, None]], axis=1)
    return Labels(ids, jnp.concatenate([labels.weights, weight], axis=1))


def label_distributions(
    tasks: Mapping[str, float],
    source_tokens: jax.Array,
    target_tokens: jax.Array,
    masked: Masked | None,
    *,
    pad_id: int,
    duplicates: str = "once",
    overlap: str = "overwrite",
    label_tokens: str = "original",
) -> tuple[Labels, Labels]:
    """What either side of each pair shall predict.

        xtr   q(w) = N_w / ‖S'‖ for w in the other sentence S'                      (Eq. 3)
        mlm   q(w_t) = 1 for the side in which w_t is hidden, nothing for the other one
        smlm  q(w_t) = 1 for both sides                                             (Eq. 1)
        ugt   ½ at w_t and N_w / (2 ‖S'‖) for w in S' for the side in which w_t is hidden,
              Eq. 3 for the other one, and for both where nothing is hidden         (Eq. 4)

    A pair with an empty side, a row of padding among them, has weight nowhere. Several tasks have
    their entries side by side, so that their losses are added.

    Args:
        tasks: of the above -> weight of its loss.
        source_tokens: [batch, length] int32, with nothing hidden.
        target_tokens: [batch, length] int32, the same of the translations.
        masked: the pairs as they were encoded; only `xtr` does without.
        pad_id: id of padding.
        duplicates: of a token that occurs more than once: `once` (published code: N_w = 1, although
            ‖S'‖ counts every occurrence, so the label sums to less than 1), `count` (N_w its
            occurrences) or `renormalize` (N_w = 1, ‖S'‖ the number of different tokens).
        overlap: of a w_t that also occurs in S', in `ugt`: `overwrite` (published code: the weight
            from S' replaces the ½) or `add`.
        label_tokens: where S' is taken from, `original` sentences or `masked` ones (published code:
            <MASK> takes the place of w_t in the label of the other side).

    Returns:
        Labels of source and target: k is 1 for `mlm` and `smlm`, else the other side's length, and
        one more where the hidden token has an entry; of several tasks the sum. Of one task each id
        has a weight once in a row, and weights of a row sum to at most the task's weight.

    Raises:
        ValueError: for an unknown option, or without `masked` where the task needs it.
    """
    for name, value, known in (
        *(("task", task, TASKS) for task in tasks),
        ("duplicates", duplicates, DUPLICATES),
        ("overlap", overlap, OVERLAPS),
        ("label_tokens", label_tokens, LABEL_TOKENS),
    ):
        if value not in known:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(known)}")
    if masked is None and (tasks.keys() - {"xtr"} or label_tokens == "masked"):
        raise ValueError("masked=None: all tasks but xtr need the pairs with a hidden token")
    originals = (source_tokens, target_tokens)
    kept = functools.reduce(
        jnp.logical_and, ((t != pad_id).any(1, keepdims=True) for t in originals)
    )
    others = (
        originals if label_tokens == "original" else (masked.source_tokens, masked.target_tokens)
    )
    result = []
    for side, tokens in enumerate(others[::-1]):
        sentence = _sentence_labels(tokens, pad_id, duplicates)
        parts = []
        for task in sorted(tasks, reverse=True):
            if task == "xtr":
                parts.append(sentence)
                continue
            token, hidden = masked.token, masked.token != pad_id
            here = hidden if task == "smlm" else hidden & (masked.side == side)
            if task == "ugt":
                parts.append(_unified_labels(sentence, token, here, overlap))
            else:
                parts.append(Labels(token[:, None], here[:, None].astype(jnp.float32)))
        labels = _side_by_side(parts, [tasks[task] for task in sorted(tasks, reverse=True)])
        result.append(labels._replace(weights=jnp.where(kept, labels.weights, 0)))
    return tuple(result)


def _side_by_side(parts: Sequence[Labels], task_weights: Sequence[float]) -> Labels:
    """Entries of several label distributions, each with the weight of its task."""
    if len(parts) == 1 and task_weights[0] == 1:
        return parts[0]
    ids = jnp.concatenate([labels.ids for labels in parts], axis=1)
    if set(task_weights) == {1.0}:
        return Labels(ids, jnp.concatenate([labels.weights for labels in parts], axis=1))
    weighted = [weight * labels.weights for weight, labels in zip(task_weights, parts)]
    scales = [np.full(ls.ids.shape[1], w, np.float32) for w, ls in zip(task_weights, parts)]
    return Labels(ids, jnp.concatenate(weighted, axis=1), np.concatenate(scales))


def _chunk_loss(
    hidden, table, bias, ids, label_weights, row_weights, *, scales, vocab_size, with_gradient
):
    """KL and cross-entropy of one chunk and, on demand, the gradient by its logits."""
    softmax = output_softmax(hidden, table, bias, vocab_size)
    logits = jnp.take_along_axis(softmax.logits, ids, axis=1)
    total = label_weights.sum(1)
    # q log q is 0 at q = 0.
    own_weights = label_weights if scales is None else label_weights / scales
    log_label = jnp.log(jnp.where(label_weights > 0, own_weights, 1))
    cross_entropy = total * softmax.log_normalizer - (label_weights * logits).sum(1)
    divergence = cross_entropy + (label_weights * log_label).sum(1)
    sums = ((row_weights * divergence).sum(), (row_weights * cross_entropy).sum())
    if not with_gradient:
        return sums, None
    gradient = softmax.exponentials * ((row_weights * total)[:, None] / softmax.normalizer)
    subtract = jax.vmap(lambda row, places, values: row.at[places].add(-values))
    return sums, subtract(gradient, ids, row_weights[:, None] * label_weights)


def token_distribution_kl(
    hidden: jax.Array,
    output_table: jax.Array,
    labels: Labels,
    row_weights: ArrayLike | None = None,
    *,
    output_bias: jax.Array | None = None,
    vocab_size: int | None = None,
    max_logits: int = 1 << 26,
) -> tuple[jax.Array, jax.Array]:
    """Divergence of predicted token distributions from their labels, summed over rows.

        KL(q ‖ p) = Σ_w q(w) (log q(w) − log p(w))
        p = softmax(hidden · output_tableᵀ + output_bias)

    Eq. 2, whose printed argument order and sign would be infinite where q = 0. It is not zero at
    its minimum if q sums to less than 1; the cross-entropy has the same gradient and is what to
    watch.

    Args:
        hidden: [batch, width], from the sentence vectors.
        output_table: [rows, width] float32; rows beyond `vocab_size` are padding for the hardware
            and take no part in the softmax.
        labels: q, a constant; ids below `vocab_size` wherever they have a weight. Two entries of a
            row with the same id count as two distributions, whose divergences are added.
        row_weights: [batch] bool or float; None for 1.
        output_bias: [rows] float32; None for none.
        vocab_size: V; all rows if None.
        max_logits: logits alive at a time, in elements; the batch is cut into chunks to stay below.

    Returns:
        The weighted sum of KL in nats (float32; differentiable in hidden, output_table and
        output_bias), and that of −Σ_w q log p (a metric, not differentiable).

    Raises:
        ValueError: if vocab_size is out of range.
    """
    rows = output_table.shape[0]
    vocab_size = rows if vocab_size is None else vocab_size
    if not 0 < vocab_size <= rows:
        raise ValueError(
            f"vocab_size={vocab_size} must be between 1 and the {rows} rows of output_table"
        )
    row_weights = jnp.asarray(1.0 if row_weights is None else row_weights, jnp.float32)
    targets = (
        labels.ids,
        labels.weights.astype(jnp.float32),
        jnp.broadcast_to(row_weights, hidden.shape[:1]),
    )
    loss = functools.partial(_chunk_loss, scales=labels.scales, vocab_size=int(vocab_size))
    return fused_loss(loss, max_logits, hidden, output_table, output_bias, targets)
