import types

import jax.numpy as jnp
import numpy as np
import pytest

from xling_jax.devices import compute_dtype


def device(platform="gpu", capability=None):
    """A device as JAX shows it; CPUs and TPUs have no compute capability."""
    found = types.SimpleNamespace(platform=platform)
    if capability is not None:
        found.compute_capability = capability
    return found


@pytest.mark.parametrize(
    "platform, capability, expected",
    [
        ("cpu", None, "float32"),
        ("gpu", "6.1", "float32"),  # P100, GTX 10
        ("gpu", "7.0", "float16"),  # V100
        ("gpu", "7.5", "float16"),  # T4, Titan RTX
        ("gpu", "8.0", "bfloat16"),  # A100
        ("gpu", "8.9", "bfloat16"),  # L4
        ("gpu", "10.0", "bfloat16"),  # B200: not compared as text
        ("gpu", "gfx90a", "bfloat16"),  # AMD MI250
        ("tpu", None, "bfloat16"),
    ],
)
def test_auto_is_what_the_device_has_units_for(platform, capability, expected):
    assert compute_dtype("auto", [device(platform, capability)]) == jnp.dtype(expected)


def test_auto_is_what_all_devices_can_do():
    capabilities = ("9.0", "7.5", "8.0")
    assert compute_dtype("auto", [device(capability=c) for c in capabilities]) == np.float16
    assert compute_dtype("auto", [device("cpu"), device(capability="7.5")]) == np.float32


def test_a_named_dtype_is_taken_whatever_the_device():
    assert compute_dtype("auto") == np.float32  # of this CPU
    assert compute_dtype("float16", [device("cpu")]) == np.float16
    message = "--dtype='float8' must be one of auto, float32, float16, bfloat16"
    with pytest.raises(ValueError, match=message):
        compute_dtype("float8", where="--dtype")
