"""The command's own steps; an untrained encoder stands for the training, small files for the text.

That it learns is the subject of the quickstart itself, which takes minutes and a network.
"""

import jax
import numpy as np
import pytest

from xling_jax.cli import main, quickstart, train
from xling_jax.corpora.quickstart_text import LANGUAGES, PRODUCTS, QuickstartText
from xling_jax.encode.model_directory import save_model
from xling_jax.models import registry
from xling_jax.text.vocab import train_vocab

ENCODER = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
VOCAB_SIZE = 120


def write_small_text(wheels, directory):
    """Takes the place of `write_text`."""
    rows = [[f"one two three four five six {code}{i}" for code in LANGUAGES] for i in range(12)]
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
        counts={"retrieval.tsv": len(rows)},
    )


def save_untrained_encoder(config, workdir):
    """Takes the place of `train_from_config`."""
    sentences = [f"one two three four five six {c}{i} {i}" for c in LANGUAGES for i in range(40)]
    vocab = train_vocab(sentences, size=VOCAB_SIZE)
    module = registry.build_encoder("tlaser", vocab_size=vocab.size, **ENCODER)
    params = module.init(jax.random.key(0), np.ones((1, 8), np.int32))["params"]
    save_model(
        f"{workdir}/encoder",
        family="tlaser",
        encoder_args=ENCODER,
        params=params,
        vocab=vocab,
        languages=LANGUAGES,
        max_length_tokens=100,
        training={"corpora": list(config.data.corpora), "exclude": list(config.data.exclude)},
        overwrite=True,
    )
    return 0


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command on a small text, returns its exit status."""
    (tmp_path / "wheels.txt").write_text("")
    monkeypatch.setattr(quickstart, "fetch_wheels", lambda requirements, directory: [])
    monkeypatch.setattr(quickstart, "write_text", write_small_text)
    monkeypatch.setattr(train, "train_from_config", save_untrained_encoder)
    monkeypatch.chdir(tmp_path)

    def run(*words):
        return main.main(["quickstart", "--workdir", "run", "--wheels", "wheels.txt", *words])

    return run


def test_every_promised_file_is_there_and_the_summary_names_it(command, tmp_path, capsys):
    assert command() == 0
    printed = capsys.readouterr().out
    for name in (
        "retrieval/results.json",
        "retrieval/results.md",
        "retrieval/retrieval.matrix.png",
        "retrieval/retrieval.pca.png",
        "classification/results.json",
        "classification/classification.matrix.png",
        "neighbors.txt",
    ):
        assert (tmp_path / "run" / "results" / name).stat().st_size > 0
        assert f"run/results/{name}" in printed
    assert 'xling_jax.load("run")' in printed
    assert "retrieval, P@1" in printed and "chance 8.3 %" in printed
    assert "bag of words" in printed and quickstart.SENTENCES[0] in printed


def test_training_gets_the_text_and_what_to_keep_out_of_it(command, monkeypatch):
    seen = []
    monkeypatch.setattr(train, "train_from_config", lambda config, _: seen.append(config) or 143)
    assert command("--config.seed=7") == 143
    (config,) = seen
    assert config.data.corpora == ("gettext:run/wheels",)
    assert config.data.exclude == ("run/text/retrieval.tsv",)
    assert config.evaluation.retrieval == ("run/text/retrieval.tsv",)
    assert config.seed == 7


def test_the_packaged_config_and_wheels_are_found_from_any_directory(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(quickstart, "fetch_wheels", lambda wheels, _: seen.update(wheels=wheels))
    monkeypatch.setattr(quickstart, "write_text", write_small_text)
    monkeypatch.setattr(train, "train_from_config", lambda config, _: seen.update(config) or 143)
    assert main.main(["quickstart", "--workdir", "run"]) == 143
    assert "gramps" in seen["wheels"].read_text() and seen["languages"] == LANGUAGES


def test_missing_wheels_are_wrong_use(command, capsys):
    assert command("--wheels", "absent.txt") == 2
    assert "--wheels absent.txt: no such file" in capsys.readouterr().err
