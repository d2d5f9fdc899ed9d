"""Held-out text, the validation loss and the choice among checkpoints, by commands."""

import json
import shutil
from pathlib import Path

import pytest

import xling_jax
from tests.cli.corpora_for_cli import arguments, write_tsv
from xling_jax.cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A corpus, a dev file that repeats its last row, labeled words, and a finished run."""
    place = tmp_path_factory.mktemp("place")
    lines = write_tsv(place / "corpus.tsv").read_text().splitlines()
    (place / "dev.tsv").write_text("\n".join([lines[0], *lines[-40:]]) + "\n")
    (place / "words").mkdir()
    for column, code in enumerate(lines[0].split("\t")):
        for split, rows in (("train", lines[1:80]), ("dev", lines[80:120]), ("test", lines[120:])):
            cells = [line.split("\t") for line in rows]
            text = "".join(f"{len(row[1]) % 2}\t{row[column]}\n" for row in cells)
            (place / "words" / f"{split}.{code}.tsv").write_text(text)
    assert main(command(place)) == 0
    return place


def command(place: Path, *more: str) -> list[str]:
    given = {
        "evaluation.retrieval": f"({str(place / 'dev.tsv')!r},)",
        "data.validation_pairs": 15,
        "train.total_steps": 6,
        "train.evaluate_every_steps": 2,
        "train.keep_every_steps": 2,
        "train.best_metric": "dev/error",
    }
    overrides = [f"--config.{name}={value}" for name, value in given.items()]
    return arguments("train", f"tsv:{place / 'corpus.tsv'}", place / "w", *overrides, *more)


def test_a_finished_run_stays_as_it_is_and_trained_on_no_evaluation(place):
    counts = json.loads((place / "w/data/counts.json").read_text())
    assert counts["held_out"][str(place / "dev.tsv")]["de-en"] >= 40
    assert counts["validation"]["de-en"]["rows"] == 15
    before = (place / "w/metrics.jsonl").read_text()
    assert main(command(place)) == 0
    assert (place / "w/metrics.jsonl").read_text() == before


def test_the_best_of_the_kept_checkpoints_on_dev_text_is_one_command(place, capsys):
    evaluate = ["evaluate", "classification", "--model", str(place / "w"), "--no-pictures"]
    evaluate += ["--data", str(place / "words"), "--split", "dev", "--train-languages", "en"]
    output = place / "w" / "results" / "dev"
    assert main([*evaluate, "--checkpoint", "all", "--output", str(output)]) == 0
    found = json.loads((output / "checkpoints.json").read_text())
    results = {
        step: json.loads((output / step / "results.json").read_text())["metrics"]
        for step in found["scores"]
    }
    assert list(results) == ["2", "4", "6"]
    assert found["scores"] == {step: values["words/cross"] for step, values in results.items()}
    best = found["best"]
    assert found["scores"][str(best)] == max(found["scores"].values())
    assert f"--checkpoint {best} --output DIR" in capsys.readouterr().out

    export = ["export", "--workdir", str(place / "w"), "--checkpoint"]
    assert main([*export, "6", "--output", str(place / "last")]) == 0
    last = xling_jax.load(str(place / "last"))
    one = [*evaluate, "--checkpoint", "6", "--output", str(place / "one")]
    assert main(one) == 0
    measured = json.loads((place / "one" / "results.json").read_text())
    assert measured["model"]["fingerprint"] == last.fingerprint
    assert measured["metrics"] == results["6"]

    assert main([*export, "5", "--output", str(place / "none")]) == 2
    assert "has 2, 4, 6; choose from these" in capsys.readouterr().err


def test_data_and_vocabulary_of_a_run_with_checkpoints_are_not_replaced(place, capsys):
    names = ("data/manifest.json", "data/counts.json", "vocab/vocab.json")
    names += ("vocab/sentencepiece.model",)
    corpus, other = place / "corpus.tsv", place / "other.tsv"
    other.write_text("de\ten\nwort\tword\n")
    before = [(place / "w" / name).read_bytes() for name in names]
    ours = "its checkpoints were trained on other data: {}; choose"
    for overrides, message in {
        ("cleaning.max_words=6",): ours.format("cleaning.max_words was 100, now 6"),
        ("data.validation_pairs=14",): ours.format("data.validation_pairs was 15, now 14"),
        (f"data.corpora=('tsv:{corpus}[:200]',)",): ours.format(
            f"data.corpora was ['tsv:{corpus}'], now ['tsv:{corpus}[:200]']"
        ),
        ("vocab.size=100",): ours.format("vocab.size was 120, now 100"),
        ("vocab.lowercase=False",): ours.format("vocab.lowercase was True, now False"),
        ("seed=1",): ours.format("seed was 0, now 1"),
        (f"evaluation.retrieval=({str(other)!r},)", "train.best_metric=other/error"): (
            f"other data: the held-out text is now [{str(other)!r}]; to continue as it began, "
        ),
    }.items():
        train = command(place, *(f"--config.{override}" for override in overrides))
        prepare = ["prepare", *train[1:]]
        # Training finds another encoder before it looks at its vocabulary.
        of_vocab, of_evaluation = map(overrides[0].startswith, (("vocab", "seed"), "evaluation"))
        for words in [prepare] if of_vocab else [train] if of_evaluation else [train, prepare]:
            capsys.readouterr()
            assert main(words) == 1, words
            (line,) = [ln for ln in capsys.readouterr().err.splitlines() if ln.startswith("xling")]
            assert message in line
            assert [(place / "w" / name).read_bytes() for name in names] == before


@pytest.mark.exhaustive
def test_a_checkpoint_is_not_exported_with_another_vocabulary(place, tmp_path, capsys):
    shutil.copytree(place / "w", tmp_path / "w")
    other = arguments("prepare", f"tsv:{place / 'corpus.tsv'}", tmp_path / "other")
    assert main([*other, "--config.vocab.size=100"]) == 0
    model = "vocab/sentencepiece.model"
    shutil.copy(tmp_path / "other" / model, tmp_path / "w" / model)
    step = max(int(path.name) for path in (tmp_path / "w/checkpoints").glob("[0-9]*"))
    export = ["export", "--workdir", str(tmp_path / "w"), "--checkpoint", str(step)]
    capsys.readouterr()
    assert main([*export, "--output", str(tmp_path / "m")]) == 1
    assert "prepared with a different vocabulary" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()
