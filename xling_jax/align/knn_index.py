"""Approximate neighbors by faiss indexes, scored exactly; see `knn.top_k`.

An index finds candidates without looking at every key. Their inner products are then computed from
the vectors themselves, so that scores are exact and only neighbors can be missed.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from xling_jax.align import knn_numpy
from xling_jax.align.rows import AnyRows, Neighbors, Report, finite_block, slices
from xling_jax.files.whole import whole_file
from xling_jax.options import OptionError
from xling_jax.registry import import_extra

EXACT = "exact"
# Names for faiss factory strings, with search parameters; measured in lab/performance.
NAMES = {
    "ivf": "IVF{centroids},Flat:nprobe=32",
    "ivfpq": "IVF{centroids},PQ{parts}x4fs:nprobe=64",
    "hnsw": "HNSW32:efSearch=64",
}

# Rows from which a centroid is learned; faiss asks for 39 at least.
_TRAINING_ROWS_PER_CENTROID = 40
# Rows from which codebooks without centroids are learned.
_MIN_TRAINING_ROWS = 2**16
# Candidates for each neighbor, and at least, of indexes that hold vectors in fewer bits.
_OVERSAMPLED, _MIN_CANDIDATES = 16, 64
# Pairs whose vectors are gathered at a time.
_BLOCK_PAIRS = 8192
# Named indexes leave fewer rows on both sides to the exact search.
_MIN_ROWS = 1000

_logger = logging.getLogger(__name__)


def parse_index(text: str, rows: int, dim: int) -> tuple[str, str]:
    """Reads `FACTORY[:PARAMETERS]` as faiss's `index_factory` and `ParameterSpace` take them.

    A key of `NAMES` brings default parameters, and a number of centroids by that of the rows.
    """
    name, _, parameters = text.partition(":")
    if name not in NAMES:
        return name, parameters
    factory, _, defaults = NAMES[name].partition(":")
    # A query is compared with all centroids and the rows of a few clusters: costs that balance.
    centroids = min(6 * math.sqrt(rows), rows / _TRAINING_ROWS_PER_CENTROID)
    centroids = 2 ** max(0, round(math.log2(max(1, centroids))))
    parts = next(size for size in range(max(1, dim // 4), 0, -1) if dim % size == 0)
    return factory.format(centroids=centroids, parts=parts), parameters or defaults


def import_faiss(purpose: str) -> Any:
    """Returns faiss; an ImportError says what needs it, the `purpose`."""
    # It logs, at level INFO and with tracebacks, which builds of itself it does not find.
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)
    return import_extra("faiss", "faiss", purpose)


def search(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    both_ways: bool,
    index: str,
    memory_mb: float,
    report: Report | None = None,
) -> tuple[Neighbors, Neighbors | None]:
    """About what `knn_numpy.search` finds; centroids and codebooks are learned once."""
    sides = queries, keys
    if index.partition(":")[0] in NAMES and sum(map(len, sides)) < _MIN_ROWS:
        options = {"both_ways": both_ways, "memory_mb": memory_mb, "report": report}
        return knn_numpy.search(queries, keys, k, **options)
    filled = _filled(sides[::-1] if both_ways else (keys,), sides, index, memory_mb)
    found = []
    for one, these in zip(filled, sides):
        best, num_incomplete = one.search(these, k, report)
        found.append(best)
        _logger.info("%s: %d queries, %d of them exactly", index, len(these), num_incomplete)
    return found[0], found[1] if both_ways else None


def _filled(
    sides: Sequence[AnyRows], learned_from: Sequence[AnyRows], index: str, memory_mb: float
) -> Iterator[FilledIndex]:
    """Yields an index of the rows of each side; they learn once, from a sample."""
    dim = sides[0].shape[1]
    empty = empty_index(index, dim, learned_from)
    block_rows = max(1, int(memory_mb * 2**19 // (5 * dim)))
    for side in sides:
        one = import_faiss(f"index={index!r}").clone_index(empty)
        for rows in slices(len(side), block_rows):
            one.add(np.ascontiguousarray(finite_block(side, rows, "keys")))
        yield FilledIndex(one, side, memory_mb)


def empty_index(index: str, dim: int, learned_from: Sequence[AnyRows] = ()) -> Any:
    """An index without rows, which has learned from these if any; OptionError if faiss refuses."""
    faiss = import_faiss(f"index={index!r}")
    factory, parameters = parse_index(index, max(map(len, learned_from), default=0), dim)
    try:
        empty = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
        if parameters:
            faiss.ParameterSpace().set_index_parameters(empty, parameters)
        if learned_from and not empty.is_trained:
            inverted = faiss.try_extract_index_ivf(empty)
            num_centroids = 0 if inverted is None else inverted.nlist
            wanted = max(_MIN_TRAINING_ROWS, _TRAINING_ROWS_PER_CENTROID * num_centroids)
            empty.train(_sample(learned_from, wanted))
        return empty
    except RuntimeError as error:
        # Without the line of faiss's source.
        reason = re.sub(r"^.*\.(cpp|h):\d+: ", "", str(error), flags=re.DOTALL)
        raise OptionError(
            f"index={index!r}: faiss refuses it: {reason}; known names are "
            f"{', '.join((EXACT, *NAMES))}"
        ) from error


def _sample(sides: Sequence[AnyRows], wanted: int) -> np.ndarray:
    """About so many rows of all sides, float32."""
    rng = np.random.default_rng(0)
    total = sum(map(len, sides))
    sample = []
    for side in sides:
        size = min(len(side), -(-wanted * len(side) // total))
        rows = np.sort(rng.choice(len(side), size, replace=False))
        sample.append(np.asarray(side[rows], np.float32))
    return np.ascontiguousarray(np.concatenate(sample))


class FilledIndex:
    """A faiss index and the rows that it holds; `memory_mb` bounds the memory of a search."""

    def __init__(self, index: Any, keys: AnyRows, memory_mb: float = 256):
        self._index, self._keys, self._memory = index, keys, memory_mb * 2**20

    @classmethod
    def build(cls, keys: AnyRows, index: str, memory_mb: float = 256) -> FilledIndex:
        """Makes an index, as `knn.top_k` names it; errors as there."""
        return next(_filled((keys,), (keys,), index, memory_mb))

    @classmethod
    def read(cls, path: str | os.PathLike[str], keys: AnyRows) -> FilledIndex:
        """Reads an index that `write` has written for these rows; ValueError for any other file."""
        faiss = import_faiss(f"{path}")
        try:
            index = faiss.read_index(os.fspath(path))
        except RuntimeError as error:
            raise ValueError(f"{path}: not an index of faiss; remove it") from error
        if (index.ntotal, index.d) != keys.shape:
            raise ValueError(f"{path}: not an index of these {len(keys)} rows; remove it")
        return cls(index, keys)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the index, whole or not at all."""
        faiss = import_faiss(f"{path}")
        with whole_file(path) as file:
            faiss.write_index(self._index, file.name)

    def search(
        self, queries: AnyRows, k: int, report: Report | None = None
    ) -> tuple[Neighbors, int]:
        """The k best of the candidates of every query, and how many queries had too few.

        The clusters that were looked at hold fewer than k rows then, and all rows are scored.
        """
        n, dim = queries.shape
        keys, k = self._keys, min(k, len(self._keys))
        # A graph keeps its vectors in another index.
        holds_floats = getattr(self._index, "storage", self._index).sa_code_size() >= 4 * dim
        num_candidates = k if holds_floats else max(_OVERSAMPLED * k, _MIN_CANDIDATES)
        num_candidates = min(len(keys), num_candidates)
        # Candidates are read, scaled and multiplied.
        block_rows = max(1, int(self._memory // (5 * dim + num_candidates * (8 * dim + 40))))
        scores = np.empty((n, k), np.float32)
        indices = np.empty((n, k), np.int64)
        num_incomplete = 0
        for rows in slices(n, block_rows):
            block = np.ascontiguousarray(finite_block(queries, rows, "queries"))
            _, found = self._index.search(block, num_candidates)
            scores[rows], indices[rows] = _nearest_of(found, block, keys, k)
            incomplete = np.flatnonzero((indices[rows] < 0).any(axis=1))
            if incomplete.size:
                options = {"both_ways": False, "memory_mb": self._memory / 2**20}
                best, _ = knn_numpy.search(block[incomplete], keys, k, **options)
                incomplete += rows.start
                scores[incomplete], indices[incomplete] = best
                num_incomplete += incomplete.size
            if report is not None:
                report(rows.stop, n)
        return (scores, indices), num_incomplete


def _nearest_of(candidates: np.ndarray, queries: AnyRows, keys: AnyRows, k: int) -> Neighbors:
    """Ranks candidates [n, c] int, rows of `keys` [m, dim] for each of `queries` [n, dim].

    By exact inner products. Returns scores [n, k] float32, best first, and candidates [n, k] int64;
    equal scores lowest row first; minus infinity and -1 where there are fewer than k. A candidate
    of -1 is none.
    """
    # In order of row, so that ties are; -1 comes first and is sorted out by its score.
    candidates = np.sort(candidates, axis=1)
    scores = np.empty(candidates.shape, np.float32)
    block_rows = max(1, _BLOCK_PAIRS // candidates.shape[1])
    for rows in slices(len(scores), block_rows):
        block = candidates[rows]
        found = np.asarray(keys[np.maximum(block, 0).ravel()], np.float32)
        query_block = np.asarray(queries[rows], np.float32)
        scores[rows] = np.einsum("nd,ncd->nc", query_block, found.reshape(*block.shape, -1))
    scores[candidates < 0] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(candidates, order, axis=1)
