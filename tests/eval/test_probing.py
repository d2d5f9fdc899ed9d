"""SentEval: file layouts, folds, selection, relatedness, the command."""

import dataclasses
import json
import types

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from xling_jax.cli import main
from xling_jax.eval import mlp, probing, probing_data
from xling_jax.eval.classification_data import LabeledText

WORDS = ("sun", "ice", "rain", "wind", "snow", "fog")
RNG = np.random.default_rng(0)
VECTORS = {word: RNG.standard_normal(8) for word in WORDS}


def encode(texts):
    """Sums of word vectors; unknown words are their own length on the last axis."""
    out = np.zeros((len(texts), 9))
    for row, text in enumerate(texts):
        for word in text.split():
            if word in VECTORS:
                out[row, :8] += VECTORS[word]
            else:
                out[row, 8] += len(word)
    return out


def write(path, lines, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding)


def sentences(word, n):
    return [f"{word} {' '.join(RNG.choice(['a', 'bb', 'ccc'], 1 + i % 4))}" for i in range(n)]


@pytest.fixture
def senteval(tmp_path):
    """A small copy of SentEval's data, learnable but for CR."""
    data = tmp_path / "data"
    down = data / "downstream"
    write(down / "MR/rt-polarity.pos", [*sentences("sun", 23), "caf\xe9 sun"], "latin-1")
    write(down / "MR/rt-polarity.neg", sentences("ice", 24))
    for part, n in (("train", 20), ("dev", 8), ("test", 10)):
        pairs = [(s, i % 2) for i, s in enumerate(sentences("", n))]
        rows = [f"{('ice', 'sun')[label]} {text}\t{label}" for text, label in pairs]
        write(down / f"SST/binary/sentiment-{part}", rows)
    for file, n in (("train_5500", 24), ("TREC_10", 6)):
        rows = [f"{('HUM', 'LOC')[i % 2]}:fine {('sun', 'fog')[i % 2]} is it ?" for i in range(n)]
        write(down / f"TREC/{file}.label", rows)
    rows = [
        f"{part}\t{('PAST', 'PRES')[i % 2]}\tmore\t{('sun', 'fog')[i % 2]} {'a ' * (i % 3)}b"
        for part, n in (("tr", 20), ("va", 8), ("te", 8))
        for i in range(n)
    ]
    write(data / "probing/past_present.txt", rows)
    write(data / "probing/README.txt", ["# not a task"])
    return data


def measure(encode, task, **options):
    encoder = types.SimpleNamespace(encode=encode)
    return probing.Probing(**options).measure(encoder, task)[task.name]


def by_name(senteval):
    return {task.name: task for task in probing.load_tasks(senteval)}


def test_every_layout_is_read(senteval):
    tasks = by_name(senteval)
    assert set(tasks) == {"MR", "SST2", "TREC", "past_present"}
    everything = tasks["MR"].splits["all"]
    assert len(everything.texts) == 48 and everything.labels == ["1"] * 24 + ["0"] * 24
    assert everything.texts[23] == "café sun"
    assert tasks["SST2"].splits["dev"].labels == ["0", "1", "0", "1", "0", "1", "0", "1"]
    assert tasks["TREC"].splits["test"].texts[1] == "fog is it ?"
    assert tasks["TREC"].splits["train"].labels[:2] == ["HUM", "LOC"]
    assert (
        tasks["past_present"].splits["test"].texts[0] == "sun b"
        and len(tasks["MR"].description["sha256"]) == 64
    )


def test_the_mlp_learns_what_is_there(senteval, monkeypatch):
    # The schedule is tested beside the MLP; here it must be short.
    fast = dataclasses.replace(mlp.SENTEVAL, learning_rate=0.05, num_epochs=12)
    monkeypatch.setattr(mlp, "SENTEVAL", fast)
    for data in probing.load_tasks(senteval, ["TREC", "past_present"]):  # folds; dev
        scores = measure(encode, data, classifier="mlp", hidden=5, folds=2)
        assert scores.metrics["accuracy"] > 0.9 and scores.metrics["dev_accuracy"] > 0.9


def test_logistic_regression_learns_what_is_there(senteval):
    names = ["MR", "SST2", "TREC", "past_present"]
    scores = {}
    task = probing.Probing(folds=3)
    encoder = types.SimpleNamespace(encode=encode)
    for data in probing.load_tasks(senteval, names):
        scores |= task.measure(encoder, data)
    scores = list(scores.values())
    for one in scores:
        assert one.metrics["accuracy"] > 0.9 and one.metrics["dev_accuracy"] > 0.9, one
    assert [one.num_test for one in scores] == [48, 10, 6, 8]
    assert "nested 3-fold" in scores[0].protocol and "on train" in scores[2].protocol


def reference_nested(features, labels, folds):
    """SentEval's nested cross-validation, written down again."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    def score(train, test, c):
        model = LogisticRegression(C=c, max_iter=1000).fit(features[train], labels[train])
        return np.mean(model.predict(features[test]) == labels[test])

    kfold = StratifiedKFold(folds, shuffle=True, random_state=1111)
    dev, test = [], []
    for outer, held in kfold.split(features, labels):
        means = []
        for c in (0.25, 0.5, 1, 2, 4, 8):
            inner = kfold.split(features[outer], labels[outer])
            means.append(round(100 * np.mean([score(outer[a], outer[b], c) for a, b in inner]), 2))
        dev.append(max(means))
        test.append(score(outer, held, (0.25, 0.5, 1, 2, 4, 8)[int(np.argmax(means))]))
    return np.mean(dev) / 100, np.mean(test)


def test_nested_folds_equal_sentevals():
    rng = np.random.default_rng(3)
    texts = [f"{'x ' * (1 + i % 5)}{i}" for i in range(60)]
    place = {text: rng.standard_normal(4) + (i < 30) * 0.7 for i, text in enumerate(texts)}
    labels = ["1"] * 30 + ["0"] * 30
    task = probing_data.ProbingTask("MR", {"all": LabeledText(texts, labels)})
    one = measure(lambda asked: np.array([place[text] for text in asked]), task, folds=4)
    rows = sorted(zip(texts, labels), key=lambda row: (len(row[0].split()), row[1]))
    features = np.array([place[text] for text, _ in rows], np.float32)
    with threadpool_limits(1):
        labels = np.array([int(label) for _, label in rows])
        dev, test = reference_nested(features, labels, 4)
    assert one.metrics["accuracy"] == pytest.approx(test, abs=1e-9)
    assert one.metrics["dev_accuracy"] == pytest.approx(dev, abs=1e-4)
    assert 0.5 < test < 0.95


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"probing/past_present.txt": ["tr\tA\tx", "xx\tB\ty"]},
            r"past_present.txt:2: must be tr, va or te, label and text",
        ),
        ({"probing/past_present.txt": ["tr\tA\tx", "te\tB\ty"]}, "must have dev lines"),
        ({"downstream/TREC/TREC_10.label": ["no label"]}, r"TREC_10.label:1: must be LABEL:fine"),
        ({"downstream/SST/binary/sentiment-dev": ["no label"]}, r"dev:1: must be text<TAB>label"),
    ],
)
def test_broken_files_are_refused(senteval, change, message):
    for name, lines in change.items():
        write(senteval / name, lines)
    with pytest.raises(ValueError, match=message):
        probing.load_tasks(senteval)


def test_bad_settings_data_and_vectors_are_refused(senteval, tmp_path):
    with pytest.raises(ValueError, match="tasks=SNLI: .* has no such task; it has MR"):
        probing.load_tasks(senteval, ["SNLI"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="must hold SentEval's downstream or probing tasks"):
        probing.load_tasks(tmp_path / "empty", ["MR"])
    (task,) = probing.load_tasks(senteval, ["TREC"])
    with pytest.raises(ValueError, match="TREC: 30 folds need as many rows .* rarest has 12"):
        measure(encode, task, folds=30)
    with pytest.raises(ValueError, match="classifier='svm' must be one of logreg, mlp"):
        measure(encode, task, classifier="svm")
    one = probing_data.ProbingTask("T", {"all": LabeledText(["a", "b"], ["1", "1"])})
    with pytest.raises(ValueError, match="T: training needs two labels; found 1"):
        measure(encode, one)


def test_the_command_writes_results(senteval, tmp_path, stand_in, capsys):
    stand_in(encode)
    output = tmp_path / "out"
    words = ["evaluate", "probing", "--model", "m", "--data", str(senteval)]
    words += ["--output", str(output)]
    assert main.main([*words, "--tasks", "TREC,past_present", "--folds", "3"]) == 0
    results = json.loads((output / "results.json").read_text())
    assert results["metrics"]["past_present/accuracy"] == 1
    assert results["settings"]["seed"] == 1111 and len(results["data"]) == 2
    assert results["settings"]["selection"]["TREC"] == "3-fold cross-validation on train"
    assert results["model"]["fingerprint"] == "abc" and results["task"] == "probing"
    assert "| past_present | " in (output / "results.md").read_text()
    assert main.main([*words, "--tasks", "SNLI", "--overwrite"]) == 2
    assert ": --tasks=SNLI: " in capsys.readouterr().err
    assert main.main([*words, "--folds", "1", "--overwrite"]) == 2
