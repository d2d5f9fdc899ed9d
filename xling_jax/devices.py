"""Whether there is anything but a CPU, without starting JAX where the answer is obvious."""

import importlib.metadata
import importlib.util
import os

# Environment variables that name plugin libraries, which JAX loads without an installed package.
_LIBRARIES = ("PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH")


def has_accelerator() -> bool:
    """Whether JAX would compute on a GPU, TPU or another accelerator.

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
