"""Exact neighbors by blocks through NumPy's BLAS, on all cores; see `knn` for what it promises."""

import collections
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import threadpoolctl

from xling_jax.align.rows import NOT_FINITE, AnyRows, finite_block

# Turns the inner products of one tile into the scores to rank: (tile [rows, columns],
# the tile's slice of queries, its slice of keys) -> [rows, columns].
ScoreTile = Callable[[np.ndarray, slice, slice], np.ndarray]
# Called with the number of queries done and of all.
Report = Callable[[int, int], None]
# Running best of some rows: scores [rows, k] float32, sorted, and indices [rows, k] int64.
Best = tuple[np.ndarray, np.ndarray]

# A tile as large runs BLAS at full rate; a larger one only leaves the cache (2 cores, 32 MiB L3).
_MAX_TILE_KEYS = 4096
_MAX_TILE_QUERIES = 2048
# Blocks of queries handed out before the oldest is waited for, so that no thread is idle.
_BLOCKS_IN_FLIGHT = 2
# Fewer keys than this for each thread are not worth a thread.
_MIN_KEYS_PER_THREAD = 512
# A strip as high is transposed within the cache, in a third of the time of the whole.
_TRANSPOSED_ROWS = 16
# Tile, its transpose or its copy while rows are selected, temporaries of `score_tile` and of
# selection, with room to spare.
_BYTES_PER_TILE_ENTRY = 16
# Repeated argmax beats a partition of the tile up to about here (2 CPU cores, 2000 x 5000 tile:
# one argmax pass 4 ms, one partition and selection 70 ms).
_MAX_K_BY_ARGMAX = 32


def top_k_by_blocks(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    memory_mb: float,
    score_tile: ScoreTile | None = None,
    both_ways: bool = False,
    report: Report | None = None,
) -> tuple[Best, Best | None]:
    """Finds the k best keys of every query and, on demand, the k best queries of every key.

    The keys are shared out among threads, each with a BLAS of one thread: products and selection
    of different threads overlap, and a thread that is done with a block of queries goes on with
    the next.

    Args:
        queries: [n, dim], checked.
        keys: [m, dim], checked.
        k: at least 1; may exceed either side.
        memory_mb: bound on the working memory in MiB.
        score_tile: see `knn.top_k`.
        both_ways: whether to return the second result, at the price of selection only: every
            inner product is computed once.
        report: told after every block of queries.

    Returns:
        Scores and indices [n, min(k, m)], and [m, min(k, n)] or None. Where scores are not
        finite, the scores returned are not either.
    """
    (n, dim), m = queries.shape, keys.shape[0]
    with _single_threaded_blas(m) as threads:
        rows_per_tile, columns_per_tile = _tile_shape(n, m, dim, k, memory_mb / threads)
        chunks = [
            slice(m * place // threads, m * (place + 1) // threads) for place in range(threads)
        ]
        size = min(rows_per_tile, max(n, 1)) * min(columns_per_tile, m)
        buffers = [np.empty(size, np.float32) for _ in chunks]
        forward = _empty_best(n, min(k, m))
        backward = _empty_best(m, min(k, n)) if both_ways else None
        running: collections.deque[tuple[slice, list[Future[Best]]]] = collections.deque()

        def collect() -> None:
            rows, parts = running.popleft()
            for part in parts:
                _join(_rows_of(forward, rows), part.result())
            if report is not None:
                report(rows.stop, n)

        with contextlib.ExitStack() as stack:
            # One lane a chunk: its tile and its part of `backward` have one user at a time.
            lanes = [stack.enter_context(ThreadPoolExecutor(1)) for _ in chunks]
            for rows in _cut(slice(0, n), rows_per_tile):
                shared = (finite_block(queries, rows, "queries"), rows, keys, columns_per_tile)
                shared += (forward[0].shape[1], score_tile, backward)
                parts = [
                    lane.submit(_search_chunk, *shared, chunk, buffer)
                    for lane, chunk, buffer in zip(lanes, chunks, buffers)
                ]
                running.append((rows, parts))
                if len(running) == _BLOCKS_IN_FLIGHT:
                    collect()
            while running:
                collect()
    return forward, backward


def _search_chunk(
    query_block: np.ndarray,
    rows: slice,
    keys: AnyRows,
    columns_per_tile: int,
    k: int,
    score_tile: ScoreTile | None,
    backward: Best | None,
    chunk: slice,
    buffer: np.ndarray,
) -> Best:
    """The best of the keys of one chunk for a block of queries; merges into `backward` too."""
    best = _empty_best(len(query_block), k)
    for columns in _cut(chunk, columns_per_tile):
        shape = (len(query_block), columns.stop - columns.start)
        tile = buffer[: shape[0] * shape[1]].reshape(shape)
        key_block = finite_block(keys, columns, "keys")
        with np.errstate(over="ignore", invalid="ignore"):  # Found by _merge.
            np.matmul(query_block, key_block.T, out=tile)
        if score_tile is not None:
            tile = score_tile(tile, rows, columns)
        if backward is not None:
            # Ahead of the other merge, which changes the tile.
            _merge_columns(tile, rows.start, _rows_of(backward, columns))
        _merge(tile, columns.start, best)
    return best


def _tile_shape(n: int, m: int, dim: int, k: int, memory_mb: float) -> tuple[int, int]:
    """Rows and columns of a tile such that tile, float32 blocks and merging fit `memory_mb`."""
    budget = memory_mb * 2**20
    # A row of a block, four bytes an entry and one of its finiteness check, and the merge of its
    # best with as many others: scores, indices, their order, and what is taken in that order.
    block_row = 5 * dim + 72 * min(k, max(n, m))
    columns = int(min(m, _MAX_TILE_KEYS, max(1, budget / 3 // block_row)))
    per_row = _BYTES_PER_TILE_ENTRY * columns + _BLOCKS_IN_FLIGHT * block_row
    rows = (budget - columns * block_row) // per_row
    return int(min(max(n, 1), _MAX_TILE_QUERIES, max(1, rows))), columns


@contextlib.contextmanager
def _single_threaded_blas(num_keys: int) -> Iterator[int]:
    """Yields how many threads to use in place of the threads of BLAS, which are as many."""
    controller = threadpoolctl.ThreadpoolController().select(user_api="blas")
    # What the user allows BLAS, by OMP_NUM_THREADS say, is allowed here.
    threads = max((library["num_threads"] for library in controller.info()), default=1)
    threads = min(threads, num_keys // _MIN_KEYS_PER_THREAD)
    if threads < 2:
        yield 1
        return
    with controller.limit(limits=1):
        yield threads


def _empty_best(rows: int, k: int) -> Best:
    return np.full((rows, k), -np.inf, np.float32), np.full((rows, k), -1, np.int64)


def _rows_of(best: Best, rows: slice) -> Best:
    return best[0][rows], best[1][rows]


def _cut(whole: slice, size: int) -> Iterator[slice]:
    for start in range(whole.start, whole.stop, size):
        yield slice(start, min(start + size, whole.stop))


def _merge(tile: np.ndarray, first: int, best: Best) -> None:
    """Merges a tile, whose column 0 has index `first`, into the best of its rows, in place."""
    if best[0].shape[1] <= _MAX_K_BY_ARGMAX:
        _merge_by_argmax(tile, first, *best)
    else:
        _merge_by_partition(tile, first, *best)


def _merge_columns(tile: np.ndarray, first: int, best: Best) -> None:
    """Merges a tile, whose row 0 has index `first`, into the best of its columns, in place."""
    # Written so that NaN counts as better, and is found below.
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


def _join(best: Best, later: Best) -> None:
    """Merges the best of keys that come later into `best`, in place."""
    _store_sorted(
        np.arange(len(best[0])),
        np.hstack([best[0], later[0]]),
        np.hstack([best[1], later[1]]),
        *best,
    )


def _refuse_nan(scores: np.ndarray) -> None:
    # argmax and max find a NaN wherever there is one.
    if np.isnan(scores).any():
        raise ValueError(NOT_FINITE)


def _merge_by_argmax(
    tile: np.ndarray, first: int, best_scores: np.ndarray, best_indices: np.ndarray
) -> None:
    """Finds a tile's best entries, the largest first, while rows improve; then merges them.

    Changes all arguments in place. Tiles come in order of key index, argmax returns the first
    of equals, and only a strictly larger score displaces, so ties end lowest index first.
    """
    rows, k = best_scores.shape
    found_scores = np.full((rows, k), -np.inf, np.float32)
    found_indices = np.full((rows, k), -1, np.int64)
    active = np.arange(rows)
    for place in range(k):
        columns = tile.argmax(axis=1)
        scores = tile[np.arange(len(tile)), columns]
        _refuse_nan(scores)
        # With `place` larger entries ahead of it, an entry is among the k best if it exceeds this.
        improved = np.flatnonzero(scores > best_scores[active, k - 1 - place])
        tile[improved, columns[improved]] = -np.inf
        chosen = active[improved]
        found_scores[chosen, place] = scores[improved]
        found_indices[chosen, place] = first + columns[improved]
        # A row that did not improve cannot do so later; copying the others pays when few.
        if improved.size * 2 < len(tile):
            tile, active = tile[improved], chosen
        if not active.size:
            break
    changed = np.flatnonzero(found_scores[:, 0] > -np.inf)
    _store_sorted(
        changed,
        np.hstack([best_scores[changed], found_scores[changed]]),
        np.hstack([best_indices[changed], found_indices[changed]]),
        best_scores,
        best_indices,
    )


def _merge_by_partition(
    tile: np.ndarray, first: int, best_scores: np.ndarray, best_indices: np.ndarray
) -> None:
    """The same result as `_merge_by_argmax`, at a cost that hardly depends on k."""
    k = best_scores.shape[1]
    largest = tile.max(axis=1)
    _refuse_nan(largest)
    rows = np.flatnonzero(largest > best_scores[:, -1])
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
    merged_scores = np.hstack([best_scores[rows], np.take_along_axis(tile, columns, axis=1)])
    merged_indices = np.hstack([best_indices[rows], first + columns])
    _store_sorted(rows, merged_scores, merged_indices, best_scores, best_indices)


def _store_sorted(
    rows: np.ndarray,
    scores: np.ndarray,
    indices: np.ndarray,
    best_scores: np.ndarray,
    best_indices: np.ndarray,
) -> None:
    """Writes the first k of the candidates, sorted by score; equals keep their order."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, : best_scores.shape[1]]
    best_scores[rows] = np.take_along_axis(scores, order, axis=1)
    best_indices[rows] = np.take_along_axis(indices, order, axis=1)
