"""Exact neighbors on the devices of JAX; see `knn.top_k`.

Blocks of keys are split over the devices. Each device multiplies the queries with its keys, tile by
tile, and keeps the best of every row and, for both directions, of every column of the products.

Half-precision products, several times as fast on accelerators, only choose candidates, whose inner
products are then computed in float32. That no other key belongs among the neighbors follows from a
bound. Let x~ and y~ be x and y rounded to half precision. By the Cauchy-Schwarz inequality

    |<x, y> - <x~, y~>| = |<x - x~, y~> + <x, y - y~>| <= |x - x~| |y~| + |x| |y - y~|,

in which the norms of the rounding errors are computed, not estimated, and the largest |y~| and
|y - y~| of a block of keys stand for those of each. Adding dim products, each sum rounded or cut to
float32, errs by at most 2^-23 dim |x~| |y~|, and float32 inner products by at most
2^-24 dim |x| |y|; 2^-22 dim max(|x|, |x~|) max(|y|, |y~|) covers both. So if the last candidate of
a block scores s in half precision, no other key of the block scores more than s + bound in float32.
Where the k-th neighbor does not beat this for all blocks, the row is searched again with more
candidates, and then in float32. For unit vectors of 256 dimensions the bound is about 5e-4 in
float16 and 4e-3 in bfloat16.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from xling_jax.align.backends import Neighbors, Report
from xling_jax.align.knn_jax_tiles import DTYPES, Blocks, Found, device_search, merge
from xling_jax.align.rows import AnyRows, finite_block

_AXIS = "keys"
# Share of a device's free memory that is used, where it has memory of its own.
_SHARE_OF_FREE = 0.5
# Half precision: candidates beyond k, and how many times as many the second time.
_EXTRA_CANDIDATES = 12
_WIDENED = 8


def top_k(queries: AnyRows, keys: AnyRows, k: int, **settings: Any) -> Neighbors:
    """Finds the k best keys of every query; arguments as `knn.top_k`, already checked.

    A process reads only the keys of its own devices.

    Returns:
        Scores [n, min(k, m)] float32 and indices int64. Scores that are not finite are returned.
    """
    return _proven(queries, keys, k, both_ways=False, **settings)[0]


def top_k_both_ways(x: AnyRows, y: AnyRows, k: int, **settings: Any) -> tuple[Neighbors, Neighbors]:
    """As `top_k` of x and y, and of y and x, but computes every inner product once."""
    return _proven(x, y, k, both_ways=True, **settings)


def _proven(
    x: AnyRows,
    y: AnyRows,
    k: int,
    *,
    both_ways: bool,
    memory_mb: float,
    report: Report | None = None,
    devices: Sequence[jax.Device] | None = None,
    dtype: str | None = None,
) -> tuple[Neighbors, ...]:
    """Searches in half precision, and again the rows whose neighbors are not proven."""
    devices = devices or jax.local_devices()
    dtype = dtype or DTYPES.get(devices[0].platform, "float32")
    search = functools.partial(_search, k=k, memory_mb=memory_mb, devices=devices)
    if dtype == "float32":
        found = search(x, y, both_ways=both_ways, dtype=dtype, extra=0, report=report)
        return tuple(side[:2] for side in found)
    extra = _EXTRA_CANDIDATES
    found = search(x, y, both_ways=both_ways, dtype=dtype, extra=extra, report=report)
    for (scores, indices, missed), queries, keys in zip(found, (x, y), (y, x)):
        for again in ({"dtype": dtype, "extra": _WIDENED * (extra + k)}, {"dtype": "float32"}):
            # Negated so that NaN counts as unproven.
            rows = np.flatnonzero(~(scores[:, -1] > missed))
            if rows.size:
                part = search(_Selected(queries, rows), keys, both_ways=False, **again)[0]
                scores[rows], indices[rows], missed[rows] = part
    return tuple(side[:2] for side in found)


class _Selected:
    """Some rows of an array, read when they are needed."""

    def __init__(self, array: AnyRows, rows: np.ndarray):
        self._array, self._rows = array, rows
        self.shape = (len(rows), array.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, block: slice) -> np.ndarray:
        return self._array[self._rows[block]]


def _search(
    queries: AnyRows,
    keys: AnyRows,
    k: int,
    *,
    both_ways: bool,
    memory_mb: float,
    devices: Sequence[jax.Device],
    dtype: str,
    extra: int = 0,
    report: Report | None = None,
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]:
    """One pass over the products.

    Returns:
        For the queries and, with `both_ways`, the keys: scores [n, min(k, m)], indices, and [n] a
        score that no key beyond the candidates exceeds.
    """
    (n, dim), m = queries.shape, len(keys)
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    ks = (min(k, m), min(k, n)) if both_ways else (min(k, m),)
    blocks = Blocks.fitting(
        (n, m), dim, [size + extra for size in ks], dtype, len(devices), _budget(mesh, memory_mb)
    )
    step, empty, replicate = _compiled(mesh, blocks, ks)
    keys_per_block = blocks.keys * len(devices)
    split, replicated = _shardings(mesh)
    put_keys = functools.partial(_put, keys, (keys_per_block, dim), split, "keys")
    put_queries = functools.partial(_put, queries, (blocks.rows, dim), replicated, "queries")

    found = [_empty(size, each) for size, each in zip((n, m), ks)]
    running: collections.deque[tuple[slice, Found]] = collections.deque()

    def collect(first: int, stop: int) -> None:
        rows, best = running.popleft()
        for whole, part in zip(found[0], best):
            whole[rows] = np.asarray(part)[: rows.stop - rows.start]
        if report is not None:
            report((first * n + (stop - first) * rows.stop) // m, n)

    with ThreadPoolExecutor(1) as key_reader, ThreadPoolExecutor(1) as query_reader:
        for first, key_block in _ahead(key_reader, put_keys, range(0, m, keys_per_block)):
            stop = min(m, first + keys_per_block)
            backward = empty() if both_ways else None
            for start, block in _ahead(query_reader, put_queries, range(0, n, blocks.rows)):
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
                for whole, part in zip(found[1], replicate(backward)):
                    whole[first:stop] = np.asarray(part)[: stop - first]
    return tuple(found)


def _budget(mesh: Mesh, memory_mb: float) -> float:
    """Bytes that each device may use: of its own memory where it has some, else `memory_mb`."""

    def of_device(index: tuple[slice, ...]) -> np.ndarray:
        return np.float32([free_mb(mesh.devices[index[0]][0], memory_mb)])

    # Of all devices, so that all processes agree.
    split, replicated = _shardings(mesh)
    each = jax.make_array_from_callback((mesh.size,), split, of_device)
    return float(_smallest(replicated)(each)) * 2**20


def free_mb(device: jax.Device, default: float) -> float:
    """MiB of a device's own memory to use; `default` where it reports none, as a CPU."""
    stats = device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return default
    return _SHARE_OF_FREE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)) / 2**20


def _shardings(mesh: Mesh) -> tuple[NamedSharding, NamedSharding]:
    """Split over the devices, and a copy on each."""
    return NamedSharding(mesh, PartitionSpec(_AXIS)), NamedSharding(mesh, PartitionSpec())


@functools.cache
def _smallest(sharding: NamedSharding) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(jnp.min, out_shardings=sharding)


def _empty(rows: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.full((rows, k), -np.inf, np.float32),
        np.full((rows, k), -1, np.int64),
        np.full(rows, -np.inf, np.float32),
    )


def _padded(part: np.ndarray, rows: int) -> np.ndarray:
    part = part.astype(np.int32) if part.dtype == np.int64 else part
    return np.pad(part, [(0, rows - len(part)), (0, 0)][: part.ndim])


def _ahead(
    pool: ThreadPoolExecutor, put: Callable[[int], jax.Array], starts: Iterable[int]
) -> Iterator[tuple[int, jax.Array]]:
    """Yields each start and what `put` makes of it; the next one is put meanwhile."""
    waiting: collections.deque[Any] = collections.deque()
    for start in starts:
        waiting.append((start, pool.submit(put, start)))
        if len(waiting) > 1:
            ready, future = waiting.popleft()
            yield ready, future.result()
    while waiting:
        ready, future = waiting.popleft()
        yield ready, future.result()


def _put(
    array: AnyRows, shape: tuple[int, int], sharding: NamedSharding, name: str, start: int
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
def _compiled(mesh: Mesh, blocks: Blocks, ks: tuple[int, ...]) -> tuple[Callable, ...]:
    """The merge of one block of keys and one of queries, and the best of keys to begin with."""
    here, everywhere = PartitionSpec(_AXIS), PartitionSpec()
    over_devices = jax.shard_map(
        functools.partial(device_search, blocks=blocks, ks=ks, axis=_AXIS),
        mesh=mesh,
        in_specs=(everywhere, here, here, everywhere),
        out_specs=(PartitionSpec(None, _AXIS), here),
        check_vma=False,
    )
    split, replicated = _shardings(mesh)  # replicated, so that each process can read it

    @functools.partial(jax.jit, out_shardings=(replicated, split), donate_argnums=1)
    def step(best, backward, queries, keys, limits):
        # [rows, devices * k], in the order of the devices and so of the indices.
        (scores, indices, missed), backward = over_devices(queries, keys, backward, limits)
        scores, indices = merge(best[:2], (scores, indices), ks[0])
        return (scores, indices, jnp.maximum(best[2], missed.max(axis=1))), backward

    @functools.partial(jax.jit, out_shardings=split)
    def empty():
        shape = (blocks.keys * mesh.size, ks[-1])
        nothing = jnp.full(shape, -jnp.inf), jnp.full(shape, -1, jnp.int32)
        return *nothing, jnp.full(shape[:1], -jnp.inf)

    return step, empty, jax.jit(lambda best: best, out_shardings=replicated)
