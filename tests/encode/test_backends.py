"""Encoders with layers on a CPU: NumPy's vectors are JAX's, nothing is compiled or imported."""

import concurrent.futures
import contextlib
import json
import os
import pickle
import threading

import jax
import numpy as np
import pytest

import xling_jax
from xling_jax import devices
from xling_jax.encode import backends
from xling_jax.encode.model_directory import save_model
from xling_jax.models import registry

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
    arguments = FAMILIES.get(family, FAMILIES["tlaser"]) | {"pad_id": vocab.pad_id} | more
    module = registry.build_encoder(family, vocab_size=vocab.size, **arguments)
    tokens, generator = np.ones((1, 8), np.int32), np.random.default_rng(0)
    shapes = jax.eval_shape(module.init, jax.random.key(0), tokens)["params"]
    params = jax.tree.map(lambda leaf: generator.normal(0, 0.3, leaf.shape).astype("f4"), shapes)
    common = {"languages": ("de", "en"), "max_length_tokens": 40, "training": {}}
    save_model(
        directory, family=family, encoder_args=arguments, params=params, vocab=vocab, **common
    )
    return directory


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


def test_two_directions_take_two_of_the_threads(vocab, tmp_path, sentences, monkeypatch):
    monkeypatch.setattr(backends, "num_cores", lambda: 5)
    blas = lambda num_tasks: contextlib.nullcontext(min(num_tasks, 5))
    monkeypatch.setattr(backends, "threads_for", blas)
    for family, more, few, many in (
        ("laser", {}, (1, 2), (3, 2)),
        ("laser", {"unidirectional_layers": 1}, (1, 1), (5, 1)),
        ("dual", {}, (1, 1), (5, 1)),
    ):
        encoder = xling_jax.load(save(tmp_path / f"{family}{few}", family, vocab, **more))
        for num_tokens, expected in ((1, few), (5 * 64, many)):
            with encoder.backend._threads(num_tokens) as threads:
                assert threads == expected, family
        assert np.isfinite(encoder.encode(sentences)).all()


def test_batches_are_of_about_equal_size():
    lengths = np.random.default_rng(0).integers(0, 60, 5000)
    order = np.argsort(-lengths, kind="stable")
    order = order[: np.count_nonzero(lengths)]
    parts = backends._cut(order, lengths, 4, 1024, None)
    np.testing.assert_array_equal(np.concatenate(parts), order)
    tokens = [lengths[part].sum() for part in parts]
    assert len(parts) % 4 == 0
    assert 0.9 * np.mean(tokens) < min(tokens) and max(tokens) < 1024 + 60
    parts = backends._cut(order, lengths, 4, 1024, 10)
    np.testing.assert_array_equal(np.concatenate(parts), order)
    assert max(map(len, parts)) == 10


def test_other_parameters_and_copies(family_directory, sentences):
    encoder = xling_jax.load(family_directory)
    doubled = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf) * 2, encoder.params)
    other = encoder.with_params(doubled)
    assert isinstance(jax.tree.leaves(other.params)[0], np.ndarray)
    assert abs(other.encode(sentences[:5]) - encoder.encode(sentences[:5])).max() > 0.01
    for chosen in (encoder, xling_jax.load(family_directory, backend="jax")):
        copy = pickle.loads(pickle.dumps(chosen))
        assert copy.backend.name == chosen.backend.name
        np.testing.assert_array_equal(copy.encode(sentences[:5]), chosen.encode(sentences[:5]))


@pytest.mark.skipif(devices._plugin_is_installed(), reason="JAX has a plugin for an accelerator")
def test_jax_is_not_imported(family_directory, output_of):
    code = f"""
import json, sys, xling_jax
encoder = xling_jax.load({str(family_directory)!r})
vectors = encoder.encode(["la mo ti", "ren"] * 20)
encoder.warm_up(cache="nowhere")
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


def test_memory_is_used_again_but_not_kept_without_limit(family_directory, sentences, monkeypatch):
    monkeypatch.setattr(backends, "num_cores", lambda: 2)
    encoder = xling_jax.load(family_directory)
    backend = encoder.backend
    expected = [encoder.encode(sentence) for sentence in sentences[:3]]
    (memory,) = backend._memories
    arrays = dict(memory)
    assert arrays
    encoder.encode(sentences[0])
    assert backend._memories[0] is memory
    assert all(memory[name] is array for name, array in arrays.items())
    with monkeypatch.context() as patch:
        patch.setattr(type(backend.encoder), "encode", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encoder.encode(sentences[0])
    for sentence, vector in zip(sentences, expected):
        np.testing.assert_allclose(encoder.encode(sentence), vector, atol=1e-5)
    # No more than the cores use, and nothing of sentences longer than two batches.
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(backend._memory(5))
    assert len(backend._memories) == 2
    backend._memories.clear()
    with backend._memory(2 * backend.encoder.threads * backend.batch_tokens + 1):
        pass
    assert not backend._memories


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_jax_in_a_forked_process_raises_an_error_and_does_not_hang(vocab, tmp_path):
    encoder = xling_jax.load(save(tmp_path / "model", "tlaser", vocab), backend="jax")
    encoder.encode(["la mo"])
    if not (pid := os.fork()):
        threading.Timer(20, os._exit, (2,)).start()  # where it hangs
        try:
            encoder.encode(["la mo"])
        except RuntimeError as error:
            os._exit(0 if "get_context('spawn')" in str(error) else 1)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    encoder.encode(["la mo"])
