"""BUCC: files as released, thresholds and scores by hand, the rule on repeated texts, the task."""

import gzip
import json
import types

import numpy as np
import pytest

from xling_jax.align import mining
from xling_jax.cli import main
from xling_jax.eval import mining as bitext_mining

# Degrees on a circle; fr and en hold translations with the same number.
TRAIN = {
    "fr": [("f1", "fr 0"), ("f2", "fr 30"), ("f3", "fr 60"), ("f4", "fr 75")],
    "en": [("e1", "en 61"), ("e2", "en 1"), ("e3", "en 33"), ("e4", "en 300")],
}
GOLD = [("f1", "e2"), ("f2", "e3"), ("f3", "e1")]
NEAREST = bitext_mining.Mining(margin="absolute", k=1)


def encode(texts):
    """Texts such as "en 50": the number is the angle."""
    radians = np.radians([float(text.split()[1]) for text in texts])
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def measure(data):
    return NEAREST.measure(types.SimpleNamespace(encode=encode), data)["fr-en"]


def write(directory, name, texts, gold):
    directory.mkdir(exist_ok=True, parents=True)
    for code, rows in texts.items():
        (directory / f"{name}.{code}").write_text("".join(f"{i}\t{t}\n" for i, t in rows))
    (directory / f"{name}.gold").write_text("".join(f"{a}\t{b}\n" for a, b in gold))


@pytest.fixture
def bucc(tmp_path):
    write(tmp_path / "bucc", "fr-en.training", TRAIN, GOLD)
    return tmp_path / "bucc"


def test_files_as_released_are_read(bucc):
    (data,) = bitext_mining.load_mining_data(bucc)
    assert data.name == "fr-en" and not data.has_test
    assert data.train.languages == ("fr", "en")
    assert data.train.texts[0][3] == "fr 75"
    assert data.train.gold == {(0, 1), (1, 2), (2, 0)}


def test_a_layout_of_directories_compressed_with_test_and_sample(tmp_path):
    for pair in ("fr-en", "de-en"):
        first = pair[:2]
        texts = {first: TRAIN["fr"], "en": TRAIN["en"]}
        for split in ("sample", "training", "test"):
            write(tmp_path / pair, f"{pair}.{split}", texts, GOLD[: 1 if split == "test" else 3])
    for path in [*tmp_path.glob("de-en/*")]:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    german, french = bitext_mining.load_mining_data(tmp_path)
    assert (german.name, french.name) == ("de-en", "fr-en")
    assert german.has_test and german.train.name == "de-en.training"
    assert german.test.gold == {(0, 1)} and german.train.languages == ("de", "en")
    hashes = [one.description["sha256"] for one in (german, french)]
    assert hashes[0] != hashes[1]
    (only,) = bitext_mining.load_mining_data(tmp_path, ["fr", "en"])
    assert only.name == "fr-en" and only.description["sha256"] == hashes[1]


def test_a_part_that_is_there_twice_is_refused(tmp_path):
    for year in ("2017", "2018"):
        write(tmp_path / year, "fr-en.training", TRAIN, GOLD)
    with pytest.raises(ValueError, match="2018/fr-en.training.en: holds the same part as .*2017"):
        bitext_mining.load_mining_data(tmp_path)
    gold = tmp_path / "2017" / "fr-en.training.gold"
    gold.with_name(f"{gold.name}.gz").write_bytes(gzip.compress(gold.read_bytes()))
    with pytest.raises(ValueError, match="gold.gz: holds the same part as .*training.gold; remove"):
        bitext_mining.load_mining_data(tmp_path / "2017")


def test_a_test_part_without_gold_pairs_is_left_out(bucc):
    write(bucc, "fr-en.test", TRAIN, [])
    (bucc / "fr-en.test.gold").unlink()
    (data,) = bitext_mining.load_mining_data(bucc)
    assert not data.has_test


@pytest.mark.parametrize("order", [1, -1], ids=["as named", "the other order"])
def test_ids_that_both_sides_share_give_the_same_gold_pairs(tmp_path, order):
    texts = {"fr": TRAIN["fr"], "en": TRAIN["en"][:3]}
    gold = [("f1", "e2"), ("f2", "e3"), ("f4", "e1")]  # English has no 4
    write(tmp_path / "own", "fr-en.training", texts, [pair[::order] for pair in gold])
    numbers = {code: [(name[1:], text) for name, text in rows] for code, rows in texts.items()}
    pairs = [(first[1:], second[1:])[::order] for first, second in gold]
    write(tmp_path / "shared", "fr-en.training", numbers, pairs)
    own, shared = (bitext_mining.load_mining_data(tmp_path / name) for name in ("own", "shared"))
    assert own[0].train.gold == shared[0].train.gold == {(0, 1), (1, 2), (3, 0)}
    assert measure(shared[0]).to_dict() == measure(own[0]).to_dict()


@pytest.mark.parametrize(
    ("scores", "correct", "num_gold", "threshold"),
    [
        # F1 behind each pair: 2/4, 2/5, 4/6, 4/7: best behind the third.
        ([1.5, 1.4, 1.2, 1.0], [1, 0, 1, 0], 3, 1.1),
        # 2/3, 4/4: all are kept.
        ([1.5, 1.4], [1, 1], 2, 1.4),
        # 2/5 behind the first, 4/6 behind the equals that follow: they are kept together.
        ([1.5, 1.4, 1.4, 1.0], [1, 0, 1, 0], 4, 1.2),
        # 2/4 behind the first, 4/8 behind the fifth: the first of equals.
        ([5.0, 4.0, 3.0, 2.0, 1.0], [1, 0, 0, 0, 1], 3, 4.5),
        ([1.5, 1.4], [0, 0], 2, 0.0),
        ([], [], 2, 0.0),
    ],
)
def test_thresholds_by_hand(scores, correct, num_gold, threshold):
    found = bitext_mining.tune_threshold(np.array(scores), np.array(correct, bool), num_gold)
    assert found == pytest.approx(threshold)


def test_precision_recall_and_f1_by_hand():
    pairs = mining.MinedPairs(np.arange(4), np.arange(4), np.array([4, 3, 2, 1], np.float32))
    scores = bitext_mining.measure_pairs(pairs, frozenset({(0, 0), (1, 1), (3, 3), (7, 7)}), 2)
    assert (scores["num_extracted"], scores["num_correct"], scores["num_gold"]) == (3, 2, 4)
    assert scores["precision"] == pytest.approx(2 / 3) and scores["recall"] == 0.5
    assert scores["f1"] == pytest.approx(2 * (2 / 3) * 0.5 / (2 / 3 + 0.5))
    nothing = bitext_mining.measure_pairs(pairs, frozenset({(0, 0)}), 9)
    assert nothing["precision"] == nothing["recall"] == nothing["f1"] == 0


def test_mining_by_hand(bucc):
    (data,) = bitext_mining.load_mining_data(bucc)
    pairs = NEAREST.mine(encode, data.train)
    # Nearest by angle: 0-1 and 60-61 one degree, 30-33 three, 75-61 fourteen but 61 is used;
    # 300 wants 0, which is used.
    assert [pair[1:] for pair in pairs] == [(0, 1), (2, 0), (1, 2)]
    result = measure(data)
    assert result.test is result.train and result.test["f1"] == 1
    assert result.threshold == pytest.approx(np.cos(np.radians(3)))


def test_the_threshold_of_training_is_used_on_test(bucc):
    # In training pairs up to 3 degrees are right and a pair of 5 is wrong.
    texts = {"fr": [*TRAIN["fr"], ("f5", "fr 200")], "en": [*TRAIN["en"], ("e5", "en 205")]}
    write(bucc, "fr-en.training", texts, GOLD)
    # In the test text a right pair lies 10 degrees apart, and a wrong one 2.
    test = {
        "fr": [("a", "fr 10"), ("b", "fr 100"), ("c", "fr 200")],
        "en": [("x", "en 20"), ("y", "en 102"), ("z", "en 201")],
    }
    write(bucc, "fr-en.test", test, [("a", "x"), ("c", "z")])
    (data,) = bitext_mining.load_mining_data(bucc)
    scores = measure(data).scores()
    assert scores["train_f1"] == 1
    cut = (np.cos(np.radians(3)) + np.cos(np.radians(5))) / 2
    assert scores["threshold"] == pytest.approx(cut)
    assert scores["precision"] == scores["recall"] == scores["f1"] == 0.5


def test_repeated_texts_are_mined_once_and_their_pairs_removed(bucc):
    texts = {"fr": TRAIN["fr"], "en": [*TRAIN["en"], ("e5", "en 1"), ("e6", " ")]}
    write(bucc, "fr-en.training", texts, GOLD)
    (data,) = bitext_mining.load_mining_data(bucc)
    seen = []

    def counted(sentences):
        seen.extend(sentences)
        return encode(sentences)

    pairs = NEAREST.mine(counted, data.train)
    # 0 finds "en 1", which stands twice; the gold pair is lost, as in the published script.
    assert [pair[1:] for pair in pairs] == [(2, 0), (1, 2)]
    assert len(seen) == len(set(seen)) == 8 and " " not in seen
    result = measure(data)
    assert result.test["recall"] == pytest.approx(2 / 3) and result.test["precision"] == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("fr-en.training.fr", "f1 no tab\n", r"training.fr:1: a line must be id<TAB>sentence"),
        ("fr-en.training.en", "e1\tx\ne1\ty\n", "duplicate id 'e1'"),
        ("fr-en.training.gold", "f1\te9\n", r"gold:1: a pair must be the ids of a fr and a en"),
        ("fr-en.training.gold", "f1\n", r"gold:1: a pair must be"),
        ("fr-en.training.gold", "", "gold: must hold pairs"),
        ("fr-en.training.de", "d1\tx\n", "needs two texts beside it"),
    ],
)
def test_broken_files_are_named(bucc, name, content, message):
    (bucc / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        bitext_mining.load_mining_data(bucc)


def test_missing_parts_are_named(bucc, tmp_path):
    with pytest.raises(ValueError, match="must hold BUCC files.*of de, en"):
        bitext_mining.load_mining_data(bucc, ["de", "en"])
    for path in bucc.iterdir():
        path.rename(path.with_name(path.name.replace("training", "test")))
    with pytest.raises(ValueError, match="fr-en must have a training part"):
        bitext_mining.load_mining_data(bucc)


@pytest.fixture
def model(stand_in):
    stand_in(encode)


def evaluate(data, output, *options):
    argv = ["evaluate", "mining", "--model", "m", "--data", data, "--output", output, *options]
    return main.main([*map(str, argv)])


def test_the_task_writes_results_and_says_what_was_measured(bucc, tmp_path, model, capsys):
    options = ("--margin", "absolute", "--k", 1)
    assert evaluate(bucc, tmp_path / "out", *options) == 0
    written = json.loads((tmp_path / "out/results.json").read_text())
    assert written["task"] == "mining" and written["model"]["fingerprint"] == "abc"
    assert written["metrics"]["fr-en/f1"] == 1
    assert written["matrices"]["fr-en"]["test"]["num_correct"] == 3
    assert written["data"][0]["measured_on"] == "fr-en.training"
    assert len(written["data"][0]["sha256"]) == 64
    table = capsys.readouterr().out
    assert table.strip() == (tmp_path / "out/results.md").read_text().strip()
    assert "100.00" in table and "No test pairs for fr-en" in table
    assert evaluate(bucc, tmp_path / "out", *options) == 2
    assert "results.json: exists" in capsys.readouterr().err
    write(bucc, "fr-en.test", TRAIN, GOLD)
    assert evaluate(bucc, tmp_path / "out", "--overwrite") == 0
    assert "No test pairs" not in capsys.readouterr().out
