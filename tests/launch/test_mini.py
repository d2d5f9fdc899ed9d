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
    spanish = [("Good evening.", "Buenas tardes."), ("A bear.", "Un osoraro."), ("Yes!", "¡Sí!")]
    write(directory / "parallel/tatoeba.en-es.tsv.gz", ("en", "es"), spanish)
    french = [("One two.", "Un deux."), ("Three.", "")]
    write(directory / "parallel/europarl.en-fr.tsv.gz", ("en", "fr"), french)
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


# Words in capitals, the last mark swallowed, a word unknown: what the real one does to a line.
APERTIUM = """#!/usr/bin/env python3
import sys
if sys.argv[1] == "-l":
    print("  fr-es\\n  spa-ita")
elif sys.argv[1:3] == ["-f", "line"] and sys.argv[3] in ("fr-es", "spa-ita"):
    for line in sys.stdin:
        print(line.strip().rstrip(".").upper().replace("OSORARO", "*osoraro"))
"""


@pytest.fixture
def apertium(tmp_path):
    program = tmp_path / "bin" / "apertium"
    program.parent.mkdir()
    program.write_text(APERTIUM)
    program.chmod(0o755)
    return program.parent


def mini(*words, path=""):
    return subprocess.run(
        [ROOT / "launch/mini.sh", *map(str, words)],
        env={
            **os.environ,
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{path}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_a_dry_run_names_every_command_and_touches_nothing(data, tmp_path):
    done = mini("--data", data, "--workdir", tmp_path / "w", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "left out, not for published weights: news.tsv.gz" in lines
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("xling ")]
    kinds = ["train", "train", "export", "calibrate", *2 * ["evaluate"], *3 * ["evaluate"]]
    assert [command[0] for command in commands] == kinds
    (corpora,) = [word for word in commands[0] if word.startswith("--config.data.corpora=")]
    for name in ("stories.tsv.gz", "unaccented.tsv", "translated.tsv", "emoji.tsv"):
        assert name in corpora
    assert "news.tsv.gz" not in corpora and "europarl.en.tsv" not in corpora  # one of the five
    (held_out,) = [word for word in commands[0] if word.startswith("--config.data.exclude=")]
    assert held_out.count(".dev.tsv.gz") == 3
    assert not (tmp_path / "w").exists()


def test_text_that_is_made_of_other_text(data, tmp_path, apertium, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "launch")
    monkeypatch.setenv("PATH", str(apertium), prepend=os.pathsep)
    import mini_text

    made = tmp_path / "made.tsv"
    mini_text.write_translated(data, made)
    header, *lines = made.read_text().splitlines()
    assert header.split("\t") == [*LANGUAGES]
    # The mark is back, the Spanish ones are gone, and so is the row with a word left as it was.
    italian = ["\tGood evening.\t\t\tBUENAS TARDES.", "\tYes!\t\t\tSÍ!"]
    spanish = "\tOne two.\tUN DEUX.\tUn deux.\t"
    assert sorted(lines) == [italian[0], spanish, italian[1]]

    write(data / "retrieval/more.dev.tsv.gz", ("en", "it"), [("Good night.", "Buenas, tardes")])
    mini_text.write_translated(data, made)
    assert sorted(made.read_text().splitlines()[1:]) == [spanish, italian[1]]

    mini_text.write_emoji(data, made)
    rows = [line.split("\t") for line in made.read_text().splitlines()[1:]]
    assert ["zebra", "zebra", "cebra", "zèbre", "zebra"] in rows
    signs = [row for row in rows if any(cell.endswith(" 🦓") for cell in row)]
    assert len(signs) == 20 and all(len([*filter(None, row)]) == 2 for row in signs)
    assert not any(tone in cell for row in rows for cell in row for tone in mini_text.SKIN_TONES)


def test_without_apertium_it_says_what_to_install(data, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "launch")
    monkeypatch.setenv("PATH", str(tmp_path))
    import mini_text

    with pytest.raises(SystemExit, match="fr-es translates .* apt install apertium"):
        mini_text.write_translated(data, tmp_path / "made.tsv")


@pytest.mark.slow
def test_the_small_form_runs_to_its_end_and_again_does_nothing(data, tmp_path, apertium):
    words = ("--data", data, "--workdir", tmp_path / "w", "--config", "mini:smoke")
    words += ("--config.train.total_steps=200",)  # calibration needs 100 pairs that are right
    # What is there is not written again; the thousands of names would be most of the text.
    (tmp_path / "w").mkdir()
    emoji = ["\t".join(LANGUAGES), "\tzebra 🐕\t\tzèbre chien\t"]
    (tmp_path / "w/emoji.tsv").write_text("\n".join(emoji) + "\n", encoding="utf-8")
    done = mini(*words, path=apertium)
    assert done.returncode == 0, done.stdout + done.stderr
    encoder = xling_jax.load(tmp_path / "w/mini")
    assert encoder.calibration is not None
    unaccented = (tmp_path / "w/unaccented.tsv").read_text().splitlines()
    stories = [line for line in unaccented[1:] if "Yes!" not in line and "." not in line]
    assert len(stories) > 800
    for line in stories:
        changed, intact = sorted(filter(None, line.split("\t")), key=lambda text: "è" in text)
        assert "è" not in changed and "è" in intact
    results = json.loads((tmp_path / "w/results/margin/results.json").read_text())
    assert results["matrices"]
    again = mini(*words, path=apertium)
    assert again.returncode == 0 and again.stdout.count(" is there") == 6
