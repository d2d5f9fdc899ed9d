"""Losses of distances: the similarity loss, and the distance constraint of cT-LASER and cLASER."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from xling_jax.options import check_number


def check_pairs(source: jax.Array, target: jax.Array) -> None:
    """Raises ValueError unless both sides of a batch have the same shape."""
    if source.shape != target.shape:
        raise ValueError(
            f"source and target must have the same shape [batch, dim]; found {source.shape} and "
            f"{target.shape}"
        )


def squared_distance(source: jax.Array, target: jax.Array) -> jax.Array:
    """L_sim = ‖h(s) − h(t)‖² of each pair, [batch] float32, from vectors [batch, dim].

    The similarity loss of Yu, Li and Oguz (2018).

    Raises:
        ValueError: if the shapes differ.
    """
    check_pairs(source, target)
    difference = source.astype(jnp.float32) - target.astype(jnp.float32)
    return jnp.square(difference).sum(-1)


def _safe_sqrt(squares: jax.Array) -> jax.Array:
    """√x, with gradient 0 instead of infinity at x ≤ 0."""
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1.0)), 0.0)


def pairwise_distances(source: jax.Array, target: jax.Array) -> jax.Array:
    """All distances ‖a − b‖ of [n, dim] and [m, dim]: [n, m] float32.

    From one matrix product at the highest precision: with the reduced one that accelerators use by
    default, cancellation would destroy the distances.
    """
    source, target = source.astype(jnp.float32), target.astype(jnp.float32)
    # Moving the origin changes no distance and reduces the cancellation below.
    origin = jax.lax.stop_gradient(target.mean(0))
    source, target = source - origin, target - origin
    product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    squares = (source**2).sum(1)[:, None] + (target**2).sum(1) - 2 * product(source, target.T)
    return _safe_sqrt(jnp.maximum(squares, 0))


def random_partners(key: jax.Array, mask: jax.Array, num_negatives: int) -> jax.Array:
    """Draws for each row a random valid row, by permutations of the valid rows [batch].

    A permutation has one fixed point on average. Returns [num_negatives, batch] int32 indices;
    padding rows get their own.
    """
    noise = jax.random.uniform(key, (num_negatives, mask.shape[0]))
    order = jnp.argsort(jnp.where(mask, noise, jnp.inf), axis=1)  # valid rows first, shuffled
    rank = jnp.cumsum(mask) - 1
    partners = order[:, jnp.clip(rank, 0)]
    return jnp.where(mask, partners, jnp.arange(mask.shape[0])).astype(jnp.int32)


def embedding_scale(source: jax.Array, target: jax.Array, mask: jax.Array) -> jax.Array:
    """v: the norm of the mean vector of the valid rows, averaged over both languages, float32.

    As in the published code; gradients flow through it.
    """
    count = jnp.maximum(mask.sum(), 1)

    def size(vectors: jax.Array) -> jax.Array:
        vectors = jnp.where(mask[:, None], vectors.astype(jnp.float32), 0)
        return _safe_sqrt(((vectors.sum(0) / count) ** 2).sum())

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
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Distance term of cT-LASER, summed over sentences.

    As in the published code (`dnorm+` of T-LASER; Eq. 7 to 9 of the paper square the distances):

        Dist = Σ_i p_i / v
             + w/N Σ_j Σ_i [ relu(α + (p_i − n^A_ij) / v) + relu(α + (p_i − n^B_ij) / v) ]

    with p_i = ‖A_i − B_i‖, n^A_ij = ‖A_i − B_π_j(i)‖, n^B_ij = ‖B_i − A_σ_j(i)‖ and fresh random
    permutations π_j, σ_j.

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

    Returns:
        Dist (float32 scalar) and metrics, each a float32 sum over valid rows: `positive_distance`
        (p_i / v), `margin_violations` (share of negatives inside the margin), `scale` (v).

    Raises:
        ValueError: for an option out of range, or unequal shapes.
    """
    check_pairs(source, target)
    check_number(num_negatives, "num_negatives", at_least=1)
    check_number(margin, "margin", at_least=0)
    check_number(negative_weight, "negative_weight", at_least=0)
    mask = jnp.asarray(mask, bool)
    weights = mask.astype(jnp.float32)
    positive = jnp.where(mask, _safe_sqrt(squared_distance(source, target)), 0)
    everything = pairwise_distances(source, target)
    unit = embedding_scale(source, target, mask)
    to_target, to_source = jnp.split(random_partners(key, mask, 2 * num_negatives), 2)
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
