"""Encoders with layers on a CPU: NumPy's vectors are JAX's, nothing is compiled or imported."""

import concurrent.futures
import contextlib
import json

import numpy as np
import pytest

import xling_jax
from tests.encode.random_models import save_random
from xling_jax import devices
from xling_jax.encode import backends

FAMILIES = {
    "tlaser": {"width": 16, "layers": 2, "heads": 2, "ffn_width": 16},
    "dual": {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16, "max_length_tokens": 40},
    "laser": {"width": 16, "layers": 2, "embedding_width": 8},
    "bert": {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16, "max_length_tokens": 40},
}


@pytest.fixture(params=FAMILIES)
def family_directory(request, vocab, tmp_path):
    return save(tmp_path / "model", request.param, vocab)


def save(directory, family, vocab, **more):
    arguments = FAMILIES.get(family, FAMILIES["tlaser"]) | more
    return save_random(directory, family, vocab, arguments)


def test_vectors_are_those_of_jax(family_directory, sentences):
    encoder = xling_jax.load(family_directory)
    other = xling_jax.load(family_directory, backend="jax")
    assert (encoder.backend.name, other.backend.name) == ("numpy", "jax")
    assert encoder.fingerprint == other.fingerprint
    expected = other.encode(sentences)
    np.testing.assert_allclose(encoder.encode(sentences), expected, atol=1e-5)
    for count in (1, 2, 7):
        some = encoder.encode(sentences[48 : 48 + count])
        np.testing.assert_allclose(some, expected[48 : 48 + count], atol=1e-5)
    np.testing.assert_allclose(encoder.encode(sentences[50:51]), expected[50:51], atol=1e-5)
    if encoder._spec.config["family"] == "dual":  # no special tokens: nothing to pool
        assert not encoder.encode("").any()
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_threads_batches_and_windows_change_nothing(family_directory, sentences, monkeypatch):
    encoder = xling_jax.load(family_directory)
    expected = encoder.encode(sentences)
    for threads in (1, 3):
        blas = lambda num_tasks, threads=threads: contextlib.nullcontext(threads)
        monkeypatch.setattr(backends, "threads_for", blas)
        for batch_tokens, batch_size in ((16, None), (500, 3), (100_000, None)):
            monkeypatch.setattr(encoder.backend, "batch_tokens", batch_tokens)
            found = encoder.encode(sentences, batch_size=batch_size)
            np.testing.assert_allclose(found, expected, atol=1e-5)
    monkeypatch.setattr(type(encoder.backend), "window_sentences", 7)
    chunks = list(encoder.encode_stream(iter(sentences)))
    assert len(chunks) == -(-len(sentences) // 7)
    np.testing.assert_allclose(np.concatenate(chunks), expected, atol=1e-5)


@pytest.mark.skipif(devices._plugin_is_installed(), reason="JAX has a plugin for an accelerator")
def test_jax_is_not_imported(family_directory, output_of):
    code = f"""
import json, sys, xling_jax
encoder = xling_jax.load({str(family_directory)!r})
vectors = encoder.encode(["la mo ti", "ren"] * 20)
encoder.warm_up()
print(json.dumps([vectors.tolist()[:2], "jax" in sys.modules or "flax" in sys.modules]))
"""
    vectors, has_jax = json.loads(output_of("-c", code))
    assert not has_jax
    expected = xling_jax.load(family_directory).encode(["la mo ti", "ren"])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_an_accelerator_is_used_where_there_is_one(family_directory, vocab, tmp_path, monkeypatch):
    monkeypatch.setattr(backends, "has_accelerator", lambda: True)
    assert xling_jax.load(family_directory).backend.name == "jax"
    assert xling_jax.load(family_directory, backend="numpy").backend.name == "numpy"
    assert xling_jax.load("mini").backend.name == "numpy"
    monkeypatch.setattr(backends, "has_accelerator", lambda: False)
    assert xling_jax.load(family_directory).backend.name == "numpy"
    assert xling_jax.load(family_directory, "bfloat16").backend.name == "jax"


def test_what_numpy_cannot_compute_runs_in_jax(vocab, tmp_path):
    directory = save(tmp_path / "model", "rotary", vocab)
    assert xling_jax.load(directory).backend.name == "jax"
    with pytest.raises(ValueError, match="backend='numpy': .*rotary encoder, which only JAX"):
        xling_jax.load(directory, backend="numpy")


def test_what_numpy_cannot_do_is_refused(family_directory):
    with pytest.raises(ValueError, match="dtype='bfloat16'.*float32 only; use backend='jax'"):
        xling_jax.load(family_directory, "bfloat16", backend="numpy")
    with pytest.raises(ValueError, match="backend='nunpy'.*did you mean numpy"):
        xling_jax.load(family_directory, backend="nunpy")
    with pytest.raises(ValueError, match="backend='jax': static encoders run in NumPy only"):
        xling_jax.load("mini", backend="jax")


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_threads_of_a_service_may_encode_at_once(family_directory, encoder, sentences, backend):
    if backend == "numpy":  # the other, which compiles in no time, is in JAX
        encoder = xling_jax.load(family_directory)
    assert encoder.backend.name == backend
    expected = encoder.encode(sentences)
    starts = range(0, 40, 5)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for start, found in zip(starts, pool.map(lambda i: encoder.encode(sentences[i:]), starts)):
            np.testing.assert_allclose(found, expected[start:], atol=1e-5)
