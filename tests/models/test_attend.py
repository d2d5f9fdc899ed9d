import jax
import numpy as np
import pytest

from xling_jax import products
from xling_jax.models.layers import attend


def exact(query, key, value, mask, scale):
    """In float64, head by head; arguments as of `attend`."""
    attended = np.empty(query.shape)
    for head in range(query.shape[2]):
        group = head * key.shape[2] // query.shape[2]
        scores = np.einsum("bqd,bkd->bqk", query[:, :, head], key[:, :, group]) * scale
        scores = np.where(mask, scores, -1e9)
        weights = np.exp(scores - scores.max(2, keepdims=True))
        weights /= weights.sum(2, keepdims=True)
        attended[:, :, head] = np.einsum("bqk,bkd->bqd", weights, value[:, :, group])
    return attended


@pytest.mark.parametrize("fused", [None, "xla"])  # cuDNN takes the same arguments as "xla"
@pytest.mark.parametrize("groups", [4, 2])
def test_attention_and_its_gradient_are_exact(groups, fused, monkeypatch):
    monkeypatch.setattr(products, "attention_implementation", lambda *_: fused)
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=(2, 9, heads, 8)) for heads in (4, groups, groups))
    # Causal, and padding at the end of the second row.
    mask = np.tril(np.ones((2, 9, 9), bool)) & (np.arange(9) < [[[9]], [[6]]])
    direction = rng.normal(size=query.shape)

    def loss(*arrays):
        attended = attend(*arrays, mask, scale=0.3)
        return (attended * direction.astype(np.float32)).sum(), attended

    arrays = [array.astype(np.float32) for array in (query, key, value)]
    gradients, attended = jax.grad(loss, (0, 1, 2), has_aux=True)(*arrays)
    expected = exact(query, key, value, mask, 0.3)
    np.testing.assert_allclose(attended, expected, atol=2e-6)
    for number, gradient in enumerate(gradients):
        array = (query, key, value)[number]
        place, step = np.unravel_index(rng.integers(array.size), array.shape), 1e-5
        changed = [array.copy(), array.copy()]
        changed[0][place] += step
        changed[1][place] -= step
        values = []
        for array in changed:
            others = [query, key, value]
            others[number] = array
            values.append((exact(*others, mask, 0.3) * direction).sum())
        np.testing.assert_allclose(
            gradient[place], (values[0] - values[1]) / (2 * step), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("length", "width", "dtype", "expected"),
    [
        (65, 64, "bfloat16", "cudnn"),
        (64, 64, "bfloat16", None),
        (512, 256, "float16", None),
        (512, 60, "float16", None),
        (512, 128, "float16", "cudnn"),
        (512, 64, "float32", None),
    ],
)
def test_cudnn_attends_long_texts_in_half_precision_on_gpus(
    length, width, dtype, expected, monkeypatch
):
    class Device:
        device_kind, compute_capability = "NVIDIA A100-SXM4-40GB", "8.0"

    array = jax.ShapeDtypeStruct((2, length, 4, width), dtype)
    assert products.attention_implementation(array, array) is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [Device()] * 2)
    assert products.attention_implementation(array, array) == expected
    with products.without_kernels():
        assert products.attention_implementation(array, array) is None
