"""Word vectors: which pieces get one, means over languages, and files that are broken."""

import logging

import numpy as np
import pytest

from xling_jax.text import word_vectors
from xling_jax.text.vocab import train_vocab
from xling_jax.text.word_vectors import coverage, read_word_vectors

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁dog", "▁chat", "og", "▁café", "▁cats"]
DOG, CHAT, CAFE = 5, 6, 8
LANGUAGES = ("en", "fr")

MARKED = """\
en:dog 1 2
fr:dog 3 -4
de:dog 100 100
fr:chat 5 6.5e-1
en:chien 1 1
"""


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(path, width=2, pieces=PIECES, languages=LANGUAGES, lowercase=True):
    return read_word_vectors(str(path), pieces, languages, width, lowercase)


def test_a_word_gets_the_mean_over_the_languages_of_the_config(tmp_path):
    vectors, found = read(write(tmp_path / "v.txt", MARKED))
    assert vectors.dtype == np.float32 and vectors.shape == (len(PIECES), 2)
    assert np.flatnonzero(found).tolist() == [DOG, CHAT]
    np.testing.assert_array_equal(vectors[DOG], [2, -1])
    np.testing.assert_array_equal(vectors[CHAT], np.float32([5, 0.65]))
    assert not vectors[~found].any()
    alone, _ = read(tmp_path / "v.txt", languages=("de", "fr"))
    np.testing.assert_array_equal(alone[DOG], [51.5, 48])


@pytest.mark.parametrize(
    "text",
    [
        "2 2\ndog 1 2\nchat 3 4\n",
        "dog 1 2\nchat 3 4\n",
        "\ufeffdog\t1\t2\r\n\r\nchat  3 4 \r\n",
        "</s> 0 0\n:dog 9 9\n▁chat 9 9\n. . . 9 9\nx@y.z a b 8 8\ndog 1 2\nchat 3 4",
    ],
    ids=["header", "no header", "tabs and windows", "strange words"],
)
def test_plain_files_are_read_like_marked_ones(text, tmp_path):
    vectors, found = read(write(tmp_path / "v.vec", text))
    assert np.flatnonzero(found).tolist() == [DOG, CHAT]
    np.testing.assert_array_equal(vectors[[DOG, CHAT]], [[1, 2], [3, 4]])


def test_a_number_is_a_word_but_in_the_first_line(tmp_path):
    path = write(tmp_path / "v.txt", "2 1\nog 1\n7 3\n")
    vectors, found = read(path, width=1, pieces=["▁", "▁7"])
    assert vectors.tolist() == [[0], [3]]


def test_languages_without_vectors_are_named_if_others_have_some(tmp_path, caplog):
    read(write(tmp_path / "plain.txt", "dog 1 2\n"))
    assert not caplog.records
    read(write(tmp_path / "marked.txt", "fr:dog 1 2\n"))
    assert "marked.txt: no vectors for en" in caplog.text
    caplog.clear()
    path = write(tmp_path / "v.txt", MARKED)
    with caplog.at_level(logging.WARNING, word_vectors.__name__):
        read(path)
        assert not caplog.records
        read(path, languages=("en", "es", "pt"))
    assert caplog.messages == [f"{path}: no vectors for es, pt"]


def test_the_first_of_several_lines_of_a_word_counts(tmp_path):
    path = write(tmp_path / "v.txt", "en:Dog 1 2\nen:dog 3 4\nen:DOG 5 6\nen:CAFE\u0301 7 8\n")
    vectors, found = read(path)
    np.testing.assert_array_equal(vectors[DOG], [1, 2])
    np.testing.assert_array_equal(vectors[CAFE], [7, 8])  # composed, as the vocabulary's text
    vectors, found = read(path, lowercase=False)
    np.testing.assert_array_equal(vectors[DOG], [3, 4])
    assert not found[CAFE]


def test_a_trained_word_vocabulary_is_covered(tmp_path):
    vocab = train_vocab(["river stone", "stone cloud"] * 5, size=7, model_type="word")
    path = write(tmp_path / "v.txt", "en:river 1\nfr:stone 2\n")
    vectors, found = read(path, width=1, pieces=vocab.pieces())
    ids = [ids[0] for ids in vocab.encode(["river", "stone", "cloud", "unknown"])]
    assert vectors[ids, 0].tolist() == [1, 2, 0, 0]
    assert coverage(vocab.pieces(), found) == {"pieces": 2 / 7, "words": 2 / 3}
    assert coverage(["<s>", "og"], np.zeros(2, bool)) == {"pieces": 0, "words": 0}
    assert coverage([], np.zeros(0, bool)) == {"pieces": 0, "words": 0}


@pytest.mark.parametrize(
    "content, message",
    [
        (b"dog 1 2\ncat 1 2 3\n", r"v.txt:2: must hold encoder.embedding_width=2 .* found 3; "),
        (b"dog 1 2\ncat 1\n", r"v.txt:2: must hold encoder.embedding_width=2 .* found 1; "),
        (b"dog 1 2\ncat\n", r"v.txt:2: must hold encoder.embedding_width=2 .* found 0; "),
        (b"900 300\ndog 1 2\n", r"v.txt:1: must hold encoder.embedding_width=2 .* found 300; "),
        (b"cat 1 2\ndog 1 two\n", r"v.txt:2: the 2 values of 'dog' .* found 'two'"),
        (b"dog 1 nan\n", r"v.txt:1: .* found 'nan'"),
        (b"dog 1 1e39\n", r"v.txt:1: .* found '1e39'"),
        (b"dog 1 2\nc\xff\xfet 1 2\n", r"v.txt:2: text must be UTF-8"),
        (b"dog 1 2\nc\0t 1 2\n", r"v.txt:2: .*NUL"),
        (b"", r"v.txt: no vectors found"),
        (b"\n \n", r"v.txt: no vectors found"),
        (b"9 2\n", r"v.txt: no vectors found"),
        (
            b"deu:dog 1 2\nja:dog 1 2\n",
            r"v.txt: none of the 4 whole .* languages are en, fr in the config and deu, ja in",
        ),
        (b"katze 1 2\n", r"v.txt: none of the 4 .* and not marked in the file;"),
    ],
)
def test_a_broken_file_is_named_with_the_line(content, message, tmp_path):
    (tmp_path / "v.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path / "v.txt")
    assert "\n" not in str(error.value)
