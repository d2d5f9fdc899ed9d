"""JAX is asked for accelerators only where a plugin for one is installed."""

import os
import subprocess
import sys

import pytest


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


def test_without_a_plugin_jax_is_not_imported(tmp_path):
    code = "from xling_jax import devices; print(devices._plugin_is_installed())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if out.stdout.strip() == "True":
        pytest.skip("this environment has a plugin for an accelerator")
    assert asked(tmp_path) == ["False", "False"]
