"""Exact neighbors on the devices of JAX; see `knn.top_k`.

Blocks of keys are split over the devices of this process. Each device multiplies the queries with
its keys, tile by tile, in float32, and keeps the best of every row and, for both directions, of
every column of the products.
"""

import collections
import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from xling_jax.align.rows import AnyRows, Neighbors, Report, finite_block, no_neighbors
from xling_jax.files.workers import ahead

# Scores and indices, [rows, k] each, best first.
Best = tuple[jax.Array, jax.Array]

_AXIS = "keys"
# Share of a device's free memory that is used, where it has memory of its own.
_SHARE_OF_FREE = 0.5
_MAX_TILE_KEYS = 8192
_MAX_ROWS = 4096
# The entries of larger blocks could not be numbered by 32 bits.
_MAX_BLOCK_ENTRIES = 2**31 - 1
# The products, and the temporaries of selection.
_BYTES_PER_TILE_ENTRY = 12
# Tiles are cut evenly, and large ones to multiples of this, so that they consist of groups.
_MAX_GROUP = 128


def search(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    both_ways: bool,
    memory_mb: float,
    report: Report | None = None,
) -> tuple[Neighbors, Neighbors | None]:
    """As `knn_numpy.search`, with the same results."""
    (n, dim), m = queries.shape, len(keys)
    devices = jax.local_devices()
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    ks = (min(k, m), min(k, n)) if both_ways else (min(k, m),)
    budget = min(free_mb(device, memory_mb) for device in devices) * 2**20
    blocks = Blocks.fitting((n, m), dim, ks[-1], len(devices), budget)
    step, empty = _compiled(mesh, blocks, ks)
    keys_per_block = blocks.keys * len(devices)
    split, replicated = _shardings(mesh)
    key_arguments = keys, (keys_per_block, dim), split, "keys"
    query_arguments = queries, (blocks.rows, dim), replicated, "queries"
    key_starts, query_starts = range(0, m, keys_per_block), range(0, n, blocks.rows)
    found = [no_neighbors(size, each) for size, each in zip((n, m), ks)]
    running: collections.deque[tuple[slice, Best]] = collections.deque()

    def collect(first: int, stop: int) -> None:
        rows, best = running.popleft()
        for whole, part in zip(found[0], best):
            whole[rows] = np.asarray(part)[: rows.stop - rows.start]
        if report is not None:
            report((first * n + (stop - first) * rows.stop) // m, n)

    with ThreadPoolExecutor(1) as key_reader, ThreadPoolExecutor(1) as query_reader:
        # The next block is put on the devices while one is searched.
        put_keys = functools.partial(key_reader.submit, _put, *key_arguments)
        put_queries = functools.partial(query_reader.submit, _put, *query_arguments)
        for first, key_block in zip(key_starts, ahead(put_keys, key_starts, 1)):
            stop = min(m, first + keys_per_block)
            backward = empty() if both_ways else None
            for start, block in zip(query_starts, ahead(put_queries, query_starts, 1)):
                rows = slice(start, min(start + blocks.rows, n))
                best = [_padded(whole[rows], blocks.rows) for whole in found[0]]
                limits = np.array([first, stop, rows.start, rows.stop], np.int32)
                forward, backward = step(best, backward, block, key_block, limits)
                running.append((rows, forward))
                if len(running) > 1:  # the device has work while the host waits for a result
                    collect(first, stop)
            if running:
                collect(first, stop)
            if both_ways and n:
                for whole, part in zip(found[1], backward):
                    whole[first:stop] = np.asarray(part)[: stop - first]
    return found[0], found[1] if both_ways else None


@dataclass(frozen=True)
class Blocks:
    """Sizes of one step: queries, keys of a device, and keys of a tile, a divisor of these."""

    rows: int
    keys: int
    tile_keys: int

    @classmethod
    def fitting(cls, sizes: tuple[int, int], dim: int, k: int, devices: int, budget: float) -> Self:
        """Chooses sizes within `budget` bytes per device, for k neighbors.

        Blocks and tiles have nearly equal sizes, so that little is computed on padding.
        """
        n, m = sizes
        # A block in use and the next one on its way, and its best.
        block_row = 8 * dim + 32 * k
        largest = max(1, int(min(budget / 2 / block_row, _MAX_BLOCK_ENTRIES // dim)))
        keys, tile_keys = _tiled(-(-m // devices), largest, _MAX_TILE_KEYS)
        per_row = _BYTES_PER_TILE_ENTRY * tile_keys + 1.5 * block_row
        largest = int(max(1, min(_MAX_ROWS, (budget - keys * block_row) // per_row)))
        rows, _ = _tiled(max(n, 1), largest, largest)
        return cls(rows, keys, tile_keys)


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


def free_mb(device: jax.Device, default: float) -> float:
    """MiB of a device's own memory to use; `default` where it reports none, as a CPU."""
    stats = device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return default
    return _SHARE_OF_FREE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)) / 2**20


def _shardings(mesh: Mesh) -> tuple[NamedSharding, NamedSharding]:
    """Split over the devices, and a copy on each."""
    return NamedSharding(mesh, PartitionSpec(_AXIS)), NamedSharding(mesh, PartitionSpec())


def _padded(part: np.ndarray, rows: int) -> np.ndarray:
    part = part.astype(np.int32) if part.dtype == np.int64 else part
    return np.pad(part, [(0, rows - len(part)), (0, 0)])


def _put(
    array: AnyRows, shape: tuple[int, int], sharding: NamedSharding, name: str, start: int
) -> jax.Array:
    """Puts [rows, dim] float32 from row `start` on the devices; zeros after the last row."""
    end = min(start + shape[0], len(array))
    block = finite_block(array, slice(start, end), name)
    return jax.device_put(np.pad(block, ((0, shape[0] - len(block)), (0, 0))), sharding)


@functools.lru_cache(maxsize=32)
def _compiled(mesh: Mesh, blocks: Blocks, ks: tuple[int, ...]) -> tuple[Callable, ...]:
    """The merge of one block of keys and one of queries, and the best of keys to begin with."""
    here, everywhere = PartitionSpec(_AXIS), PartitionSpec()
    over_devices = jax.shard_map(
        functools.partial(_device_search, blocks=blocks, ks=ks, axis=_AXIS),
        mesh=mesh,
        in_specs=(everywhere, here, here, everywhere),
        out_specs=(PartitionSpec(None, _AXIS), here),
        check_vma=False,
    )
    split, replicated = _shardings(mesh)

    @functools.partial(jax.jit, out_shardings=(replicated, split), donate_argnums=1)
    def step(best, backward, queries, keys, limits):
        # [rows, devices * k], in the order of the devices and so of the indices.
        found, backward = over_devices(queries, keys, backward, limits)
        return _merge(best, found, ks[0]), backward

    @functools.partial(jax.jit, out_shardings=split)
    def empty():
        return _nothing(blocks.keys * mesh.size, ks[-1])

    return step, empty


def _device_search(
    queries: jax.Array,
    keys: jax.Array,
    backward: Best | None,
    limits: jax.Array,
    *,
    blocks: Blocks,
    ks: tuple[int, ...],
    axis: str,
) -> tuple[Best, Best | None]:
    """Finds the best of one device's keys, and merges these queries into the best of the keys.

    Of queries [blocks.rows, dim] and keys [blocks.keys, dim], float32. `backward` is the best of
    earlier queries for these keys, None for one direction; `limits` [4] int32, first and end of the
    block of keys on all devices, and of the queries; `ks`, neighbors to keep of a query and a key.
    """
    first, end, row_first, row_end = limits
    first = first + lax.axis_index(axis) * blocks.keys

    is_row = row_first + jnp.arange(blocks.rows) < row_end

    def search_tile(forward, numbered):
        number, tile, best = numbered
        tile_first = first + number * blocks.tile_keys
        is_key = tile_first + jnp.arange(blocks.tile_keys) < end
        scores = jnp.where(is_row[:, None] & is_key, _products(queries, tile), -jnp.inf)
        forward = _merge(forward, _best(scores, ks[0], 1, tile_first), ks[0])
        if backward is not None:
            best = _merge(best, _best(scores, ks[-1], 0, row_first), ks[-1])
        return forward, best

    split = lambda array: array.reshape(-1, blocks.tile_keys, *array.shape[1:])
    tiles, backward_tiles = jax.tree.map(split, (keys, backward))
    numbers = jnp.arange(len(tiles), dtype=jnp.int32)
    forward = _nothing(blocks.rows, ks[0])
    forward, backward_tiles = lax.scan(search_tile, forward, (numbers, tiles, backward_tiles))
    return forward, jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), backward_tiles)


def _merge(best: Best, later: Best, k: int) -> Best:
    """The k best of two lists; `later` has higher indices, so that ties stay in order."""
    # lax.top_k takes the first of equals.
    scores, indices = (jnp.concatenate(both, axis=1) for both in zip(best, later))
    scores, positions = lax.top_k(scores, k)
    return scores, jnp.take_along_axis(indices, positions, axis=1)


def _nothing(rows: int, k: int) -> Best:
    return jnp.full((rows, k), -jnp.inf), jnp.full((rows, k), -1, jnp.int32)


def _products(x: jax.Array, y: jax.Array) -> jax.Array:
    """[n, m] float32 inner products."""
    # Accelerators otherwise multiply float32 with 10 or 19 bits.
    scores = jnp.einsum("nd,md->nm", x, y, precision=lax.Precision.HIGHEST)
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
        values, positions = lax.top_k(scores if axis else scores.T, k)
        return values, first + positions.astype(jnp.int32)
    shape = (width, -1, group) if axis else (-1, group, width)
    maxima = scores.reshape(shape).max(axis=2 if axis else 1)
    groups = jnp.sort(lax.top_k(maxima if axis else maxima.T, k)[1], axis=1)
    positions = (groups[:, :, None] * group + jnp.arange(group)).reshape(width, -1)
    others = jnp.arange(width)[:, None]
    values = scores[(others, positions) if axis else (positions, others)]
    values, chosen = lax.top_k(values, k)
    return values, first + jnp.take_along_axis(positions, chosen, axis=1).astype(jnp.int32)
