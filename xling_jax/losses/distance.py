"""The distance constraint of cT-LASER and cLASER: translations closer than random sentences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from xling_jax.losses.similarity import check_pairs
from xling_jax.options import check_number
from xling_jax.registry import check_choice

_DISTANCES = ("l2", "squared_l2", "arccos")


def _safe_sqrt(squares: jax.Array) -> jax.Array:
    """√x, with gradient 0 instead of infinity at x ≤ 0."""
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1.0)), 0.0)


def _arccos_distance(cosine: jax.Array) -> jax.Array:
    """arccos(0.99 cos) / π; the factor keeps the slope finite at cos = ±1."""
    return jnp.arccos(0.99 * cosine) / np.pi


def _normalized(vectors: jax.Array) -> jax.Array:
    norms = _safe_sqrt((vectors**2).sum(-1, keepdims=True))
    return vectors / jnp.maximum(norms, 1e-12)


def pairwise_distances(source: jax.Array, target: jax.Array, distance: str = "l2") -> jax.Array:
    """All distances between two sets of vectors, [n, m] float32, from one matrix product.

    The product runs at the highest precision: with the reduced precision that accelerators use by
    default, cancellation would destroy the distances.

    Args:
        source: [n, dim].
        target: [m, dim].
        distance: `l2` ‖a − b‖, `squared_l2` ‖a − b‖², or `arccos`, arccos(0.99 cos(a, b)) / π.

    """
    source, target = source.astype(jnp.float32), target.astype(jnp.float32)
    check_choice("distance", distance, _DISTANCES)
    product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    if distance == "arccos":
        return _arccos_distance(product(_normalized(source), _normalized(target).T))
    # Moving the origin changes no distance and reduces the cancellation below.
    origin = jax.lax.stop_gradient(target.mean(0))
    source, target = source - origin, target - origin
    squares = (source**2).sum(1)[:, None] + (target**2).sum(1) - 2 * product(source, target.T)
    squares = jnp.maximum(squares, 0)
    return squares if distance == "squared_l2" else _safe_sqrt(squares)


def paired_distances(source: jax.Array, target: jax.Array, distance: str = "l2") -> jax.Array:
    """Distances between rows of the same index: [n, dim], [n, dim] -> [n] float32."""
    check_choice("distance", distance, _DISTANCES)
    source, target = source.astype(jnp.float32), target.astype(jnp.float32)
    if distance == "arccos":
        return _arccos_distance((_normalized(source) * _normalized(target)).sum(1))
    squares = ((source - target) ** 2).sum(1)
    return squares if distance == "squared_l2" else _safe_sqrt(squares)


def random_partners(
    key: jax.Array, mask: jax.Array, num_negatives: int, negatives: str = "permutation"
) -> jax.Array:
    """Draws for each row the index of a random valid row, by permutations of the valid rows.

    Args:
        key: PRNG key.
        mask: [batch] bool, valid rows.
        num_negatives: number of permutations.
        negatives: `permutation` (with one fixed point on average) or `derangement` (one random
            cycle through all valid rows; a fixed point only if a single row is valid).

    Returns:
        [num_negatives, batch] int32; padding rows get their own index.
    """
    check_choice("negatives", negatives, ("permutation", "derangement"))
    batch = mask.shape[0]
    count = jnp.maximum(mask.sum(), 1)
    noise = jax.random.uniform(key, (num_negatives, batch))
    order = jnp.argsort(jnp.where(mask, noise, jnp.inf), axis=1)  # valid rows first, shuffled
    if negatives == "permutation":
        rank = jnp.cumsum(mask) - 1
        partners = order[:, jnp.clip(rank, 0)]
    else:
        following = jnp.take_along_axis(
            order, ((jnp.arange(batch) + 1) % count)[None].repeat(num_negatives, 0), axis=1
        )
        partners = jax.vmap(lambda o, f: jnp.zeros(batch, o.dtype).at[o].set(f))(order, following)
    return jnp.where(mask, partners, jnp.arange(batch)).astype(jnp.int32)


def embedding_scale(
    source: jax.Array, target: jax.Array, mask: jax.Array, scale: str = "norm_of_mean"
) -> jax.Array:
    """v_norm: the magnitude of a batch's embeddings, averaged over both languages, float32.

    Args:
        source: [batch, dim].
        target: [batch, dim].
        mask: [batch] bool, valid rows.
        scale: `norm_of_mean` (published code: norm of the mean vector) or `mean_of_norms`.
    """
    check_choice("scale", scale, ("norm_of_mean", "mean_of_norms"))
    count = jnp.maximum(mask.sum(), 1)

    def size(vectors: jax.Array) -> jax.Array:
        vectors = jnp.where(mask[:, None], vectors.astype(jnp.float32), 0)
        if scale == "norm_of_mean":
            return _safe_sqrt(((vectors.sum(0) / count) ** 2).sum())
        return _safe_sqrt((vectors**2).sum(1)).sum() / count

    return (size(source) + size(target) + 1e-6) / 2


def distance_constraint(
    source: jax.Array,
    target: jax.Array,
    mask: ArrayLike,
    key: jax.Array,
    *,
    margin: float = 0.5,
    num_negatives: int = 20,
    negative_weight: float = 0.5,
    distance: str = "l2",
    scale: str = "norm_of_mean",
    negatives: str = "permutation",
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Distance term of cT-LASER, summed over sentences.

    As in the published code (`dnorm+` of T-LASER; Eq. 7 to 9 of the paper square the distances):

        Dist = Σ_i p_i / v
             + w/N Σ_j Σ_i [ relu(α + (p_i − n^A_ij) / v) + relu(α + (p_i − n^B_ij) / v) ]

    with p_i = ‖A_i − B_i‖, n^A_ij = ‖A_i − B_π_j(i)‖, n^B_ij = ‖B_i − A_σ_j(i)‖ and fresh random
    permutations π_j, σ_j. `arccos` distances are not divided by v (`cos+`).

    Args:
        source: [batch, dim], sentence vectors A.
        target: [batch, dim], vectors B of their translations.
        mask: [batch] bool; False rows are ignored.
        key: PRNG key of the permutations.
        margin: α, in units of v.
        num_negatives: N, permutations in each direction.
        negative_weight: w = λ / β; published 1/2. Shrinking all distances alike lowers the sum as
            long as (1 + 2 w) p > 2 w n. With w = 1/2 the constraint pulls everything into one point
            until translation has made random pairs twice as distant as translations.
        distance: see `pairwise_distances`.
        scale: of v, see `embedding_scale`.
        negatives: see `random_partners`.

    Returns:
        Dist (float32 scalar) and metrics, each a float32 sum over valid rows: `positive_distance`
        (p_i / v), `margin_violations` (share of negatives inside the margin), `scale` (v).

    Raises:
        ValueError: for an option that is unknown or out of range, or unequal shapes.
    """
    check_pairs(source, target)
    if num_negatives < 1:
        raise ValueError(
            f"num_negatives={num_negatives} must be at least 1; to leave negatives out, set "
            "negative_weight=0"
        )
    check_number(margin, "margin", at_least=0)
    if negative_weight < 0:
        raise ValueError(f"negative_weight={negative_weight} must not be negative")
    mask = jnp.asarray(mask, bool)
    weights = mask.astype(jnp.float32)
    positive = jnp.where(mask, paired_distances(source, target, distance), 0)
    everything = pairwise_distances(source, target, distance)
    if distance == "arccos":
        unit = jnp.ones((), jnp.float32)
    else:
        unit = embedding_scale(source, target, mask, scale)
    to_target, to_source = jnp.split(
        random_partners(key, mask, 2 * num_negatives, negatives), 2, axis=0
    )
    rows = jnp.arange(mask.shape[0])
    negative_distances = jnp.stack([everything[rows, to_target], everything[to_source, rows]])
    # The negative of a fixed point is its positive: exactly 0, despite rounding.
    fixed = jnp.stack([to_target, to_source]) == rows
    difference = jnp.where(fixed, 0.0, positive - negative_distances)
    violation = jax.nn.relu(margin + difference / unit) * weights
    loss = (positive * weights).sum() / unit + negative_weight * violation.sum() / num_negatives
    inside = ((violation > 0) * weights).sum() / (2 * num_negatives)
    metrics = {
        "positive_distance": (positive * weights).sum() / unit,
        "margin_violations": inside,
        "scale": unit * weights.sum(),
    }
    return loss, jax.tree.map(jax.lax.stop_gradient, metrics)
