"""Static encoders without JAX: the same vectors as the Flax module, nothing heavy imported."""

import json

import numpy as np
import pytest

import xling_jax
from tests.encode.random_models import random_static, save_random
from xling_jax.cli.main import main
from xling_jax.encode.backends import StaticBackend
from xling_jax.encode.model_directory import load_model
from xling_jax.encode.teacher import principal_axes
from xling_jax.models.numpy_static import NumpyStatic

ENCODERS = {
    "static": {"width": 16, "features": ("pairs", "triples"), "feature_rows": 64},
    "narrow": {"width": 16, "features": ("pairs",), "feature_rows": 64, "feature_width": 8},
    "dual": {"width": 16, "layers": 0, "pooling": "weighted_mean"},
}


def save(directory, vocab, family, arguments, params, **more):
    more = {"max_length_tokens": 25, "params": params, **more}
    return save_random(directory, family, vocab, arguments, **more)


STORED = ("int8 static", "int8 narrow", "int4 static", "mixed narrow")


@pytest.fixture(params=[*ENCODERS, *STORED])
def static_directory(request, vocab, sentences, tmp_path):
    *storage, name = request.param.split()
    arguments = ENCODERS[name] | {"pad_id": vocab.pad_id}
    if name == "dual":
        return save_random(tmp_path / "m", "dual", vocab, arguments, max_length_tokens=25)
    static = NumpyStatic(vocab.size, **arguments)
    params = random_static(static, vocab, sentences)
    if storage:
        _, params = static.quantized(params, *storage)
        arguments["storage"] = storage[0]
    return save(tmp_path / "m", vocab, "static", arguments, params)


def test_vectors_are_those_of_the_flax_module(static_directory, sentences):
    encoder = xling_jax.load(static_directory)
    assert isinstance(encoder.backend, StaticBackend)
    found = encoder.encode(sentences)
    spec = load_model(static_directory)
    tokens = np.full((len(sentences), 25), encoder.vocab.pad_id, np.int32)
    for row, ids in zip(tokens, encoder.vocab.encode(sentences)):
        row[: min(len(ids), 25)] = ids[:25]
    expected = spec.module.apply({"params": spec.params}, tokens)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # Few sentences are summed in another way.
    np.testing.assert_allclose(encoder.encode(sentences[48:53]), found[48:53], atol=1e-5)
    assert not found[50].any()  # blank
    assert encoder.with_params(spec.params).encode(["la"]).shape == (1, 16)


def test_with_its_own_parameters_a_stored_encoder_stays_as_it_is():
    mini = xling_jax.load("mini")
    np.testing.assert_array_equal(
        mini.with_params(mini.params).encode(["Hello"]), mini.encode(["Hello"])
    )


@pytest.mark.parametrize(
    ("storage", "step", "cosine", "share"),
    [("int8", 1 / 127, 0.9995, 0.3), ("mixed", 1 / 127, 0.98, 0.3), ("int4", 1 / 7, 0.98, 0.2)],
)
def test_few_bits_are_close_to_what_was_trained(
    vocab, tmp_path, sentences, storage, step, cosine, share
):
    static = NumpyStatic(vocab.size, 64, ("pairs",), 32, vocab.pad_id)
    stored = random_static(static, vocab, sentences)
    small, reduced = static.quantized(stored, storage)
    assert {name: (v.shape, str(v.dtype)) for name, v in reduced.items()} == small.parameters
    rows = stored["embedding"] * stored["token_weight"][:, None]
    largest = np.abs(rows).max(axis=1, keepdims=True)
    usual = np.square(np.round(rows / largest / step) * step * largest - rows).sum(axis=1)
    errors = np.square(small.trainable(reduced)["embedding"] - rows).sum(axis=1)
    assert (errors <= usual * 1.0001).all()
    arguments = {"width": 64, "features": ("pairs",), "feature_rows": 32, "pad_id": vocab.pad_id}
    save(tmp_path / "exact", vocab, "static", arguments, stored)
    save(tmp_path / "small", vocab, "static", arguments | {"storage": storage}, reduced)
    texts = [text for text in sentences if text.strip()]
    exact, less = (
        xling_jax.load(tmp_path / name).encode(texts, normalize=True) for name in ("exact", "small")
    )
    assert (exact * less).sum(axis=1).min() > cosine
    sizes = [
        (tmp_path / name / "encoder.safetensors").stat().st_size for name in ("exact", "small")
    ]
    assert sizes[1] < share * sizes[0]


def test_four_bits_share_bytes_and_have_the_best_factor(vocab):
    static = NumpyStatic(vocab.size, 4, pad_id=vocab.pad_id)
    rows = np.zeros((static.token_rows, 4), np.float32)
    rows[1], rows[2] = (7, -7, 3, 0), (10, 1, 1, 1)
    stored = {"embedding": rows, "token_weight": np.full(len(rows), 2, np.float32)}
    small, reduced = static.quantized(stored, "int4")
    assert small.parameters["rows"] == ((static.token_rows, 2), "uint8")
    np.testing.assert_array_equal(reduced["rows"][0], [8 + 8 * 16] * 2)  # zeros
    np.testing.assert_array_equal(reduced["rows"][1], [15 + 1 * 16, 11 + 8 * 16])
    assert reduced["factor"][1] == 2 and reduced["factor"][0] == 0
    # Of [20, 2, 2, 2]: the factor that fits 20 is 20 / 7, and rounds each 2 to it.
    shrinks = np.array([1, 0.9, 0.8, 0.7, 0.6, 0.5]) * 20 / 7
    errors = [
        (20 - min(np.round(20 / f), 7) * f) ** 2 + 3 * (2 - np.round(2 / f) * f) ** 2
        for f in shrinks
    ]
    np.testing.assert_allclose(reduced["factor"][2], shrinks[np.argmin(errors)], rtol=1e-6)
    with pytest.raises(ValueError, match="width=5 must be even"):
        NumpyStatic(vocab.size, 5, storage="int4")


def test_principal_axes_are_eigenvectors_of_fixed_sign():
    vectors = np.random.default_rng(0).normal(size=(50, 8)) * np.linspace(1, 3, 8)
    axes = principal_axes([vectors[:20].astype("f4"), vectors[20:].astype("f4")])
    assert axes.dtype == np.float32
    expected = np.linalg.svd(vectors)[2].T
    largest = expected[np.abs(expected).argmax(axis=0), np.arange(8)]
    np.testing.assert_allclose(axes, expected * np.sign(largest), atol=1e-5)
    with pytest.raises(ValueError, match="are all zero"):
        principal_axes([np.zeros((3, 8))])


@pytest.mark.parametrize("count", [1, 20])
def test_a_text_without_tokens_has_the_vector_0_even_where_lengths_are_1(vocab, tmp_path, count):
    static = NumpyStatic(vocab.size, 4, pad_id=vocab.pad_id)
    params = random_static(static, vocab, [])
    arguments = {"width": 4, "pad_id": vocab.pad_id, "normalize": True}
    save(tmp_path / "m", vocab, "static", arguments, params)
    found = xling_jax.load(tmp_path / "m").encode(["", "la mo"] * count)
    np.testing.assert_array_equal(found[::2], 0)
    np.testing.assert_allclose(np.linalg.norm(found[1::2], axis=1), 1, rtol=1e-6)


def test_neither_jax_nor_scipy_is_imported_for_a_sentence(static_directory, output_of):
    code = f"""
import json, sys, xling_jax
encoder = xling_jax.load({str(static_directory)!r})
vectors = encoder.encode(["la mo ti", "ren"])
heavy = ("jax", "flax", "scipy", "sklearn", "tensorflow", "ml_collections")
print(json.dumps([list(vectors.shape), [name for name in heavy if name in sys.modules]]))
"""
    assert json.loads(output_of("-c", code)) == [[2, 16], []]


def test_export_scales_no_shorter_vectors_unasked(vocab, sentences, tmp_path, capsys):
    arguments = {"width": 16, "pad_id": vocab.pad_id, "normalize": True}
    params = random_static(NumpyStatic(vocab.size, **arguments), vocab, sentences)
    save(tmp_path / "m", vocab, "static", arguments, params, truncate_dim=8)
    export = ["export", "--model", str(tmp_path / "m"), "--output", str(tmp_path / "small")]
    assert main([*export, "--storage", "int8"]) == 2
    assert "keeps 8 dimensions of vectors of length 1, and its new" in capsys.readouterr().err
    assert main([*export, "--storage", "int8", "--truncate-dim", "8"]) == 0
    vectors = xling_jax.load(tmp_path / "small").encode(sentences[:5])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)


def test_export_shrinks_a_model(vocab, sentences, tmp_path, capsys):
    arguments = {"width": 16, "features": ["pairs"], "feature_rows": 64, "pad_id": vocab.pad_id}
    arguments["feature_width"] = 6
    params = random_static(NumpyStatic(vocab.size, **arguments), vocab, sentences)
    save(tmp_path / "m", vocab, "static", arguments, params)
    whole = xling_jax.load(tmp_path / "m").encode(sentences)
    export = ["export", "--model", str(tmp_path / "m"), "--output"]
    assert main([*export, str(tmp_path / "4"), "--truncate-dim", "4"]) == 0
    found = xling_jax.load(tmp_path / "4").encode(sentences)
    np.testing.assert_allclose(found, whole[:, :4], atol=1e-6)
    assert main([*export, str(tmp_path / "small"), "--storage", "mixed"]) == 0
    small = xling_jax.load(tmp_path / "small").encode(sentences)
    np.testing.assert_allclose(small, whole, atol=0.3)
    problems = {
        **dict.fromkeys(("--truncate-dim 0", "--truncate-dim 17"), "must be from 1 to 16"),
        "--storage int4 --truncate-dim 5": "encoder.width=5 must be even",
    }
    for wrong, problem in problems.items():
        assert main([*export, str(tmp_path / "x"), *wrong.split()]) == 2
        assert problem in capsys.readouterr().err
    # Of a truncated encoder, the dimensions that it uses.
    truncated = xling_jax.load(tmp_path / "m").truncated(8)
    truncated.save(tmp_path / "b")
    export[2] = str(tmp_path / "b")
    assert main([*export, str(tmp_path / "c"), "--storage", "float32"]) == 0
    found, expected = xling_jax.load(tmp_path / "c").encode(sentences), truncated.encode(sentences)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
