"""The kernels for GPUs against XLA, in Pallas's interpreter.

Where there is a GPU, they are compiled for it:

    JAX_PLATFORMS=cuda python -m pytest --noconftest tests/test_kernels.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import AbstractMesh

from xling_jax import products, sharding
from xling_jax.config import load
from xling_jax.losses import translation
from xling_jax.models.layers import Attention, TransformerLayer
from xling_jax.train.batch_plan import Bucket
from xling_jax.train.dry_run import gradient_flops
from xling_jax.train.training import resolve

pytest.importorskip("jax.experimental.pallas.triton", reason="JAX without Pallas's Triton")
from xling_jax import kernels  # noqa: E402

GPU = jax.default_backend() == "gpu"
# Triton multiplies float32 in TF32, with which it is not used.
DTYPE, TOLERANCE = (jnp.bfloat16, 2e-2) if GPU else (jnp.float32, 2e-5)


def normal(rng, *shape, dtype=DTYPE):
    return jnp.asarray(rng.normal(size=shape), dtype)


def plain_attention(query, key, value, mask, heads):
    split = lambda array: array.reshape(*array.shape[:2], heads, -1)
    query, key, value = map(split, (query, key, value))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(query.shape[-1])
    weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(*query.shape[:2], -1)


def plain_norm(inputs, scale, bias, epsilon):
    centered = inputs - inputs.mean(-1, keepdims=True)
    variance = (centered**2).mean(-1, keepdims=True)
    return centered / jnp.sqrt(variance + epsilon) * scale + bias


def assert_same(function, plain, arguments, gradient):
    """The same results and gradients, relative to the largest number."""

    def results(function, arguments, gradient):
        outputs, backward = jax.vjp(function, *arguments)
        return outputs, *backward(gradient)

    compiled = jax.jit(results, static_argnums=0)
    found = compiled(function, arguments, gradient)
    arguments, gradient = jax.tree.map(lambda a: a.astype(jnp.float32), (arguments, gradient))
    with jax.default_matmul_precision("highest"):
        expected = compiled(plain, arguments, gradient)
    for array, of_plain in zip(found, expected, strict=True):
        array, of_plain = np.asarray(array, np.float32), np.asarray(of_plain)
        limit = TOLERANCE * max(1, np.abs(of_plain).max())
        np.testing.assert_allclose(array, of_plain, atol=limit, rtol=0)


@pytest.mark.parametrize(
    ("num_queries", "num_keys", "causal"),
    [(1, 24, False), (17, 17, True), (40, 64, False), (20, 20, "one mask for all")],
)
@pytest.mark.parametrize("head_width", [16, 32, 64, 128] if GPU else [16])
def test_attention(num_queries, num_keys, causal, head_width):
    rng, heads = np.random.default_rng(0), 2
    width = heads * head_width
    query, gradient = normal(rng, 6, num_queries, width), normal(rng, 6, num_queries, width)
    key, value = normal(rng, 6, num_keys, width), normal(rng, 6, num_keys, width)
    # The second row has no token at all.
    lengths = np.array([num_keys, 0, num_keys // 2, 1, num_keys - 1, 2])
    mask = (np.arange(num_keys) < lengths[:, None])[:, None]
    if causal:
        mask = mask[: 1 if causal == "one mask for all" else 6]
        mask = mask & np.tril(np.ones((num_queries, num_keys), bool))
    if not kernels.fits_attention(query, key, heads):
        pytest.skip("not of this size")
    assert_same(
        lambda *arrays: kernels.attention(*arrays, jnp.asarray(mask), heads),
        lambda *arrays: plain_attention(*arrays, mask, heads),
        (query, key, value),
        gradient,
    )


@pytest.mark.parametrize("shape", [(4, 8, 32), (5, 7, 48), (1, 1024), (4100, 4096 if GPU else 16)])
def test_layer_norm(shape):
    # Rows that no number of programs divides, and widths that are no power of two.
    rng = np.random.default_rng(0)
    inputs, gradient = normal(rng, *shape) * 3 + 1, normal(rng, *shape)
    scale, bias = (
        normal(rng, shape[-1], dtype=jnp.float32),
        normal(rng, shape[-1], dtype=jnp.float32),
    )
    assert_same(
        lambda *arrays: kernels.layer_norm(*arrays, 1e-5, DTYPE),
        lambda *arrays: plain_norm(*arrays, 1e-5),
        (inputs, scale, bias),
        gradient,
    )


def test_layer_norm_with_several_steps_in_a_program(monkeypatch):
    monkeypatch.setattr(kernels, "_PROGRAMS", 2)
    monkeypatch.setattr(kernels, "_ELEMENTS", 64)
    test_layer_norm((37, 16))


@pytest.mark.parametrize(
    ("vocab_size", "rows", "with_bias"), [(300, 384, True), (5000, 5000, False), (300, 9000, True)]
)
def test_softmax_gradient(with_bias, vocab_size, rows):
    rng, tokens, smoothing = np.random.default_rng(0), 5, 0.1
    logits = rng.normal(size=(tokens, rows)).astype(np.float32) * 5
    logits[0, 7], logits[1] = 300, -300  # a certain token, and logits that are all alike
    logits = jnp.asarray(logits, DTYPE)
    bias = rng.normal(size=rows).astype(np.float32) if with_bias else None
    labels = np.array([7, 0, vocab_size - 1, 20, 21], np.int32)
    weights = np.array([1, 1, 0.5, 2, 0], np.float32)
    gradient, *parts = kernels.softmax_gradient(
        logits,
        None if bias is None else jnp.asarray(bias),
        jnp.asarray(labels),
        jnp.asarray(weights),
        vocab_size=vocab_size,
        smoothing=smoothing,
    )
    exact = np.asarray(logits, np.float64)[:, :vocab_size]
    exact += 0 if bias is None else bias[:vocab_size]
    log_normalizer = np.log(np.exp(exact - exact.max(1, keepdims=True)).sum(1)) + exact.max(1)
    target = (1 - smoothing) * (np.arange(vocab_size) == labels[:, None]) + smoothing / vocab_size
    expected = weights[:, None] * (np.exp(exact - log_normalizer[:, None]) - target)
    found = np.asarray(gradient, np.float32)
    np.testing.assert_allclose(found[:, :vocab_size], expected, atol=TOLERANCE / 10, rtol=TOLERANCE)
    assert not found[:, vocab_size:].any()
    values = log_normalizer, exact[np.arange(tokens), labels], exact.mean(1)
    for array, value in zip(parts, values, strict=True):
        np.testing.assert_allclose(array, value, rtol=2e-6, atol=2e-5)


@pytest.fixture
def choose(monkeypatch):
    """Whether computation in 16 bits uses the kernels, which it does by itself only on a GPU."""

    def choose(used):
        use = lambda dtype, rows=0: kernels if used and jnp.dtype(dtype).itemsize == 2 else None
        monkeypatch.setattr(products, "kernels_for", use)

    return choose


@pytest.mark.parametrize(
    ("dtype", "options"),
    [("float16", {"norm": "post"}), ("bfloat16", {}), ("bfloat16", {"first_only": True})],
)
def test_a_layer_of_a_transformer_with_kernels_stays_as_close_as_without(dtype, options, choose):
    rng = np.random.default_rng(0)
    states = normal(rng, 3, 20, 32, dtype=jnp.float32)
    mask = (jnp.arange(20) < jnp.array([20, 11, 3])[:, None])[:, None]
    init = lambda key: TransformerLayer(32, 2, 64, **options).init(key, states, mask, True)
    params = jax.jit(init)(jax.random.key(0))

    def gradient(dtype, used):
        choose(used)
        layer = TransformerLayer(32, 2, 64, dtype=dtype, **options)
        value = lambda params: jnp.sum(layer.apply(params, states.astype(dtype), mask, True) ** 2)
        return ravel_pytree(jax.jit(jax.grad(value))(params))[0]

    exact = gradient("float32", False)
    error = lambda found: float(jnp.linalg.norm(found - exact) / jnp.linalg.norm(exact))
    with_kernels, without = error(gradient(dtype, True)), error(gradient(dtype, False))
    assert 0 < with_kernels < max(1.2 * without, 1e-2)
    assert with_kernels != without


@pytest.mark.parametrize(("with_bias", "max_logits"), [(False, 0), (True, 2 * 9 * 60)])
def test_translation_loss_with_kernels_stays_as_close_as_without(with_bias, max_logits, choose):
    rng, shape, vocab_size = np.random.default_rng(0), (6, 9), 50
    hidden, table = normal(rng, *shape, 16, dtype=jnp.float32), normal(rng, 60, 16) / 2
    hidden = hidden.astype(jnp.bfloat16).astype(jnp.float32)
    arrays = hidden, table.astype(jnp.bfloat16).astype(jnp.float32)
    arrays += (normal(rng, 60, dtype=jnp.float32),) * with_bias
    labels = jnp.asarray(rng.integers(0, vocab_size, shape), jnp.int32)
    weights = jnp.asarray(rng.random(shape) < 0.8)

    def loss(dtype, used):
        choose(used)

        def value(hidden, table, *bias):
            options = {"output_bias": bias[0] if bias else None, "max_logits": max_logits}
            arguments = hidden.astype(dtype), table, labels, weights
            return translation.translation_loss(*arguments, vocab_size=vocab_size, **options)

        gradients = jax.value_and_grad(value, range(len(arrays)), has_aux=True)
        return jax.tree.leaves(jax.jit(gradients)(*arrays))

    exact, found, without = loss("float32", False), loss("bfloat16", True), loss("bfloat16", False)
    assert not np.array_equal(found[-1], without[-1])
    for array, of_float32, of_xla in zip(found, exact, without, strict=True):
        error = lambda found, exact=of_float32: float(jnp.linalg.norm(found - exact))
        assert error(array) < max(2 * error(of_xla), 4e-3 * float(jnp.linalg.norm(of_float32)))


def test_bias_gradients_are_summed_in_float32():
    # In bfloat16, 1,001 is 1,000.
    outputs, bias = jnp.zeros((7, 143, 3), jnp.bfloat16), jnp.zeros(3)
    _, backward = jax.vjp(products.add_bias, outputs, bias)
    of_outputs, of_bias = backward(jnp.ones_like(outputs))
    np.testing.assert_array_equal(of_bias, [1001] * 3)
    assert (of_outputs.dtype, of_bias.dtype) == (jnp.bfloat16, jnp.float32)


def test_attention_with_dropout_on_its_weights_has_no_kernel(choose):
    choose(True)
    states, mask = jnp.ones((2, 20, 32), jnp.bfloat16), jnp.ones((2, 1, 20), bool)
    attention = Attention(32, 2, dropout=0.5, dtype=jnp.bfloat16)
    params = attention.init(jax.random.key(0), states, states, mask, True)

    def kernels_of(deterministic):
        apply = lambda params: attention.apply(
            params, states, states, mask, deterministic, rngs={"dropout": jax.random.key(1)}
        )
        return str(jax.make_jaxpr(apply)(params)).count("pallas_call")

    assert kernels_of(True) and not kernels_of(False)


def test_flops_are_those_without_kernels(monkeypatch):
    training = resolve(load("t_laser:smoke", ["--config.compute_dtype=bfloat16"]))
    batch = training.objective.abstract_batch(Bucket(16, 8), both=False)
    count = lambda: gradient_flops(training.objective, training.shapes.params, batch)
    without, asked = count(), []

    def kernels_for(dtype, rows=0):
        asked.append(products._WITHOUT_KERNELS.get())
        return None if asked[-1] or jnp.dtype(dtype).itemsize != 2 else kernels

    monkeypatch.setattr(products, "kernels_for", kernels_for)
    assert count() == without
    assert asked and all(asked)


def test_every_kernel_compiles():
    kernels.compile_all()


def test_kernels_are_used_in_16_bits_on_gpus_ampere_or_newer(monkeypatch):
    class Device:
        device_kind, compute_capability = "NVIDIA A100-SXM4-40GB", "8.0"

    def used(dtype, devices, rows=0):
        products._kernels_compile.cache_clear()
        monkeypatch.setattr(jax, "devices", lambda: devices)
        return products.kernels_for(dtype, rows) is not None

    monkeypatch.setattr(kernels, "compile_all", lambda: None)
    old, amd = Device(), Device()
    old.compute_capability, amd.device_kind = "7.5", "AMD Instinct MI300X"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    try:
        assert used("bfloat16", [Device()]) and used(jnp.float16, [Device()])
        assert not used("float32", [Device()])
        # On several, each has its own rows of a batch.
        assert not used("bfloat16", [Device()] * 2)
        with sharding.rows_over(AbstractMesh((2,), ("data",))):
            assert used("bfloat16", [Device()] * 2, rows=6)
            assert not used("bfloat16", [Device()] * 2, rows=5)
            assert not used("bfloat16", [Device(), old], rows=6)
        assert not used("bfloat16", [old]) and not used("bfloat16", [amd])
        with products.without_kernels():
            assert not used("bfloat16", [Device()])
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            assert not used("bfloat16", [Device()])
        monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
        assert not used("bfloat16", [Device()])
    finally:
        products._kernels_compile.cache_clear()


def test_kernels_that_do_not_compile_are_left_out_with_a_warning(monkeypatch, caplog):
    class Device:
        device_kind, compute_capability = "NVIDIA RTX 9090", "14.0"

    def fail():
        raise RuntimeError("out of resource: shared memory\nmore")

    products._kernels_compile.cache_clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [Device()])
    monkeypatch.setattr(kernels, "compile_all", fail)
    try:
        assert products.kernels_for("bfloat16") is None
    finally:
        products._kernels_compile.cache_clear()
    reason = "out of resource: shared memory"
    message = f"the kernels do not compile ({reason}); XLA computes instead, which is slower"
    assert [record.getMessage() for record in caplog.records] == [f"NVIDIA RTX 9090: {message}"]
