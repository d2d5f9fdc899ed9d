"""Rows of a batch on several devices, for what XLA cannot split by itself."""

import contextlib
import contextvars
from collections.abc import Callable, Collection, Iterator
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

_MESH: contextvars.ContextVar[Mesh | AbstractMesh | None] = contextvars.ContextVar(
    "mesh", default=None
)


@contextlib.contextmanager
def rows_over(mesh: Mesh | AbstractMesh | None) -> Iterator[None]:
    """Within it, functions are traced for batches whose rows are split over all devices of a mesh.

    It is entered while they are traced, in `jit`: another thread may be the one that compiles.
    """
    token = _MESH.set(mesh)
    try:
        yield
    finally:
        _MESH.reset(token)


def num_devices() -> int:
    """The devices that the rows of a batch are split over; see `rows_over`."""
    mesh = _MESH.get()
    return 1 if mesh is None else mesh.size


def by_device(function: Callable[..., Any], *arrays: Any, whole: Collection[int] = ()) -> Any:
    """Calls a function of rows with each device's share of them; the results are rows again.

    For functions that XLA cannot split, such as kernels. The first axis of all arrays but those
    with an index in `whole` must be a multiple of `num_devices()`, and that of each result is split
    like it. Not to be differentiated with respect to the arrays in `whole`.
    """
    if num_devices() == 1:
        return function(*arrays)
    mesh, rows = _MESH.get(), PartitionSpec(_MESH.get().axis_names)
    specs = tuple(PartitionSpec() if i in whole else rows for i in range(len(arrays)))
    split = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=rows, check_vma=False)
    return split(*arrays)
