"""Accelerators and the dtypes they compute in; JAX starts only where it must."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from xling_jax.registry import check_choice

if TYPE_CHECKING:
    import numpy as np

# In the order of what can do them: every device, GPUs since 2017, those since 2020 and TPUs.
DTYPES = ("float32", "float16", "bfloat16")

# Environment variables that name plugin libraries, which JAX loads without an installed package.
_LIBRARIES = ("PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH")


def has_accelerator() -> bool:
    """True if JAX would compute on a GPU, TPU or another accelerator.

    Without a plugin for one it cannot, and is not asked: importing and starting it takes a second.
    With one, JAX is asked: the device may be missing, or `JAX_PLATFORMS` may rule it out.
    """
    if not _plugin_is_installed():
        return False
    import jax

    return jax.default_backend() != "cpu"


def _plugin_is_installed() -> bool:
    """Looks where `jax._src.xla_bridge` finds plugins."""
    packages = map(importlib.util.find_spec, ("jax_plugins", "libtpu"))
    return (
        any(packages)
        or any(os.environ.get(name) for name in _LIBRARIES)
        or bool(importlib.metadata.entry_points(group="jax_plugins"))
    )


def device_dtype(device: Any) -> str:
    """The dtype in which a device is fastest at matrix products.

    CPUs: float32. NVIDIA GPUs by compute capability: bfloat16 from 8.0 (A100, L4, RTX 30), float16
    from 7.0 (V100, T4, Titan RTX), which have no bfloat16 units, and float32 before. Others (TPUs,
    AMD GPUs): bfloat16.
    """
    if device.platform == "cpu":
        return "float32"
    try:
        capability = float(device.compute_capability)
    except (AttributeError, TypeError, ValueError):  # none, or AMD's, such as gfx90a
        return "bfloat16"
    return "bfloat16" if capability >= 8 else "float16" if capability >= 7 else "float32"


def compute_dtype(
    name: str = "auto", devices: Iterable[Any] | None = None, where: str = "compute_dtype"
) -> np.dtype:
    """A dtype by name; `auto` is that of `device_dtype`, the same for all processes.

    Of several kinds of devices, by default those of all processes, the one that can do least
    decides. `where` is what errors call the name.
    """
    import jax  # commands list the names before they start it

    check_choice(where, name, ("auto", *DTYPES))
    if name == "auto":
        found = map(device_dtype, jax.devices() if devices is None else devices)
        name = min(found, key=DTYPES.index)
    return jax.numpy.dtype(name)
