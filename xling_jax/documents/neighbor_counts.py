"""Counts the points within a radius: exact, for millions of points in few dimensions.

Compares every pair, 512 x 512 at a time. Trees do not help: the bandwidths that cross-validation
finds are about three standard deviations of each of 16 coordinates, so every cell of a tree is
within reach of every other (all 512 cells of a k-d tree over 30,536 sentences of Europarl).
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from xling_jax.align.backends import Report, choose_backend
from xling_jax.align.rows import as_embeddings, finite_block
from xling_jax.files.threads import threads_for

BACKENDS = ("auto", "numpy", "jax")

# Points on each side of a tile: the products of larger ones leave the cache (2 cores, 1 MiB L2
# each).
_TILE = 512
# Eight truth values of one byte each are added at once as one integer, up to 255 of them.
_LANES = 8
_MAX_SUMMANDS = 255
# If rounding exceeds this share of the squared radius, float64 is faster.
_MAX_DOUBT = 1e-3
# Limits of coordinates on a device, in radii and absolute.
_MAX_RADII = 1e15
_MIN_FLOAT32 = 1e-30


def neighbor_counts(
    queries: np.ndarray,
    points: np.ndarray,
    radius: float,
    report: Report | None = None,
    backend: str = "numpy",
) -> np.ndarray:
    """Counts, for every query, the points at most `radius` away.

    Exact: a point counts if the sum of squared differences, in float64, is at most the square of
    the radius. Float32 decides all pairs except those closer to the radius than its rounding error;
    float64 decides these.

    Args:
        queries: [n, d] of any real number type; finite.
        points: [m, d], likewise. Passing the same object as `queries` halves the work.
        radius: nonnegative; 0 counts equal points.
        report: called with the amount of work done and the total.
        backend: one of `BACKENDS`; "jax" splits the queries over the devices of this
            process. All give the same counts.

    Returns:
        [n] int64. A query that is one of the points counts itself.

    Raises:
        ValueError: if shapes disagree, the radius is negative, or a value is not finite.
    """
    backend = choose_backend(backend, BACKENDS)
    same = queries is points
    queries = _coordinates(queries, "queries", None)
    points = queries if same else _coordinates(points, "points", queries.shape[1])
    if not (np.isfinite(radius) and radius >= 0):
        raise ValueError(f"radius must be finite and nonnegative; got {radius}")
    if not len(queries) or not len(points):
        return np.zeros(len(queries), np.int64)
    if radius == 0:
        return _count_equal(queries, points)
    center = points.mean(axis=0, dtype=np.float64)
    largest = max(float(np.abs(array - center).max()) for array in (queries, points))
    if largest == 0:
        return np.full(len(queries), len(points), np.int64)
    if backend == "jax" and _suits_float32(queries, points, radius):
        from xling_jax.documents import neighbor_counts_jax

        return neighbor_counts_jax.count(queries, points, radius, report)
    # A power of two: scaling is exact and keeps squares within the range of float32.
    scale = 2.0 ** -np.ceil(np.log2(largest))
    targets = _Side(points, center, scale)
    sources = targets if same else _Side(queries, center, scale)
    counter = _TileCounter(sources, targets, float(radius), scale)
    counts = np.empty(len(queries), np.int64)
    counts[sources.order] = counter.count(report)[: len(queries)]
    return counts


def _suits_float32(queries: np.ndarray, points: np.ndarray, radius: float) -> bool:
    """Whether squares of coordinates, in units of the radius, stay within float32's range."""
    largest = max(float(np.abs(array).max()) for array in (queries, points))
    is_narrow = queries.dtype == points.dtype == np.float32
    return is_narrow and largest < _MAX_RADII * radius and _MIN_FLOAT32 < radius < 1 / _MIN_FLOAT32


def _coordinates(array: np.ndarray, name: str, dim: int | None) -> np.ndarray:
    array = as_embeddings(array, name, dim)
    is_narrow = np.result_type(array.dtype, np.float32) == np.float32
    return finite_block(array, slice(None), name, np.float32 if is_narrow else np.float64)


def _count_equal(queries: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Counts the points equal to each query, [n] int64."""
    _, inverse = np.unique(np.concatenate([queries, points]), axis=0, return_inverse=True)
    of_queries, of_points = np.split(inverse.reshape(-1), [len(queries)])
    return np.bincount(of_points, minlength=inverse.max() + 1)[of_queries]


class _Side:
    """Queries or points, sorted by norm so that rounding errors are similar within a tile."""

    def __init__(self, coordinates: np.ndarray, center: np.ndarray, scale: float):
        scaled = (coordinates - center) * scale
        squares = np.einsum("nd,nd->n", scaled, scaled)
        self.order = np.argsort(squares, kind="stable")
        self.coordinates = np.ascontiguousarray(coordinates[self.order])
        self.scaled = scaled[self.order]
        self.squares = squares[self.order]

    def __len__(self) -> int:
        return len(self.order)

    def factors(self, square: float, dtype: type) -> tuple[np.ndarray, np.ndarray]:
        """Factors [n, d + 2] and [n padded, d + 2] of (r^2 - |x - y|^2) / 2, with r^2 given."""
        half, one = self.squares[:, None] / 2, np.ones((len(self), 1))
        left = np.hstack([self.scaled, square / 2 - half, one]).astype(dtype)
        right = np.hstack([self.scaled, one, -half]).astype(dtype)
        padding = np.zeros((-len(self) % _LANES, right.shape[1]), dtype)
        padding[:, -1] = -np.inf  # within no radius
        return left, np.vstack([right, padding])


class _TileCounter:
    """Counts, tile by tile, where (r^2 - |x - y|^2) / 2 is nonnegative."""

    def __init__(self, sources: _Side, targets: _Side, radius: float, scale: float):
        self.sources, self.targets = sources, targets
        self.square = radius**2
        self.scaled_square = (radius * scale) ** 2
        narrow = self._doubt(slice(-1, None), slice(-1, None), np.float32)
        self.dtype = np.float32 if narrow < _MAX_DOUBT * self.scaled_square else np.float64
        self.left = sources.factors(self.scaled_square, self.dtype)[0]
        self.right = targets.factors(self.scaled_square, self.dtype)[1]

    def _doubt(self, rows: slice, columns: slice, dtype: type) -> float:
        """Bound on the error of the products of a tile."""
        # d + 2 summands, the rounding of both factors, and a margin.
        steps = self.targets.scaled.shape[1] + 6
        largest = self.sources.squares[rows][-1] + self.targets.squares[columns][-1]
        return steps * np.finfo(dtype).eps / 2 * (largest + self.scaled_square)

    def count(self, report: Report | None) -> np.ndarray:
        """Returns the counts of the sources in sorted order, [n padded] int64."""
        strips = range(0, len(self.left), _TILE)
        with threads_for(len(strips)) as threads:
            done = [0] * threads

            def work(thread: int) -> np.ndarray:
                # Private counts: columns of a strip are rows of other threads.
                counts = np.zeros(max(len(self.left), len(self.right)), np.int64)
                buffers = [np.empty(_TILE * _TILE, kind) for kind in (self.dtype, bool, bool)]
                for start in strips[thread::threads]:
                    self._count_strip(start, counts, buffers)
                    done[thread] += 1
                    if report is not None:
                        report(sum(done), len(strips))
                return counts

            if threads == 1:
                return work(0)
            with ThreadPoolExecutor(threads) as executor:
                return sum(executor.map(work, range(threads)))

    def _count_strip(self, start: int, counts: np.ndarray, buffers: list[np.ndarray]) -> None:
        """Counts one strip of sources against all targets, or those not yet compared."""
        symmetric = self.sources is self.targets
        rows = slice(start, min(start + _TILE, len(self.left)))
        for first in range(start if symmetric else 0, len(self.right), _TILE):
            columns = slice(first, min(first + _TILE, len(self.right)))
            shape = rows.stop - rows.start, columns.stop - columns.start
            products, near, sure = (b[: shape[0] * shape[1]].reshape(shape) for b in buffers)
            np.matmul(self.left[rows], self.right[columns].T, out=products)
            doubt = self.dtype(self._doubt(rows, columns, self.dtype))
            np.greater_equal(products, -doubt, out=near)
            np.greater_equal(products, doubt, out=sure)
            self._decide(near, sure, rows, columns)
            counts[rows] += _row_sums(near)
            if symmetric and first != start:
                counts[columns] += _column_sums(near)

    def _decide(self, near: np.ndarray, sure: np.ndarray, rows: slice, columns: slice) -> None:
        """Clears entries of `near` that are not `sure` and turn out too far in float64."""
        words = (near.view(np.uint64) ^ sure.view(np.uint64)).reshape(-1)
        places = np.flatnonzero(words)
        if not places.size:
            return
        which, lane = np.nonzero(words[places, None].view(np.uint8))
        row, column = np.divmod(places[which] * _LANES + lane, near.shape[1])
        differences = self.sources.coordinates[rows.start + row].astype(np.float64)
        differences -= self.targets.coordinates[columns.start + column]
        squares = np.einsum("nd,nd->n", differences, differences)
        near[row, column] = squares <= self.square


def _row_sums(mask: np.ndarray) -> np.ndarray:
    """True entries per row, [rows] int64; at most 8 x 255 columns, a multiple of 8."""
    sums = mask.view(np.uint64).sum(axis=1)
    return sums[:, None].view(np.uint8).sum(axis=1, dtype=np.int64)


def _column_sums(mask: np.ndarray) -> np.ndarray:
    """True entries per column, [columns] int64; a multiple of 8 columns."""
    words = mask.view(np.uint64)
    parts = [
        words[start : start + _MAX_SUMMANDS].sum(axis=0).view(np.uint8)
        for start in range(0, len(words), _MAX_SUMMANDS)
    ]
    return np.sum(parts, axis=0, dtype=np.int64)
