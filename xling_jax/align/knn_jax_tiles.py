"""What one device does in `knn_jax`: tiles of products, their best rows and columns, in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

# Scores [rows, k], indices [rows, k], and [rows] a score that no key beyond these exceeds.
Found = tuple[jax.Array, jax.Array, jax.Array]
Best = tuple[jax.Array, jax.Array]

# Platform -> what its products of matrices are fast in; float32 elsewhere.
DTYPES = {"gpu": "float16", "cuda": "float16", "rocm": "float16", "tpu": "bfloat16"}
# Bits of exponent and mantissa.
_FORMATS = {"float16": (5, 10), "bfloat16": (8, 7)}

_MAX_TILE_ROWS = 4096
_MAX_TILE_KEYS = 8192
# The more queries at a time, the fewer candidates of the keys are computed in float32.
_MAX_ROWS = {"float32": 4096, "float16": 65536, "bfloat16": 65536}
# The entries of larger blocks could not be numbered by 32 bits.
_MAX_BLOCK_ENTRIES = 2**31 - 1
# The products, and the temporaries of selection.
_BYTES_PER_TILE_ENTRY = 12
# Tiles are cut evenly, and large ones to multiples of this, so that they consist of groups.
_MAX_GROUP = 128
_NOTHING = 2**31 - 1


@dataclass(frozen=True)
class Blocks:
    """Sizes of one step.

    Attributes:
        rows: queries per block.
        tile_rows: queries per tile, a divisor of `rows`.
        keys: per device and block.
        tile_keys: keys per tile, a divisor of `keys`.
        candidates: kept of a device's keys for each query and, both ways, of the queries for each
            key.
        dtype: of the products.
    """

    rows: int
    tile_rows: int
    keys: int
    tile_keys: int
    candidates: tuple[int, ...]
    dtype: str

    @classmethod
    def fitting(
        cls,
        sizes: tuple[int, int],
        dim: int,
        candidates: Sequence[int],
        dtype: str,
        devices: int,
        budget: float,
    ) -> Blocks:
        """Chooses sizes within `budget` bytes per device.

        Blocks and tiles have nearly equal sizes, so that little is computed on padding.
        """
        n, m = sizes
        # A block in use and the next one on its way, its copy in half precision, and its best.
        block_row = (8 if dtype == "float32" else 10) * dim + 32 * candidates[-1]
        largest = max(1, int(min(budget / 2 / block_row, _MAX_BLOCK_ENTRIES // dim)))
        keys, tile_keys = _tiled(-(-m // devices), largest, _MAX_TILE_KEYS)
        left = budget - keys * block_row
        tile_row = _BYTES_PER_TILE_ENTRY * tile_keys
        tile_rows = int(max(1, min(_MAX_TILE_ROWS, left // (tile_row + 1.5 * block_row))))
        # Rows beyond a tile need no products of their own.
        largest = max(tile_rows, int((left - tile_rows * tile_row) // (1.5 * block_row)))
        rows, tile_rows = _tiled(max(n, 1), min(largest, _MAX_ROWS[dtype]), tile_rows)
        return cls(rows, tile_rows, keys, tile_keys, tuple(candidates), dtype)


def _tiled(total: int, largest: int, largest_tile: int) -> tuple[int, int]:
    """Size of a block, of at most `largest`, and of its tiles, which make it up."""
    block = _even(total, largest)
    tile = _even(block, largest_tile)
    if _MAX_GROUP < tile <= largest_tile - _MAX_GROUP:
        tile = -(-tile // _MAX_GROUP) * _MAX_GROUP
    return -(-block // tile) * tile, tile


def _even(total: int, largest: int) -> int:
    """The size of the fewest parts of at most `largest` that make up `total`."""
    return -(-total // -(-total // largest))


def device_search(
    queries: jax.Array,
    keys: jax.Array,
    backward: Found | None,
    limits: jax.Array,
    *,
    blocks: Blocks,
    ks: tuple[int, ...],
    axis: str,
) -> tuple[Found, Found | None]:
    """Finds the best of one device's keys, and merges these queries into the best of the keys.

    Args:
        queries: [blocks.rows, dim] float32.
        keys: [blocks.keys, dim] float32, of this device.
        backward: the best of earlier queries for these keys; None for one direction.
        limits: [4] int32, first and end of the block of keys on all devices, and of the queries.
        blocks: sizes.
        ks: neighbors to keep of a query and, for both directions, of a key.
        axis: name of the devices' axis.

    Returns:
        The best keys of the queries, with `missed` as [rows, 1], and `backward`, updated.
    """
    first, end, row_first, row_end = limits
    first = first + lax.axis_index(axis) * blocks.keys
    num_forward, num_backward = blocks.candidates[0], blocks.candidates[-1]
    low_queries, low_keys = _rounded(queries, blocks.dtype), _rounded(keys, blocks.dtype)

    def search_keys(forward, numbered):
        number, low_tile, tile, best = numbered
        tile_first = first + number * blocks.tile_keys

        def search_rows(columns_best, numbered):
            number, low_rows, rows_best = numbered
            rows_first = row_first + number * blocks.tile_rows
            scores = _products(low_rows, low_tile)
            is_row = rows_first + jnp.arange(blocks.tile_rows) < row_end
            is_key = tile_first + jnp.arange(blocks.tile_keys) < end
            scores = jnp.where(is_row[:, None] & is_key, scores, -jnp.inf)
            rows_best = merge(rows_best, _best(scores, num_forward, 1, tile_first), num_forward)
            if backward is not None:
                found = _best(scores, num_backward, 0, rows_first)
                columns_best = merge(columns_best, found, num_backward)
            return columns_best, rows_best

        columns_best = _nothing(blocks.tile_keys, num_backward)
        columns_best, forward = lax.scan(search_rows, columns_best, (row_tiles, low_rows, forward))
        if backward is not None:
            found = _exact(tile, columns_best, queries, row_first, ks[-1], blocks)
            best = (*merge(best[:2], found[:2], ks[-1]), jnp.maximum(best[2], found[2]))
        return forward, best

    split_rows = lambda array: array.reshape(-1, blocks.tile_rows, *array.shape[1:])
    split_keys = lambda array: array.reshape(-1, blocks.tile_keys, *array.shape[1:])
    low_rows = split_rows(low_queries)
    row_tiles = jnp.arange(len(low_rows), dtype=jnp.int32)
    forward = jax.tree.map(split_rows, _nothing(blocks.rows, num_forward))
    low_tiles, tiles, backward_tiles = jax.tree.map(split_keys, (low_keys, keys, backward))
    key_tiles = jnp.arange(len(tiles), dtype=jnp.int32)
    forward, backward_tiles = lax.scan(
        search_keys, forward, (key_tiles, low_tiles, tiles, backward_tiles)
    )
    joined = lambda array: array.reshape(-1, *array.shape[2:])
    forward, backward = jax.tree.map(joined, (forward, backward_tiles))
    scores, indices, missed = _exact(queries, forward, keys, first, ks[0], blocks)
    return (scores, indices, missed[:, None]), backward


def merge(best: Best, later: Best, k: int) -> Best:
    """The k best of two lists; `later` has higher indices, so that ties stay in order."""
    # lax.top_k takes the first of equals.
    scores, indices = (jnp.concatenate(both, axis=1) for both in zip(best, later))
    scores, places = lax.top_k(scores, k)
    return scores, jnp.take_along_axis(indices, places, axis=1)


def _nothing(rows: int, k: int) -> Best:
    return jnp.full((rows, k), -jnp.inf), jnp.full((rows, k), -1, jnp.int32)


def _rounded(array: jax.Array, dtype: str) -> jax.Array:
    if dtype == "float32":
        return array
    # XLA may leave out a conversion to fewer bits and back, but not this rounding.
    return lax.reduce_precision(array, *_FORMATS[dtype]).astype(dtype)


def _products(x: jax.Array, y: jax.Array) -> jax.Array:
    """[n, m] float32 inner products."""
    # Accelerators otherwise multiply float32 with 10 or 19 bits.
    exact = lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    scores = jnp.einsum("nd,md->nm", x, y, precision=exact, preferred_element_type=jnp.float32)
    # lax.top_k ranks +0 above -0; they are a tie.
    return jnp.where(scores == 0, 0.0, scores)


def _best(scores: jax.Array, k: int, axis: int, first: jax.Array) -> Best:
    """The k best of each row (axis 1) or column (axis 0), of equals the first.

    Most entries are ruled out by the maxima of groups: the k best entries are in the k groups with
    the largest maxima, of equals the first ones.
    """
    length, width = scores.shape[axis], scores.shape[1 - axis]
    k = min(k, length)
    group = 2 ** round(math.log2(max(1, math.sqrt(length / k))))
    if group == 1 or length % group or k >= length // group:
        values, places = lax.top_k(scores if axis else scores.T, k)
        return values, first + places.astype(jnp.int32)
    shape = (width, -1, group) if axis else (-1, group, width)
    maxima = scores.reshape(shape).max(axis=2 if axis else 1)
    groups = jnp.sort(lax.top_k(maxima if axis else maxima.T, k)[1], axis=1)
    places = (groups[:, :, None] * group + jnp.arange(group)).reshape(width, -1)
    others = jnp.arange(width)[:, None]
    values = scores[(others, places) if axis else (places, others)]
    values, chosen = lax.top_k(values, k)
    return values, first + jnp.take_along_axis(places, chosen, axis=1).astype(jnp.int32)


def _exact(
    x: jax.Array, candidates: Best, y: jax.Array, first: jax.Array, k: int, blocks: Blocks
) -> Found:
    """The k best candidates by float32 inner products.

    Args:
        x: [rows, dim] float32.
        candidates: scores by rounded vectors and indices, [rows, c].
        y: [m, dim] float32.
        first: index of row 0 of y.
        k: number to keep.
        blocks: sizes and the dtype of the scores.

    Returns:
        With `missed` as the score of the last candidate plus the bound in `knn_jax`.
    """
    scores, indices = candidates
    if blocks.dtype == "float32":
        return *candidates, jnp.full(len(x), -jnp.inf)
    missed = scores[:, -1] + _bound(x, y, blocks.dtype)
    # In order of index, so that ties are.
    indices = jnp.sort(jnp.where(scores > -jnp.inf, indices, _NOTHING), axis=1)

    def products(row):
        query, places = row
        rows = y[jnp.minimum(places - first, len(y) - 1)]
        return jnp.einsum("cd,d->c", rows, query, precision=lax.Precision.HIGHEST)

    tile_bytes = _BYTES_PER_TILE_ENTRY * blocks.tile_rows * blocks.tile_keys
    at_a_time = max(1, tile_bytes // (8 * y.shape[1] * indices.shape[1]))
    exact = lax.map(products, (x, indices), batch_size=min(len(x), at_a_time))
    exact = jnp.where(exact == 0, 0.0, exact)
    scores, places = lax.top_k(jnp.where(indices == _NOTHING, -jnp.inf, exact), k)
    return scores, jnp.take_along_axis(indices, places, axis=1), missed


def _bound(x: jax.Array, y: jax.Array, dtype: str) -> jax.Array:
    """[rows]: largest error of a rounded inner product of a row of x; derived in `knn_jax`."""

    def norms(array):
        errors = array - lax.reduce_precision(array, *_FORMATS[dtype])
        errors = jnp.linalg.norm(errors, axis=1)
        return errors, jnp.linalg.norm(array, axis=1) + errors

    (x_errors, x_norms), (y_errors, y_norms) = norms(x), norms(y)
    y_error, y_norm = y_errors.max(), y_norms.max()
    sums = 2.0**-22 * x.shape[1] * x_norms * y_norm
    # The norms themselves are rounded.
    return 1.01 * (x_errors * y_norm + x_norms * y_error + sums)
