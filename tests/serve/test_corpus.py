"""Searches of a text whose vectors are kept beside it."""

import json
import os

import numpy as np
import pytest

import xling_jax
from xling_jax.cli.main import main
from xling_jax.serve.corpus import Corpus

LINES = ["Wo ist der nächste Bahnhof?", "Das Haus ist rot.", "", "Il fait beau aujourd'hui."]
LINES += [f"Satz Nummer {i} über etwas anderes." for i in range(60)]


@pytest.fixture(scope="module")
def encoder():
    return xling_jax.load("mini")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_nearest_lines_come_with_cosine_and_number(encoder, text):
    queries = ["Where is the train station?", "The weather is fine today."]
    found = Corpus(text, encoder).search(queries, 3)
    cosines = encoder.similarity(encoder.encode(queries), encoder.encode(LINES))
    for hits, of_lines in zip(found, cosines, strict=True):
        best = np.argsort(-of_lines, kind="stable")[:3]
        assert [hit.line for hit in hits] == [*(best + 1)]
        assert [hit.text for hit in hits] == [LINES[row] for row in best]
        np.testing.assert_allclose([hit.score for hit in hits], of_lines[best], atol=1e-4)
    assert [hits[0].line for hits in found] == [1, 4]


@pytest.mark.parametrize("index", ["exact", "ivf"])
def test_lines_that_resemble_each_other_are_counted_without_copies(encoder, tmp_path, index):
    if index != "exact":
        pytest.importorskip("faiss")
    lines = [*LINES, *LINES[4:30]]
    (tmp_path / "t.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = Corpus(tmp_path / "t.txt", encoder, index=index).resemblance([-1.5, 0.5, 0.9, 1.0])
    cosines = np.array(encoder.similarity(encoder.encode(lines), encoder.encode(lines)))
    same = np.array(lines)[:, None] == np.array(lines)
    best = np.where(same, -1, cosines).max(axis=1)
    assert found == pytest.approx([np.mean(best > score) for score in (-1.5, 0.5, 0.9, 1.0)])
    assert 0 < found[2] < 1 and found[3] == 0


def test_a_text_is_encoded_again_only_if_it_or_the_model_changes(encoder, text, monkeypatch):
    Corpus(text, encoder)
    (first,) = text.parent.glob("text.txt.*")
    encoded = []
    whole = type(encoder).encode_document
    note = lambda self, texts: encoded.append(len(texts)) or whole(self, texts)
    monkeypatch.setattr(type(encoder), "encode_document", note)
    assert Corpus(text, encoder).search(["red house"], 1)[0][0].line == 2
    assert encoded == []
    text.write_text("The house is red.\n", encoding="utf-8")
    assert Corpus(text, encoder).search(["maison rouge"])[0][0].line == 1
    assert encoded == [1]
    (second,) = text.parent.glob("text.txt.*")
    assert second != first
    Corpus(text, encoder.truncated(64))  # both are kept
    assert len(encoded) == len([*text.parent.glob("text.txt.*")]) == 2
    second.write_bytes(first.name.encode())
    with pytest.raises(ValueError, match=r"text\.txt\."):
        Corpus(text, encoder)


def test_where_nothing_can_be_written_the_text_is_to_be_copied(encoder, text, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OSError, match="cannot be written; copy the text to where it can"):
        Corpus(text, encoder)


def test_without_principal_components_only_the_rest_is_compared(encoder, text):
    vectors = encoder.encode(LINES).astype(np.float64)
    axes = np.linalg.svd(vectors, full_matrices=False)[2][:4]
    query = encoder.encode(["Where is the train station?"]).astype(np.float64)
    rest = [v - v @ axes.T @ axes for v in (query, vectors)]
    (expected,) = encoder.similarity(*rest)
    (hits,) = Corpus(text, encoder, debias=4).search(["Where is the train station?"], 5)
    found = [expected[hit.line - 1] for hit in hits]
    np.testing.assert_allclose([hit.score for hit in hits], found, atol=1e-3)
    assert found[0] == expected.max()


def test_prompts_for_documents_and_queries_are_used(encoder, text):
    prompted = encoder.with_prompt("")
    prompted.prompts = {"query": "rot ", "document": "rot "}
    corpus = Corpus(text, prompted)
    (hits,) = corpus.search(["Haus"], 1)
    expected = encoder.similarity(encoder.encode("rot Haus"), encoder.encode(["rot " + LINES[1]]))
    assert hits[0].score == pytest.approx(expected[0, 0], abs=1e-4)


def test_an_index_is_kept_too(encoder, text, monkeypatch):
    pytest.importorskip("faiss")
    text.write_text("\n".join(f"line {i} of {i % 7} houses" for i in range(300)), encoding="utf-8")
    query = ["300 houses, line 17"]
    exact = Corpus(text, encoder).search(query)
    assert Corpus(text, encoder, index="IVF4,Flat:nprobe=4").search(query) == exact
    assert len([*text.parent.glob("text.txt.*.faiss")]) == 1
    monkeypatch.setattr("xling_jax.serve.corpus.FilledIndex.build", None)
    assert Corpus(text, encoder, index="IVF4,Flat:nprobe=4").search(query) == exact
    (kept,) = text.parent.glob("text.txt.*.faiss")
    kept.write_bytes(b"no index")
    with pytest.raises(ValueError, match="not an index of faiss; remove it"):
        Corpus(text, encoder, index="IVF4,Flat:nprobe=4")


def test_a_wrong_index_is_refused_before_the_text_is_encoded(encoder, text):
    pytest.importorskip("faiss")
    with pytest.raises(ValueError, match="index='IVF4,PQ7': faiss refuses it"):
        Corpus(text, encoder, index="IVF4,PQ7")
    assert [*text.parent.iterdir()] == [text]


def test_the_command(text, tmp_path, capsys, monkeypatch):
    search = ["search", "--model", "mini", "--text", str(text)]
    assert main([*search, "Where is the train station?", "--k", "2"]) == 0
    out = capsys.readouterr()
    score, line, found = out.out.splitlines()[0].split("\t")
    assert (float(score) > 0.5, line, found) == (True, "1", LINES[0])
    (tmp_path / "queries.txt").write_text("red house\nfine weather\n")
    queries = (tmp_path / "queries.txt").open("rb")
    monkeypatch.setattr("xling_jax.files.lines._open_stdin", lambda: queries)
    assert main([*search, "-", "--json", "--k", "1"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["query"] for answer in answers] == ["red house", "fine weather"]
    assert [answer["hits"][0]["line"] for answer in answers] == [2, 4]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.jsonl.gz").touch()
    for wrong, message in (
        (["--text", str(tmp_path / "pipe")], "vectors are kept beside it; write it to a file"),
        (
            ["--text", str(tmp_path / "a.jsonl.gz")],
            "a.jsonl.gz: is JSON lines; write one text",
        ),
        ([*search[3:], "--k", "0"], "--k 0: must be at least 1"),
        (
            [*search[3:], "--debias", "-1"],
            "error: --debias=-1: must be at least 0 and below the 256 dimensions",
        ),
        (
            [*search[3:], "--debias", "300"],
            "error: --debias=300: must be at least 0 and below the 256 dimensions",
        ),
    ):
        assert main(["search", "--model", "mini", "a", *wrong]) == 2
        assert message in capsys.readouterr().err
