"""How common a sentence is, and what it weighs: tophat density on first principal components.

Weights depend on ratios of densities only (`sentence_weights`), so a density is the
number of fitted sentences within the bandwidth, without the kernel's normalizer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.spatial import KDTree

from xling_jax.align.backends import Report
from xling_jax.align.rows import as_embeddings, row_blocks
from xling_jax.documents.debias import GramStatistics, gram_matrix, principal_axes
from xling_jax.documents.neighbor_counts import neighbor_counts

# Ratio of one candidate to the one before.
_CANDIDATE_RATIO = 1.1
_MAX_CANDIDATES = 64
# Points whose nearest neighbor is computed: enough for a median.
_MAX_NEAREST = 1000
# Relative difference of vectors of one sentence that was embedded in different batches.
_SAME_SENTENCE = 1e-5
# Of the spread of points: what is nearer counts as a copy.
_GRID = 1e-3


@dataclasses.dataclass(frozen=True)
class BandwidthChoice:
    """The best bandwidth; of the candidates, [c] float64 increasing, the scores [c].

    A score is the mean log likelihood of a held-out point, up to a constant.
    """

    bandwidth: float
    candidates: np.ndarray
    scores: np.ndarray


def choose_bandwidth(
    points: np.ndarray,
    candidates: Sequence[float] | None = None,
    num_folds: int = 5,
    max_points: int = 10_000,
    seed: int = 0,
) -> BandwidthChoice:
    """Picks the bandwidth h that maximizes the likelihood of held-out points.

    A tophat kernel gives a held-out point without neighbors the likelihood 0, whose logarithm would
    make the sum of its fold minus infinity.

    Choice: one pseudo-point is added to the n fitted ones. It is spread evenly over a ball of
    radius R, twice the root mean square distance from the mean, and counts everywhere:
    p = (neighbors / h^d + 1 / R^d) / (n + 1), times a constant. An isolated point then has a finite
    cost, however small h is. Tried instead: only bandwidths that isolate no point. A single
    sentence far from 4,000 others of Europarl speeches made those 12 times as wide, and all weights
    but its own one third.

    Choice: points in the same cell of a grid as fine as a thousandth of their spread count once
    here, because the likelihood of a point that is both held out and fitted grows without bound as
    h shrinks, and a product of matrices gives copies of a vector other last digits. For the same
    reason, where copies differ more, candidates start at half of the median distance to the nearest
    neighbor; they end at R.

    Choice: the result for `max_points` points is used for all. More points would give a smaller
    bandwidth, as n^(-1/(4 + d)): by a fifth for 100 times as many in 16 dimensions.

    Args:
        points: [n, d] of any real number type.
        candidates: positive bandwidths to try; None for a geometric grid as described.
        num_folds: of the cross-validation; at most one per distinct point.
        max_points: sample size if there are more.
        seed: of the sample and the folds.

    Returns:
        The bandwidth, the smallest of equals, and the score of every candidate. If all points are
        equal, the bandwidth is 0.

    Raises:
        ValueError: if there are no points, fewer than two folds, or a candidate is not above 0.
    """
    points = as_embeddings(points, "points").astype(np.float64)
    if not len(points):
        raise ValueError("points must hold at least one row; got none")
    if num_folds < 2:
        raise ValueError(f"num_folds must be at least 2; got {num_folds}")
    rng = np.random.default_rng(seed)
    if len(points) > max_points:
        points = points[np.sort(rng.choice(len(points), max_points, replace=False))]
    scale = np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=1).mean()) or 1.0
    _, first = np.unique(np.round(points / (_GRID * scale)), axis=0, return_index=True)
    points = points[np.sort(first)]
    n, dim = points.shape
    if n == 1:
        return BandwidthChoice(0.0, *np.empty((2, 0)))
    spread = 2 * np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=1).mean())
    if candidates is None:
        candidates = _candidates(points, spread)
    candidates = np.sort(np.asarray(candidates, np.float64))
    if not candidates.size or not candidates[0] > 0 or not np.isfinite(candidates[-1]):
        raise ValueError(f"candidates must be positive bandwidths; got {candidates}")

    fold = rng.permutation(n) % min(num_folds, n)
    neighbors = np.empty((len(candidates), n), np.int64)
    for held_out in (fold == number for number in range(fold.max() + 1)):
        fitted, queries = points[~held_out], points[held_out]
        for row, bandwidth in zip(neighbors, candidates, strict=True):
            row[held_out] = neighbor_counts(queries, fitted, bandwidth)
    # log(c / h^d + 1 / R^d) as log(c + (h / R)^d) - d log h, which cannot overflow.
    pseudo = np.exp(dim * np.log(candidates / spread))[:, None]
    num_fitted = n - np.bincount(fold)[fold]
    likelihoods = np.log(neighbors + pseudo) - np.log(num_fitted + 1)
    scores = likelihoods.mean(axis=1) - dim * np.log(candidates)
    return BandwidthChoice(float(candidates[np.argmax(scores)]), candidates, scores)


def _candidates(points: np.ndarray, spread: float) -> np.ndarray:
    """A geometric grid from half the median distance to the nearest neighbor up to `spread`."""
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
        points: [n, d] float32, coordinates of the fitted sentences: 64 bytes each for d = 16.
        bandwidth: radius of the kernel, inclusive.
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
        num_dims: int = 16,
        bandwidth: float | None = None,
        seed: int = 0,
        report: Report | None = None,
        backend: str = "numpy",
    ) -> TophatDensity:
        """Fits axes and bandwidth, and counts the neighbors of every sentence.

        Choice: vectors that are equal up to rounding all get the same density. The number of axes
        is limited as in `debias.num_axes`.

        Args:
            vectors: [n, dim] of any real number type; may be memory-mapped.
            statistics: of the vectors, if known.
            num_dims: number of principal components.
            bandwidth: positive; None for the choice of `choose_bandwidth`.
            seed: see `choose_bandwidth`.
            report: see `neighbor_counts`.
            backend: see `neighbor_counts`.

        Raises:
            ValueError: if there are no vectors, a value is not finite, or a number is not positive.
        """
        vectors = as_embeddings(vectors, "vectors")
        check_bandwidth(bandwidth)
        statistics = gram_matrix(vectors) if statistics is None else statistics
        mean = statistics.mean.astype(np.float32)
        axes = principal_axes(statistics, num_dims).astype(np.float32)
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

    def counts(self, vectors: np.ndarray, backend: str = "numpy") -> np.ndarray:
        """Counts the fitted sentences within the bandwidth of each vector.

        Args:
            vectors: [n, dim]; may be memory-mapped. The fitted vectors are recognized, and their
                counts are not computed again.
            backend: see `neighbor_counts`.

        Returns:
            [n] int64, proportional to the density: a fitted sentence counts itself.

        Raises:
            ValueError: if the dim is not that of the fitted vectors, or a value is not finite.
        """
        vectors = as_embeddings(vectors, "vectors", len(self.mean))
        points = _project(vectors, self.mean, self.axes)
        if np.array_equal(points, self.points):
            return self.fitted_counts.copy()
        return neighbor_counts(points, self.points, self.bandwidth, backend=backend)


def sentence_weights(density: np.ndarray, mean_density: float | None = None) -> np.ndarray:
    """Weights sentences by density: common ones, such as boilerplate, weigh less.

    LAWDR: w = b / (b + P), where b is half the mean density. Scaling P changes nothing, so neighbor
    counts serve as densities.

    Args:
        density: [n] P, nonnegative.
        mean_density: mean of P over the language's sentences; None if `density` holds them all.

    Returns:
        [n] float64 in (0, 1]: 1/3 at the mean density, 1 for a sentence without neighbors.

    Raises:
        ValueError: if a density is negative or not finite, or all are zero.
    """
    density = np.asarray(density, np.float64)
    if not np.isfinite(density).all() or (density < 0).any():
        raise ValueError("density must be finite and nonnegative, such as a neighbor count")
    if not density.size:
        return density
    mean_density = density.mean() if mean_density is None else mean_density
    if not mean_density > 0:
        raise ValueError(f"the mean density must be positive; got {mean_density}")
    half = mean_density / 2
    return half / (half + density)


def check_bandwidth(bandwidth: float | None) -> None:
    """Raises ValueError unless a bandwidth is positive, or None."""
    if bandwidth is not None and not (np.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"bandwidth must be positive, or None to choose it; got {bandwidth}")


def _project(vectors: np.ndarray, mean: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Computes [n, d] float32 coordinates of vectors, block by block."""
    points = np.empty((len(vectors), axes.shape[1]), np.float32)
    for rows, block in row_blocks(vectors):
        points[rows] = (block - mean) @ axes
    return points
