"""Density of sentence vectors by a tophat kernel on their principal components."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xling_jax.documents.debias import GramStatistics


@dataclasses.dataclass(frozen=True)
class BandwidthChoice:
    """Outcome of `choose_bandwidth`.

    Attributes:
        bandwidth: the best.
        candidates: [c] float64, rising.
        scores: [c] float64, mean log likelihood of a held-out sentence.
    """

    bandwidth: float
    candidates: np.ndarray
    scores: np.ndarray


def neighbor_counts(queries: np.ndarray, points: np.ndarray, radius: float) -> np.ndarray:
    """Counts, for every query, the points at most `radius` away, exactly.

    Args:
        queries: [n, d].
        points: [m, d].
        radius: not negative.

    Returns:
        [n] int64. A query that is one of the points counts itself.
    """
    raise NotImplementedError


def choose_bandwidth(
    points: np.ndarray,
    candidates: Sequence[float] | None = None,
    num_folds: int = 5,
    max_points: int = 10_000,
    seed: int = 0,
) -> BandwidthChoice:
    """Picks the bandwidth with the highest held-out likelihood.

    Args:
        points: [n, d].
        candidates: bandwidths to try; None for a grid made from distances between the points.
        num_folds: of the cross-validation.
        max_points: drawn from more.
        seed: of the draw and of the folds.

    Returns:
        The bandwidth, and the score of every candidate.
    """
    raise NotImplementedError


class TophatDensity:
    """Tophat kernel density of a language's sentences, on their first principal components.

    Attributes:
        mean: [dim] float32, subtracted before the projection.
        axes: [dim, d] float32, principal axes.
        points: [n, d] float32, the fitted sentences' coordinates: 64 bytes a sentence for d = 16.
        bandwidth: radius of the kernel.
        fitted_counts: [n] int64, `counts` of the fitted sentences.
    """

    @classmethod
    def fit(
        cls,
        vectors: np.ndarray,
        statistics: GramStatistics | None = None,
        components: np.ndarray | None = None,
        num_dims: int = 16,
        bandwidth: float | None = None,
        seed: int = 0,
    ) -> "TophatDensity":
        """Fits axes and bandwidth and counts the neighbors of every sentence."""
        raise NotImplementedError

    def counts(self, vectors: np.ndarray) -> np.ndarray:
        """[n] int64, fitted sentences within the bandwidth of each vector."""
        raise NotImplementedError
