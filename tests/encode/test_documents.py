"""Long texts: what is encoded at once, by hand and by brute force, and how vectors are pooled."""

from collections import deque

import numpy as np
import pytest

from xling_jax.encode import documents as documents_lib
from xling_jax.encode import jax_backend
from xling_jax.encode.documents import (
    MODES,
    POOLINGS,
    document_encoder,
    document_inputs,
    pack_sentences,
    pool_stream,
    pool_vectors,
    word_windows,
)
from xling_jax.encode.encoder import l2_normalize


class Words:
    """A vocabulary whose tokens are the words of a text; `extra` more for each full stop inside."""

    def __init__(self, extra=0):
        self.extra = extra

    def encode_flat(self, texts):
        lengths = [len(text.split()) + self.extra * max(text.count(".") - 1, 0) for text in texts]
        return np.zeros(sum(lengths), np.int32), np.array(lengths, np.int64)


def pack(sentences, room, vocab=None):
    return pack_sentences([sentences], vocab or Words(), room)[0]


def test_as_many_sentences_as_fit_are_packed_by_hand():
    sentences = ["a a a.", "b b.", "c.", "d d d d d d d.", "e.", "f."]
    assert pack(sentences, 6) == ["a a a. b b. c.", "d d d d d d d.", "e. f."]
    assert pack(sentences, 5) == ["a a a. b b.", "c.", "d d d d d d d.", "e. f."]
    assert pack(sentences, 1) == sentences
    assert pack(sentences, 100) == [" ".join(sentences)]
    assert pack([""], 5) == [""]
    assert pack_sentences([], Words(), 5) == []


def test_a_join_of_more_tokens_than_its_parts_still_fits():
    # "a. b. c." are 3 words, and 2 tokens more as one text.
    assert pack(["a.", "b.", "c.", "d.", "e."], 3, Words(extra=1)) == ["a. b.", "c. d.", "e."]
    assert pack(["a.", "b.", "c.", "d.", "e."], 5, Words(extra=1)) == ["a. b. c.", "d. e."]
    assert pack(["a.", "b."], 2, Words(extra=9)) == ["a.", "b."]


def test_modes_by_hand(monkeypatch):
    monkeypatch.setattr(documents_lib, "_BLOCK_DOCUMENTS", 2)
    documents = ["A b. C d.\nE", ["one", " ", "two three"], "", [], "  "]

    def inputs(mode):
        return list(document_inputs(iter(documents), mode, vocab=Words(), room=4))

    blank = [[""], [""]]
    assert inputs("sentences") == [["A b.", "C d.", "E"], ["one", "two three"], *blank, [""]]
    assert inputs("packed") == [["A b. C d.", "E"], ["one two three"], *blank, [""]]
    assert inputs("sequence") == [["A b. C d.\nE"], ["one two three"], *blank, ["  "]]
    assert inputs("windows") == inputs("sequence")


def test_document_vectors_of_each_mode(encoder, monkeypatch):
    monkeypatch.setattr(jax_backend, "_CPU_WINDOW_SENTENCES", 4)
    documents = ["La mo. Ti ren! Su?", ["la mo", "ti"], "", [], ["da"] * 60]
    for mode in MODES[::-1]:
        texts = list(encoder.document_inputs(documents, mode))
        for pooling in POOLINGS:
            rows = encoder.encode_documents(documents, mode=mode, pooling=pooling)
            expected = [getattr(encoder.encode(each), pooling)(axis=0) for each in texts]
            np.testing.assert_allclose(rows, expected, atol=1e-5)
    rows = encoder.encode_documents(documents, mode="sequence")
    np.testing.assert_allclose(rows[0], encoder.encode([documents[0]])[0], atol=1e-5)
    unit = encoder.encode_documents(documents, mode="sequence", normalize=True)
    np.testing.assert_allclose(unit, l2_normalize(rows), atol=1e-6)
    with pytest.raises(ValueError, match="must be a list"):
        encoder.encode_documents("one document")
    with pytest.raises(ValueError, match="mode='mean' must be one of"):
        encoder.encode_documents(documents, mode="mean")
    with pytest.raises(ValueError, match="pooling='sum' must be one of mean, max"):
        encoder.encode_documents(documents, pooling="sum")


def test_a_shorter_encoder_reads_the_first_tokens(encoder, sentences):
    whole = "la mo ti ren su kel da vi bor " * 9
    shorter = encoder.with_max_length(10)
    ids = encoder.vocab.encode([whole])[0]
    first = encoder.vocab.decode(ids[:8])
    np.testing.assert_array_equal(encoder.vocab.encode([first])[0], ids[:8])
    np.testing.assert_allclose(shorter.encode([whole]), encoder.encode([first]), atol=1e-5)
    assert (shorter.max_length_tokens, encoder.max_length_tokens) == (10, 40)
    assert all(length <= 10 for _, length in shorter.batch_shapes().all())
    packed = next(iter(shorter.document_inputs([["la mo"] * 9], "packed")))
    assert (encoder.vocab.encode_flat(packed)[1] <= 8).all() and len(packed) > 1
    for wrong in (2, 0, 41):
        with pytest.raises(ValueError, match=f"max_length_tokens={wrong} must be from 3 to 40"):
            encoder.with_max_length(wrong)


def sentence_vectors(sentences):
    """Each text: its number of words, its number of characters, the place of its first letter."""
    return np.array([[len(s.split()), len(s), ord((s + "?").strip()[0])] for s in sentences], float)


def test_a_function_of_texts_becomes_one_of_documents():
    texts = ["One two. Three four five! Six?", "Alone", ""]
    mean = document_encoder(sentence_vectors, "sentences")(texts)
    largest = document_encoder(sentence_vectors, "sentences", pooling="max")(texts)
    np.testing.assert_allclose(mean[:, 0], [(2 + 3 + 1) / 3, 1, 0])
    np.testing.assert_allclose(largest[:, 0], [3, 1, 0])
    assert mean.dtype == np.float32 and mean.shape == (3, 3)
    assert document_encoder(sentence_vectors, "sequence") is sentence_vectors
    encode = lambda texts: np.zeros((len(texts), 3))
    assert document_encoder(encode, "windows")([]).shape == (0, 3)


@pytest.mark.parametrize(
    ("words", "sizes"),
    [(0, [0]), (128, [128]), (129, [128, 65]), (192, [128, 128]), (193, [128, 128, 65])],
)
def test_windows_of_128_words_every_64(words, sizes):
    text = " ".join(f"w{i}" for i in range(words))
    windows = [window.split() for window in word_windows(text)]
    assert [len(window) for window in windows] == sizes
    for number, window in enumerate(windows):
        assert window == [f"w{i}" for i in range(64 * number, 64 * number + len(window))]
    assert not words or windows[-1][-1] == f"w{words - 1}"


def test_characters_of_scripts_without_spaces_are_words():
    text = "東京は日本の首都です" * 15  # 150 words
    assert word_windows(text) == [text[:128], text[64:]]
    assert word_windows(" a, b ") == [" a, b "]  # all of it fits


def test_vectors_in_chunks_are_pooled_and_those_of_a_long_document_copied_once(monkeypatch):
    vectors, counts = np.random.default_rng(0).normal(size=(160, 2)), [1, 2, 150, 3, 4]
    expected = pool_vectors(vectors, counts)
    copied = []
    whole = np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda parts: copied.append(len(parts)) or whole(parts))
    chunks = (vectors[start : start + 5] for start in range(0, 160, 5))
    found = [*pool_stream(chunks, deque(counts))]
    assert max(copied) == 31 and len(copied) < 5
    np.testing.assert_array_equal(np.vstack(found), expected)
