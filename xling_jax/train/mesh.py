"""The device mesh and where arrays live on it."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ("data", "fsdp")
_SMALLEST_SHARDED = 1 << 14  # elements; smaller parameters are copied to every device


def make_mesh(
    data: int = -1, fsdp: int = 1, *, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """A mesh over all devices of all processes, or over others that programs are compiled for.

    The batch is split over both axes, parameters and optimizer state over `fsdp`.

    Args:
        data: devices along the data axis; -1 takes what `fsdp` leaves.
        fsdp: devices that share one copy of the parameters.
        devices: None for those there are.

    Raises:
        ValueError: if the axes do not multiply to the number of devices.
    """
    count = jax.device_count() if devices is None else len(devices)
    if data == -1 and fsdp > 0:
        data = count // fsdp
    if data * fsdp != count or fsdp < 1:
        raise ValueError(
            f"mesh.data={data} x mesh.fsdp={fsdp} must be the {count} devices there are; "
            "use mesh.data=-1 and an fsdp that divides them"
        )
    # Linen's lookups fail on the Explicit axes that make_mesh gives by default.
    return jax.make_mesh((data, fsdp), AXES, axis_types=(AxisType.Auto,) * 2, devices=devices)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over all devices."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """A copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def state_sharding(mesh: Mesh, state: Any) -> Any:
    """Shardings of a train state: the largest axis of each large array over `fsdp`.

    Args:
        mesh: from `make_mesh`.
        state: pytree of arrays or shapes.

    Returns:
        The same pytree of `NamedSharding`s.
    """
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
    """This process' rows of every array -> global arrays with rows over all devices."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()
    }
