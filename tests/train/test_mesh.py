import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from xling_jax.train.loss_scale import INITIAL_SCALE
from xling_jax.train.mesh import AXES, make_mesh, state_sharding, to_global


@pytest.fixture(scope="module")
def eight_devices(request):
    """Facts from a process with eight devices."""
    out = subprocess.run(
        [sys.executable, "-m", "tests.train.eight_devices"],
        cwd=request.config.rootpath,
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


@pytest.mark.slow
def test_the_gradient_on_eight_devices_equals_that_on_one(eight_devices):
    assert eight_devices["data_parallel"] < 1e-5


@pytest.mark.slow
def test_negatives_are_taken_over_all_devices(eight_devices):
    assert eight_devices["contrastive"] < 1e-4  # large logits: float32 rounding


@pytest.mark.slow
def test_both_gradients_of_a_table_are_added_before_they_are_communicated(eight_devices):
    assert eight_devices["reduced_apart"] == 1


@pytest.mark.slow
def test_the_gradient_with_split_parameters_equals_that_on_one_device(eight_devices):
    assert eight_devices["split_parameters"] > 10
    assert eight_devices["fsdp"] < 1e-5


@pytest.mark.slow
def test_micro_batches_on_eight_devices_equal_one_batch_on_one(eight_devices):
    assert eight_devices["accumulated"] < 1e-5


def test_the_largest_axis_of_large_arrays_is_split_over_fsdp():
    shapes = {
        "table": jax.ShapeDtypeStruct((1024, 64), jnp.float32),
        "kernel": jax.ShapeDtypeStruct((130, 512), jnp.float32),
        "odd": jax.ShapeDtypeStruct((129, 1023), jnp.float32),
        "bias": jax.ShapeDtypeStruct((512,), jnp.float32),
        "step": jax.ShapeDtypeStruct((), jnp.int32),
    }
    mesh = AbstractMesh((2, 4), AXES)
    specs = {k: v.spec for k, v in state_sharding(mesh, shapes).items()}
    assert specs["table"] == PartitionSpec("fsdp", None)
    assert specs["kernel"] == PartitionSpec(None, "fsdp")
    assert specs["odd"] == specs["bias"] == specs["step"] == PartitionSpec()


def test_without_fsdp_nothing_is_split():
    shapes = {"table": jax.ShapeDtypeStruct((1024, 64), jnp.float32)}
    assert state_sharding(make_mesh(), shapes)["table"].spec == PartitionSpec()


def test_rows_of_a_process_become_a_global_batch():
    rows = {"source_tokens": np.arange(6, dtype=np.int32).reshape(3, 2)}
    batch = to_global(make_mesh(), rows)["source_tokens"]
    np.testing.assert_array_equal(batch, rows["source_tokens"])
    assert batch.sharding.spec == PartitionSpec(AXES)


@pytest.mark.parametrize("data, fsdp", [(2, 1), (-1, 2), (1, 0), (-1, 0), (-2, 1)])
def test_axes_that_are_not_the_devices_are_refused(data, fsdp):
    with pytest.raises(ValueError, match=f"mesh.data=.*mesh.fsdp={fsdp} must be the 1 devices"):
        make_mesh(data, fsdp)


@pytest.mark.slow
def test_overflow_on_one_device_skips_the_update_on_all(eight_devices):
    scale = INITIAL_SCALE / 2
    assert eight_devices["skipped"] == [[scale, False, False], [scale, False, True]]
