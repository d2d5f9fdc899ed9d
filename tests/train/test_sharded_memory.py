import json
import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

from xling_jax.sharding import AXES
from xling_jax.train.dry_run import share_bytes


@pytest.fixture(scope="module")
def facts(output_of):
    """What compiled updates need and exchange on eight devices."""
    return json.loads(output_of("-m", "tests.train.sharded_memory"))


def total(update, kind):
    return sum(e["size"] * e["count"] for e in update["exchanges"] if e["kind"] == kind)


@pytest.mark.slow
def test_the_share_of_a_device_falls_with_fsdp_in_the_compiled_program(facts):
    batch = 2 * 64 * 16 * 4 / 8 + 64 * 4 / 8 + 4  # tokens of both sides, languages, index
    for layout in ("data_parallel", "fsdp"):
        update = facts[layout]
        state = update["parameters"] + update["optimizer state"]
        assert update["arguments"] == pytest.approx(state + batch, rel=2e-3), layout
        assert update["share"] == state + 4  # the number of the step
    assert facts["data_parallel"]["parameters"] == facts["data_parallel"]["all_parameters"]
    for name in ("parameters", "optimizer state", "gradients", "arguments"):
        fall = facts["data_parallel"][name] / facts["fsdp"][name]
        assert fall == pytest.approx(8, rel=0.03), name


@pytest.mark.slow
def test_data_parallel_devices_exchange_gradients_once_and_little_else(facts):
    update = facts["data_parallel"]
    # Once although all logits of the batch are more than are allowed at a time: of one device.
    assert total(update, "all-reduce") == pytest.approx(update["all_parameters"], rel=0.01)
    assert total(update, "all-gather") == total(update, "reduce-scatter") == 0


@pytest.mark.slow
def test_fsdp_devices_exchange_parameters_and_gradients_not_activations(facts):
    update = facts["fsdp"]
    assert total(update, "all-gather") == pytest.approx(update["all_parameters"], rel=0.02)
    # On a TPU a reduce-scatter; the CPU's compiler has none.
    reduced = total(update, "all-reduce") + total(update, "reduce-scatter")
    assert reduced == pytest.approx(update["all_parameters"], rel=0.02)


def test_the_share_of_a_device_by_hand():
    shapes = {
        "table": jax.ShapeDtypeStruct((1024, 64), jnp.float32),  # split
        "odd": jax.ShapeDtypeStruct((129, 1023), jnp.float32),  # has no axis to split
        "bias": jax.ShapeDtypeStruct((512,), jnp.bfloat16),  # too small to split
    }
    mesh = AbstractMesh((2, 4), AXES)
    assert share_bytes(mesh, shapes) == 256 * 64 * 4 + 129 * 1023 * 4 + 1024
    assert share_bytes(AbstractMesh((8, 1), AXES), shapes) == 1024 * 64 * 4 + 129 * 1023 * 4 + 1024


DRY_RUN = """
import jax
from tests.train.sharded_memory import tlaser
from xling_jax.train.dry_run import describe
jax.config.update("jax_num_cpu_devices", 2)
print(describe(tlaser({"mesh.data": 2, "mesh.fsdp": 4})))
"""


def test_a_dry_run_needs_no_devices_for_the_mesh_it_describes(output_of):
    text = output_of("-c", DRY_RUN)
    assert "devices           8 (data=2, fsdp=4), not those of this machine" in text
    parts = ("parameters", "optimizer state", "gradients", "temporaries")
    shown = [float(re.search(rf"^  {part} +([\d.]+)", text, re.M)[1]) for part in parts]
    total = float(re.search(r"^memory per device ([\d.]+) GiB", text, re.M)[1])
    assert total == pytest.approx(sum(shown), abs=0.003)
