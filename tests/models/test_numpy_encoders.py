"""Families in NumPy: the parameters and the vectors of the Linen modules, without JAX."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from flax.traverse_util import unflatten_dict
from scipy.special import ndtr

from xling_jax.encode.jax_backend import parameter_shapes
from xling_jax.models import numpy_layers as layers
from xling_jax.models.bert import ACTIVATIONS
from xling_jax.models.numpy_encoders import NUMPY_ENCODERS
from xling_jax.models.numpy_layers import Packed
from xling_jax.models.registry import ENCODERS, build_encoder

VOCAB_SIZE = 60
LENGTHS = np.array([9, 9, 7, 7, 7, 4, 2, 1, 1])
SIZES = {"width": 16, "layers": 2, "heads": 2, "ffn_width": 24}
LSTM = {"width": 16, "layers": 3, "embedding_width": 12}
CASES = {
    "tlaser-first": SIZES,
    "tlaser-mean": SIZES | {"pooling": "mean"},
    "tlaser-last": SIZES | {"pooling": "last"},
    "dual-post": SIZES,
    "dual-pre": SIZES | {"norm": "pre", "pooling": "weighted_mean"},
    "dual-first": SIZES | {"pooling": "first", "norm": "pre"},
    "dual-attention": SIZES | {"pooling": "self_attention", "attention_hops": 2},
    "dual-table": SIZES | {"layers": 0, "pooling": "max"},
    "laser-max": LSTM,
    "laser-mean": LSTM
    | {"pooling": "mean", "unidirectional_layers": 1, "published_parameters": True},
    "laser-last": LSTM | {"pooling": "last", "unidirectional_layers": 3},
    "bert-first": SIZES | {"pooling": "first", "normalize": True},
    "bert-table": SIZES | {"pooling": "last", "layers": 0},
    "bert-head": SIZES
    | {"activation": "gelu_tanh", "projections": ((8, "tanh", True), (6, "sigmoid", False))},
    "bert-max": SIZES | {"pooling": "max"},
    # A sentence begins with this token, and others have it inside.
    "bert-unplaced": SIZES | {"unplaced_id": 17},
    "bert-norm": SIZES | {"projections": ((9, "tanh", False), (5, "swish", True))},
}


def made(family, options):
    """The module, the same in NumPy, and random parameters of both."""
    module = build_encoder(family, vocab_size=VOCAB_SIZE, **options)
    encoder = NUMPY_ENCODERS[family](vocab_size=VOCAB_SIZE, **options)
    generator = np.random.default_rng(0)
    params = {
        tuple(name.split("/")): generator.normal(0, 0.4, shape).astype(dtype)
        for name, (shape, dtype) in encoder.parameters.items()
    }
    return module, encoder, unflatten_dict(params)


def sentences(encoder, lengths=LENGTHS):
    """The same random sentences, packed and padded."""
    tokens = np.random.default_rng(1).integers(3, VOCAB_SIZE, lengths.sum()).astype(np.int32)
    padded = np.full((len(lengths), lengths[0] + 3), encoder.pad_id, np.int32)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = tokens
    return Packed(tokens, lengths), padded


@pytest.mark.parametrize("case", CASES)
def test_vectors_and_parameters_are_those_of_the_module(case, monkeypatch):
    module, encoder, params = made(case.partition("-")[0], CASES[case])
    assert parameter_shapes(module) == (encoder.parameters, encoder.dim)
    assert encoder.specials == module.specials
    packed, padded = sentences(encoder)
    found = encoder.encode(params, packed).copy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, module.apply({"params": params}, padded), atol=1e-5)

    with ThreadPoolExecutor(1) as executor:
        threaded = encoder.encode(params, Packed(packed.tokens, LENGTHS, executor=executor))
        np.testing.assert_array_equal(threaded, found)
    memory = {}
    for lengths in (LENGTHS * 2 - 1, LENGTHS[2:]):
        other, _ = sentences(encoder, lengths)
        encoder.encode(params, Packed(other.tokens, lengths, memory))
        for array in memory.values():
            array[:] = np.nan
        np.testing.assert_array_equal(
            encoder.encode(params, Packed(packed.tokens, LENGTHS, memory)), found
        )
    monkeypatch.setattr(layers, "_BLOCK", 100)  # a few rows at a time
    np.testing.assert_allclose(encoder.encode(params, packed), found, atol=1e-5)


@pytest.mark.parametrize("family", NUMPY_ENCODERS)
def test_numpy_takes_what_determines_the_vectors(family):
    module = ENCODERS[family]
    arguments = {field.name for field in dataclasses.fields(module)} - {"parent", "name"}
    arguments -= {*module.training_only, "dropout_generator", "dtype"}
    assert {field.name for field in dataclasses.fields(NUMPY_ENCODERS[family])} == arguments
    default = module(vocab_size=VOCAB_SIZE)
    for field in dataclasses.fields(NUMPY_ENCODERS[family]):
        if field.name != "vocab_size":
            assert field.default == getattr(default, field.name), field.name


def test_long_sentences_attend_in_blocks(monkeypatch):
    monkeypatch.setattr(layers, "_QUERIES_AT_LEAST", 1)
    for family, options, longest in (
        ("tlaser", {"pooling": "mean"}, 40),
        ("bert", {"pooling": "first"}, 150),
    ):
        module, encoder, params = made(family, SIZES | options)
        packed, padded = sentences(encoder, np.array([longest, longest, 33, 5, 5, 5]))
        expected = module.apply({"params": params}, padded)
        for scores in (1, 200, 5000):  # a query at a time; some queries; some sentences
            monkeypatch.setattr(layers, "_SCORES_AT_ONCE", scores)
            np.testing.assert_allclose(encoder.encode(params, packed), expected, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_by_their_definitions(name):
    x = np.concatenate([np.linspace(-15, 15, 100_001), [-1e15, -200, 200, 1e15]])
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-x))
    cubic = np.sqrt(2 / np.pi) * (x + 0.044715 * np.clip(x, -1e9, 1e9) ** 3)
    expected = {
        "gelu": x * ndtr(x),
        "gelu_tanh": x * (1 + np.tanh(cubic)) / 2,
        "identity": x,
        "relu": np.maximum(x, 0),
        "sigmoid": sigmoid,
        "swish": x * sigmoid,
        "tanh": np.tanh(x),
    }[name]
    found = x.astype(np.float32)
    layers.ACTIVATIONS[name](found)
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-6)


def test_wrong_options_are_refused():
    for family, options, message in (
        ("tlaser", {"heads": 3}, "heads=3 must divide width=1024"),
        ("tlaser", {"pooling": "middle"}, "pooling='middle' must be one of first, mean"),
        ("dual", {"norm": "past"}, "encoder.norm='past'.*did you mean post"),
        ("laser", {"pooling": "first"}, "sees little but the first token"),
        ("laser", {"unidirectional_layers": 2}, "between 0 and the 1 layers"),
        ("laser", {"width": 7}, "width=7 must be even"),
        ("bert", {"activation": "gilu"}, "activation='gilu'.*did you mean gelu"),
        ("bert", {"heads": 5}, "encoder.heads=5 must divide encoder.width=768"),
    ):
        with pytest.raises(ValueError, match=message):
            NUMPY_ENCODERS[family](vocab_size=VOCAB_SIZE, **options)
        with pytest.raises(ValueError, match=message):
            ENCODERS[family](vocab_size=VOCAB_SIZE, **options)


def test_a_sentence_beyond_the_positions_is_refused():
    for family in ("dual", "bert"):
        _, encoder, params = made(family, SIZES | {"max_length_tokens": 8})
        with pytest.raises(ValueError, match="length 9; encoder.max_length_tokens=8 is the long"):
            encoder.encode(params, sentences(encoder)[0])
