import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from xling_jax.sharding import AXES, make_mesh, state_sharding, to_global
from xling_jax.train.loss_scale import INITIAL_SCALE


@pytest.mark.slow
def test_eight_devices_compute_what_one_does(output_of):
    facts = json.loads(output_of("-m", "tests.train.eight_devices"))
    for name in ("data_parallel", "fsdp", "accumulated"):
        assert facts[name] < 1e-5, name
    # Negatives are taken over all devices; large logits: float32 rounding.
    assert facts["contrastive"] < 2e-4
    # Kernels: each device computes its own rows, and fetches no others.
    for name in ("data_parallel", "fsdp"):
        assert facts["kernels"][name] < 1e-5, name
    without, with_kernels = facts["kernels"]["gathers"]
    assert with_kernels == without
    assert facts["kernels"].get("for_cuda", 17) == 17
    # Both gradients of a table are added before they are communicated.
    assert facts["reduced_apart"] == 1
    assert facts["split_parameters"] > 10
    # Overflow on one device skips the update on all.
    scale = INITIAL_SCALE / 2
    assert facts["skipped"] == [[scale, False, False], [scale, False, True]]


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


def test_rows_of_a_process_become_a_global_batch():
    rows = {"source_tokens": np.arange(6, dtype=np.int32).reshape(3, 2)}
    batch = to_global(make_mesh(), rows)["source_tokens"]
    np.testing.assert_array_equal(batch, rows["source_tokens"])
    assert batch.sharding.spec == PartitionSpec(AXES)


@pytest.mark.parametrize("data, fsdp", [(2, 1), (-1, 2), (1, 0), (-1, 0), (-2, 1)])
def test_axes_that_are_not_the_devices_are_refused(data, fsdp):
    with pytest.raises(ValueError, match=f"mesh.data=.*mesh.fsdp={fsdp} must be the 1 devices"):
        make_mesh(data, fsdp)
