"""Nearest neighbors by inner product, in blocks, within a stated amount of memory.

Works on any arrays, memory-mapped ones included, and knows nothing about models or text. Both
backends give the same, exact neighbors: NumPy's BLAS and JAX on its devices. A faiss index finds
nearly the same ones among millions in a fraction of the time.
"""

import functools
from collections.abc import Callable

import numpy as np

from xling_jax.align import knn_index
from xling_jax.align.knn_index import EXACT
from xling_jax.align.rows import (
    NOT_FINITE,
    AnyRows,
    Neighbors,
    Report,
    UnitRows,
    as_embeddings,
    check_same_dim,
    normalize,
)
from xling_jax.devices import has_accelerator
from xling_jax.options import OptionError, checks_numbers
from xling_jax.registry import Registry, check_choice

__all__ = ["BACKENDS", "AnyRows", "Neighbors", "Report", "UnitRows", "as_embeddings"]
__all__ += ["normalize", "top_k", "top_k_both_ways"]

_SEARCHES = Registry(
    "backend", numpy="xling_jax.align.knn_numpy:search", jax="xling_jax.align.knn_jax:search"
)
BACKENDS = ("auto", *_SEARCHES)


@checks_numbers
def top_k(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    memory_mb: float = 256,
    backend: str = "numpy",
    index: str = EXACT,
    report: Report | None = None,
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
        backend: one of `BACKENDS`. "jax" splits the keys over the devices of this process; "auto"
            is JAX where it has an accelerator, otherwise NumPy, the faster on CPUs.
        index: "exact", or how faiss finds candidates without scoring every pair: "ivf", "ivfpq",
            "hnsw", or a factory string such as "IVF4096,SQ8"; with search parameters after a colon
            ("ivf:nprobe=64"). Scores stay exact; neighbors may be missed. On the CPU.
        report: called with the number of queries done and the total.

    Returns:
        scores [n, min(k, m)] float32, best first, and key indices [n, min(k, m)] int64.

    Raises:
        ValueError: if shapes disagree, there are no keys, k < 1, a value is not finite, or the
            backend cannot take the `index`; ImportError if what that needs is not installed.
    """
    queries, keys = _checked(queries, keys, k, memory_mb, ("queries", "keys"))
    options = {"memory_mb": memory_mb, "report": report}
    found, _ = find_search(backend, index)(queries, keys, k, both_ways=False, **options)
    return _finite(found, "queries")


@checks_numbers
def top_k_both_ways(
    x: AnyRows,
    y: AnyRows,
    k: int,
    *,
    memory_mb: float = 256,
    backend: str = "numpy",
    index: str = EXACT,
    report: Report | None = None,
) -> tuple[Neighbors, Neighbors]:
    """Finds the k best rows of y for every row of x, and of x for every row of y.

    Same result as two calls of `top_k`, with the same arguments and errors. Without an index, every
    inner product is computed only once, in little more than half the time.

    Returns:
        Scores and indices [n, min(k, m)] of the neighbors of x [n, dim] in y [m, dim], and
        [m, min(k, n)] of those of y in x.
    """
    x, y = _checked(x, y, k, memory_mb, ("x", "y"))
    if not len(x):
        raise ValueError("x must hold at least one row; got none")
    options = {"memory_mb": memory_mb, "report": report}
    forward, backward = find_search(backend, index)(x, y, k, both_ways=True, **options)
    return _finite(forward, "x"), _finite(backward, "y")


def choose_backend(backend: str) -> str:
    """Resolves "auto": JAX where it has an accelerator, otherwise NumPy, the faster on CPUs."""
    check_choice("backend", backend, BACKENDS)
    if backend != "auto":
        return backend
    return "jax" if has_accelerator() else "numpy"


def find_search(backend: str, index: str) -> Callable:
    """The function that searches; OptionError if a backend and an index exclude each other."""
    if index == EXACT:
        return _SEARCHES[choose_backend(backend)]
    check_choice("backend", backend, BACKENDS)
    if backend == "jax":
        raise OptionError(f"index={index!r} searches on the CPU; leave out backend='jax'")
    return functools.partial(knn_index.search, index=index)


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
