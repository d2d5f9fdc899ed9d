"""`xling align` from its arguments to its files."""

import io

import numpy as np
import pytest

import xling_jax
from tests.cli.documents_for_cli import (
    FUNCTION_WORDS,
    NUM_DOCUMENTS,
    RANK,
    ROWS,
    expected_pairs,
    lines,
    of,
    right,
    sentence_vectors,
    side,
)
from xling_jax.align.urls import match_urls
from xling_jax.cli.main import main
from xling_jax.documents.debias import choose_rank
from xling_jax.files import lines as lines_of_files


@pytest.fixture
def ready(files, encoder):
    """Arguments of ready sentence vectors."""
    for code in FUNCTION_WORDS:
        np.save(files / f"{code}.npy", sentence_vectors(encoder, code)[0])
    return ("--source-embeddings", files / "en.npy", "--target-embeddings", files / "de.npy")


def run(directory, *options, model="m", source="en.jsonl", target="de.jsonl", output="out.tsv"):
    argv = ["align", "--source", str(directory / source), "--target", str(directory / target)]
    argv += ["--output", str(directory / output)] + (["--model", model] if model else [])
    return main([*argv, *map(str, options)])


def read(path):
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [(float(score), source, target) for score, source, target in rows]


def check_same(found, expected):
    assert {pair[1:] for pair in found} == {pair[1:] for pair in expected}
    np.testing.assert_allclose([pair[0] for pair in found], [p[0] for p in expected], atol=2e-5)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((*RANK,), {}),
        (("--debias", "0", "--similarity", "cosine"), {"rank": None, "similarity": "cosine"}),
        (
            (*RANK, "--weighting", "none", "--k", "2", "--candidates", "3"),
            {"weighting": "none", "k": 2, "candidates": 3},
        ),
    ],
)
def test_pairs_are_those_of_the_library(files, encoder, options, settings):
    assert run(files, *options) == 0
    found = read(files / "out.tsv")
    check_same(found, expected_pairs(encoder, **settings))
    assert [pair[0] for pair in found] == sorted((pair[0] for pair in found), reverse=True)


def test_the_rank_is_found_by_default(files, encoder):
    assert run(files) == 0
    rank, _ = choose_rank({code: sentence_vectors(encoder, code)[0] for code in FUNCTION_WORDS})
    check_same(read(files / "out.tsv"), expected_pairs(encoder, rank=rank))


def test_most_documents_find_their_translation_and_the_log_tells(files, encoder, caplog):
    before = {path.name for path in files.iterdir()}
    assert run(files, *RANK) == 0
    scores = [pair[0] for pair in read(files / "out.tsv")]
    assert right(read(files / "out.tsv")) > 0.8 * NUM_DOCUMENTS
    assert "en.jsonl: 30 documents in en" in caplog.text
    assert {path.name for path in files.iterdir()} == before | {"out.tsv"}
    between = (scores[9] + scores[10]) / 2
    assert run(files, *RANK, "--overwrite", "--threshold", between) == 0
    assert [pair[0] for pair in read(files / "out.tsv")] == scores[:10]
    assert run(files, *RANK, "--overwrite", "--threshold", "nan") == 2


CONFIG = """
from ml_collections import ConfigDict

def get_config(arg=""):
    return ConfigDict({"debias": 2, "weighting": "none", "k": 3, "domain": "site"})
"""


def test_a_config_gives_what_the_command_line_does_not(files, encoder, fails):
    (files / "lawdr.py").write_text(CONFIG)
    config = ("--config", files / "lawdr.py")
    assert run(files, *config, "--weighting", "kde") == 0
    check_same(read(files / "out.tsv"), expected_pairs(encoder, k=3, domains=of("site")))
    assert run(files, *config, "--config.debias=3", "--domain", "", "--overwrite") == 0
    expected = expected_pairs(encoder, rank=3, weighting="none", k=3)
    check_same(read(files / "out.tsv"), expected)
    broken = ("--config.weighting=all", "--overwrite")
    assert "--weighting='all' must be one of kde, none" in fails(run(files, *config, *broken), 2)
    assert "requires --config FILE" in fails(run(files, "--config.debias=3"), 2)


def test_ready_vectors_in_place_of_a_model(files, encoder, ready, monkeypatch):
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: pytest.fail("loaded"))
    assert run(files, *RANK, *ready, model=None) == 0
    check_same(read(files / "out.tsv"), expected_pairs(encoder))


def test_one_file_of_two_languages_stdin_and_stdout(files, encoder, monkeypatch):
    languages = ("--languages", "en,de")
    assert run(files, *RANK, *languages, source="all.jsonl.gz", target="all.jsonl.gz") == 0
    check_same(read(files / "out.tsv"), expected_pairs(encoder))
    expected = (files / "out.tsv").read_text()
    monkeypatch.setattr(lines_of_files, "_open_stdin", (files / "en.jsonl").open("rb").__enter__)
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", stdout)
    argv = ["align", "--model", "m", "--source", "-", "--target", str(files / "de.jsonl"), *RANK]
    assert main([*argv, "--output", "-"]) == 0
    assert stdout.buffer.getvalue().decode() == expected


def test_candidates_stay_within_a_domain_and_urls_come_first(files, encoder, caplog):
    assert run(files, *RANK, "--domain", "site", "--url-matching") == 0
    found = read(files / "out.tsv")
    site = {row["id"]: row["site"] for row in ROWS}
    assert all(site[source] == site[target] for _, source, target in found)
    accepted = match_urls(*of("url"), "en", "de")
    check_same(found, expected_pairs(encoder, domains=of("site"), accepted=accepted))
    assert {found[0][1:], found[1][1:]} == {("en4", "de4"), ("en8", "de8")}
    assert found[0][0] == np.inf and "2 pairs by their URLs" in caplog.text


def test_packed_sentences(files, encoder):
    assert run(files, *RANK, "--document-mode", "packed") == 0
    rows = []
    for row in ROWS:
        (packs,) = encoder.document_inputs([row["sentences"]], "packed")
        rows.append(row | {"sentences": packs})
    assert sum(len(row["sentences"]) for row in rows) < sum(len(r["sentences"]) for r in ROWS)
    check_same(read(files / "out.tsv"), expected_pairs(encoder, rows=rows))


def test_empty_documents_are_kept_never_matched_and_told(files, encoder, caplog):
    rows = [row | {"sentences": ["", " "]} if row["id"] in ("en3", "de7") else row for row in ROWS]
    for code in FUNCTION_WORDS:
        (files / f"{code}.jsonl").write_text(lines(side(code, rows)))
    for mode in ("sentences", "packed"):
        assert run(files, *RANK, "--overwrite", "--document-mode", mode) == 0
        found = read(files / "out.tsv")
        assert len(found) == NUM_DOCUMENTS - 1
        assert not {"en3", "de7"} & {name for pair in found for name in pair[1:]}
        assert "1 without text (never matched)" in caplog.text


@pytest.mark.parametrize("text", ["", lines([side("en")[0] | {"sentences": []}])])
def test_a_side_without_any_text_gives_an_empty_file(files, encoder, text):
    (files / "en.jsonl").write_text(text)
    assert run(files, *RANK) == 0
    assert (files / "out.tsv").read_text() == ""


def test_as_many_components_as_dimensions_are_refused_before_the_encoding(
    files, encoder, fails, monkeypatch
):
    monkeypatch.setattr(type(encoder), "encode_stream", lambda *_: pytest.fail("encodes"))
    line = fails(run(files, "--debias", encoder.dim), 2)
    assert (
        f": --debias={encoder.dim}: must be at least 0 and below the {encoder.dim} dimensions"
        in line
    )


def test_too_little_text_is_aligned_without_debiasing_and_the_log_says_so(
    files, encoder, caplog, fails
):
    for code in FUNCTION_WORDS:
        (files / f"{code}.jsonl").write_text(lines(side(code)[:1]))
    assert run(files) == 0
    assert len(read(files / "out.tsv")) == 1
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith("no debiasing: ") and "at least 50 sentences" in line
    (files / "out.tsv").unlink()
    for rank in ("15", "8"):  # a given one is not left out
        line = fails(run(files, "--debias", rank), 2)
        assert f"debiasing cannot remove {rank} components: the vectors of " in line
        assert line.endswith(", or add sentences")
    assert not (files / "out.tsv").exists()


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        ((), {"model": None}, "--model is required, or --source-embeddings and"),
        ((), {"source": "none.jsonl"}, "none.jsonl: no such file"),
        ((), {"target": "en.jsonl"}, "are the same file; add --languages"),
        (("--languages", "en"), {}, "--languages: must be two codes"),
    ],
)
def test_wrong_use_is_refused_before_any_work(
    files, fails, monkeypatch, options, settings, message
):
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: pytest.fail("loaded"))
    assert message in fails(run(files, *options, **settings), 2)


def test_broken_documents_are_named_before_any_work(files, fails, monkeypatch):
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: pytest.fail("loaded"))
    rows = side("de")
    (files / "de.jsonl").write_text(lines([*rows, rows[2]]))
    assert "de.jsonl:31: duplicate id" in fails(run(files), 1)
    del rows[1]["site"]
    (files / "de.jsonl").write_text(lines(rows))
    assert "de.jsonl:2: a document must have 'site'" in fails(run(files, "--domain", "site"), 1)
    rows[1]["site"] = "s"
    (files / "de.jsonl").write_text(lines([row | {"url": None} for row in rows]))
    assert "--url-matching needs 'url' in documents" in fails(run(files, "--url-matching"), 1)
    line = fails(run(files, source="all.jsonl.gz"), 1)
    assert "all.jsonl.gz: holds documents in en, de; set languages" in line
    line = fails(run(files, "--languages", "en,fr"), 1)
    assert "unknown language 'fr'; known: de" in line
    assert not (files / "out.tsv").exists()
