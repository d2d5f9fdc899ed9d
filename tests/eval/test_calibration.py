"""`xling calibrate` and `xling mine --precision` on a small model with known translations."""

import json

import numpy as np
import pytest

import xling_jax
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import load_model, save_model, write_calibration
from xling_jax.eval.calibration import calibrate, shuffled_texts
from xling_jax.eval.retrieval_data import load_retrieval_data
from xling_jax.text.vocab import train_vocab

WORDS = 300
WIDTH = 64


def sentences(count, seed, mean_length):
    """Distinct sentences of frequent and rare words, as rows of numbers."""
    random = np.random.default_rng(seed)
    found = {}
    while len(found) < count:
        length = 2 + random.poisson(mean_length)
        words = np.minimum(random.geometric(0.012, length), WORDS) - 1
        found[tuple(sorted(words))] = words
    return list(found.values())


def text(language, words):
    return " ".join(f"{language}{word:03}" for word in words)


def write_rows(path, rows):
    lines = ["de\ten", *(f"{text('d', row)}\t{text('e', row)}" for row in rows)]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A static encoder of two languages, whose words only nearly agree, and held-out text."""
    place = tmp_path_factory.mktemp("calibrated")
    rows = write_rows(place / "dev.tsv", sentences(1200, 1, 3))
    names = [text(code, [word]) for code in "de" for word in range(WORDS)]
    lines = (name for name in names for _ in range(3))
    vocab = train_vocab(lines, size=2 * WORDS + 4, model_type="word")
    random = np.random.default_rng(0)
    meaning = random.normal(0, 1, (WORDS, WIDTH))
    table = np.zeros((-(-vocab.size // 128) * 128, WIDTH), np.float32)
    for place_of_word, name in enumerate(names):
        (token,) = vocab.encode([name])[0]
        table[token] = meaning[place_of_word % WORDS] + random.normal(0, 0.75, WIDTH)
    save_model(
        place / "model",
        family="static",
        encoder_args={"width": WIDTH, "pad_id": vocab.pad_id},
        params={"embedding": table, "token_weight": np.ones(len(table), np.float32)},
        vocab=vocab,
        languages=("de", "en"),
        max_length_tokens=40,
        training={},
        results={"dev/p_at_1": 0.9},
    )
    return place / "model", rows


@pytest.fixture(scope="module")
def calibrated(made):
    assert main(["calibrate", "--model", str(made[0]), "--data", str(made[1])]) == 0
    return made[0]


def test_texts_share_as_many_rows_as_asked_for():
    for share in (0.5, 1 / 3, 0.1):
        source, target = shuffled_texts(1000, share, np.random.default_rng(0))
        assert len(source) == len(target) == len({*source.tolist()}) == len({*target.tolist()})
        assert len(np.intersect1d(source, target)) == pytest.approx(share * len(source), abs=1)
        assert len(np.union1d(source, target)) >= 999


@pytest.mark.parametrize(("share", "mean_length"), [(1 / 3, 6), (0.15, 3)])
def test_mining_keeps_what_precision_promises_on_other_text(
    calibrated, tmp_path, caplog, share, mean_length
):
    rows = sentences(3000, 5, mean_length)
    sides = shuffled_texts(len(rows), share, np.random.default_rng(2))
    for name, side in zip("de", sides):
        lines = (text(name, rows[row]) + "\n" for row in side)
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    argv = ["mine", "--model", str(calibrated), "--output", str(tmp_path / "out.tsv")]
    argv += ["--source", str(tmp_path / "d"), "--target", str(tmp_path / "e")]
    num_translations = len(np.intersect1d(*sides))
    kept = {}
    for promised in (0.8, 0.95):
        with caplog.at_level("INFO"):
            assert main([*argv, "--precision", str(promised), "--overwrite"]) == 0
        assert f"expected precision {promised:.2f}" in caplog.text
        caplog.clear()
        pairs = [line.split("\t")[1:] for line in (tmp_path / "out.tsv").open(encoding="utf-8")]
        right = sum(a.replace("d", "") == b.strip().replace("e", "") for a, b in pairs)
        # The lower of two lines is on the cautious side.
        assert promised - 0.03 < right / len(pairs) < promised + 0.1
        kept[promised] = right / num_translations
    assert kept[0.8] > kept[0.95] > 0.5


def test_only_the_calibration_of_a_model_directory_changes(made, tmp_path):
    directory, rows = made
    before = load_model(directory)
    encoder = xling_jax.load(directory)
    vectors = encoder.encode(["d001 d002"])
    calibration = calibrate(encoder.encode, [load_retrieval_data(rows)])
    for _ in range(2):
        write_calibration(directory, calibration)
    after = load_model(directory)
    assert after.calibration == calibration
    assert after.fingerprint == before.fingerprint
    ignored = ("calibration", "hashes")
    assert {k: v for k, v in after.config.items() if k not in ignored} == {
        k: v for k, v in before.config.items() if k not in ignored
    }
    encoder = xling_jax.load(directory)
    assert encoder.calibration == calibration
    np.testing.assert_array_equal(encoder.encode(["d001 d002"]), vectors)
    card = (directory / "README.md").read_text()
    assert card.count("## What scores mean") == 1 and "dev/p_at_1" in card
    assert "| margin above |" in card and "dev (1,200 rows)" in card
    config = json.loads((directory / "config.json").read_text())
    config["calibration"]["curves"]["ratio"][0][0] += 1
    copy = tmp_path / "m"
    copy.mkdir()
    for path in directory.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="damaged, or a file was changed"):
        load_model(copy)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ([], 2, "is calibrated already; add --overwrite"),
        (["--model", "gs://b/m"], 2, "--model gs://b/m: xling calibrate needs a local directory"),
        (["--overwrite", "--data", "none.tsv"], 2, "--data none.tsv: no such file"),
        (
            ["--overwrite", "--data", "few.tsv"],
            1,
            "pairs found are right; calibration needs 100 of each kind",
        ),
        (
            ["--overwrite", "--data", "few.tsv", "--languages", "de,nl"],
            2,
            "few.tsv: retrieval needs at least two languages; asked for de, nl; found de, en",
        ),
    ],
)
def test_wrong_calibrations_are_refused(
    calibrated, made, tmp_path, monkeypatch, capsys, options, status, message
):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "few.tsv", sentences(60, 9, 3))
    before = (calibrated / "config.json").read_bytes()
    data = [] if "--data" in options else ["--data", str(made[1])]
    assert main(["calibrate", "--model", str(calibrated), *data, *options]) == status
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("xling ")]
    assert message in line
    assert (calibrated / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--precision", "0.9", "--k", "5"], "k=5: the model was calibrated with k=4"),
        (["--precision", "0.9", "--retrieval", "fwd"], "needs --retrieval max"),
        (["--precision", "1"], "--precision 1: must be between 0 and 1"),
        (["--precision", "0.9", "--top", "3"], "--precision 0.9 and --top 3: give only one"),
        (["--threshold", "1", "--top", "3"], "--threshold 1 and --top 3: give only one"),
    ],
)
def test_cuts_that_cannot_be_made_are_refused(calibrated, tmp_path, capsys, options, message):
    (tmp_path / "d").write_text("d001\n")
    argv = ["mine", "--model", str(calibrated), "--output", str(tmp_path / "o"), *options]
    argv += ["--source", str(tmp_path / "d"), "--target", str(tmp_path / "d")]
    assert main(argv) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("xling ")]
    assert message in line


def test_texts_of_a_few_lines_are_mined_but_not_by_precision(calibrated, tmp_path, capsys):
    (tmp_path / "d").write_text("d001\nd002\nd003\n")
    (tmp_path / "e").write_text("e003\ne002\n")
    argv = ["mine", "--model", str(calibrated), "--output", str(tmp_path / "o"), "--overwrite"]
    argv += ["--source", str(tmp_path / "d"), "--target", str(tmp_path / "e")]
    assert main(argv) == 0
    pairs = [line.split("\t")[1:] for line in (tmp_path / "o").read_text().splitlines()]
    assert sorted(pairs) == [["d002", "e002"], ["d003", "e003"]]
    assert main([*argv, "--precision", "0.9"]) == 2
    assert "2 sentences on one side and 4 on the other; found 2 and 3" in capsys.readouterr().err
    (tmp_path / "e").write_text("")
    assert main([*argv, "--precision", "0.9"]) == 0
    assert (tmp_path / "o").read_text() == ""
