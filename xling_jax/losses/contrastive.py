"""Contrastive losses over a batch of translations (Mao et al. 2021).

Every sentence is compared with every other one of the global batch; if the batch is sharded over
devices, the compiler exchanges the vectors.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from xling_jax.losses.distance import check_pairs
from xling_jax.registry import check_choice

# Below every logit, yet finite, so that a row without candidates has no NaN in its gradient.
EXCLUDED = -1e30
# Of two softmax values: at 1, log cos and its slope are infinite. Beyond it the gradient is 0.
_LARGEST_DIFFERENCE = 1 - 1e-5
# Pairs per batch in Mao et al. (2021), for which the weight of SIM was chosen.
_PUBLISHED_BATCH = 128


def valid_rows(vectors: jax.Array, mask: jax.Array) -> jax.Array:
    """Vectors [batch, dim] in float32, zero in rows outside the mask."""
    return jnp.where(mask[:, None], vectors.astype(jnp.float32), 0)


def normalized(vectors: jax.Array) -> jax.Array:
    """Scales vectors to length 1; zero stays zero, with gradient zero."""
    squares = (vectors**2).sum(1, keepdims=True)
    positive = squares > 0
    return jnp.where(positive, vectors * jax.lax.rsqrt(jnp.where(positive, squares, 1)), 0)


def inner_products(left: jax.Array, right: jax.Array) -> jax.Array:
    """All inner products at full precision: the losses take small differences of large ones."""
    return jnp.matmul(left, right.T, precision=jax.lax.Precision.HIGHEST)


def equal_sentences(source_tokens: jax.Array, target_tokens: jax.Array, pad_id: int) -> jax.Array:
    """Finds pairs of rows with the same source sentence or the same target sentence.

    Such rows are translations of each other and must not serve as negatives.

    Args:
        source_tokens: [batch, length] int32, padded on the right.
        target_tokens: [batch, length] int32, likewise for the translations.
        pad_id: id of padding; an empty sentence equals no other.

    Returns:
        [batch, batch] bool, symmetric; False on the diagonal.
    """

    def equal(tokens: jax.Array) -> jax.Array:
        first, second = _sentence_hashes(tokens)
        same = (first[:, None] == first) & (second[:, None] == second)
        return same & (tokens != pad_id).any(1)[:, None]

    different_rows = ~jnp.eye(source_tokens.shape[0], dtype=bool)
    return (equal(source_tokens) | equal(target_tokens)) & different_rows


def _sentence_hashes(tokens: jax.Array) -> list[jax.Array]:
    """[batch, length] -> two of [batch] uint32, which differ for different sentences.

    Two sentences share all 64 bits by a chance of 1 in 10^19. Comparing the tokens of all pairs
    would take batch² · length steps, more than the encoder for thousands of short sentences;
    sorting them would exchange rows between devices once a column.
    """
    position = jnp.arange(tokens.shape[1], dtype=jnp.uint32)
    words = (murmur_mix(position + seed) + tokens.astype(jnp.uint32) for seed in (1, 1 << 16))
    return [murmur_mix(each).sum(1, dtype=jnp.uint32) for each in words]


def murmur_mix(words: jax.Array) -> jax.Array:
    """Permutes uint32 words so that every bit depends on all; the end of MurmurHash3."""
    words = (words ^ (words >> 16)) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * np.uint32(0xC2B2AE35)
    return words ^ (words >> 16)


def alignment_loss(
    source: jax.Array,
    target: jax.Array,
    mask: ArrayLike,
    *,
    similarity: str = "dot",
    scale: float = 1.0,
    margin: float = 0.0,
    own_side: bool = False,
    ignore: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Contrasts each sentence's translation with the other translations in the batch.

        ALIGN = − Σ_j [ log softmax_k(s_jk)_j + log softmax_k(s_kj)_j ]           (Eq. 5)

    with s_jk = scale · (sim(u_j, v_k) − margin · [j = k]). Published: dot products, scale 1, no
    margin. Cosine with a scale and a margin is the additive-margin softmax of Yang et al. (2019).
    With `own_side`, the candidates of u_j are also the other u_k, those of v_j the other v_k (Li et
    al. 2023, "Towards general text embeddings", Eq. 2): twice as many negatives, among them those
    that share the language.

    Args:
        source: [batch, dim], sentence vectors u.
        target: [batch, dim], vectors v of their translations.
        mask: [batch] bool; False rows are ignored.
        similarity: `dot` or `cosine`.
        scale: inverse temperature.
        margin: by which a translation must be nearer than all others, in units of the similarity.
        own_side: contrast with the other sentences of the same side as well.
        ignore: [batch, batch] bool, pairs (j, k) not to use as negatives, see `equal_sentences`;
            the diagonal always counts. None for none.

    Returns:
        ALIGN summed over valid rows and both directions (float32), and, as a metric, the number of
        rows to which their translation is more similar than all others, averaged over both
        directions.

    Raises:
        ValueError: for an unknown similarity, a scale of 0 or less, or unequal shapes.
    """
    check_pairs(source, target)
    check_choice("similarity", similarity, ("dot", "cosine"))
    if scale <= 0:
        raise ValueError(f"scale={scale} must be positive")
    mask = jnp.asarray(mask, bool)
    source, target = valid_rows(source, mask), valid_rows(target, mask)
    if similarity == "cosine":
        source, target = normalized(source), normalized(target)
    compared = mask[:, None] & mask
    if ignore is not None:
        compared &= ~ignore
    translation = jnp.eye(mask.shape[0], dtype=bool)
    # The only candidate of a padding row is itself: loss and gradient are 0.
    compared |= translation
    products = jnp.where(compared, inner_products(source, target), EXCLUDED)
    logits = jnp.where(compared, scale * (products - margin * translation), EXCLUDED)
    # `jnp.diagonal` compiles to a branch with collectives inside, which several processes on CPUs
    # have run in different orders.
    rows = jnp.arange(mask.shape[0])
    positive = logits[rows, rows]
    others = jax.lax.stop_gradient(jnp.where(translation, EXCLUDED, products))
    loss, correct = 0.0, 0.0
    for axis, side in ((1, source), (0, target)):
        total = jax.nn.logsumexp(logits, axis=axis)
        if own_side:
            own = jnp.where(compared & ~translation, scale * inner_products(side, side), EXCLUDED)
            total = jnp.logaddexp(total, jax.nn.logsumexp(own, axis=1))
        loss += (total - positive).sum()
        # Twice as fast as argmax on a CPU; and where all are equal, none is correct.
        correct += ((products[rows, rows] > others.max(axis)) & mask).sum() / 2
    return loss, correct


def _log_cos(difference: jax.Array) -> jax.Array:
    """−log cos(π x / 2), as −log(1 − 2 sin²(π x / 4)): exact near 0, bounded at ±1."""
    difference = jnp.clip(difference, -_LARGEST_DIFFERENCE, _LARGEST_DIFFERENCE)
    return -jnp.log1p(-2 * jnp.sin(np.pi / 4 * difference) ** 2)


def similarity_distribution_loss(
    source: jax.Array,
    target: jax.Array,
    mask: ArrayLike,
    *,
    reduction: str = "normalized",
) -> jax.Array:
    """Penalizes disagreement between the languages on which sentences of a batch are similar.

        SIM = − Σ_ij log cos( π/2 (S1_ij − S2_ij) )                              (Eq. 6)

    where S1 and S2 are the row-wise softmax of U Uᵀ and V Vᵀ. As in the published code, but not in
    the paper's figure, both include the diagonal; it is usually by far the largest, which leaves
    little probability for other pairs and little gradient.

    The published loss adds this sum over a batch of B sentences to means over the batch. A row
    compares two distributions, Σ_j (S1_ij − S2_ij)² ≤ 2, so it has the same size for every B, and
    a sentence has the same gradient from its row; from the means it has 1/B of one. Hence the
    weight of the sum relative to the means grows as B. `normalized` multiplies the sum by 128 / B:
    a mean over rows, and at the published B = 128 the published sum.

    Args:
        source: [batch, dim], sentence vectors U.
        target: [batch, dim], vectors V of their translations.
        mask: [batch] bool; False rows are ignored.
        reduction: `normalized`, so that a weight means the same for every B, the number of valid
            rows; or `sum` over pairs, as published.

    Returns:
        SIM, float32 scalar; 0 with gradient 0 if U = V.

    Raises:
        ValueError: for an unknown option or unequal shapes.
    """
    check_pairs(source, target)
    check_choice("reduction", reduction, ("normalized", "sum"))
    mask = jnp.asarray(mask, bool)
    compared = mask[:, None] & mask

    def distributions(vectors: jax.Array) -> jax.Array:
        vectors = valid_rows(vectors, mask)
        products = jnp.where(compared, inner_products(vectors, vectors), EXCLUDED)
        return jnp.where(compared, jax.nn.softmax(products), 0)

    total = _log_cos(distributions(source) - distributions(target)).sum()
    if reduction == "sum":
        return total
    return total * (_PUBLISHED_BATCH / jnp.maximum(mask.sum(), 1))
