"""Protocols, seeds and the oracle of classification, by hand; the command."""

import json

import numpy as np
import pytest

from tests.eval.test_classification import LABELS, data_of, labeled, measure_with
from xling_jax.cli import main
from xling_jax.eval import classification
from xling_jax.eval import classification_protocols as protocols
from xling_jax.eval.classification_data import LabeledText


def encode(texts):
    """ "hot 3 de": the label decides the place, in German on an axis of its own as well."""
    vectors = np.zeros((len(texts), 4))
    for row, text in enumerate(texts):
        label, number, language = text.split()
        vectors[row, LABELS.index(label)] = 1
        vectors[row, 2] = language == "de"
        vectors[row, 3] = 0.01 * (int(number) % 7)
    return vectors


def three_languages():
    """English and French teach the truth, German the opposite."""
    train = {"en": labeled("en", 20), "de": labeled("de", 20, flip=20), "fr": labeled("fr", 20)}
    test = {"en": labeled("en", 10), "de": labeled("de", 10), "fr": labeled("fr", 10, flip=1)}
    return data_of(train=train, test=test)


def measure(data, **settings):
    return measure_with(encode, data, **({"c_values": (1.0,), "baselines": False} | settings))


def test_zero_shot_and_targeted_by_hand():
    matrix = measure(three_languages())
    np.testing.assert_allclose(
        matrix.accuracies["accuracy"], [[1, 1, 0.9], [0, 0, 0.1], [1, 1, 0.9]]
    )
    targeted = measure(three_languages(), protocol="targeted")
    assert targeted.train_languages == ("itself",)
    np.testing.assert_allclose(targeted.accuracies["accuracy"], [[1, 0, 0.9]])
    assert targeted.mean("same") == targeted.mean("all") == matrix.mean("same")
    assert np.isnan(targeted.mean("cross"))


def test_leave_one_out_equals_training_on_the_other_languages_joined():
    data = three_languages()
    matrix = measure(data, protocol="leave-one-out", baselines=True)
    assert matrix.train_languages == ("the others",) and np.isnan(matrix.mean("same"))
    assert matrix.num_train == {"en": 40, "de": 40, "fr": 40}
    for column, code in enumerate(matrix.test_languages):
        others = [data.splits["train"][other] for other in ("en", "de", "fr") if other != code]
        joined = LabeledText(others[0].texts + others[1].texts, others[0].labels + others[1].labels)
        alone = measure(
            data_of(train={"xx": joined}, test={code: data.splits["test"][code]}), baselines=True
        )
        for kind, values in matrix.accuracies.items():
            assert values[0, column] == alone.accuracies[kind][0, 0], (code, kind)
    # English and French, which agree, teach German.
    assert matrix.accuracies["accuracy"][0, 1] == 1


def test_trainings_of_every_protocol():
    listed = protocols.list_trainings("zero-shot", ["en"], ["en", "de"])
    assert listed == [("en", ("en",), ("en", "de"))]
    listed = protocols.list_trainings("targeted", ["en", "fr"], ["de", "fr"])
    assert listed == [("itself", ("fr",), ("fr",))]
    listed = protocols.list_trainings("leave-one-out", ["en"], ["en", "de"])
    assert listed == [("the others", ("en",), ("de",))]
    with pytest.raises(ValueError, match="targeted needs training text for one of the test"):
        protocols.list_trainings("targeted", ["en"], ["de"])


def test_seeds_give_means_and_sample_standard_deviations():
    rng = np.random.default_rng(0)
    rows = {"en": rng.standard_normal((60, 3)), "de": rng.standard_normal((60, 3))}

    def noisy(texts):
        return np.array([rows[text.split()[2]][int(text.split()[1])] for text in texts])

    data = data_of(
        train={"en": labeled("en", 40)},
        dev={"en": labeled("en", 60), "de": labeled("de", 60)},
        test={"en": labeled("en", 60), "de": labeled("de", 60)},
    )
    matrix = measure_with(noisy, data, classifier="linear", seeds=3, seed=3, baselines=False)
    by_seed = matrix.by_seed["accuracy"][:, 0]
    assert by_seed.shape == (3, 2) and len(set(by_seed[:, 0])) > 1
    assert matrix.mean("cross") == pytest.approx(by_seed[:, 1].mean())
    assert matrix.spread("all") == pytest.approx(by_seed.mean(axis=1).std(ddof=1))
    # The oracle chooses an epoch on the text that then measures it: no other epoch is better.
    assert np.all(matrix.by_seed["oracle"] >= matrix.by_seed["accuracy"])
    assert len(matrix.chosen["en"]) == 3
    scores = matrix.scores()
    assert scores["all_sd"] == matrix.spread("all") and "oracle_cross" in scores
    text = classification.classification_table("toy", matrix)
    mean, spread = 100 * matrix.mean("cross"), 100 * matrix.spread("cross")
    assert f"{mean:.1f} ± {spread:.1f}" in text and "over 3 seeds" in text and "oracle" in text
    assert f"{mean:.1f} ± {spread:.1f}" in classification.summary_table([matrix])
    json.dumps(matrix.to_dict(), allow_nan=False)


def test_an_oracle_is_shown_only_where_the_test_language_has_dev_text():
    data = data_of(
        train={"en": labeled("en", 20)}, dev={"en": labeled("en", 9)},
        test={"en": labeled("en", 9), "de": labeled("de", 9)},
    )  # fmt: skip
    matrix = measure(data, c_values=(0.1, 1.0))
    np.testing.assert_array_equal(np.isnan(matrix.accuracies["oracle"]), [[False, True]])
    assert matrix.to_dict()["oracle"]["en"]["de"] is None
    assert (
        "oracle"
        not in measure(data_of(train=data.splits["train"], dev=data.splits["dev"])).accuracies
    )  # Text that measures cannot also choose.


# The command


@pytest.fixture
def directory(tmp_path, stand_in):
    stand_in(encode)
    directory = tmp_path / "weather"
    directory.mkdir()
    for split in ("train", "dev", "test"):
        for language in ("en", "de"):
            part = labeled(language, 12)
            rows = [f"{label}\t{text}\n" for label, text in zip(part.labels, part.texts)]
            (directory / f"{split}.{language}.tsv").write_text("".join(rows))
    return directory


def run(directory, output, *options):
    words = ["evaluate", "classification", "--model", "m", "--data", str(directory)]
    return main.main([*words, "--output", str(output), *options])


def test_the_command_measures_every_protocol_and_classifier(directory, tmp_path, capsys):
    output = tmp_path / "out"
    options = ["--classifiers", "logreg,svm", "--protocols", "zero-shot,leave-one-out"]
    assert run(directory, output, *options, "--seeds", "2", "--seed", "7") == 0
    results = json.loads((output / "results.json").read_text())
    names = {"weather", "weather_svm", "weather_leave_one_out", "weather_leave_one_out_svm"}
    assert set(results["matrices"]) == set(results["settings"]["selection"]) == names
    assert (results["settings"]["seed"], results["settings"]["seeds"]) == (7, 2) and len(
        results["data"][0]["sha256"]
    ) == 64
    assert results["model"]["fingerprint"] == "abc" and "scikit-learn" in results["versions"]
    assert results["metrics"]["weather_leave_one_out_svm/cross"] == 1
    assert results["metrics"]["weather_leave_one_out/accuracy_the_others_de"] == 1
    assert results["matrices"]["weather_svm"]["classifier"] == "svm"
    table = (output / "results.md").read_text()
    assert table.startswith("## weather: accuracy, %") and "| leave-one-out |        svm |" in table
    assert {p.name for p in output.glob("*.png")} == {f"{name}.matrix.png" for name in names}


def test_the_command_pools_documents(directory, tmp_path):
    asked = ["--documents", "sentences-max", "--no-pictures"]
    assert run(directory, tmp_path / "out", *asked) == 0
    settings = json.loads((tmp_path / "out/results.json").read_text())["settings"]
    assert settings["documents"] == "sentences-max"
