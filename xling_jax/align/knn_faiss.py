"""Exact neighbors by flat faiss indexes; see `knn.top_k`."""

from typing import Any

import numpy as np

from xling_jax.align.backends import Neighbors, Report, import_faiss
from xling_jax.align.rows import AnyRows, finite_block


def top_k_both_ways(x: AnyRows, y: AnyRows, k: int, **settings: Any) -> tuple[Neighbors, Neighbors]:
    """As `top_k` of x and y, and of y and x: a flat index finds the best of rows only."""
    return top_k(x, y, k, **settings), top_k(y, x, k, **settings)


def top_k(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    memory_mb: float,
    report: Report | None = None,
) -> Neighbors:
    """Finds the k best keys of every query; arguments as `knn.top_k`, already checked.

    Searches one index per block of keys and merges the results.

    Raises:
        ImportError: if faiss is not installed.
    """
    faiss = import_faiss("backend='faiss'")
    (n, dim), m = queries.shape, len(keys)
    k = min(k, m)
    # The index copies a block; a quarter of the memory each for it, its original and the queries.
    block_rows = max(1, int(memory_mb * 2**20 / 4 // (5 * dim)))
    scores = np.full((n, k), -np.inf, np.float32)
    indices = np.full((n, k), -1, np.int64)
    for first in range(0, m, block_rows):
        index = faiss.IndexFlatIP(dim)
        block = finite_block(keys, slice(first, first + block_rows), "keys")
        index.add(np.ascontiguousarray(block))
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
