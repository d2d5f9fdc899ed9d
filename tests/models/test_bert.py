"""The published transformers' encoder against float64 NumPy, and its invariances."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from tests.models import tlaser_reference as reference
from xling_jax.models import registry
from xling_jax.models.bert import BertEncoder, gelu

SIZES = {"vocab_size": 20, "width": 12, "layers": 2, "heads": 3, "ffn_width": 16}
SIZES |= {"max_length_tokens": 9, "pad_id": 4}
TOKENS = np.array([[1, 7, 8, 9, 2, 4, 4], [1, 2, 4, 4, 4, 4, 4], [1, 3, 19, 0, 5, 6, 2]], np.int32)


def build(**changes):
    """A module and large random parameters, norms and biases included."""
    module = BertEncoder(**{**SIZES, **changes})
    shapes = jax.eval_shape(module.init, jax.random.key(0), TOKENS)["params"]
    generator = np.random.default_rng(0)
    fill = lambda s: generator.normal(0.1, 0.5, s.shape).astype(np.float32)
    return module, jax.tree.map(fill, shapes)


def encode(module, params, tokens=TOKENS):
    return np.asarray(jax.jit(module.apply)({"params": params}, tokens))


def token_states(params, ids, *, layers, heads, activation, epsilon):
    """States of one sentence without padding, head by head, in float64."""
    params = reference.as_float64(params)
    norm = functools.partial(reference.layer_norm, epsilon=epsilon)
    x = params["embedding"][ids] + params["position_embedding"][: len(ids)]
    x = norm(params["embedding_norm"], x)
    for number in range(layers):
        block = params[f"blocks_{number}"]
        joined = block["attention_input"]
        split = zip(np.split(joined["kernel"], 3, axis=1), np.split(joined["bias"], 3))
        inputs = ({"kernel": kernel, "bias": bias} for kernel, bias in split)
        x = x + reference.attention(*inputs, block["attention_output"], heads, x, x, True)
        x = norm(block["attention_norm"], x)
        hidden = activation(reference.dense(block["ffn_inner"], x))
        x = norm(block["ffn_norm"], x + reference.dense(block["ffn_outer"], hidden))
    return x


def exact_gelu(x):
    return x * scipy.stats.norm.cdf(x)


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_vectors_are_those_of_the_equations(layers):
    module, params = build(layers=layers, layer_norm_epsilon=1e-3)
    for row, found in zip(TOKENS, encode(module, params), strict=True):
        ids = row[row != 4]
        options = {"layers": layers, "heads": 3, "activation": exact_gelu, "epsilon": 1e-3}
        expected = token_states(params, ids, **options).mean(0)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("gelu_tanh", lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
        ("relu", lambda x: np.maximum(x, 0)),
        ("swish", lambda x: x * scipy.special.expit(x)),
    ],
)
def test_the_activation_is_the_one_asked_for(name, function):
    module, params = build(activation=name)
    options = {"layers": 2, "heads": 3, "activation": function, "epsilon": 1e-12}
    expected = token_states(params, TOKENS[2], **options).mean(0)
    np.testing.assert_allclose(encode(module, params)[2], expected, atol=1e-5)
    assert np.abs(encode(build()[0], params)[2] - expected).max() > 1e-4


def test_gelu_is_exact_at_both_ends():
    x = np.concatenate([np.linspace(-8, 8, 1001), [-40, 40]]).astype(np.float32)
    np.testing.assert_allclose(gelu(jnp.asarray(x)), exact_gelu(np.float64(x)), atol=1e-6)
    assert gelu(jnp.asarray(x, jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize("pooling", ["first", "max", "mean"])
def test_pooling(pooling):
    module, params = build(pooling=pooling)
    options = {"layers": 2, "heads": 3, "activation": exact_gelu, "epsilon": 1e-12}
    states = token_states(params, TOKENS[0, :5], **options)
    expected = {"first": states[0], "max": states.max(0), "mean": states.mean(0)}[pooling]
    np.testing.assert_allclose(encode(module, params)[0], expected, atol=1e-5)
    inner = BertEncoder(**SIZES, pooling=pooling, pool_specials=False)
    found = encode(inner, params)
    if pooling != "first":
        expected = {"max": states[1:4].max(0), "mean": states[1:4].mean(0)}[pooling]
        np.testing.assert_array_equal(found[1], 0)  # nothing but special tokens
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_the_head_is_dense_layers_and_a_norm():
    projections = [[5, "tanh", True], [7, "identity", False]]
    module, params = build(projections=projections, normalize=True)
    assert module.dim == 7 and "bias" not in params["projections_1"]
    pooled = encode(BertEncoder(**SIZES), params).astype(np.float64)
    expected = np.tanh(reference.dense(params["projections_0"], pooled))
    expected = reference.dense(params["projections_1"], expected)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encode(module, params), expected, atol=1e-5)


def test_it_is_a_family_with_a_special_token_on_either_side():
    module = registry.build_encoder("bert", **SIZES, projections=[[3, "tanh", True]])
    with pytest.raises(ValueError, match="length 10; encoder.max_length_tokens=9 is the longest"):
        jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 10), np.int32))
    assert isinstance(module, BertEncoder) and module.dim == 3
    assert hash(module) == hash(BertEncoder(**SIZES, projections=((3, "tanh", True),)))
    assert registry.ENCODERS["bert"].specials == (("bos",), ("eos",))
