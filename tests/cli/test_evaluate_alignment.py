"""`xling evaluate alignment` from its arguments to its files."""

import json

import pytest

from tests.cli.documents_for_cli import (
    NUM_DOCUMENTS,
    RANK,
    ROWS,
    expected_pairs,
    lines,
    of,
    right,
)
from xling_jax.align.urls import match_urls
from xling_jax.cli.main import main
from xling_jax.eval.alignment import CELLS


def evaluate(files, *options, data=("all.jsonl.gz",), output="results"):
    argv = ["evaluate", "alignment", "--output", str(files / output)]
    argv += ["--data", *(str(files / name) for name in data)]
    try:
        return main([*argv, *map(str, options)])
    except SystemExit as exit:
        return exit.code


@pytest.fixture
def same_ids(files):
    """One file in which translations have one id."""
    (files / "same.jsonl").write_text(lines([row | {"id": row["id"][2:]} for row in ROWS]))


def test_evaluation_of_all_cells_and_baselines(files, same_ids, encoder, capsys):
    options = ("--model", "m", *RANK, "--baselines", "--languages", "en,de")
    assert evaluate(files, *options, data=["same.jsonl"]) == 0
    written = json.loads((files / "results" / "results.json").read_text())
    assert written["task"] == "alignment" and written["model"]["fingerprint"] == "abc"
    cells = written["matrices"]["same"]["cells"]
    assert list(cells) == [*CELLS, "document-cosine", "document-margin"]
    for name, settings in (
        ("biased-mean-cosine", {"rank": None, "weighting": "none", "similarity": "cosine"}),
        ("debiased-weighted-margin", {}),
    ):
        correct = right(expected_pairs(encoder, **settings))
        assert cells[name]["en-de"]["num_correct"] == correct
        key = f"same/recall_{name.replace('-', '_')}"
        assert written["metrics"][key] == correct / NUM_DOCUMENTS
    primary = written["metrics"]["same/recall_debiased_weighted_margin"]
    assert written["metrics"]["same/recall"] == primary
    assert written["settings"]["baseline_tokens"] == {"document": 60}
    table = (files / "results" / "results.md").read_text()
    assert table.strip() == capsys.readouterr().out.strip()
    assert f"{100 * primary:.1f}" in table and "| debiased-weighted-margin " in table


def test_evaluation_with_two_files_and_gold_pairs(files, encoder):
    options = ("--model", "m", *RANK, "--gold", files / "gold.tsv", "--cells")
    options += ("debiased-weighted-margin", "--url-matching", "--domain", "site")
    assert evaluate(files, *options, data=["en.jsonl", "de.jsonl"]) == 0
    written = json.loads((files / "results" / "results.json").read_text())
    (cell,) = written["matrices"]["gold"]["cells"].values()
    assert cell["en-de"]["num_gold"] == NUM_DOCUMENTS
    accepted = match_urls(*of("url"), "en", "de")
    expected = expected_pairs(encoder, domains=of("site"), accepted=accepted)
    assert cell["en-de"]["num_correct"] == right(expected)


def test_packs_of_sentences_are_measured_too(files, same_ids, encoder):
    metrics = []
    for options in ((), ("--document-mode", "packed")):
        words = ("--model", "m", *options, *RANK, "--overwrite")
        assert evaluate(files, *words, data=["same.jsonl"]) == 0
        metrics.append(json.loads((files / "results" / "results.json").read_text())["metrics"])
    assert metrics[0] != metrics[1]


def test_wrong_use_of_evaluation_is_refused(files, same_ids, fails):
    for options, message in (
        (("--cells", "best"), "cells='best' must be one of all, biased-mean-cosine"),
        (("--cells", "debiased-mean-margin", "--debias", "0"), ": --cells=debiased-mean-margin: "),
        (("--gold", str(files / "same.jsonl")), "same.jsonl: needs two files of data"),
        (("--gold", "none.tsv"), "--gold none.tsv: no such file"),
    ):
        status = evaluate(files, "--model", "m", *options, data=["same.jsonl"])
        assert message in fails(status, 2)
    assert not (files / "results").exists()
