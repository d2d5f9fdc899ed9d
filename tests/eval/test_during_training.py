"""What a run measures while it trains: from the paths in its config to metrics.jsonl."""

import json
import types

import numpy as np
import pytest

from tests.cli.corpora_for_cli import arguments, write_tsv
from xling_jax.cli import main
from xling_jax.config import load
from xling_jax.eval.during_training import make_evaluators, read_evaluation
from xling_jax.eval.tasks import TASKS
from xling_jax.options import OptionError

WORDS = ("sun", "ice", "rain", "wind", "snow", "fog")


def write_labeled(directory, languages):
    directory.mkdir()
    for split in ("train", "test"):
        for code in languages:
            rows = [f"{i % 2}\t{code} {word}" for i, word in enumerate(WORDS)] * 2
            (directory / f"{split}.{code}.tsv").write_text("\n".join(rows) + "\n")
    return str(directory)


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def make(languages=("de", "en"), **evaluation):
    """Metrics of the evaluators of a config, of an encoder that knows the word but no language."""

    def encode(texts):
        return np.array([np.eye(len(WORDS))[WORDS.index(text.split()[1])] for text in texts])

    encoder = types.SimpleNamespace(with_params=lambda params: types.SimpleNamespace(encode=encode))
    metrics = {}
    for evaluator in make_evaluators(read_evaluation(evaluation, languages), encoder):
        metrics |= evaluator({}, 1)
    return metrics


def test_classification_trains_on_english_if_it_can(tmp_path):
    directory = write_labeled(tmp_path / "weather", ("de", "en", "fr"))
    metrics = make(classification=(directory,))
    assert metrics == {
        "weather/same": 1,
        "weather/cross": 1,
        "weather/accuracy_en_de": 1,
        "weather/accuracy_en_en": 1,
    }
    assert "weather/accuracy_fr_de" in make(("fr", "de"), classification=(directory,))


def test_a_directory_of_pairs_is_measured_under_the_codes_of_the_config(tmp_path):
    (tmp_path / "tatoeba").mkdir()
    rows = "".join(f"deu {word}\teng {word}\n" for word in WORDS)
    (tmp_path / "tatoeba" / "deu-eng.tsv").write_text("deu\teng\n" + rows)
    (tmp_path / "tatoeba" / "xho-eng.tsv").write_text("xho\teng\nx sun\ty sun\n")
    metrics = make(retrieval=(str(tmp_path / "tatoeba"),))
    assert metrics["tatoeba/p_at_1"] == 1 and metrics["tatoeba/error"] == 0


def test_a_set_without_some_of_the_languages_is_measured_in_the_others(tmp_path, caplog):
    path = tmp_path / "own.tsv"
    write(path, ["de\ten", *(f"de {word}\ten {word}" for word in WORDS)])
    caplog.set_level("INFO")
    assert make(("en", "de", "es", "fr"), retrieval=(str(path),))["own/p_at_1"] in (0, 1)
    assert caplog.messages == [f"{path}: no text in es, fr; measured in en, de"]
    with pytest.raises(OptionError) as error:
        make(("en", "es"), retrieval=(str(path),))
    assert str(error.value) == (
        f"evaluation.retrieval: {path}: retrieval needs at least two languages; asked for en, es; "
        "found de, en"
    )


def test_two_sets_of_one_name_are_refused(tmp_path):
    directories = []
    for parent in ("a", "b"):
        (tmp_path / parent).mkdir()
        directories.append(write_labeled(tmp_path / parent / "weather", ("de", "en")))
    with pytest.raises(OptionError, match="both be called weather"):
        make(classification=directories)


def test_text_in_none_of_the_languages_is_an_error(tmp_path):
    directory = write_labeled(tmp_path / "weather", ("fr",))
    with pytest.raises(ValueError, match="none of de, en has a train file; there are files in fr"):
        make(classification=(directory,))


def test_missing_data_and_a_metric_that_nothing_measures_are_wrong_use(tmp_path):
    with pytest.raises(OptionError, match="evaluation.classification: .*nowhere: no such"):
        make(classification=(str(tmp_path / "nowhere"),))
    with pytest.raises(OptionError, match="needs data in one of evaluation.retrieval, eval"):
        read_evaluation({"retrieval": (), "classification": ()}, (), "x")


def test_a_config_may_name_any_task_of_the_registry():
    experiment = load("ct_laser:smoke", [f"--config.evaluation.{task}=('a',)" for task in TASKS])
    assert all(experiment.evaluation[task] == ("a",) for task in TASKS)
    with pytest.raises(OptionError, match="minning.*did you mean mining"):
        load("ct_laser:smoke", ["--config.evaluation.minning=('a',)"])


def test_a_string_is_one_path():
    task, override = "retrieval", "--config.evaluation.retrieval"
    for given in ("my/dev.tsv", "('my/dev.tsv',)"):
        experiment = load("ct_laser:smoke", [f"{override}={given}"])
        assert experiment.evaluation[task] == ("my/dev.tsv",)
        assert experiment.preparation.evaluation == ("my/dev.tsv",)
    for wrong in ("5", "(5,)", ""):
        with pytest.raises(OptionError, match=f"evaluation.{task}=.*must be a path or several"):
            load("ct_laser:smoke", [f"{override}={wrong}"])


def test_every_task_can_be_measured(tmp_path):
    lines = {code: [f"{code} {word}" for word in WORDS] for code in ("de", "en")}
    write(tmp_path / "dev.tsv", ["de\ten", *map("\t".join, zip(*lines.values()))])
    for code, texts in lines.items():
        write(tmp_path / f"de-en.training.{code}", [f"{i}\t{t}" for i, t in enumerate(texts)])
    write(tmp_path / "de-en.training.gold", [f"{i}\t{i}" for i in range(len(WORDS))])
    documents = [
        {"id": f"{i}", "lang": code, "sentences": [text]}
        for code, texts in lines.items()
        for i, text in enumerate(texts)
    ]
    write(tmp_path / "documents.jsonl", map(json.dumps, documents))
    (tmp_path / "probing").mkdir()
    rows = [f"{part}\t{i % 2}\tde {w}" for part in ("tr", "va", "te") for i, w in enumerate(WORDS)]
    write(tmp_path / "probing" / "past_present.txt", rows)
    paths = {
        "retrieval": tmp_path / "dev.tsv",
        "classification": write_labeled(tmp_path / "weather", ("de", "en")),
        "mining": tmp_path,
        "alignment": tmp_path / "documents.jsonl",
        "probing": tmp_path / "probing",
        "language": tmp_path / "documents.jsonl",
    }
    metrics = make(**{task: (str(path),) for task, path in paths.items()})
    for name in (
        "dev/p_at_1",
        "weather/cross",
        "de-en/f1",
        "documents/recall",
        "past_present/accuracy",
    ):
        assert metrics[name] == 1
    assert metrics["dev/xsim"] == 0 and "dev/p_at_1_all" not in metrics  # cheap: no diagonal
    assert set(paths) <= set(TASKS)


@pytest.mark.slow
def test_a_run_writes_its_accuracy_and_keeps_the_best(tmp_path):
    corpus = write_tsv(tmp_path / "corpus.tsv")
    header, *rows = (line.split("\t") for line in corpus.read_text().splitlines())
    (tmp_path / "words").mkdir()
    for column, code in enumerate(header):
        lines = [f"{len(row[1]) % 2}\t{row[column]}" for row in rows[:40]]
        for split in ("train", "dev"):
            (tmp_path / "words" / f"{split}.{code}.tsv").write_text("\n".join(lines) + "\n")
    status = main.main(
        arguments(
            "train",
            f"tsv:{corpus}",
            tmp_path / "w",
            f"--config.evaluation.classification=({str(tmp_path / 'words')!r},)",
            "--config.train.best_metric=words/cross",
            "--config.train.export=best",
            "--config.train.total_steps=4",
            "--config.train.evaluate_every_steps=2",
        )
    )
    assert status == 0
    lines = (tmp_path / "w" / "metrics.jsonl").read_text().splitlines()
    measured = {
        record["step"]: record["words/cross"]
        for record in map(json.loads, lines)
        if "words/cross" in record
    }
    assert list(measured) == [2, 4]
    assert all(0 <= value <= 1 for value in measured.values())
    exported = json.loads((tmp_path / "w" / "encoder" / "config.json").read_text())
    best = max(measured.values())
    assert measured[exported["training"]["exported_step"]] == best
