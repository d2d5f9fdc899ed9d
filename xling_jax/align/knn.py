"""Exact nearest neighbors by inner product, in blocks, within a stated amount of memory.

Works on any arrays, memory-mapped ones included, through NumPy's BLAS. Nothing here is
approximate, and nothing knows about models, languages or texts.
"""

from collections.abc import Callable

import numpy as np

# Turns the inner products of one tile into the scores to rank: (tile [rows, columns],
# the tile's slice of queries, its slice of keys) -> [rows, columns].
ScoreTile = Callable[[np.ndarray, slice, slice], np.ndarray]

# Wide enough for BLAS to run at full rate, narrow enough that a tile's rows stay in cache.
_MAX_TILE_KEYS = 8192
# Tile, its copy while rows are selected, and one temporary of `score_tile`, with room to spare.
_BYTES_PER_TILE_ENTRY = 16
# Repeated argmax beats a partition of the tile up to about here (2 CPU cores, 2000 x 5000 tile:
# one argmax pass 4 ms, one partition and selection 70 ms).
_MAX_K_BY_ARGMAX = 32


def as_embeddings(array: np.ndarray, name: str = "embeddings") -> np.ndarray:
    """Returns `array` if it can hold embeddings.

    Args:
        array: [n, dim] of any real number type.
        name: what to call the array in errors.

    Returns:
        The array as given, not copied. Its values are not looked at.

    Raises:
        ValueError: if it has not two dimensions, has no columns, or does not hold real numbers.
    """
    array = np.asanyarray(array)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have shape [n, dim] with dim > 0; got {array.shape}")
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must hold real numbers; got dtype {array.dtype}")
    return array


def normalize(embeddings: np.ndarray) -> np.ndarray:
    """Scales every row to unit length; all-zero rows stay zero.

    Args:
        embeddings: [n, dim] of any real number type.

    Returns:
        [n, dim] float32, a new array.

    Raises:
        ValueError: if the shape is wrong or a value is not finite.
    """
    embeddings = as_embeddings(embeddings)
    unit = np.empty(embeddings.shape, np.float32)
    for start in range(0, len(unit), _MAX_TILE_KEYS):
        rows = slice(start, start + _MAX_TILE_KEYS)
        # float64, because squares of tiny and of huge values leave the range of float32.
        block = _finite_block(embeddings, rows, "embeddings").astype(np.float64)
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        unit[rows] = np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
    return unit


def top_k(
    queries: np.ndarray,
    keys: np.ndarray,
    k: int,
    *,
    memory_mb: float = 256,
    score_tile: ScoreTile | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds, for every query, the k keys with the largest inner product.

    Exact: every pair is scored. For cosine similarity pass `normalize`d arrays. Equal scores
    are ordered by key index, lowest first. Copies of one key can differ in the last bit of
    their float32 score, because BLAS adds up in an order that depends on the position.

    Args:
        queries: [n, dim], any real number type; may be memory-mapped.
        keys: [m, dim], the same.
        k: number of neighbors wanted, at least 1; m are returned when k > m.
        memory_mb: bound on the working memory, in MiB, beyond inputs and outputs. One query
            against one key is always computed, however small the bound.
        score_tile: turns inner products into the scores to rank, elementwise; None ranks the
            inner products themselves. May change its argument in place.

    Returns:
        scores [n, min(k, m)] float32, best first, and key indices [n, min(k, m)] int64.

    Raises:
        ValueError: if shapes disagree, there are no keys, k < 1, or a value is not finite.
    """
    queries = as_embeddings(queries, "queries")
    keys = as_embeddings(keys, "keys")
    (n, dim), m = queries.shape, keys.shape[0]
    if keys.shape[1] != dim:
        raise ValueError(
            f"queries and keys must have the same dim; got {dim} and {keys.shape[1]}; "
            "were they made by the same model?"
        )
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    if m == 0:
        raise ValueError("keys must hold at least one row; got none")
    k = min(k, m)

    best_scores = np.full((n, k), -np.inf, np.float32)
    best_indices = np.full((n, k), -1, np.int64)
    rows_per_tile, columns_per_tile = _tile_shape(n, m, dim, memory_mb)
    merge = _merge_by_argmax if k <= _MAX_K_BY_ARGMAX else _merge_by_partition
    for start in range(0, n, rows_per_tile):
        rows = slice(start, min(start + rows_per_tile, n))
        query_block = _finite_block(queries, rows, "queries")
        for first in range(0, m, columns_per_tile):
            columns = slice(first, min(first + columns_per_tile, m))
            tile = query_block @ _finite_block(keys, columns, "keys").T
            if score_tile is not None:
                tile = score_tile(tile, rows, columns)
            merge(tile, first, best_scores[rows], best_indices[rows])
    if np.any(best_indices < 0):
        row = int(np.flatnonzero((best_indices < 0).any(axis=1))[0])
        raise ValueError(
            f"queries[{row}] has scores that are not finite in float32; normalize the vectors"
        )
    return best_scores, best_indices


def _tile_shape(n: int, m: int, dim: int, memory_mb: float) -> tuple[int, int]:
    """Rows and columns of a tile such that tile and float32 blocks fit `memory_mb`."""
    if not memory_mb > 0:
        raise ValueError(f"memory_mb must be positive; got {memory_mb}")
    budget = memory_mb * 2**20
    # A block and the temporary of its finiteness check, four bytes an entry and one.
    block_row = 5 * dim
    columns = int(min(m, _MAX_TILE_KEYS, max(1, budget / 3 // block_row)))
    rows = (budget - columns * block_row) // (_BYTES_PER_TILE_ENTRY * columns + block_row)
    return int(min(max(n, 1), max(1, rows))), columns


def _finite_block(array: np.ndarray, rows: slice, name: str) -> np.ndarray:
    """The rows as float32 in memory; float32 input is not copied."""
    block = np.asarray(array[rows], dtype=np.float32)
    finite = np.isfinite(block)
    if not finite.all():
        row = int(np.flatnonzero(~finite.all(axis=1))[0]) + (rows.start or 0)
        raise ValueError(f"{name}[{row}] must be finite in float32; it holds NaN or infinity")
    return block


def _merge_by_argmax(
    tile: np.ndarray, first: int, best_scores: np.ndarray, best_indices: np.ndarray
) -> None:
    """Inserts a tile's best entries, the largest first, until no row improves.

    Changes all arguments in place. Tiles come in order of key index, argmax returns the first
    of equals, and only a strictly larger score displaces, so ties end lowest index first.
    """
    active = np.arange(len(tile))
    while active.size:
        columns = tile.argmax(axis=1)
        scores = tile[np.arange(len(tile)), columns]
        improved = np.flatnonzero(scores > best_scores[active, -1])
        tile[improved, columns[improved]] = -np.inf
        rows = active[improved]
        merged_scores = best_scores[rows]
        merged_scores[:, -1] = scores[improved]
        merged_indices = best_indices[rows]
        merged_indices[:, -1] = first + columns[improved]
        _store_sorted(rows, merged_scores, merged_indices, best_scores, best_indices)
        # A row that did not improve cannot do so later; copying the others pays when few.
        if improved.size == 0 or improved.size * 2 < len(tile):
            tile, active = tile[improved], rows


def _merge_by_partition(
    tile: np.ndarray, first: int, best_scores: np.ndarray, best_indices: np.ndarray
) -> None:
    """The same result as `_merge_by_argmax`, at a cost that hardly depends on k."""
    k = best_scores.shape[1]
    rows = np.flatnonzero(tile.max(axis=1) > best_scores[:, -1])
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
