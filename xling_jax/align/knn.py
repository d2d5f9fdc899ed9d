"""Exact nearest neighbors by inner product, in blocks, within a stated amount of memory.

Works on any arrays, memory-mapped ones included. Nothing here is approximate, and nothing knows
about models, languages or texts. One function, several backends: NumPy's BLAS, JAX on the
accelerators there are, faiss where it is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from xling_jax.align.knn_numpy import Report, ScoreTile, top_k_by_blocks
from xling_jax.align.rows import (
    NOT_FINITE,
    AnyRows,
    UnitRows,
    as_embeddings,
    finite_block,
    normalize,
)

if TYPE_CHECKING:
    import jax

__all__ = [
    "BACKENDS",
    "AnyRows",
    "Report",
    "ScoreTile",
    "UnitRows",
    "as_embeddings",
    "normalize",
    "top_k",
    "top_k_both_ways",
]

BACKENDS = ("numpy", "jax", "faiss", "auto")

Neighbors = tuple[np.ndarray, np.ndarray]


def top_k(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    memory_mb: float = 256,
    score_tile: ScoreTile | None = None,
    backend: str = "numpy",
    report: Report | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Neighbors:
    """Finds, for every query, the k keys with the largest inner product.

    Exact: every pair is scored. For cosine similarity pass `normalize`d arrays or `UnitRows`.
    Equal scores are ordered by key index, lowest first. Copies of one key can differ in the last
    bit of their float32 score, because BLAS adds up in an order that depends on the position.

    Args:
        queries: [n, dim], any real number type; may be memory-mapped.
        keys: [m, dim], the same.
        k: number of neighbors wanted, at least 1; m are returned when k > m.
        memory_mb: bound on the working memory, in MiB, beyond inputs and outputs; with "jax" of
            each device. One query against one key is always computed, however small the bound.
        score_tile: turns inner products into the scores to rank, elementwise; None ranks the
            inner products themselves. May change its argument in place. "numpy" only.
        backend: "numpy"; "jax", with the keys split over devices; "faiss", a flat index, which
            breaks ties in its own way; or "auto", JAX where it has an accelerator and NumPy,
            which is the fastest on CPUs, elsewhere.
        report: called with the numbers of queries done and of all as it goes.
        devices: those of "jax", by default all of this process. If they are of several processes,
            all of these make the same call and get the same result.

    Returns:
        scores [n, min(k, m)] float32, best first, and key indices [n, min(k, m)] int64.

    Raises:
        ValueError: if shapes disagree, there are no keys, k < 1, a value is not finite, or the
            backend is unknown or cannot do what is asked.
        ImportError: if the backend is not installed.
    """
    queries, keys = _checked(queries, keys, k, memory_mb)
    if not len(keys):
        raise ValueError("keys must hold at least one row; got none")
    backend = _choose(backend, score_tile)
    if backend == "numpy":
        found, _ = top_k_by_blocks(
            queries, keys, k, memory_mb=memory_mb, score_tile=score_tile, report=report
        )
    elif backend == "jax":
        from xling_jax.align import knn_jax

        found = knn_jax.top_k(queries, keys, k, memory_mb=memory_mb, report=report, devices=devices)
    else:
        found = _top_k_by_faiss(queries, keys, k, memory_mb, report)
    return _finite(found, "queries")


def top_k_both_ways(
    x: AnyRows,
    y: AnyRows,
    k: int,
    *,
    memory_mb: float = 256,
    backend: str = "numpy",
    report: Report | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> tuple[Neighbors, Neighbors]:
    """Finds the k best rows of y for every row of x, and of x for every row of y.

    What two calls of `top_k` find; with NumPy every inner product is computed once, in little
    more than half the time.

    Args:
        x: [n, dim], see `top_k`.
        y: [m, dim], the same.
        k: number of neighbors wanted.
        memory_mb: see `top_k`.
        backend: see `top_k`.
        report: called with the numbers of rows of x done and of all, once or twice over.
        devices: see `top_k`.

    Returns:
        Scores and indices [n, min(k, m)] of the neighbors of x in y, and the same
        [m, min(k, n)] of the neighbors of y in x.

    Raises:
        ValueError, ImportError: as `top_k`.
    """
    x, y = _checked(x, y, k, memory_mb, ("x", "y"))
    for name, side in (("x", x), ("y", y)):
        if not len(side):
            raise ValueError(f"{name} must hold at least one row; got none")
    if _choose(backend, None) == "numpy":
        forward, backward = top_k_by_blocks(
            x, y, k, memory_mb=memory_mb, both_ways=True, report=report
        )
        return _finite(forward, "x"), _finite(backward, "y")
    forward, backward = (
        top_k(*sides, k, memory_mb=memory_mb, backend=backend, report=report, devices=devices)
        for sides in ((x, y), (y, x))
    )
    return forward, backward


def _checked(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    memory_mb: float,
    names: tuple[str, str] = ("queries", "keys"),
) -> tuple[AnyRows, AnyRows]:
    queries, keys = as_embeddings(queries, names[0]), as_embeddings(keys, names[1])
    if keys.shape[1] != queries.shape[1]:
        raise ValueError(
            f"{names[0]} and {names[1]} must have the same dim; got {queries.shape[1]} and "
            f"{keys.shape[1]}; were they made by the same model?"
        )
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    if not memory_mb > 0:
        raise ValueError(f"memory_mb must be positive; got {memory_mb}")
    return queries, keys


def _choose(backend: str, score_tile: ScoreTile | None) -> str:
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    if backend == "auto":
        if score_tile is not None:
            return "numpy"
        import jax

        return "numpy" if jax.default_backend() == "cpu" else "jax"
    if backend != "numpy" and score_tile is not None:
        raise ValueError(f"score_tile needs backend='numpy'; got {backend!r}")
    return backend


def _finite(found: Neighbors, name: str) -> Neighbors:
    """Returns what was found if all of it is."""
    scores, indices = found
    wrong = ~np.isfinite(scores) | (indices < 0)
    if wrong.any():
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise ValueError(f"{name}[{row}]: {NOT_FINITE}")
    return found


def _top_k_by_faiss(
    queries: AnyRows, keys: AnyRows, k: int, memory_mb: float, report: Report | None
) -> Neighbors:
    """The same through flat indexes of blocks of keys, the results of the blocks merged."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "backend='faiss' needs: pip install faiss-cpu; 'numpy' finds the same"
        ) from error
    (n, dim), m = queries.shape, len(keys)
    k = min(k, m)
    # A block is copied into the index; a quarter each for it, its original and the queries.
    block_rows = max(1, int(memory_mb * 2**20 / 4 // (5 * dim)))
    scores = np.full((n, k), -np.inf, np.float32)
    indices = np.full((n, k), -1, np.int64)
    for first in range(0, m, block_rows):
        index = faiss.IndexFlatIP(dim)
        index.add(
            np.ascontiguousarray(finite_block(keys, slice(first, first + block_rows), "keys"))
        )
        for start in range(0, n, block_rows):
            rows = slice(start, start + block_rows)
            block = np.ascontiguousarray(finite_block(queries, rows, "queries"))
            found, places = index.search(block, min(k, index.ntotal))
            found = np.hstack([scores[rows], found])
            places = np.hstack([indices[rows], places + first])
            order = np.lexsort((places, -found), axis=1)[:, :k]
            scores[rows] = np.take_along_axis(found, order, axis=1)
            indices[rows] = np.take_along_axis(places, order, axis=1)
            if report is not None:
                done = first * n + index.ntotal * (start + len(block))
                report(done // m, n)
    return scores, indices
