"""The device mesh, the placement of arrays on it, and what XLA cannot split over it by itself."""

import contextlib
import contextvars
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ("data", "fsdp")
_SMALLEST_SHARDED = 1 << 14  # elements; smaller parameters are copied to every device
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


def make_mesh(
    data: int = -1, fsdp: int = 1, *, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """Makes a mesh over all devices of all processes, or over other `devices` to compile for.

    The batch is split over both axes, parameters and optimizer state over `fsdp`, the devices that
    share one copy; -1 as `data` takes all that remain. ValueError if their product is not the
    number of devices.
    """
    count = jax.device_count() if devices is None else len(devices)
    if data == -1 and fsdp > 0:
        data = count // fsdp
    if data * fsdp != count or fsdp < 1:
        raise ValueError(
            f"mesh.data={data} x mesh.fsdp={fsdp} must be the {count} devices available; "
            "use mesh.data=-1 and an fsdp that divides their number"
        )
    # Linen's lookups fail on the default Explicit axes.
    return jax.make_mesh((data, fsdp), AXES, axis_types=(AxisType.Auto,) * 2, devices=devices)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Splits rows over all devices."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """Copies an array to every device."""
    return NamedSharding(mesh, PartitionSpec())


def state_sharding(mesh: Mesh, state: Any) -> Any:
    """Shardings of a pytree of arrays or shapes: large ones are split by `fsdp`."""
    fsdp = mesh.shape["fsdp"]

    def sharding(array: Any) -> NamedSharding:
        axes = [axis for axis, size in enumerate(array.shape) if size % fsdp == 0]
        if fsdp == 1 or np.prod(array.shape) < _SMALLEST_SHARDED or not axes:
            return replicated(mesh)
        largest = max(axes, key=lambda axis: array.shape[axis])
        spec = [None] * len(array.shape)
        spec[largest] = "fsdp"
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree.map(sharding, state)


def to_global(mesh: Mesh, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    """Joins each process's rows into global arrays with rows split over all devices."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()
    }
