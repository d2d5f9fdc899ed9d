"""`xling evaluate` from its arguments to its files, with a stand-in for the encoder."""

import json
import types

import numpy as np
import pytest

import xling_jax
from xling_jax.cli import main

WORDS = ("sun", "ice", "rain", "wind", "snow", "fog")


@pytest.fixture(autouse=True)
def encoder(monkeypatch):
    """Embeds "LANG WORD" by its word."""

    def encode(texts):
        return np.array([np.eye(len(WORDS))[WORDS.index(text.split()[1])] for text in texts])

    stand_in = types.SimpleNamespace(encode=encode, fingerprint="abc", dtype="float32")
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: stand_in)
    return stand_in


def test_languages_that_the_encoder_does_not_know_are_named(parallel, tmp_path, caplog, encoder):
    for languages, others in (((), None), (("deu", "en-US"), None), (("en", "fr"), "de")):
        encoder.languages = languages
        with caplog.at_level("WARNING"):
            output = tmp_path / f"out{len(languages)}{others}"
            assert evaluate("retrieval", parallel, output, "--no-pictures") == 0
        assert caplog.messages == ([f"m was not trained on {others}"] if others else [])


def test_the_headline_is_of_the_languages_of_the_encoder(tmp_path, caplog, encoder):
    data = tmp_path / "wide.tsv"
    rows = (f"en {word}\tde {word}\tnl {word}" for word in WORDS)
    data.write_text("\n".join(["en\tde\tnl", *rows]) + "\n")
    encoder.languages = ("de", "en")
    measured = []
    for name, options in (("own", ()), ("asked", ("--languages", "de,nl"))):
        assert evaluate("retrieval", data, tmp_path / name, "--no-pictures", *options) == 0
        results = json.loads((tmp_path / name / "results.json").read_text())
        measured.append(results["matrices"]["wide"]["languages"])
    assert measured == [["en", "de"], ["de", "nl"]]
    assert caplog.messages[0].startswith("m was not trained on nl: left out; --languages")
    assert caplog.messages[-1] == "m was not trained on nl"


@pytest.fixture
def parallel(tmp_path):
    path = tmp_path / "toy.dev.tsv"
    path.write_text("en\tde\n" + "".join(f"en {word}\tde {word}\n" for word in WORDS))
    return path


@pytest.fixture
def labeled(tmp_path):
    directory = tmp_path / "weather"
    directory.mkdir()
    for split, language in (("train", "en"), ("test", "en"), ("test", "de")):
        rows = [f"{i % 2}\t{language} {word}" for i, word in enumerate(WORDS)] * 3
        (directory / f"{split}.{language}.tsv").write_text("\n".join(rows) + "\n")
    return directory


def evaluate(task, data, output, *options):
    return main.main(
        ["evaluate", task, "--model", "m", "--data", str(data), "--output", str(output), *options]
    )


def test_retrieval_writes_results_table_and_pictures(parallel, tmp_path, capsys):
    output = tmp_path / "out"
    distractors = tmp_path / "more.de.txt"
    distractors.write_text("de sun\nx fog\n")
    assert evaluate("retrieval", parallel, output, "--distractors", str(distractors)) == 0
    written = json.loads((output / "results.json").read_text())
    assert written["task"] == "retrieval"
    assert written["model"] == {"path": "m", "fingerprint": "abc", "dtype": "float32"}
    assert written["metrics"]["toy_dev/p_at_1"] == 1
    assert written["matrices"]["toy_dev"]["num_candidates"] == {
        "en": {"en": 6, "de": 7},
        "de": {"en": 6, "de": 7},
    }
    assert written["command"] == (
        f"xling evaluate retrieval --model m --data {parallel} --output {output} "
        f"--distractors {distractors}"
    )
    assert len(written["data"][0]["sha256"]) == 64
    assert len(written["settings"]["distractors"][0]["sha256"]) == 64
    assert capsys.readouterr().out.strip() == (output / "results.md").read_text().strip()
    pictures = {f"toy_dev.{kind}.png" for kind in ("matrix", "pca", "tsne")}
    assert {entry.name for entry in output.iterdir()} == pictures | {"results.json", "results.md"}


def test_classification_writes_results(labeled, tmp_path):
    output = tmp_path / "out"
    assert evaluate("classification", labeled, output, "--train-languages", "en") == 0
    written = json.loads((output / "results.json").read_text())
    assert written["metrics"]["weather/accuracy_en_de"] == 1
    assert written["matrices"]["weather"]["mean"]["chance"]["cross"] == 0.5
    assert (output / "weather.matrix.png").exists()


def test_existing_results_are_refused_unless_overwritten(parallel, tmp_path, capsys):
    options = ("--no-pictures",)
    assert evaluate("retrieval", parallel, tmp_path / "out", *options) == 0
    assert evaluate("retrieval", parallel, tmp_path / "out", *options) == 2
    assert "results.json: exists" in capsys.readouterr().err
    for name in ("old.matrix.png", "old.pca.png", "checkpoints.json", "kept.png", "notes.md"):
        (tmp_path / "out" / name).write_text("")
    assert evaluate("retrieval", parallel, tmp_path / "out", *options, "--overwrite") == 0
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert left == ["kept.png", "notes.md", "results.json", "results.md"]


def test_wrong_use_has_status_2_and_broken_data_1_and_make_no_output(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.tsv").write_text("en\tde\none\n")
    (tmp_path / "good.tsv").write_text("en\tde\none\teins\n")
    (tmp_path / "a.fr.tsv").touch()
    for name, options, status, message in (
        ("missing.tsv", (), 2, "missing.tsv: no such file"),
        (".", ("--k", "0"), 2, "k=0 must be positive"),
        (".", ("--xsr", "9,2", "--altered", "bad.tsv"), 2, ": --xsr=9,2: has its own candidates"),
        ("bad.tsv", (), 1, "bad.tsv:2"),
        ("good.tsv", ("--distractors", "bad.tsv"), 2, "bad.tsv: must be named NAME.LANG.txt"),
        ("good.tsv", ("--altered", "a.fr.tsv"), 2, "a.fr.tsv: unknown language 'fr'"),
    ):
        assert evaluate("retrieval", tmp_path / name, tmp_path / "out/2", *options) == status
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("xling evaluate: error:") and message in error
        assert not (tmp_path / "out").exists()


def test_a_language_that_the_data_lacks_is_named_with_its_file(parallel, labeled, tmp_path, capsys):
    for task, data, message in (
        (
            "retrieval",
            parallel,
            f"{parallel}: retrieval needs at least two languages; asked for en, it; found en, de",
        ),
        (
            "classification",
            labeled,
            f"--languages: no text in 'it' in {labeled}; there is some in en",
        ),
    ):
        assert evaluate(task, data, tmp_path / "out", "--languages", "en,it") == 2
        assert capsys.readouterr().err.endswith(f"error: {message}\n")


def test_an_unknown_dtype_is_refused(parallel, tmp_path, capsys):
    words = ["evaluate", "retrieval", "--data", str(parallel), "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        main.main([*words, "--model", "m", "--dtype", "half"])
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and "invalid choice: 'half'" in lines[0] and "bfloat16" in lines[0]
