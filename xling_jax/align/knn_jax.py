"""Exact neighbors on the devices of JAX; see `knn.top_k`.

Blocks of keys are split over the devices. Each device multiplies the queries with its keys and
keeps its best; these few are gathered and merged with the best of earlier blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from xling_jax.align.backends import Report
from xling_jax.align.rows import AnyRows, finite_block

_AXIS = "keys"
_MAX_QUERIES = 4096
# Keys that a device selects among at once: the cost of selection grows with their number.
_MAX_TILE_KEYS = 8192
# The products, and the temporaries of selection.
_BYTES_PER_TILE_ENTRY = 12


def top_k(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    memory_mb: float,
    report: Report | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the k best keys of every query; arguments as `knn.top_k`, already checked.

    A process reads only the keys of its own devices.

    Returns:
        Scores [n, min(k, m)] float32 and indices int64. Scores that are not finite are returned.
    """
    (n, dim), m = queries.shape, len(keys)
    k = min(k, m)
    devices = devices or jax.local_devices()
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    rows_per_block, keys_per_device, tile_keys = _block_shape(n, m, dim, len(devices), memory_mb)
    keys_per_block = keys_per_device * len(devices)
    replicated = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec(_AXIS))
    step = _make_step(mesh, k, tile_keys)

    best_scores = np.full((n, k), -np.inf, np.float32)
    best_indices = np.full((n, k), -1, np.int64)
    for first in range(0, m, keys_per_block):
        key_block = _put(keys, first, (keys_per_block, dim), split, "keys")
        for start in range(0, n, rows_per_block):
            rows = slice(start, min(start + rows_per_block, n))
            size = rows.stop - start
            padding = ((0, rows_per_block - size), (0, 0))
            scores, indices = step(
                np.pad(best_scores[rows], padding),
                np.pad(best_indices[rows].astype(np.int32), padding),
                _put(queries, start, (rows_per_block, dim), replicated, "queries"),
                key_block,
                np.int32(first),
                np.int32(min(m, first + keys_per_block)),
            )
            best_scores[rows] = np.asarray(scores)[:size]
            best_indices[rows] = np.asarray(indices)[:size]
            if report is not None:
                report((first * n + min(keys_per_block, m - first) * rows.stop) // m, n)
    return best_scores, best_indices


def _block_shape(n: int, m: int, dim: int, devices: int, memory_mb: float) -> tuple[int, int, int]:
    """Queries per block, keys per device and block, and keys per tile, within `memory_mb`.

    Blocks and tiles have nearly equal sizes, so that little is computed on padding.
    """
    budget = memory_mb * 2**20
    # A block in use and the next one on its way.
    block_row = 2 * 4 * dim
    keys = _even(-(-m // devices), max(1, int(budget / 2 // block_row)))
    tile_keys = _even(keys, _MAX_TILE_KEYS)
    keys = -(-keys // tile_keys) * tile_keys
    tile_row = _BYTES_PER_TILE_ENTRY * tile_keys
    rows = int((budget - keys * block_row) // (tile_row + block_row))
    return _even(max(n, 1), max(1, min(_MAX_QUERIES, rows))), keys, tile_keys


def _even(total: int, largest: int) -> int:
    """The size of the fewest parts of at most `largest` that make up `total`."""
    return -(-total // -(-total // largest))


def _put(
    array: AnyRows, start: int, shape: tuple[int, int], sharding: NamedSharding, name: str
) -> jax.Array:
    """Puts [rows, dim] float32 from row `start` on the devices; zeros after the last row.

    Reads only the rows of this process's devices, each once.
    """

    @functools.cache
    def read(first: int, stop: int) -> np.ndarray:
        end = min(start + stop, len(array))
        block = finite_block(array, slice(min(start + first, end), end), name)
        missing = stop - first - len(block)
        return np.pad(block, ((0, missing), (0, 0))) if missing else block

    return jax.make_array_from_callback(
        shape, sharding, lambda index: read(*index[0].indices(shape[0])[:2])
    )


@functools.lru_cache(maxsize=32)
def _make_step(mesh: Mesh, k: int, tile_keys: int):
    """Compiles the merge of one block of keys into the best of one block of queries."""
    here, everywhere = PartitionSpec(_AXIS), PartitionSpec()

    def device_best(queries, keys, first, end):
        """The best of one device's keys, gathered over the devices: [rows, devices * k]."""
        first = first + lax.axis_index(_AXIS) * len(keys)
        tiles = keys.reshape(-1, tile_keys, keys.shape[1])

        def merge_tile(best, numbered):
            number, tile = numbered
            # Accelerators otherwise multiply with 10 or 19 bits, not in float32.
            scores = jnp.einsum("nd,md->nm", queries, tile, precision=lax.Precision.HIGHEST)
            # lax.top_k ranks +0 above -0; they are a tie.
            scores = jnp.where(scores == 0, 0.0, scores)
            indices = first + number * tile_keys + jnp.arange(tile_keys, dtype=jnp.int32)
            scores = jnp.where(indices < end, scores, -jnp.inf)
            values, places = lax.top_k(scores, min(k, tile_keys))
            return _merge(best, (values, indices[places])), None

        shape = (len(queries), k)
        start = jnp.full(shape, -jnp.inf), jnp.full(shape, -1, jnp.int32)
        start = jax.tree.map(lambda array: lax.pcast(array, _AXIS, to="varying"), start)
        best, _ = lax.scan(merge_tile, start, (jnp.arange(len(tiles), dtype=jnp.int32), tiles))
        return best

    def _merge(best, later):
        # Keeps ties in order: lax.top_k takes the first of equals; `later` has higher indices.
        scores, indices = (jnp.concatenate(both, axis=1) for both in zip(best, later))
        scores, places = lax.top_k(scores, k)
        return scores, jnp.take_along_axis(indices, places, axis=1)

    over_devices = jax.shard_map(
        device_best,
        mesh=mesh,
        in_specs=(everywhere, here, everywhere, everywhere),
        out_specs=PartitionSpec(None, _AXIS),
    )

    # Replicated, so that each process can read it.
    @functools.partial(jax.jit, out_shardings=NamedSharding(mesh, everywhere))
    def step(best_scores, best_indices, queries, keys, first, end):
        # [rows, devices * k], in the order of the devices and so of the indices.
        found = over_devices(queries, keys, first, end)
        return _merge((best_scores, best_indices), found)

    return step
