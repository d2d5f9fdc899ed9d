"""`launch/mini.sh`, which rebuilds the encoder in the package."""

import gzip
import json
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import xling_jax

ROOT = Path(__file__).parents[2]
LANGUAGES = ("de", "en", "es", "fr", "it")


def write(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines("\t".join(row) + "\n" for row in (header, *rows))


def sentences(count, seed):
    """Rows of translations, of words without meaning; each has an accent."""
    generator = random.Random(seed)
    rows = [
        [generator.randrange(90) for _ in range(generator.randrange(3, 9))] for _ in range(count)
    ]
    return [[" ".join(word(code, number) for number in row) for code in LANGUAGES] for row in rows]


def word(code, number):
    letters = random.Random(f"{code}{number}").choices("abcdefghijklmnopqrstuvwxyz", k=5)
    return "".join(letters) + "è"


@pytest.fixture
def data(tmp_path):
    directory = tmp_path / "data"
    write(directory / "parallel/stories.tsv.gz", LANGUAGES, sentences(900, 0))
    write(directory / "parallel/europarl.en.tsv.gz", ("pt", "en"), [("um", "one")])
    write(directory / "parallel/news.tsv.gz", LANGUAGES, sentences(10, 1))
    for i, name in enumerate(("europarl", "pud", "multi30k")):
        write(directory / f"retrieval/{name}.dev.tsv.gz", LANGUAGES, sentences(100, 2 + i))
    tatoeba = directory / "retrieval/tatoeba.dev"
    for column, code in enumerate(LANGUAGES):
        if code != "en":
            rows = [(row[column], row[1]) for row in sentences(60, 7)]
            write(tatoeba / f"tatoeba.{code}-en.tsv.gz", (code, "en"), rows)
    for name in ("sib200", "phpmanual", "tweets"):
        for split, count in (("train", 40), ("dev", 20)):
            for column, code in enumerate(LANGUAGES):
                rows = [(str(i % 2), row[column]) for i, row in enumerate(sentences(count, 8))]
                path = directory / f"classification/{name}/{split}.{code}.tsv.gz"
                write(path, ("label", "text"), rows)
    return directory


def mini(*words):
    return subprocess.run(
        [ROOT / "launch/mini.sh", *map(str, words)],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_a_dry_run_names_every_command_and_touches_nothing(data, tmp_path):
    done = mini("--data", data, "--workdir", tmp_path / "w", "--runs", "3", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "left out, not for published weights: news.tsv.gz" in lines
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("xling ")]
    kinds = [*3 * ["train"], "export", "calibrate", *2 * ["evaluate"], *3 * ["evaluate"]]
    assert [command[0] for command in commands] == kinds
    (corpora,) = [word for word in commands[0] if word.startswith("--config.data.corpora=")]
    assert "stories.tsv.gz" in corpora and "unaccented.tsv" in corpora
    assert "news.tsv.gz" not in corpora and "europarl" not in corpora  # one language of the five
    (held_out,) = [word for word in commands[0] if word.startswith("--config.data.exclude=")]
    assert held_out.count(".dev.tsv.gz") == 3
    assert not (tmp_path / "w").exists()


@pytest.mark.slow
def test_the_small_form_runs_to_its_end_and_again_does_nothing(data, tmp_path):
    words = ("--data", data, "--workdir", tmp_path / "w", "--config", "mini:smoke")
    words += ("--runs", "2")
    words += ("--config.train.total_steps=200",)  # calibration needs 100 pairs that are right
    done = mini(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    encoder = xling_jax.load(tmp_path / "w/mini")
    assert encoder.calibration is not None
    unaccented = (tmp_path / "w/unaccented.tsv").read_text().splitlines()
    for line in unaccented[1:]:
        changed, intact = sorted(filter(None, line.split("\t")), key=lambda text: "è" in text)
        assert "è" not in changed and "è" in intact
    results = json.loads((tmp_path / "w/results/margin/results.json").read_text())
    assert results["matrices"]
    again = mini(*words)
    assert again.returncode == 0 and again.stdout.count(" is there") == 6
