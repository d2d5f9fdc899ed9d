import jax
import numpy as np
import pytest

from xling_jax.losses import fused_softmax
from xling_jax.losses.fused_softmax import default_max_logits, one_pass_normalizer


@pytest.mark.parametrize("scale", [0.1, 30.0, 1e4])
def test_one_pass_gives_the_largest_logit_and_the_sum(scale):
    logits = scale * np.random.default_rng(0).normal(size=(3, 5, 700))
    logits[..., 600:] = -np.inf  # padding rows of the table
    largest, normalizer = jax.jit(one_pass_normalizer)(logits.astype(np.float32))
    expected = logits.astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(largest, expected.max(-1))
    sums = np.exp(expected - expected.max(-1, keepdims=True)).sum(-1)
    np.testing.assert_allclose(normalizer, sums, rtol=1e-5)


def test_a_gpu_computes_the_normalizer_in_one_pass_and_has_memory_for_more_logits(monkeypatch):
    logits = np.random.default_rng(0).normal(size=(2, 40)).astype(np.float32)
    on_cpu, limit = fused_softmax.largest_and_normalizer(logits), default_max_logits(100)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    on_gpu = fused_softmax.largest_and_normalizer(logits)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), on_cpu, on_gpu)
    reductions = [
        equation.primitive.name
        for equation in jax.make_jaxpr(fused_softmax.largest_and_normalizer)(logits).eqns
    ]
    assert reductions.count("reduce") == 1 and "reduce_max" not in reductions
    assert (limit, default_max_logits(100)) == (51_200, 1 << 28)
