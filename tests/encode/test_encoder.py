import logging
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

import xling_jax
from xling_jax.encode.encoder import l2_normalize
from xling_jax.encode.jax_backend import JaxBackend
from xling_jax.encode.model_directory import load_model
from xling_jax.encode.texts import EncodeStats


def by_hand(encoder, sentence):
    """One sentence through the toy encoder in float64, without padding."""
    ids = encoder.vocab.encode([sentence])[0][: encoder.max_length_tokens - 2]
    tokens = np.array([encoder.vocab.bos_id, *ids, encoder.vocab.eos_id])
    table = np.asarray(encoder.params["table"], np.float64)
    positions = np.cos(np.arange(len(tokens))[:, None] * np.arange(1, encoder.dim + 1))
    return np.tanh((table[tokens] * positions).sum(axis=0) / 8)


def test_row_i_is_sentence_i_unpadded(encoder, sentences):
    assert encoder.encode([]).shape == encoder.encode_documents([]).shape == (0, encoder.dim)
    embeddings = encoder.encode(sentences)
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (len(sentences), encoder.dim)
    for i, sentence in enumerate(sentences):
        np.testing.assert_allclose(embeddings[i], by_hand(encoder, sentence), atol=1e-5)


def test_vector_does_not_depend_on_the_other_sentences(encoder, sentences):
    together = encoder.encode(sentences)
    backwards = encoder.encode(sentences[::-1])[::-1]
    np.testing.assert_allclose(backwards, together, atol=1e-5)
    for batch_size in (1, 3, 8):
        few = encoder.encode(sentences[:20], batch_size=batch_size)
        np.testing.assert_allclose(few, together[:20], atol=1e-5)
    alone = np.concatenate([encoder.encode([text]) for text in sentences[40:60]])
    np.testing.assert_allclose(alone, together[40:60], atol=1e-5)


def test_long_text_is_cut_and_counted(make_encoder, caplog):
    encoder = make_encoder()
    long = "la mo ti ren su kel " * 50
    stats = EncodeStats()
    (rows,) = encoder.encode_stream([long, long + " da", "la", ""], stats=stats)
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-5)
    assert (stats.num_sentences, stats.num_empty, stats.num_truncated) == (4, 1, 2)
    assert stats.num_tokens <= stats.num_padded_tokens
    with caplog.at_level(logging.WARNING):
        encoder.encode([long, "la"])
        encoder.encode([long, "la"])
    assert [record.getMessage() for record in caplog.records] == [
        "1 of 2 sentences were truncated to 40 tokens (further warnings suppressed)"
    ]


def test_text_in_an_unknown_script_is_counted_and_named_once(make_encoder, caplog, monkeypatch):
    encoder = make_encoder()
    stats = EncodeStats()
    # By SentencePiece: ▁ and <unk>; two pieces or more of each known word, then ▁ and <unk>.
    few = "la mo ti ren su kel 日"
    assert len(encoder.vocab.encode([few])[0]) > 4
    with caplog.at_level(logging.WARNING):
        list(encoder.encode_stream(["la mo", "日本語", "", few, "Привет мир"], stats=stats))
        encoder.encode(["日本語"])
        encoder.encode(["日本語"], truncate_dim=2)
        make_encoder().encode([few, "日本語"], truncate_dim=2)
        make_encoder().encode(["la", "", few])
        monkeypatch.setattr(JaxBackend, "window_sentences", 3)
        make_encoder().encode(["la mo"] * 99 + ["日本語"])  # no more than a hundredth of all
    assert (stats.num_sentences, stats.num_unknown) == (5, 2)
    assert [record.getMessage() for record in caplog.records] == [
        f"{count} sentences are at least a quarter unknown tokens, as in a script that the encoder "
        "was not trained on; their embeddings are unreliable (further warnings suppressed)"
        for count in ("2 of 5", "1 of 2")
    ]


def test_compilations_are_bounded_by_the_listed_shapes(make_encoder, sentences):
    # A module of its own, so that its compilations are its own.
    own = make_encoder(vocab_size=150)
    for count in (1, 2, 5, 17, 40, 100, 202):
        own.encode(sentences[:count])
    shapes = own.batch_shapes().all()
    assert len(shapes) == 12
    compiled = own.backend.apply._cache_size()
    assert compiled <= len(shapes)
    own.with_params(jax.tree.map(lambda leaf: leaf * 2, own.params)).encode(sentences)
    assert own.backend.apply._cache_size() == compiled


def test_after_warming_up_nothing_is_compiled(make_encoder, sentences):
    own = make_encoder(vocab_size=151)
    own.warm_up(12)  # of the lengths 8, 12, …
    compiled = own.backend.apply._cache_size()
    assert 0 < compiled == len(own.batch_shapes().all(12)) < len(own.batch_shapes().all())
    short = [text for text, ids in zip(sentences, own.vocab.encode(sentences)) if len(ids) <= 10]
    for count in (1, 2, 3, len(short)):
        own.encode(short[:count])
    assert own.backend.apply._cache_size() == compiled
    own.warm_up()
    compiled = own.backend.apply._cache_size()
    assert compiled == len(own.batch_shapes().all())
    own.warm_up(1000)  # more than the model takes
    own.encode(sentences)
    assert own.backend.apply._cache_size() == compiled


def test_with_params_uses_the_new_parameters(encoder, make_encoder):
    other = encoder.with_params(jax.tree.map(lambda leaf: leaf * 0.5, encoder.params))
    assert np.abs(other.encode(["la mo"]) - encoder.encode(["la mo"])).max() > 1e-3
    np.testing.assert_allclose(other.encode(["la mo"])[0], by_hand(other, "la mo"), atol=1e-5)
    later = make_encoder(params={}).with_params(encoder.params)
    np.testing.assert_array_equal(later.encode(["la mo"]), encoder.encode(["la mo"]))


def test_fingerprint_and_calibration_follow_what_changes_vectors(make_encoder):
    own = make_encoder(fingerprint="abc")
    own.calibration = "measured"
    for same in (own.with_max_length(40), own.truncated(own.dim), own.with_prompt("")):
        assert (same.fingerprint, same.calibration) == ("abc", "measured")
    assert own.with_max_length(10).fingerprint == "abc-10t"
    assert own.truncated(5).fingerprint == "abc-5d"
    assert own.with_prompt("la ").fingerprint.startswith("abc-prompt-")
    for other in (own.truncated(5), own.with_prompt("la "), own.with_params(own.params)):
        assert other.calibration is None
    assert own.with_params(own.params).fingerprint == ""
    nameless = make_encoder()
    for other in (nameless.with_max_length(10), nameless.truncated(5), nameless.with_prompt("la ")):
        assert other.fingerprint == ""


def test_wrong_input_is_named(encoder, make_encoder):
    for wrong, message in (
        (7, "list of strings"),
        (["a", None], r"sentences\[1\] must be a string; found"),
    ):
        with pytest.raises(ValueError, match=message):
            encoder.encode(wrong)
    with pytest.raises(ValueError, match="batch_size=0 must be at least 1"):
        encoder.encode(["la"], batch_size=0)
    with pytest.raises(ValueError, match="max_length_tokens=2 must leave room"):
        make_encoder(max_length_tokens=2)
    with pytest.raises(ValueError, match=r"specials=\['mask'\] must be 'bos' or 'eos'"):
        make_encoder(specials=(("mask",), ()))


def test_load_takes_a_model_directory_or_a_workdir(model_directory, sentences):
    texts = sentences[48:53]
    loaded = xling_jax.load(model_directory)
    expected = loaded.encode(texts)
    tokens = np.full((1, 40), loaded.vocab.pad_id, np.int32)
    tokens[0, :2] = loaded.vocab.bos_id, loaded.vocab.eos_id
    module = load_model(model_directory).module
    blank = module.apply({"params": loaded.params}, tokens)[0]
    np.testing.assert_allclose(expected[2], blank, atol=1e-5)
    workdir = model_directory.parent / "run"
    workdir.mkdir()
    model_directory.rename(workdir / "encoder")
    loaded = xling_jax.load(str(workdir))
    np.testing.assert_allclose(loaded.encode(texts), expected, atol=1e-5)
    assert loaded.languages == ("de", "en")
    assert len(loaded.fingerprint) == 64


def test_load_takes_a_dtype(model_directory, sentences, monkeypatch):
    texts = sentences[:20]
    exact = xling_jax.load(model_directory)
    expected = exact.encode(texts)
    assert exact.dtype == "float32"  # the default on a CPU
    named = xling_jax.load(model_directory, "float32")
    np.testing.assert_array_equal(named.encode(texts), expected)
    assert named.fingerprint == exact.fingerprint
    for dtype, error in (("float16", 1e-2), ("bfloat16", 1e-1)):
        loaded = xling_jax.load(model_directory, dtype)
        vectors = loaded.encode(texts)
        assert (loaded.dtype, vectors.dtype) == (dtype, np.float32)
        assert 0 < np.abs(vectors - expected).max() < error * np.abs(expected).max()
        # Results of different dtypes are told apart.
        assert loaded.fingerprint == f"{exact.fingerprint}-{dtype}"
    with pytest.raises(ValueError, match="dtype='half' must be one of auto, float32, float16, bfl"):
        xling_jax.load(model_directory, "half")
    gpu = types.SimpleNamespace(platform="gpu", compute_capability="7.5")
    monkeypatch.setattr(jax, "devices", lambda: [gpu])
    assert xling_jax.load(model_directory, backend="jax").dtype == "float16"


def test_truncated_vectors_are_the_first_dimensions(encoder, sentences, model_directory):
    smaller = encoder.truncated(5)
    first = encoder.encode(sentences)[:, :5]
    np.testing.assert_array_equal(smaller.encode(sentences), first)
    np.testing.assert_allclose(smaller.encode(sentences, normalize=True), l2_normalize(first))
    assert smaller.dim == 5 and smaller.truncated(5).dim == 5
    loaded = xling_jax.load(model_directory, truncate_dim=5)
    assert loaded.fingerprint == xling_jax.load(model_directory).fingerprint + "-5d"
    np.testing.assert_array_equal(smaller.truncated(7).encode(sentences)[:, :5], first)
    for wrong in (0, encoder.dim + 1):
        with pytest.raises(ValueError, match=f"truncate_dim={wrong} must be from 1 to 16"):
            smaller.truncated(wrong)


def test_load_names_what_is_possible(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere: no such directory; use .* \(mini, world\)"):
        xling_jax.load("nowhere")
    with pytest.raises(ValueError, match=r"\(mini, world\); did you mean world\?$"):
        xling_jax.load("wrold")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ValueError, match="has not exported an encoder yet"):
        xling_jax.load(tmp_path)


@pytest.mark.slow
def test_eight_devices_give_the_vectors_of_one(model_directory, sentences, tmp_path):
    texts = sentences[48:53]
    code = f"""
import jax, numpy as np, xling_jax
jax.config.update("jax_num_cpu_devices", 8)
encoder = xling_jax.load({str(model_directory)!r}, backend="jax")
assert len(jax.tree.leaves(encoder.params)[0].sharding.device_set) == 8
assert all(rows % 8 == 0 for rows, _ in encoder.batch_shapes(batch_size=5).all())
np.save({str(tmp_path / "out.npy")!r}, encoder.encode({texts!r}, batch_size=5))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    expected = xling_jax.load(model_directory).encode(texts)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


def test_encoding_makes_no_implicit_transfer(make_encoder, encoder):
    host = make_encoder(params=jax.tree.map(np.asarray, encoder.params))
    with jax.transfer_guard("disallow"):
        found = host.encode(["la mo", ""])
    np.testing.assert_array_equal(found, encoder.encode(["la mo", ""]))
