"""How common a sentence is: a tophat kernel density on the first principal components.

Only ratios of densities matter for weights (`weighting.sentence_weights`), so a density is given
as the number of fitted sentences within the bandwidth, and the kernel's normalizer is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.spatial import KDTree

from xling_jax.documents.debias import GramStatistics, gram_matrix, principal_axes
from xling_jax.documents.neighbor_counts import Report, neighbor_counts
from xling_jax.documents.rows import as_vectors, row_blocks

__all__ = ["BandwidthChoice", "TophatDensity", "choose_bandwidth", "neighbor_counts"]

# One candidate is so much wider than the one before.
_CANDIDATE_RATIO = 1.1
_MAX_CANDIDATES = 64
# Points whose nearest neighbor is looked up: a median needs no more.
_MAX_NEAREST = 1000
# Vectors of one sentence, embedded in different batches, differ by up to so much of their length.
_SAME_SENTENCE = 1e-5


@dataclasses.dataclass(frozen=True)
class BandwidthChoice:
    """Outcome of `choose_bandwidth`.

    Attributes:
        bandwidth: the best.
        candidates: [c] float64, rising.
        scores: [c] float64, mean log likelihood of a held-out point, less a constant.
        alone: [c] float64, share of held-out points with no other within the bandwidth.
    """

    bandwidth: float
    candidates: np.ndarray
    scores: np.ndarray
    alone: np.ndarray


def choose_bandwidth(
    points: np.ndarray,
    candidates: Sequence[float] | None = None,
    num_folds: int = 5,
    max_points: int = 10_000,
    seed: int = 0,
) -> BandwidthChoice:
    """Picks the bandwidth h with the highest likelihood of held-out points.

    A tophat kernel gives a held-out point without neighbors the likelihood 0, and its logarithm
    makes every sum of a fold minus infinity.

    Choice: one pseudo-point is added to the n fitted ones. It is spread evenly over a ball of
    radius R, twice the root mean square distance from the mean, and counts everywhere:
    p = (neighbors / h^d + 1 / R^d) / (n + 1), times a constant. A point alone then costs a finite
    amount, however small h is. Tried instead: only bandwidths that leave no point alone. One
    sentence far from 4,000 others of Europarl speeches made that 12 times as wide as this, and all
    weights a third but its own.

    Choice: equal points count once here. The likelihood of one that is held out and fitted grows
    without bound as h falls. For the same reason, with copies that differ in their last digits,
    candidates begin at half of the median distance to the nearest neighbor; they end at R.

    Choice: what is found on `max_points` points is taken for all; it would be narrower for more,
    as n^(-1/(4 + d)) says, by a fifth for 100 times as many in 16 dimensions.

    Args:
        points: [n, d] of any real number type.
        candidates: bandwidths above 0 to try; None for a geometric grid as above.
        num_folds: of the cross-validation; as many as there are distinct points if those are fewer.
        max_points: drawn from more.
        seed: of the draw and of the folds.

    Returns:
        The bandwidth, the narrowest of equals, and the score of every candidate. If all points are
        equal, the bandwidth is 0.

    Raises:
        ValueError: if there are no points, fewer than two folds, or a candidate is not above 0.
    """
    points = as_vectors(points, "points").astype(np.float64)
    if not len(points):
        raise ValueError("points must hold at least one; got none")
    if num_folds < 2:
        raise ValueError(f"num_folds must be at least 2; got {num_folds}")
    rng = np.random.default_rng(seed)
    if len(points) > max_points:
        points = points[np.sort(rng.choice(len(points), max_points, replace=False))]
    points = np.unique(points, axis=0)
    n, dim = points.shape
    if n == 1:
        return BandwidthChoice(0.0, *np.empty((3, 0)))
    spread = 2 * np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=1).mean())
    if candidates is None:
        candidates = _candidates(points, spread)
    candidates = np.sort(np.asarray(candidates, np.float64))
    if not candidates.size or not candidates[0] > 0 or not np.isfinite(candidates[-1]):
        raise ValueError(f"candidates must be bandwidths above 0; got {candidates}")

    fold = rng.permutation(n) % min(num_folds, n)
    neighbors = np.empty((len(candidates), n), np.int64)
    for held_out in (fold == number for number in range(fold.max() + 1)):
        fitted, queries = points[~held_out], points[held_out]
        for row, bandwidth in zip(neighbors, candidates, strict=True):
            row[held_out] = neighbor_counts(queries, fitted, bandwidth)
    # log(c / h^d + 1 / R^d) as log(c + (h / R)^d) - d log h: nothing leaves the range of floats.
    pseudo = np.exp(dim * np.log(candidates / spread))[:, None]
    num_fitted = n - np.bincount(fold)[fold]
    likelihoods = np.log(neighbors + pseudo) - np.log(num_fitted + 1)
    scores = likelihoods.mean(axis=1) - dim * np.log(candidates)
    alone = (neighbors == 0).mean(axis=1)
    return BandwidthChoice(float(candidates[np.argmax(scores)]), candidates, scores, alone)


def _candidates(points: np.ndarray, spread: float) -> np.ndarray:
    """A geometric grid from half of the median distance to the nearest neighbor to `spread`."""
    some = points[:: -(-len(points) // _MAX_NEAREST)]
    nearest = KDTree(points).query(some, k=2)[0][:, 1]
    narrowest = min(np.median(nearest) / 2, spread)
    steps = np.ceil(np.log(spread / narrowest) / np.log(_CANDIDATE_RATIO))
    return np.geomspace(narrowest, spread, int(min(steps + 1, _MAX_CANDIDATES)))


@dataclasses.dataclass(frozen=True, eq=False)
class TophatDensity:
    """Tophat kernel density of a language's sentences, on their first principal components.

    Attributes:
        mean: [dim] float32, subtracted before the projection.
        axes: [dim, d] float32, principal axes.
        points: [n, d] float32, the fitted sentences' coordinates: 64 bytes a sentence for d = 16.
        bandwidth: radius of the kernel; a distance equal to it is within.
        fitted_counts: [n] int64, `counts` of the fitted sentences.
    """

    mean: np.ndarray
    axes: np.ndarray
    points: np.ndarray
    bandwidth: float
    fitted_counts: np.ndarray

    @classmethod
    def fit(
        cls,
        vectors: np.ndarray,
        statistics: GramStatistics | None = None,
        components: np.ndarray | None = None,
        num_dims: int = 16,
        bandwidth: float | None = None,
        seed: int = 0,
        report: Report | None = None,
        backend: str = "numpy",
    ) -> TophatDensity:
        """Fits axes and bandwidth and counts the neighbors of every sentence.

        Choice: with fewer than `num_dims` + 1 sentences, or a smaller dim, there are as many axes
        as those have. Vectors that all lie within rounding of each other have one density.

        Args:
            vectors: [n, dim] of any real number type; may be memory-mapped.
            statistics: of the vectors, if known.
            components: [dim, rank]; what lies along them is left out of the density.
            num_dims: number of principal components.
            bandwidth: above 0; None for the one `choose_bandwidth` finds.
            seed: see `choose_bandwidth`.
            report: see `neighbor_counts`.
            backend: see `neighbor_counts`.

        Returns:
            The density.

        Raises:
            ValueError: if there are no vectors, a value is not finite, or a number is not above 0.
        """
        vectors = as_vectors(vectors)
        if bandwidth is not None and not (np.isfinite(bandwidth) and bandwidth > 0):
            raise ValueError(f"bandwidth must be above 0, or None to choose it; got {bandwidth}")
        statistics = gram_matrix(vectors) if statistics is None else statistics
        mean = statistics.mean.astype(np.float32)
        axes = principal_axes(statistics, num_dims, components).astype(np.float32)
        points = _project(vectors, mean, axes)
        if bandwidth is None:
            narrowest = _SAME_SENTENCE * np.sqrt(np.trace(statistics.gram) / statistics.count)
            spread = np.sqrt(np.square(points, dtype=np.float64).sum(axis=1).mean())
            if spread <= narrowest:
                bandwidth = 10 * narrowest
            else:
                bandwidth = max(choose_bandwidth(points, seed=seed).bandwidth, narrowest)
        counts = neighbor_counts(points, points, bandwidth, report, backend)
        return cls(mean, axes, points, float(bandwidth), counts)

    @property
    def mean_count(self) -> float:
        """Mean over the fitted sentences of their counts."""
        return float(self.fitted_counts.mean())

    def counts(
        self, vectors: np.ndarray, report: Report | None = None, backend: str = "numpy"
    ) -> np.ndarray:
        """Counts the fitted sentences within the bandwidth of each vector.

        Args:
            vectors: [n, dim]; may be memory-mapped. The fitted ones are recognized and cost little.
            report: see `neighbor_counts`.
            backend: see `neighbor_counts`.

        Returns:
            [n] int64, proportional to the density: a fitted sentence counts itself.

        Raises:
            ValueError: if the dim is not the fitted one or a value is not finite.
        """
        points = _project(as_vectors(vectors, dim=len(self.mean)), self.mean, self.axes)
        if np.array_equal(points, self.points):
            return self.fitted_counts.copy()
        return neighbor_counts(points, self.points, self.bandwidth, report, backend)


def _project(vectors: np.ndarray, mean: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """[n, d] float32 coordinates of vectors, read block by block."""
    points = np.empty((len(vectors), axes.shape[1]), np.float32)
    for rows, block in row_blocks(vectors):
        points[rows] = (block - mean) @ axes
    return points
