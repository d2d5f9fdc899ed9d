"""Ranks candidates by cosine, by margin or by CSLS."""

from __future__ import annotations

import numpy as np

from xling_jax.align import knn
from xling_jax.align.margin import csls, ratio_margin
from xling_jax.align.mining import MARGIN_NEIGHBORS

CSLS_NEIGHBORS = 10  # Conneau et al. (2018), section 2.3.
SIMILARITIES = ("cosine", "margin", "csls")
# Scores computed at a time: 64 MiB.
_BLOCK_SCORES = 2**24


def rank(
    source: np.ndarray,
    target: np.ndarray,
    k: int,
    *,
    similarity: str = "cosine",
    source_pool: np.ndarray | None = None,
) -> np.ndarray:
    """Ranks all targets for each source; returns [n, min(k, m)] int64, best first.

    Args:
        source: [n, dim] normalized embeddings, the queries.
        target: [m, dim] normalized embeddings, the candidates.
        k: how many to return.
        similarity: "cosine"; "margin", the ratio margin with k=4; or "csls" with k=10. The last
            two score every candidate, not only the nearest by cosine.
        source_pool: [p, dim] normalized embeddings among which candidates have their
            neighborhoods; None for the queries. Not used by cosine.
    """
    if similarity == "cosine":
        return knn.top_k(source, target, k)[1]
    rules = {"margin": (ratio_margin, MARGIN_NEIGHBORS), "csls": (csls, CSLS_NEIGHBORS)}
    rule, size = rules[similarity]
    source_mean = neighbor_mean(source, target, size)
    target_mean = neighbor_mean(target, source if source_pool is None else source_pool, size)

    found = np.empty((len(source), min(k, len(target))), np.int64)
    block_rows = max(1, _BLOCK_SCORES // max(len(target), 1))
    for start in range(0, len(source), block_rows):
        rows = slice(start, start + block_rows)
        scores = rule(source[rows] @ target.T, source_mean[rows], target_mean[None])
        for place in range(found.shape[1]):  # of equal scores the first
            best = scores.argmax(axis=1)
            found[rows, place] = best
            scores[np.arange(len(best)), best] = -np.inf
    return found


def neighbor_mean(queries: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
    """Mean cosine of each of normalized queries to its k nearest keys, [n] float32."""
    return knn.top_k(queries, keys, k)[0].mean(axis=1)


def nearest_by_margin(
    source: np.ndarray, target: np.ndarray, *, source_pool: np.ndarray | None = None
) -> np.ndarray:
    """Finds for each source the target that LASER's `xsim.py` finds, [n] int64.

    That is, of the 4 targets nearest by cosine the one with the largest ratio margin, the nearer
    one of equals. Neighborhoods are of 4 too, those of targets in the `source_pool`, or the queries
    as in LASER. Embeddings as of `rank`.
    """
    k = MARGIN_NEIGHBORS
    cosine, nearest = knn.top_k(source, target, k)
    used, inverse = np.unique(nearest, return_inverse=True)
    means = neighbor_mean(target[used], source if source_pool is None else source_pool, k)
    scores = ratio_margin(cosine, cosine.mean(axis=1), means[inverse.reshape(nearest.shape)])
    return np.take_along_axis(nearest, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
