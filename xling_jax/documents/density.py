"""How common a sentence is, and what it weighs: tophat density on first principal components.

Weights depend on ratios of densities only (`sentence_weights`), so a density is the
number of fitted sentences within the bandwidth, without the kernel's normalizer. All pairs are
compared: trees do not help, since the bandwidths that cross-validation finds are about three
standard deviations of each of 16 coordinates, so that every cell is within reach of every other.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np
from scipy.spatial import KDTree

from xling_jax.align.rows import as_embeddings, row_blocks
from xling_jax.documents.debias import GramStatistics, gram_matrix, principal_axes
from xling_jax.files.threads import threads_for

NUM_DIMS = 16  # principal components, LAWDR section 3.3
_NUM_FOLDS = 5
_MAX_POINTS = 10_000  # that choose the bandwidth
# Ratio of one candidate to the one before.
_CANDIDATE_RATIO = 1.1
_MAX_CANDIDATES = 64
# Points whose nearest neighbor is computed: enough for a median.
_MAX_NEAREST = 1000
# Relative difference of vectors of one sentence that was embedded in different batches.
_SAME_SENTENCE = 1e-5
# Of the spread of points: what is nearer counts as a copy.
_GRID = 1e-3
# Points on each side of a tile: the products of larger ones leave the cache (2 cores, 1 MiB L2
# each).
_TILE = 512


def choose_bandwidth(points: np.ndarray, seed: int = 0) -> float:
    """Picks the bandwidth h that maximizes the likelihood of held-out points, by cross-validation.

    Choice: a tophat kernel gives a held-out point without neighbors the likelihood 0, so one
    pseudo-point is added to the n fitted ones. It is spread evenly over a ball of radius R, twice
    the root mean square distance from the mean, and counts everywhere:
    p = (neighbors / h^d + 1 / R^d) / (n + 1), times a constant. Tried instead: only bandwidths that
    isolate no point. A single sentence far from 4,000 others of Europarl speeches made those 12
    times as wide, and all weights but its own one third.

    Choice: points in the same cell of a grid as fine as a thousandth of their spread count once,
    because the likelihood of a point that is both held out and fitted grows without bound as h
    shrinks. For the same reason, where copies differ more, candidates start at half of the median
    distance to the nearest neighbor; they end at R.

    Choice: the result for 10,000 points is used for all. More points would give a smaller
    bandwidth, as n^(-1/(4 + d)): by a fifth for 100 times as many in 16 dimensions.

    Returns the bandwidth for points [n, d], the smallest of equally good ones; 0 if all points are
    equal. `seed` is of the sample of points and the folds.
    """
    points = points.astype(np.float64)
    rng = np.random.default_rng(seed)
    if len(points) > _MAX_POINTS:
        points = points[np.sort(rng.choice(len(points), _MAX_POINTS, replace=False))]
    _, first = np.unique(
        np.round(points / (_GRID * (_spread(points) or 1))), axis=0, return_index=True
    )
    points = points[np.sort(first)]
    if len(points) == 1:
        return 0.0
    candidates = _candidates(points)
    fold = rng.permutation(len(points)) % min(_NUM_FOLDS, len(points))
    return float(candidates[np.argmax(held_out_likelihood(points, candidates, fold))])


def _spread(points: np.ndarray) -> float:
    """The root mean square distance from the mean."""
    return np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=1).mean())


def held_out_likelihood(points: np.ndarray, candidates: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Mean log likelihood of a point, held out with its fold, up to a constant; [c] float64.

    For points [n, d], bandwidths [c] above 0, and the number of each point's fold, [n] int.
    """
    n, dim = points.shape
    neighbors = np.empty((len(candidates), n), np.int64)
    for held_out in (fold == number for number in range(fold.max() + 1)):
        fitted, queries = points[~held_out], points[held_out]
        for row, bandwidth in zip(neighbors, candidates, strict=True):
            row[held_out] = neighbor_counts(queries, fitted, bandwidth)
    # log(c / h^d + 1 / R^d) as log(c + (h / R)^d) - d log h, which cannot overflow.
    pseudo = np.exp(dim * np.log(candidates / (2 * _spread(points))))[:, None]
    num_fitted = n - np.bincount(fold)[fold]
    likelihoods = np.log(neighbors + pseudo) - np.log(num_fitted + 1)
    return likelihoods.mean(axis=1) - dim * np.log(candidates)


def _candidates(points: np.ndarray) -> np.ndarray:
    """A geometric grid from half the median distance to the nearest neighbor up to R."""
    spread = 2 * _spread(points)
    sample = points[:: -(-len(points) // _MAX_NEAREST)]
    nearest = KDTree(points).query(sample, k=2)[0][:, 1]
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
        seed: int = 0,
    ) -> Self:
        """Fits axes and bandwidth, and counts the neighbors of every sentence.

        Choice: vectors [n, dim] that are equal up to rounding all get the same density. They may be
        memory-mapped; `statistics` are theirs, if known.
        """
        vectors = as_embeddings(vectors, "vectors")
        statistics = gram_matrix(vectors) if statistics is None else statistics
        mean = statistics.mean.astype(np.float32)
        axes = principal_axes(statistics, NUM_DIMS).astype(np.float32)
        points = _project(vectors, mean, axes)
        narrowest = _SAME_SENTENCE * np.sqrt(np.trace(statistics.gram) / statistics.count)
        spread = np.sqrt(np.square(points, dtype=np.float64).sum(axis=1).mean())
        if spread <= narrowest:
            bandwidth = 10 * narrowest
        else:
            bandwidth = max(choose_bandwidth(points, seed), narrowest)
        counts = neighbor_counts(points, points, bandwidth)
        return cls(mean, axes, points, float(bandwidth), counts)

    def counts(self, vectors: np.ndarray) -> np.ndarray:
        """Counts the fitted sentences within the bandwidth of each vector, [n] int64.

        Proportional to the density: a fitted sentence counts itself. Vectors [n, dim] may be
        memory-mapped; the fitted ones are recognized, and their counts are not computed again.
        """
        vectors = as_embeddings(vectors, "vectors", len(self.mean))
        points = _project(vectors, self.mean, self.axes)
        if np.array_equal(points, self.points):
            return self.fitted_counts.copy()
        return neighbor_counts(points, self.points, self.bandwidth)


def neighbor_counts(queries: np.ndarray, points: np.ndarray, radius: float) -> np.ndarray:
    """Counts, for every query, the points at most `radius` away, itself included; [n] int64.

    In float64; a pair that rounding leaves on the boundary is within. Passing the same object as
    `queries` [n, d] and `points` [m, d] halves the work.
    """
    same = queries is points
    if not len(queries):
        return np.zeros(0, np.int64)
    points = points.astype(np.float64)
    center = points.mean(axis=0)
    points = points - center
    queries = points if same else queries - center
    # (r^2 - |x - y|^2) / 2 = [x, (r^2 - |x|^2) / 2, 1] . [y, 1, -|y|^2 / 2]
    halves, of_queries = (np.einsum("nd,nd->n", x, x)[:, None] / 2 for x in (points, queries))
    ones = np.ones_like(halves)
    left = np.hstack([queries, radius**2 / 2 - of_queries, np.ones_like(of_queries)])
    right = np.hstack([points, ones, -halves])
    # d + 2 summands, the rounding of both factors, and a margin.
    largest = halves.max() + of_queries.max() + radius**2 / 2
    rounding = (left.shape[1] + 6) * np.finfo(np.float64).eps * largest
    return _count_tiles(left, right, -rounding, same)


def _count_tiles(left: np.ndarray, right: np.ndarray, least: float, same: bool) -> np.ndarray:
    """Counts, for each row of the left factor, the products of at least a number, [n] int64.

    If both sides are the same, a tile counts for its columns as well.
    """
    strips = range(0, len(left), _TILE)
    with threads_for(len(strips)) as threads:

        def work(thread: int) -> np.ndarray:
            # Private counts: columns of a strip are rows of other threads.
            counts = np.zeros(len(left), np.int64)
            buffers = np.empty(_TILE * _TILE), np.empty(_TILE * _TILE, bool)
            for start in strips[thread::threads]:
                rows = left[start : start + _TILE]
                for first in range(start if same else 0, len(right), _TILE):
                    columns = right[first : first + _TILE]
                    shape = len(rows), len(columns)
                    products, near = (b[: shape[0] * shape[1]].reshape(shape) for b in buffers)
                    np.matmul(rows, columns.T, out=products)
                    np.greater_equal(products, least, out=near)
                    # In a type as narrow as a tile allows, which is four times as fast.
                    counts[start : start + shape[0]] += near.sum(axis=1, dtype=np.uint16)
                    if same and first != start:
                        counts[first : first + shape[1]] += near.sum(axis=0, dtype=np.uint16)
            return counts

        with ThreadPoolExecutor(threads) as executor:
            return sum(executor.map(work, range(threads)))


def sentence_weights(density: np.ndarray, mean_density: float | None = None) -> np.ndarray:
    """Weights sentences by density [n]: common ones, such as boilerplate, weigh less.

    LAWDR: w = b / (b + P), where b is half the mean density of the language's sentences, those of
    `density` for None. Scaling P changes nothing, so neighbor counts serve as densities. Returns
    [n] float64 in (0, 1]: 1/3 at the mean density, 1 for a sentence without neighbors.
    """
    half = (np.mean(density) if mean_density is None else mean_density) / 2
    return half / (half + np.asarray(density, np.float64))


def _project(vectors: np.ndarray, mean: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Computes [n, d] float32 coordinates of vectors, block by block."""
    points = np.empty((len(vectors), axes.shape[1]), np.float32)
    for rows, block in row_blocks(vectors):
        points[rows] = (block - mean) @ axes
    return points
