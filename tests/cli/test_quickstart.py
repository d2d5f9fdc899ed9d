"""The command's own steps; an untrained encoder stands for the training, small files for the text.

That it learns is the subject of the quickstart itself, which takes minutes and a network.
"""

import re
import shlex

import pytest

from tests.encode.random_models import save_random
from xling_jax.cli import main, quickstart
from xling_jax.config import find_config
from xling_jax.corpora.quickstart_text import (
    LANGUAGES,
    PRODUCTS,
    UNRELATED_QUERY,
    QuickstartText,
)
from xling_jax.runs import train
from xling_jax.text.vocab import train_vocab

ENCODER = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
VOCAB_SIZE = 120


def write_small_text(wheels, directory):
    """Takes the place of `write_text`."""
    table = find_config("quickstart").with_name("quickstart_sentences.tsv")
    header, *rows = [line.split("\t") for line in table.read_text("utf-8").splitlines()]
    columns = [header.index(code) for code in LANGUAGES]
    rows = [[row[column] for column in columns] for row in rows if all(row)][:12]
    (directory / "classification").mkdir(parents=True)
    lines = ["\t".join(row) + "\n" for row in [LANGUAGES, *rows]]
    (directory / "retrieval.tsv").write_text("".join(lines))
    for split in ("train", "dev", "test"):
        for column, code in enumerate(LANGUAGES):
            labeled = [f"{list(PRODUCTS)[i % 5]}\t{row[column]}\n" for i, row in enumerate(rows)]
            (directory / f"classification/{split}.{code}.tsv").write_text("".join(labeled))
    return QuickstartText(
        corpora=(f"gettext:{wheels}",),
        exclude=(str(directory / "retrieval.tsv"),),
        retrieval=str(directory / "retrieval.tsv"),
        classification=str(directory / "classification"),
        counts={"retrieval.tsv": len(rows), "classification/train.en.tsv": len(rows)},
    )


def save_untrained_encoder(experiment, workdir):
    """Takes the place of `train_experiment`."""
    sentences = [f"one two three four five six {c}{i} {i}" for c in LANGUAGES for i in range(40)]
    vocab = train_vocab(sentences, size=VOCAB_SIZE)
    settings = {"languages": LANGUAGES, "max_length_tokens": 100, "overwrite": True}
    save_random(f"{workdir}/encoder", "tlaser", vocab, ENCODER, **settings)
    return 0


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command on a small text, returns its exit status."""
    (tmp_path / "wheels.txt").write_text("")
    monkeypatch.setattr(quickstart, "fetch_wheels", lambda requirements, directory: [])
    monkeypatch.setattr(quickstart, "write_text", write_small_text)
    monkeypatch.setattr(train, "train_experiment", save_untrained_encoder)
    monkeypatch.chdir(tmp_path)

    def run(*words):
        return main.main(["quickstart", "--workdir", "run", "--wheels", "wheels.txt", *words])

    return run


def next_commands(printed):
    return [shlex.split(line) for line in printed.splitlines() if line.startswith("  xling ")]


@pytest.mark.slow
def test_every_promised_file_is_there_and_both_encoders_are_compared(command, tmp_path, capsys):
    assert command() == 0
    printed = capsys.readouterr().out
    for name in (
        "results/retrieval/results.json",
        "results/retrieval/retrieval.matrix.png",
        "results/retrieval/retrieval.pca.png",
        "results/classification/results.md",
        "results/classification/classification.matrix.png",
        "results/mini/retrieval/results.json",
        "results/mini/classification/results.json",
    ):
        assert (tmp_path / "run" / name).stat().st_size > 0
    page = (tmp_path / "run/report.html").read_text()
    compared = page[page.index("Side by side") :]
    assert compared.index(">run<") < compared.index(">mini<")  # two systems, not one
    assert "run/report.html" in printed and 'xling_jax.load("run")' in printed
    assert printed.count("xling evaluate retrieval:") == 2
    assert "bag of words" in printed and UNRELATED_QUERY in printed


def test_the_encoder_is_shown_before_anything_is_trained(command, monkeypatch, capsys):
    order = []
    monkeypatch.setattr(
        train, "train_experiment", lambda *_: order.append(capsys.readouterr().out) or 143
    )
    assert command() == 143
    (before,) = order
    assert "12 lines each" not in before and "9 lines each, 6 with a translation" in before
    assert re.search(r"precision \d+\.\d%, recall \d+\.\d%", before)
    assert "bag of words" in before


@pytest.mark.slow
def test_without_training_the_commands_to_try_next_work(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train, "train_experiment", None)
    assert command("--no-training") == 0
    commands = next_commands(capsys.readouterr().out)
    assert [words[1] for words in commands] == ["mine", "evaluate", "embed"]
    for _, *words in commands:
        assert main.main(words) == 0
        assert (tmp_path / words[words.index("--output") + 1]).exists()


def test_training_gets_the_text_and_what_to_keep_out_of_it(command, monkeypatch):
    seen = []
    monkeypatch.setattr(
        train, "train_experiment", lambda experiment, _: seen.append(experiment) or 143
    )
    assert command("--config.seed=7") == 143
    (experiment,) = seen
    assert experiment.data.corpora == ("gettext:run/wheels",)
    assert experiment.data.exclude == ("run/text/retrieval.tsv",)
    assert experiment.evaluation["retrieval"] == ("run/text/retrieval.tsv",)
    assert experiment.seed == 7


def test_a_directory_with_files_of_the_user_is_left_alone(command, tmp_path, capsys):
    (tmp_path / "run/text").mkdir(parents=True)
    (tmp_path / "run/text/retrieval.tsv").write_text("mine")
    assert command("--no-training") == 2
    assert "--workdir run: is a file or holds other files; name a new" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["text", "retrieval.tsv"]
    assert (tmp_path / "run/text/retrieval.tsv").read_text() == "mine"
