"""JAX is asked for accelerators only where a plugin for one is installed; dtypes of devices."""

import os
import subprocess
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from xling_jax import devices
from xling_jax.devices import compute_dtype


def asked(tmp_path, **environment):
    code = "import sys; from xling_jax.devices import has_accelerator as f; "
    code += "print(f(), 'jax' in sys.modules)"
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"} | environment
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
    return out.stdout.split()


@pytest.mark.parametrize("plugin", ["jax_plugins/other/__init__.py", "libtpu.py"])
def test_a_plugin_makes_it_ask(tmp_path, plugin):
    (tmp_path / plugin).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / plugin).write_text("")
    assert asked(tmp_path) == ["False", "True"]


def test_a_library_in_the_environment_makes_it_ask(tmp_path):
    assert asked(tmp_path, TPU_LIBRARY_PATH="/none/libtpu.so") == ["False", "True"]


@pytest.mark.skipif(devices._plugin_is_installed(), reason="JAX has a plugin for an accelerator")
def test_without_a_plugin_jax_is_not_imported(tmp_path):
    assert asked(tmp_path) == ["False", "False"]


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
