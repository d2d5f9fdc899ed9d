import itertools

import pytest

from xling_jax.encode import texts
from xling_jax.text import splitting


@pytest.mark.parametrize(
    ("document", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said "Hi." Then left.', ['He said "Hi."', "Then left."]),
        ("Pi is 3.14, not 3.", ["Pi is 3.14, not 3."]),
        ("你好。再见。「是。」", ["你好。", "再见。", "「是。」"]),
        ("a line\n\nanother", ["a line", "another"]),
        ("", [""]),
        (" \n ", [""]),
        (["kept. as one", ""], ["kept. as one"]),
        ([], [""]),
    ],
)
def test_documents_are_cut_into_sentences(document, sentences):
    assert splitting.document_sentences(document) == sentences


@pytest.mark.parametrize("document", [None, 3, [1], ["a", None]])
def test_other_documents_are_refused(document):
    with pytest.raises(ValueError, match="must be a"):
        splitting.document_sentences(document)


def test_windows_are_bounded_in_sentences_and_characters(monkeypatch):
    monkeypatch.setattr(texts, "_WINDOW_CHARACTERS", 10)
    stream = ["a", "b", "c", "d", "x" * 30, "e", "f"]
    assert list(texts.text_windows(iter(stream), 3)) == [
        ["a", "b", "c"],
        ["d", "x" * 30],
        ["e", "f"],
    ]
    assert list(texts.text_windows([], 3)) == []


def test_windows_read_no_further_than_they_must():
    endless = (str(i) for i in itertools.count())
    assert next(texts.text_windows(endless, 3)) == ["0", "1", "2"]
    assert next(endless) == "3"
