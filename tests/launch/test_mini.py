"""`launch/mini.sh`, which rebuilds the encoder in the package."""

import argparse
import gzip
import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xling_jax
from xling_jax.config import load_config

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


# A synset of each kind: its words, pointers to a hypernym and an antonym, a verb's frame, a gloss.
WORDNET = {
    "noun": """\
  1 This software and database is being provided to you, the LICENSEE
00000010 05 n 02 dog 0 domestic_dog 0 001 @ 00000020 n 0000 | barks; "the dog barked"
00000020 05 n 01 animal 0 000 | a living being
""",
    "verb": "00000010 29 v 01 bark 1 001 + 00000010 n 0101 02 + 02 00 + 08 00 | make a noise\n",
    "adj": "00000030 00 a 01 galore(ip) 0 001 ! 00000040 a 0101 | in great number\n"
    "00000040 00 s 01 scarce 0 001 & 00000030 a 0000 | few\n",
    "adv": "",
}


def write_wordnet(directory):
    directory.mkdir()
    for kind, text in WORDNET.items():
        (directory / f"data.{kind}").write_text(text)


@pytest.fixture
def words_of_english(tmp_path):
    """A WordNet and ratings of the words without meaning, as the real programs lay them out."""
    words = [word("en", number) for number in range(90)]
    directory, lines = tmp_path / "wordnet", []
    write_wordnet(directory)
    for i, row in enumerate(sentences(900, 9)):
        first, *gloss = row[1].split()
        lines.append(f"{i + 100:08} 05 n 01 {first} 0 000 | {' '.join(gloss)}\n")
    (directory / "data.noun").write_text(WORDNET["noun"] + "".join(lines))
    package = tmp_path / "packages/vaderSentiment"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    ratings = {words[0]: 2.5, words[1]: -1.5, f"{words[2]} {words[3]}": 3.0}
    (package / "vaderSentiment.py").write_text(
        f"class SentimentIntensityAnalyzer:\n    lexicon = {ratings!r}\n"
    )
    return directory, package.parent


def mini(*words, path="", packages=""):
    return subprocess.run(
        [ROOT / "launch/mini.sh", *map(str, words)],
        env={
            **os.environ,
            "PYTHON": sys.executable,
            "PYTHONPATH": f"{ROOT}:{packages}",
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
    made = ["train", "train", "export", "export", "train", "train", "export"]
    kinds = [*made, "calibrate", *5 * ["evaluate"]]
    assert [command[0] for command in commands] == kinds
    (corpora,) = [word for word in commands[0] if word.startswith("--config.data.corpora=")]
    for name in ("stories.tsv.gz", "unaccented.tsv", "translated.tsv", "emoji.tsv"):
        assert name in corpora
    assert "news.tsv.gz" not in corpora and "europarl.en.tsv" not in corpora  # one of the five
    assert "europarl.en-fr.tsv.gz[:60000]" in corpora
    (everyday,) = [word for word in commands[4] if word.startswith("--config.data.corpora=")]
    assert "europarl.en-fr.tsv.gz[:8000]" in everyday and "tatoeba.en-es.tsv.gz'" in everyday
    assert "manuals.en-es.tsv.gz" in corpora and "manuals.en-es.tsv.gz" not in everyday
    (careless,) = [word for word in commands[5] if word.startswith("--config.data.corpora=")]
    unaccented = f"tsv:{tmp_path}/w/unaccented.tsv[:20000]"
    assert careless == everyday.replace(unaccented, f"tsv:{tmp_path}/w/careless.tsv")
    (held_out,) = [word for word in commands[0] if word.startswith("--config.data.exclude=")]
    assert held_out.count(".dev.tsv.gz") == 3
    assert not (tmp_path / "w").exists()


def test_wrong_use_is_one_line(data, tmp_path):
    for word, message in (
        ("--dryrun", "unrecognized arguments: --dryrun"),
        ("stray", "unrecognized arguments: stray"),
        ("--config.train.total_step=2", "total_step"),
    ):
        done = mini("--data", data, "--workdir", tmp_path / "w", word)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert message in done.stderr.splitlines()[-1]
    assert not (tmp_path / "w").exists()


def test_an_evaluation_is_done_when_its_results_are_there(data, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "launch")
    import mini

    args = argparse.Namespace(workdir=tmp_path, data=data, config="mini", wordnet=tmp_path)
    made = [path for _, path in mini.commands(args, load_config("mini"), []) if path]
    results = [path for path in made if tmp_path / "results" in path.parents]
    assert len(results) == 5 and {path.name for path in results} == {"results.json"}


def test_careless_pairs_have_one_side_changed_and_only_languages_of_the_config(
    data, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(ROOT / "launch")
    import mini_text

    rows = [("Ähm, ja!", "Éh, yes!", "Olá"), ("", "", "Não há"), ("Nur dies.", "", "")] * 50
    write(data / "parallel/stories.tsv.gz", ("de", "en", "pt"), rows)
    made = tmp_path / "made.tsv"
    mini_text.write_careless(load_config("mini"), data, made)
    header, *lines = made.read_text("utf-8").splitlines()
    assert header.split("\t") == [*LANGUAGES]
    of_stories = [line.split("\t")[:2] for line in lines if "yes" in line or "Ähm" in line]
    assert len(of_stories) > 20
    for german, english in of_stories:
        assert (german == "Ähm, ja!") != (english == "Éh, yes!")
    assert not any("Nur" in line or "há" in line for line in lines)
    monkeypatch.setattr(mini_text, "NUM_CARELESS", dict.fromkeys(mini_text.NUM_CARELESS, 5))
    mini_text.write_careless(load_config("mini"), data, made)
    lines = made.read_text("utf-8").splitlines()[1:]
    assert sum(bool(re.search("</|<br|&nbsp;", line)) for line in lines) in (4, 5)  # or an address
    assert 20 <= len(lines) <= 25  # most words are too short for a typo


def test_a_careless_text_by_kind(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "launch")
    import mini_careless

    words = ["page", "lune"]

    def all_of(text, kind, code="fr"):
        generators = map(random.Random, range(200))
        return {mini_careless.careless(text, kind, code, words, each) for each in generators}

    assert all_of("Où est Zoë ?", "accents") == {"Ou est Zoe ?"}
    assert all_of("Öl, süß", "accents", "de") == {"Ol, suß", "Oel, suess"}
    assert all_of("A-t-il dit : « C'est ça » ?", "punctuation") == {"A-t-il dit C'est ça"}
    assert all_of("?!", "punctuation") == {"?!"}
    assert all_of("le chat, 12345", "typo") == {
        f"le {word}, 12345" for word in ("cat", "cht", "chhat", "chaat", "caht", "chta")
    }
    assert all_of("le dos", "typo") == {"le dos"}
    text = "Le chat dort."
    for changed in all_of(text, "markup"):
        assert re.sub(r"<[^>]*>|&nbsp;", "", changed) == text
    assert {"Le chat dort.<br>", "Le <b>chat</b> dort.", "<p>Le chat dort.</p>"} <= all_of(
        text, "markup"
    )
    for changed in all_of(text, "address"):
        before, found, behind = changed.partition(text)
        assert found and re.fullmatch(r"\S+ | \S+", before + behind)
        assert "page" in changed or "lune" in changed


def test_text_that_is_made_of_other_text(data, tmp_path, apertium, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "launch")
    monkeypatch.setenv("PATH", str(apertium), prepend=os.pathsep)
    import mini_text

    made, config = tmp_path / "made.tsv", load_config("mini")
    mini_text.write_translated(config, data, made)
    header, *lines = made.read_text("utf-8").splitlines()
    assert header.split("\t") == [*LANGUAGES]
    # The mark is back, the Spanish ones are gone, and so is the row with a word left as it was.
    italian = ["\tGood evening.\t\t\tBUENAS TARDES.", "\tYes!\t\t\tSÍ!"]
    spanish = "\tOne two.\tUN DEUX.\tUn deux.\t"
    assert sorted(lines) == [italian[0], spanish, italian[1]]

    write(data / "retrieval/more.dev.tsv.gz", ("en", "it"), [("Good night.", "Buenas, tardes")])
    mini_text.write_translated(config, data, made)
    assert sorted(made.read_text("utf-8").splitlines()[1:]) == [spanish, italian[1]]

    mini_text.write_emoji(config, data, made)
    rows = [line.split("\t") for line in made.read_text("utf-8").splitlines()[1:]]
    assert ["zebra", "zebra", "cebra", "zèbre", "zebra"] in rows
    signs = [row for row in rows if any(cell.endswith(" 🦓") for cell in row)]
    assert len(signs) == 20 and all(len([*filter(None, row)]) == 2 for row in signs)
    assert not any(
        sentiment in cell for row in rows for cell in row for sentiment in mini_text.SKIN_TONES
    )


def test_seven_languages_have_text_of_their_own(data, tmp_path, apertium, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "launch")
    monkeypatch.setenv("PATH", str(apertium), prepend=os.pathsep)
    import mini_text

    made, config = tmp_path / "made.tsv", load_config("mini:languages=seven")
    assert {"nl", "pt"} < {*config.languages} and "en-pt" in config.data.pairs
    write(data / "parallel/tatoeba.de-pt.tsv.gz", ("de", "pt"), [("Ja.", "Sim.")])  # not trained
    used = [
        Path(spec).name.partition(".tsv")[0]
        for spec in mini_text.corpora(config, data / "parallel")
    ]
    assert used == ["europarl.en-fr", "europarl.en", "manuals.en-es", "stories", "tatoeba.en-es"]
    mini_text.write_translated(config, data, made)
    header, *lines = made.read_text("utf-8").splitlines()
    assert header.split("\t") == [*config.languages]
    assert "\tGood evening.\t\t\t\t\tBUENAS TARDES." in lines
    assert "\tGood evening.\t\t\tBUENAS TARDES.\t\t" in lines
    mini_text.write_emoji(config, data, made)  # in all but Dutch
    rows = [line.split("\t") for line in made.read_text("utf-8").splitlines()[1:]]
    assert ["zebra", "zebra", "cebra", "zèbre", "zebra", "", "zebra"] in rows


def test_without_apertium_it_says_what_to_install(data, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "launch")
    monkeypatch.setenv("PATH", str(tmp_path))
    import mini_text

    with pytest.raises(SystemExit, match="fr-es translates .* apt install apertium"):
        mini_text.write_translated(load_config("mini"), data, tmp_path / "made.tsv")


def test_a_synset_is_a_text_of_its_words_its_gloss_and_those_near(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "launch")
    import mini_words

    write_wordnet(tmp_path / "wordnet")
    assert list(mini_words.texts_of_synsets(tmp_path / "wordnet")) == [
        "galore; in great number",
        "scarce; few; galore",
        'dog, domestic dog; barks; "the dog barked"; animal',
        "animal; a living being",
        "bark; make a noise; dog, domestic dog",
    ]
    with pytest.raises(SystemExit, match="apt install wordnet-base"):
        next(mini_words.texts_of_synsets(tmp_path / "none"))


def test_values_of_words_are_carried_over_to_their_neighbors(monkeypatch):
    """Float64 by hand: the softmax of 20 times the cosines to the two nearest known tokens."""
    monkeypatch.syspath_prepend(ROOT / "launch")
    import mini_words

    monkeypatch.setattr(mini_words, "NEIGHBORS", 2)
    rng = np.random.default_rng(0)
    tokens, values = rng.normal(size=(7, 4)), rng.normal(size=(7, 3))
    tokens[3], is_known = 0, np.arange(7) % 2 == 0
    found = mini_words.carry_over(tokens, values, is_known)
    for i in (0, 1, 2, 4, 5, 6):
        cosines = {
            j: tokens[i] @ tokens[j] / np.linalg.norm(tokens[i]) / np.linalg.norm(tokens[j])
            for j in (0, 2, 4, 6)
        }
        nearest = sorted(cosines, key=cosines.get)[-2:]
        weights = np.exp([20 * cosines[j] for j in nearest])
        expected = weights @ values[nearest] / weights.sum()
        np.testing.assert_allclose(found[i], expected, rtol=1e-5)


def test_dimensions_have_their_share_of_a_sentence(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "launch")
    import mini_words

    rng = np.random.default_rng(1)
    flat = rng.integers(0, 40, 4000).astype(np.int32)
    text = flat, np.arange(0, 4001, 8)
    tokens, is_rated = rng.normal(size=(40, 6)).astype(np.float32), np.arange(40) < 5
    sentiment = np.abs(rng.normal(size=(40, 2))).astype(np.float32) * is_rated[:, None]
    found = mini_words.word_dimensions(tokens, text, text, sentiment, is_rated)
    assert found.shape == (40, 8) and found.dtype == np.float32
    means = lambda values: values[flat].reshape(500, 8, -1).mean(1)
    lengths = [
        np.linalg.norm(means(v), axis=1).mean() for v in (tokens, found[:, :6], found[:, 6:])
    ]
    shares = [mini_words.TOPICS_SHARE, mini_words.SENTIMENT_SHARE]
    np.testing.assert_allclose(np.divide(lengths[1:], lengths[0]), shares, rtol=1e-4)


def test_what_lexicons_need_is_said_before_anything_is_trained(data, tmp_path):
    done = mini("--data", data, "--workdir", tmp_path / "w", "--wordnet", tmp_path / "none")
    assert done.returncode == 1 and "apt install wordnet-base" in done.stderr
    assert not (tmp_path / "w").exists()
    write_wordnet(tmp_path / "wordnet")
    hidden = tmp_path / "hidden/vaderSentiment"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError")
    done = mini(
        *("--data", data, "--workdir", tmp_path / "w", "--wordnet", tmp_path / "wordnet"),
        packages=hidden.parent,
    )
    assert done.returncode == 1 and "pip install vaderSentiment" in done.stderr


@pytest.mark.slow
def test_the_small_form_runs_to_its_end_and_again_does_nothing(
    data, tmp_path, apertium, words_of_english
):
    wordnet, packages = words_of_english
    words = ("--data", data, "--workdir", tmp_path / "w", "--config", "mini:smoke")
    words += ("--wordnet", wordnet)
    # Calibration needs 100 pairs that are right. Fifty checkpoints would be most of the time.
    lengths = ("total_steps", "evaluate_every_steps", "checkpoint_every_steps", "log_every_steps")
    words += tuple(f"--config.train.{name}=200" for name in lengths)
    # What is there is not written again; the thousands of names would be most of the text.
    (tmp_path / "w").mkdir()
    emoji = ["\t".join(LANGUAGES), "\tzebra 🐕\t\tzèbre chien\t"]
    (tmp_path / "w/emoji.tsv").write_text("\n".join(emoji) + "\n", encoding="utf-8")
    done = mini(*words, path=apertium, packages=packages)
    assert done.returncode == 0, done.stdout + done.stderr
    encoder = xling_jax.load(tmp_path / "w/mini")
    assert encoder.calibration is not None and encoder.dim == 32
    assert np.load(tmp_path / "w/words.npy").shape == (encoder.vocab.size, 34)
    careless = (tmp_path / "w/careless.tsv").read_text().splitlines()
    originals = {text for row in sentences(900, 0) for text in row}
    stories = [line.split("\t") for line in careless[1:] if "è" in line]
    assert len(stories) > 500
    assert all(sum(text in originals for text in row if text) == 1 for row in stories)
    results = json.loads((tmp_path / "w/results/margin/results.json").read_text())
    assert results["matrices"]
    again = mini(*words, path=apertium, packages=packages)
    assert again.returncode == 0 and again.stdout.count(" is there") == 9
