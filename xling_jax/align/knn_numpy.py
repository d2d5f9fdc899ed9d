"""Exact neighbors in blocks by NumPy's BLAS, on all cores; see `knn.top_k`."""

import collections
import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from xling_jax.align.rows import NOT_FINITE, AnyRows, Report, finite_block, no_neighbors
from xling_jax.files.threads import threads_for

# Running best of some rows: scores [rows, k] float32, sorted, and indices [rows, k] int64.
Best = tuple[np.ndarray, np.ndarray]

# Large enough for BLAS to run at full rate; larger tiles leave the cache (2 cores, 32 MiB L3).
_MAX_TILE_KEYS = 4096
_MAX_TILE_QUERIES = 2048
# Blocks of queries submitted before the oldest is collected, so that no thread is idle.
_BLOCKS_IN_FLIGHT = 2
# With fewer keys than this per thread, threads cost more than they save.
_MIN_KEYS_PER_THREAD = 512
# A strip of this height is transposed within the cache, in a third of the time of the whole.
_TRANSPOSED_ROWS = 16
# The tile, its transpose or a copy of selected rows, and temporaries of selection.
_BYTES_PER_TILE_ENTRY = 16
# Up to about here repeated argmax beats a partition of the tile (2 CPU cores, 2000 x 5000 tile:
# one argmax pass 4 ms, one partition and selection 70 ms).
_MAX_K_BY_ARGMAX = 32


def search(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    both_ways: bool,
    memory_mb: float,
    report: Report | None = None,
) -> tuple[Best, Best | None]:
    """The k best keys of every query and, with `both_ways`, the k best queries of every key.

    Arguments as `knn.top_k`, already checked. Scores float32 and indices int64, [n, min(k, m)] and
    [m, min(k, n)], come from one pass over the products, also those that are not finite.

    Each thread owns a chunk of the keys and runs a single-threaded BLAS: products and selection of
    different threads overlap, and a thread that finishes a block of queries starts the next.
    """
    (n, dim), m = queries.shape, keys.shape[0]
    with threads_for(m // _MIN_KEYS_PER_THREAD) as threads:
        rows_per_tile, columns_per_tile = _tile_shape(n, m, dim, k, memory_mb / threads)
        chunks = [
            slice(m * place // threads, m * (place + 1) // threads) for place in range(threads)
        ]
        size = min(rows_per_tile, max(n, 1)) * min(columns_per_tile, m)
        buffers = [np.empty(size, np.float32) for _ in chunks]
        forward = no_neighbors(n, min(k, m))
        backward = no_neighbors(m, min(k, n)) if both_ways else None
        running: collections.deque[tuple[slice, list[Future[Best]]]] = collections.deque()

        def search_chunk(block: np.ndarray, rows: slice, chunk: slice, buffer: np.ndarray) -> Best:
            """Finds the best keys of a chunk for a block of queries, and updates `backward`."""
            best = no_neighbors(len(block), forward[0].shape[1])
            for columns in _cut(chunk, columns_per_tile):
                shape = (len(block), columns.stop - columns.start)
                tile = buffer[: shape[0] * shape[1]].reshape(shape)
                key_block = finite_block(keys, columns, "keys")
                with np.errstate(over="ignore", invalid="ignore"):  # _merge finds them
                    np.matmul(block, key_block.T, out=tile)
                if backward is not None:
                    # Before the other merge, which changes the tile.
                    parts = backward[0][columns], backward[1][columns]
                    _merge_columns(tile, rows.start, parts)
                _merge(tile, columns.start, best)
            return best

        def collect() -> None:
            rows, parts = running.popleft()
            for part in parts:
                keep_best(forward, rows, *part.result())
            if report is not None:
                report(rows.stop, n)

        with contextlib.ExitStack() as stack:
            # One single-thread pool per chunk: nothing else uses its tile or its part of
            # `backward` at the same time.
            lanes = [stack.enter_context(ThreadPoolExecutor(1)) for _ in chunks]
            for rows in _cut(slice(0, n), rows_per_tile):
                block = finite_block(queries, rows, "queries")
                parts = [
                    lane.submit(search_chunk, block, rows, chunk, buffer)
                    for lane, chunk, buffer in zip(lanes, chunks, buffers)
                ]
                running.append((rows, parts))
                if len(running) == _BLOCKS_IN_FLIGHT:
                    collect()
            while running:
                collect()
    return forward, backward


def _tile_shape(n: int, m: int, dim: int, k: int, memory_mb: float) -> tuple[int, int]:
    """Rows and columns of a tile such that tile, float32 blocks and merges fit `memory_mb`."""
    budget = memory_mb * 2**20
    # Per row of a block: four bytes an entry, one for the finiteness check, and the merge of its
    # best with as many others (scores, indices, their order, and the sorted copies).
    block_row = 5 * dim + 72 * min(k, max(n, m))
    columns = int(min(m, _MAX_TILE_KEYS, max(1, budget / 3 // block_row)))
    per_row = _BYTES_PER_TILE_ENTRY * columns + _BLOCKS_IN_FLIGHT * block_row
    rows = (budget - columns * block_row) // per_row
    return int(min(max(n, 1), _MAX_TILE_QUERIES, max(1, rows))), columns


def _cut(whole: slice, size: int) -> Iterator[slice]:
    for start in range(whole.start, whole.stop, size):
        yield slice(start, min(start + size, whole.stop))


def _merge(tile: np.ndarray, first: int, best: Best) -> None:
    """Merges a tile, whose column 0 has index `first`, into the best of its rows, in place.

    Tiles come in order of key index and only a strictly larger score replaces another, so that
    ties keep the lowest index.
    """
    if best[0].shape[1] <= _MAX_K_BY_ARGMAX:
        _merge_by_argmax(tile, first, best)
    else:
        _merge_by_partition(tile, first, best)


def _merge_columns(tile: np.ndarray, first: int, best: Best) -> None:
    """Merges a tile, whose row 0 has index `first`, into the best of its columns, in place."""
    # Negated so that NaN counts as better and is found below.
    columns = np.flatnonzero(~(tile.max(axis=0) <= best[0][:, -1]))
    if not columns.size:
        return
    transposed = np.empty((columns.size, len(tile)), np.float32)
    for start in range(0, len(tile), _TRANSPOSED_ROWS):
        rows = tile[start : start + _TRANSPOSED_ROWS]
        rows = rows if columns.size == tile.shape[1] else rows[:, columns]
        transposed[:, start : start + _TRANSPOSED_ROWS] = rows.T
    improved = best[0][columns], best[1][columns]
    _merge(transposed, first, improved)
    best[0][columns], best[1][columns] = improved


def _refuse_nan(scores: np.ndarray) -> None:
    # argmax and max propagate NaN.
    if np.isnan(scores).any():
        raise ValueError(NOT_FINITE)


def _merge_by_argmax(tile: np.ndarray, first: int, best: Best) -> None:
    """Takes a tile's best entries, largest first, while rows improve; overwrites the tile."""
    rows, k = best[0].shape
    found_scores, found_indices = no_neighbors(rows, k)
    active = np.arange(rows)
    for place in range(k):
        columns = tile.argmax(axis=1)
        scores = tile[np.arange(len(tile)), columns]
        _refuse_nan(scores)
        # With `place` larger entries ahead of it, an entry is among the k best if it exceeds this.
        improved = np.flatnonzero(scores > best[0][active, k - 1 - place])
        tile[improved, columns[improved]] = -np.inf
        chosen = active[improved]
        found_scores[chosen, place] = scores[improved]
        found_indices[chosen, place] = first + columns[improved]
        # A row that did not improve cannot do so later; copying the others pays if they are few.
        if improved.size * 2 < len(tile):
            tile, active = tile[improved], chosen
        if not active.size:
            break
    changed = np.flatnonzero(found_scores[:, 0] > -np.inf)
    keep_best(best, changed, found_scores[changed], found_indices[changed])


def _merge_by_partition(tile: np.ndarray, first: int, best: Best) -> None:
    """Takes a tile's best entries at a cost that hardly depends on k."""
    k = best[0].shape[1]
    largest = tile.max(axis=1)
    _refuse_nan(largest)
    rows = np.flatnonzero(largest > best[0][:, -1])
    if rows.size == 0:
        return
    tile = tile if rows.size == len(tile) else tile[rows]
    width = tile.shape[1]
    if width > k:
        kth = np.partition(tile, width - k, axis=1)[:, width - k, None]
        chosen = tile >= kth
        for row in np.flatnonzero(np.count_nonzero(chosen, axis=1) > k):
            ties = np.flatnonzero(tile[row] == kth[row])
            num_larger = np.count_nonzero(tile[row] > kth[row])
            chosen[row, ties[k - num_larger :]] = False
        columns = np.nonzero(chosen)[1].reshape(rows.size, k)
    else:
        columns = np.broadcast_to(np.arange(width), tile.shape)
    keep_best(best, rows, np.take_along_axis(tile, columns, axis=1), first + columns)


def keep_best(
    best: Best, rows: np.ndarray | slice, scores: np.ndarray, indices: np.ndarray
) -> None:
    """Merges candidates with higher indices into some rows of `best`, in place."""
    scores = np.hstack([best[0][rows], scores])
    indices = np.hstack([best[1][rows], indices])
    order = np.argsort(-scores, axis=1, kind="stable")[:, : best[0].shape[1]]
    best[0][rows] = np.take_along_axis(scores, order, axis=1)
    best[1][rows] = np.take_along_axis(indices, order, axis=1)
