"""Zero-shot classification: counts by hand, selection, baselines, files."""

import types
import zlib

import numpy as np
import pytest

from xling_jax.eval import classification, classification_data

LABELS = ("cold", "hot")


def encode(texts):
    """ "hot 3 de" is at a place that its label decides, slightly moved by its number."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((1000, 6)) * 0.1
    centers = {"cold": np.eye(6)[0], "hot": np.eye(6)[1]}
    return np.array([centers[t.split()[0]] + noise[zlib.crc32(t.encode()) % 1000] for t in texts])


def labeled(language, n, flip=0):
    """n texts; the first `flip` carry the wrong label."""
    texts = [f"{LABELS[i % 2]} {i} {language}" for i in range(n)]
    labels = [LABELS[(i + (i < flip)) % 2] for i in range(n)]
    return classification_data.LabeledText(texts, labels)


def data_of(**splits):
    return classification_data.ClassificationData("toy", splits)


def measure_with(encode, data, classifier="logreg", protocol="zero-shot", **options):
    """The matrix of one classifier and protocol."""
    task = classification.Classification(
        classifiers=(classifier,), protocols=(protocol,), **options
    )
    (matrix,) = task.measure(types.SimpleNamespace(encode=encode), data).values()
    return matrix


def test_accuracies_by_hand():
    data = data_of(
        train={"en": labeled("en", 40), "de": labeled("de", 40)},
        test={"en": labeled("en", 10, flip=1), "de": labeled("de", 20, flip=5)},
    )
    matrix = measure_with(encode, data, c_values=(1.0,))
    np.testing.assert_allclose(matrix.accuracies["accuracy"], [[0.9, 0.75], [0.9, 0.75]])
    assert matrix.mean("same") == pytest.approx((0.9 + 0.75) / 2)
    assert matrix.mean("cross") == pytest.approx((0.9 + 0.75) / 2)
    assert matrix.x_cross("en") == pytest.approx(0.75)
    # The training labels are balanced, so the first by name is always answered.
    np.testing.assert_allclose(matrix.accuracies["chance"][0], [0.4, 0.45])
    assert matrix.selection == "fixed C" and matrix.test_split == "test"


def test_a_bag_of_words_knows_only_the_words_of_its_language():
    train = classification_data.LabeledText(["warm sun", "cold ice"] * 10, ["hot", "cold"] * 10)
    test = {
        "en": classification_data.LabeledText(["sun", "ice"], ["hot", "cold"]),
        "de": classification_data.LabeledText(["Sonne", "Eis"], ["hot", "cold"]),
    }
    matrix = measure_with(
        lambda texts: np.zeros((len(texts), 2)), data_of(train={"en": train}, test=test)
    )
    np.testing.assert_allclose(matrix.accuracies["bag_of_words"], [[1.0, 0.5]])
    np.testing.assert_allclose(matrix.accuracies["accuracy"], [[0.5, 0.5]])


def test_c_is_chosen_on_dev_of_the_training_language_only():
    train, test = {"en": labeled("en", 40)}, {"de": labeled("de", 10)}
    first = data_of(train=train, dev={"en": labeled("en", 10)}, test=test)
    second = data_of(
        train=train, dev={"en": labeled("en", 10), "de": labeled("de", 10, flip=10)}, test=test
    )
    chosen = [measure_with(encode, d) for d in (first, second)]
    assert "dev split of the training language" in chosen[0].selection
    assert chosen[0].chosen == chosen[1].chosen


def test_without_test_files_dev_measures_and_folds_choose():
    data = data_of(train={"en": labeled("en", 40)}, dev={"en": labeled("en", 10)})
    matrix = measure_with(encode, data)
    assert matrix.test_split == "dev" and "cross-validation" in matrix.selection
    assert matrix.mean("same") == 1 and np.isnan(matrix.mean("cross"))


def test_scale_and_shift_of_embeddings_change_nothing():
    data = data_of(
        train={"en": labeled("en", 30, flip=6)},
        test={"de": labeled("de", 30), "en": labeled("en", 9)},
    )
    plain = measure_with(encode, data)
    moved = measure_with(lambda texts: 50 * encode(texts) + 7, data)
    for kind, values in plain.accuracies.items():
        np.testing.assert_array_equal(values, moved.accuracies[kind])


def test_named_scores_are_plain_floats_without_nan():
    data = data_of(train={"en": labeled("en", 10)}, test={"en": labeled("en", 10)})
    matrix = measure_with(encode, data, c_values=(1.0,))
    scores = matrix.scores()
    assert scores["same"] == scores["accuracy_en_en"] == 1.0
    assert "cross" not in scores and "bag_of_words_same" in scores
    assert set(map(type, scores.values())) == {float}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"c_values": (-1.0,)}, "c_values=-1.0 must be positive"),
        ({"classifier": "forest"}, "classifiers='forest' must be one of logreg, svm, mlp, linear"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    data = data_of(train={"en": labeled("en", 10)}, test={"en": labeled("en", 10)})
    with pytest.raises(ValueError, match=message):
        measure_with(encode, data, **settings)
    one = classification_data.LabeledText(["hot 1 en", "hot 2 en"], ["hot", "hot"])
    with pytest.raises(ValueError, match="two labels; the text in en has one"):
        measure_with(encode, data_of(train={"en": one}, test={"en": one}))


def test_files_with_and_without_header(tmp_path):
    (tmp_path / "train.en.tsv").write_text("text\tid\tlabel\nsun\t1\thot\nice\t2\tcold\n")
    (tmp_path / "dev.de.tsv").write_text("hot\tSonne\ncold\tEis\n")
    data = classification_data.load_classification_data(tmp_path)
    assert data.splits["train"]["en"].texts == ["sun", "ice"]
    assert data.splits["dev"]["de"].labels == ["hot", "cold"]
    assert data.labels == ("cold", "hot") and data.test_split == "dev"
    with pytest.raises(ValueError, match="fr"):
        classification_data.load_classification_data(tmp_path, ["fr"])


def test_files_of_other_formats(tmp_path):
    (tmp_path / "train.en.csv").write_text('text,label\n"sun, really",1\nice,0\n')
    (tmp_path / "dev.de.jsonl").write_text('{"label": 1, "text": "Sonne"}\n')
    frame = pytest.importorskip("pyarrow").table({"text": ["feu"], "label": [0]})
    pytest.importorskip("pyarrow.parquet").write_table(frame, tmp_path / "test.fr.parquet")
    splits = classification_data.load_classification_data(tmp_path).splits
    assert splits["train"]["en"] == classification_data.LabeledText(
        ["sun, really", "ice"], ["1", "0"]
    )
    assert splits["dev"]["de"] == classification_data.LabeledText(["Sonne"], ["1"])
    assert splits["test"]["fr"] == classification_data.LabeledText(["feu"], ["0"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.tsv": "a\tb\n"}, "must hold train.LANG.tsv, and .*; found no such file$"),
        ({"train.en.tsv": "a\tb\n"}, r"found train\.en\.tsv$"),
        ({"train.en.tsv": "a\tb\n", "dev.en.tsv": ""}, r"dev\.en\.tsv: must hold rows"),
        ({"train.en.tsv": "a\tb\nc\n", "dev.en.tsv": "a\tb\n"}, r"train\.en\.tsv:2: .* found 1"),
        ({"train.en.tsv": "Good\tb\n", "dev.en.tsv": "good\tb\n"}, "the label 'good' of dev.en is"),
        ({"train.en.tsv": "a\tb\n \tc\n", "dev.en.tsv": "a\tb\n"}, r"tsv:2: the label must not"),
        ({"train.en.tsv": "a\tb\n", "train.en.tsv.gz": ""}, "keep one file a split and language"),
    ],
)
def test_broken_directories_are_refused(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        classification_data.load_classification_data(tmp_path)


def test_swapped_columns_are_refused_with_the_file_and_counts(tmp_path):
    (tmp_path / "dev.en.tsv").write_text("hot\tsun\n")
    (tmp_path / "train.en.tsv").write_text("sun\thot\nice\tcold\nfire\thot\nsun\thot\n")
    with pytest.raises(ValueError) as error:
        classification_data.load_classification_data(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'train.en.tsv'}: must have at least as many")
    assert "2 texts and 3 labels, the most common (sun) in 2 of 4 lines" in str(error.value)
    assert "are label and text swapped?" in str(error.value)


def test_labels_that_occur_once_each_are_refused_only_where_folds_choose():
    once = {"en": classification_data.LabeledText(["hot 1 en", "cold 1 en"], ["hot", "cold"])}
    data = data_of(train=once, test={"en": labeled("en", 10)})
    with pytest.raises(ValueError, match="toy: the train text in en has 2 labels, each once.*swap"):
        measure_with(encode, data)
    assert measure_with(encode, data, c_values=(1.0,)).mean("same") == 1
    assert measure_with(encode, data_of(train=once, dev=once, test=once)).mean("same") == 1


def test_a_first_line_that_may_be_a_header_is_warned_of(tmp_path, caplog):
    (tmp_path / "train.en.tsv").write_text("category\tsentence\nhot\tsun\nhot\tfire\n")
    (tmp_path / "dev.en.tsv").write_text("hot\tsun\ncold\tice\nhot\tfire\n")
    (tmp_path / "test.en.tsv").write_text("cold\tice\nhot\tsun\n")  # a text of each label
    classification_data.load_classification_data(tmp_path)
    message, unknown, _ = caplog.messages
    assert unknown.endswith("dev.en that the training text does not have count as errors: cold")
    assert message.startswith(f"{tmp_path / 'train.en.tsv'}:1: the label category occurs nowhere")
