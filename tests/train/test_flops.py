import types

import jax
import jax.numpy as jnp
import pytest

from benchmarks.peaks import peak_flops
from xling_jax.config import load
from xling_jax.models.registry import build_encoder
from xling_jax.train.batch_plan import Bucket
from xling_jax.train.dry_run import gradient_flops, matmul_flops
from xling_jax.train.training import VocabFacts, init_params, make_objective

B, T, D, F, L, V = 32, 32, 1024, 4096, 6, 50_000
KEY = jax.eval_shape(lambda: jax.random.key(0))


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def encoder_flops(length):
    """Forward pass of the published encoder over B sentences; the last layer owes position 0."""
    per_token = 2 * (4 * D * D + 2 * D * F)
    full = B * length * (per_token + 4 * length * D)
    last = B * (length * 4 * D * D + 2 * (2 * D * D + 2 * D * F) + 4 * length * D)
    return (L - 1) * full + last


def decoder_flops(length):
    """Forward pass of the published decoder and output layer; one memory slot of D + 32."""
    layer = B * length * (2 * (4 * D * D + 2 * D * F) + 4 * length * D)
    memory = B * 2 * ((D + 32) * D + D * D)
    return layer + memory + B * length * 2 * D * 50_048


def test_matrix_products_count_twice_their_multiplications():
    product = lambda a, b: jnp.einsum("bij,bjk->bik", a, b)
    assert matmul_flops(product, shape(2, 3, 4), shape(2, 4, 5)) == 2 * 2 * 3 * 4 * 5


def test_products_in_a_scan_count_once_an_iteration():
    def scanned(a, rows):
        return jax.lax.scan(lambda carry, row: (carry, a @ row), 0, rows)[1]

    assert matmul_flops(scanned, shape(3, 4), shape(7, 4)) == 7 * 2 * 3 * 4


def test_the_encoder_costs_what_its_formula_says():
    module = build_encoder("tlaser", vocab_size=V)
    tokens = shape(B, T, dtype=jnp.int32)
    params = jax.eval_shape(lambda t: module.init(jax.random.key(0), t), tokens)
    assert matmul_flops(module.apply, params, tokens) == encoder_flops(T)


@pytest.mark.slow
@pytest.mark.parametrize("distance_weight", [0.0, 0.25])
def test_a_training_step_costs_three_forward_passes(distance_weight):
    overrides = [f"--config.objective.distance.weight={distance_weight}"] if distance_weight else []
    objective = make_objective(load("t_laser", overrides), VocabFacts(V))
    params = jax.eval_shape(init_params(objective.context.model), KEY)
    found = gradient_flops(objective, params, objective.abstract_batch(Bucket(T, B), False))
    expected = 3 * (encoder_flops(T) + decoder_flops(T - 1))
    if distance_weight:  # the translations are encoded as well; and the matrix of distances
        expected += 3 * encoder_flops(T) + 3 * 2 * B * B * D
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "kind, dtype, teraflops",
    [
        ("Tesla V100-SXM2-16GB", "float16", 125),
        ("NVIDIA TITAN RTX", "float32", 16.3),
        ("NVIDIA A100-SXM4-40GB", "bfloat16", 312),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989),
        ("TPU v5 lite", "float32", 197),
        ("Tesla T4", "bfloat16", 0),  # has no units for it
        ("NVIDIA L40", "bfloat16", 0),  # of which nothing is known
    ],
)
def test_peaks_are_those_of_the_dtype(kind, dtype, teraflops):
    device = types.SimpleNamespace(device_kind=kind, platform="gpu")
    assert peak_flops(device, dtype) == teraflops * 1e12
