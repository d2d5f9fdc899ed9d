"""Exact neighbor counts on the devices of JAX; see `neighbor_counts.neighbor_counts`.

The queries are split over the devices. Squared differences are summed in float32, with an error
relative to the sum. A tile with a point too close to the radius for float32 to decide is counted on
the host in float64.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from xling_jax.align.backends import Report

_AXIS = "queries"
_QUERIES_PER_DEVICE = 4096
# Points counted at once. Each tile costs a result of one byte per query, and is what the host
# counts again.
_TILE = 256
# Tiles counted on the host at a time: a few MB of differences.
_TILES_AT_ONCE = 256


def count(
    queries: np.ndarray,
    points: np.ndarray,
    radius: float,
    report: Report | None = None,
) -> np.ndarray:
    """Counts [n] int64, for queries [n, d] float32, the points [m, d] at most `radius` away.

    Neither is empty; coordinates are far from the limits of float32, and the radius is not tiny
    relative to them. `report` is called with the number of queries done and the total.
    """
    (n, dim), devices = queries.shape, jax.local_devices()
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((_AXIS,), ()))
    # A power of two: scaling is exact and brings the radius near 1.
    scale = np.float32(2.0 ** -np.ceil(np.log2(radius)))
    tiles = _padded(points, -len(points) % _TILE, np.inf).reshape(-1, _TILE, dim)
    device_tiles = jax.device_put(tiles * scale, whole)
    square = (radius * float(scale)) ** 2
    # d differences, squares and sums, the rounding of the bounds, and a margin.
    doubt = 2 * (dim + 6) * np.finfo(np.float32).eps / 2
    bounds = np.float32(square * (1 - doubt)), np.float32(square * (1 + doubt))
    size = min(_QUERIES_PER_DEVICE * len(devices), n + -n % len(devices))

    def start(first: int) -> tuple[jax.Array, jax.Array]:
        block = queries[first : first + size]
        block = _padded(block * scale, size - len(block), 0)
        return _count_tiles(jax.device_put(block, split), device_tiles, *bounds)

    counts = np.empty(n, np.int64)
    ahead = start(0)
    for first in range(0, n, size):
        sure, unclear = ahead
        if first + size < n:
            ahead = start(first + size)  # devices and host work at the same time
        block = queries[first : first + size]
        counts[first : first + size] = np.asarray(sure)[: len(block)]
        found = np.nonzero(np.asarray(unclear)[:, : len(block)])
        _count_on_host(block, tiles, *found, radius, counts[first : first + size])
        if report is not None:
            report(min(first + size, n), n)
    return counts


@jax.jit
def _count_tiles(
    queries: jax.Array, tiles: jax.Array, sure_square: jax.Array, near_square: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Counts points in all clear tiles, [n] int32; and marks unclear tiles, [tiles, n] bool."""

    def step(total: jax.Array, tile: jax.Array) -> tuple[jax.Array, jax.Array]:
        squares = 0.0
        for axis in range(queries.shape[1]):
            # One axis at a time: the compiler fuses them all and stores nothing.
            squares += jnp.square(queries[:, axis, None] - tile[None, :, axis])
        sure = jnp.sum(squares <= sure_square, axis=1, dtype=jnp.int32)
        unclear = jnp.sum(squares <= near_square, axis=1, dtype=jnp.int32) != sure
        return total + jnp.where(unclear, 0, sure), unclear

    return lax.scan(step, jnp.zeros(len(queries), jnp.int32), tiles)


def _padded(rows: np.ndarray, missing: int, value: float) -> np.ndarray:
    return np.pad(rows, ((0, missing), (0, 0)), constant_values=value)


def _count_on_host(
    queries: np.ndarray,
    tiles: np.ndarray,
    which_tiles: np.ndarray,
    which_queries: np.ndarray,
    radius: float,
    counts: np.ndarray,
) -> None:
    """Adds to `counts` the counts of pairs of a tile and a query, in float64."""
    for first in range(0, len(which_tiles), _TILES_AT_ONCE):
        part = slice(first, first + _TILES_AT_ONCE)
        differences = tiles[which_tiles[part]].astype(np.float64)
        differences -= queries[which_queries[part], None]
        squares = np.einsum("ntd,ntd->nt", differences, differences)
        np.add.at(counts, which_queries[part], np.count_nonzero(squares <= radius**2, axis=1))
