"""Nearest neighbors by inner product, in blocks, within a stated amount of memory.

Works on any arrays, memory-mapped ones included, and knows nothing about models or text. All
backends give the same, exact neighbors: NumPy's BLAS, JAX on its devices, faiss where it is
installed. An index finds nearly the same ones among millions in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from xling_jax.align import knn_index, knn_numpy
from xling_jax.align.backends import Neighbors, Report, choose_backend
from xling_jax.align.knn_index import EXACT
from xling_jax.align.knn_numpy import ScoreTile
from xling_jax.align.rows import (
    NOT_FINITE,
    AnyRows,
    UnitRows,
    as_embeddings,
    check_same_dim,
    normalize,
)
from xling_jax.registry import Registry, check_choice

if TYPE_CHECKING:
    import jax

__all__ = ["BACKENDS", "AnyRows", "Neighbors", "Report", "ScoreTile", "UnitRows", "as_embeddings"]
__all__ += ["normalize", "top_k", "top_k_both_ways"]

_SEARCHES = Registry(
    "backend",
    numpy="xling_jax.align.knn_numpy",
    jax="xling_jax.align.knn_jax",
    faiss="xling_jax.align.knn_faiss",
)
BACKENDS = ("auto", *_SEARCHES)
DTYPES = ("float32", "float16", "bfloat16")


def top_k(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    memory_mb: float = 256,
    score_tile: ScoreTile | None = None,
    backend: str = "numpy",
    index: str = EXACT,
    report: Report | None = None,
    devices: Sequence[jax.Device] | None = None,
    dtype: str | None = None,
) -> Neighbors:
    """Finds, for every query, the k keys with the largest inner product.

    Exact unless an `index` is given: every pair is scored. For cosine similarity pass `normalize`d
    arrays or `UnitRows`. Equal scores are ordered by key index, lowest first. Copies of one key can
    differ in the last bit of their float32 score, because the order in which BLAS adds depends on
    the position.

    Args:
        queries: [n, dim], any real number type; may be memory-mapped.
        keys: [m, dim], likewise.
        k: number of neighbors, at least 1; m are returned when k > m.
        memory_mb: bound on the working memory, in MiB, besides inputs, outputs and `index`; with
            "jax" per device, unless devices report free memory of their own, half of which is used.
            However small, one query is always scored against one key.
        score_tile: turns inner products into the scores to rank, elementwise; may change its
            argument in place. None ranks the inner products themselves. "numpy" only.
        backend: one of `BACKENDS`. "jax" splits the keys over devices; "faiss" is a
            flat index and breaks ties in its own way; "auto" is JAX where it has an accelerator,
            otherwise NumPy, the fastest on CPUs.
        index: "exact", or how faiss finds candidates without scoring every pair: "ivf", "ivfpq",
            "hnsw", or a factory string such as "IVF4096,SQ8"; with search parameters after a colon
            ("ivf:nprobe=64"). Scores stay exact; neighbors may be missed. On the CPU.
        report: called with the number of queries done and the total.
        devices: those of "jax"; by default all of this process. If they belong to several
            processes, all of these make the same call and get the same result.
        dtype: in which "jax" looks for candidates: "float32", or the faster "float16" or
            "bfloat16", where `knn_jax` proves that the neighbors are those of float32. None is
            float16 on a GPU, bfloat16 on a TPU, otherwise float32. Scores are float32 always.

    Returns:
        scores [n, min(k, m)] float32, best first, and key indices [n, min(k, m)] int64.

    Raises:
        ValueError: if shapes disagree, there are no keys, k < 1, a value is not finite, or the
            backend is unknown or cannot take `score_tile`, `index` or `dtype`.
        ImportError: if the backend or what the index needs is not installed.
    """
    queries, keys = _checked(queries, keys, k, memory_mb, ("queries", "keys"))
    settings = {"memory_mb": memory_mb, "report": report}
    if score_tile is not None:
        if backend not in ("numpy", "auto") or index != EXACT:
            raise ValueError(
                f"score_tile needs backend='numpy' and index='exact'; got {backend!r}, {index!r}"
            )
        found = knn_numpy.top_k(queries, keys, k, score_tile=score_tile, **settings)
    else:
        search, choice = _search(backend, index, devices, dtype)
        found = search.top_k(queries, keys, k, **settings, **choice)
    return _finite(found, "queries")


def top_k_both_ways(
    x: AnyRows,
    y: AnyRows,
    k: int,
    *,
    memory_mb: float = 256,
    backend: str = "numpy",
    index: str = EXACT,
    report: Report | None = None,
    devices: Sequence[jax.Device] | None = None,
    dtype: str | None = None,
) -> tuple[Neighbors, Neighbors]:
    """Finds the k best rows of y for every row of x, and of x for every row of y.

    Same result as two calls of `top_k`, with the same arguments and errors. NumPy and JAX compute
    every inner product only once, in little more than half the time; faiss reports two passes.

    Returns:
        Scores and indices [n, min(k, m)] of the neighbors of x [n, dim] in y [m, dim], and
        [m, min(k, n)] of those of y in x.
    """
    x, y = _checked(x, y, k, memory_mb, ("x", "y"))
    if not len(x):
        raise ValueError("x must hold at least one row; got none")
    search, choice = _search(backend, index, devices, dtype)
    settings = {"memory_mb": memory_mb, "report": report} | choice
    forward, backward = search.top_k_both_ways(x, y, k, **settings)
    return _finite(forward, "x"), _finite(backward, "y")


def _search(
    backend: str, index: str, devices: Sequence[jax.Device] | None, dtype: str | None
) -> tuple[ModuleType, dict[str, Any]]:
    """The module that searches, and its own arguments."""
    backend = "numpy" if index != EXACT and backend == "auto" else backend
    backend = choose_backend(backend, BACKENDS)
    if dtype is not None:
        check_choice("dtype", dtype, DTYPES)
    if backend == "jax" and index == EXACT:
        return _SEARCHES["jax"], {"devices": devices, "dtype": dtype}
    if dtype not in (None, "float32"):
        raise ValueError(f"dtype={dtype!r} needs backend='jax' and index='exact'")
    if index == EXACT:
        return _SEARCHES[backend], {}
    if backend == "jax":
        raise ValueError(f"index={index!r} searches on the CPU; leave out backend='jax'")
    return knn_index, {"index": index}


def _checked(
    queries: AnyRows, keys: AnyRows, k: int, memory_mb: float, names: tuple[str, str]
) -> tuple[AnyRows, AnyRows]:
    queries, keys = as_embeddings(queries, names[0]), as_embeddings(keys, names[1])
    check_same_dim(queries, keys, names)
    if not len(keys):
        raise ValueError(f"{names[1]} must hold at least one row; got none")
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    if not memory_mb > 0:
        raise ValueError(f"memory_mb must be positive; got {memory_mb}")
    return queries, keys


def _finite(found: Neighbors, name: str) -> Neighbors:
    """Returns neighbors if all of their scores are finite."""
    wrong = ~np.isfinite(found[0]) | (found[1] < 0)
    if wrong.any():
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise ValueError(f"{name}[{row}]: {NOT_FINITE}")
    return found
