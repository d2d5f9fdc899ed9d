"""Files of documents, line by line: ids, languages, pairs of ids."""

import json

import pytest

from xling_jax.documents.records import (
    load_document_pairs,
    read_documents,
    read_folder,
    read_pairs_of_ids,
)


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_an_id_is_a_string_or_a_whole_number(tmp_path):
    record = {"lang": "en", "text": "One."}
    path = write(tmp_path / "a.jsonl", record | {"id": "x"}, record | {"id": 7})
    assert [document.id for document in read_documents(path)] == ["x", "7"]
    for wrong in (True, None, 1.5, "", "a\tb"):
        path = write(tmp_path / "b.jsonl", record | {"id": "x"}, record | {"id": wrong})
        with pytest.raises(ValueError, match="b.jsonl:2: a document must have 'id', a string"):
            list(read_documents(path))


def test_a_url_is_text_or_none(tmp_path):
    record = {"id": "x", "lang": "en", "text": "One."}
    for given, url in (("http://a", "http://a"), (" ", None), (5, None), (None, None)):
        (document,) = read_documents(write(tmp_path / "a.jsonl", record | {"url": given}))
        assert document.url == url


def test_pairs_of_ids_may_have_a_score(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("1.25\ta\tb\nc\td\n")
    assert read_pairs_of_ids(path, {"a", "c"}, {"b", "d"}) == [("a", "b"), ("c", "d")]
    path.write_text("1.25\ta\tb\nd\tb\n")
    with pytest.raises(ValueError, match=r"pairs.tsv:2: no source document has the id 'd'"):
        read_pairs_of_ids(path, {"a", "c"}, {"b", "d"})


def test_collections_of_one_language_are_no_pair(tmp_path):
    sides = [write(tmp_path / n, {"id": n, "lang": "en", "text": "One."}) for n in ("a", "b")]
    (tmp_path / "gold").write_text("a\tb\n")
    with pytest.raises(ValueError, match="b: must differ in language from .*a; both are en"):
        load_document_pairs(*sides, tmp_path / "gold")


def test_files_are_documents_but_hidden_ones(tmp_path):
    for name in ("b.de.txt", "a/c.TXT", ".d.txt", ".git/e.txt", "a/.f/g.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Eins. Zwei.\n")
    documents = list(read_folder(tmp_path, "de"))
    assert [(d.line, d.id, d.sentences) for d in documents] == [
        (1, "a/c", ["Eins.", "Zwei."]),
        (2, "b", ["Eins.", "Zwei."]),
    ]
