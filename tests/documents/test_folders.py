"""Folders of documents: which files are read, in which order, and under which ids."""

import pytest

from xling_jax.documents.folders import read_folder


def test_files_are_documents_but_hidden_ones(tmp_path):
    for name in ("b.de.txt", "a/c.TXT", ".d.txt", ".git/e.txt", "a/.f/g.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Eins. Zwei.\n")
    documents = list(read_folder(tmp_path, "de"))
    assert [(d.line, d.id, d.sentences) for d in documents] == [
        (1, "a/c", ["Eins.", "Zwei."]),
        (2, "b", ["Eins.", "Zwei."]),
    ]


def test_sentences_are_those_of_the_language(tmp_path):
    pytest.importorskip("sentencex")
    (tmp_path / "a.txt").write_text("Am 3. Oktober kam er. Er ging.\n")
    (document,) = read_folder(tmp_path, "deu", splitter="sentencex")
    assert document.sentences == ["Am 3. Oktober kam er.", "Er ging."]
