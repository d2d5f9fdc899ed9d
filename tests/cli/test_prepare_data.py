"""`xling prepare`: its table, and which errors are wrong use."""

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.corpora_for_cli import arguments
from xling_jax.cli.main import main
from xling_jax.config import load
from xling_jax.runs.prepare import prepare_workdir
from xling_jax.runs.workdir import Workdir


@pytest.fixture
def corpus(tmp_path) -> str:
    path = tmp_path / "corpus.tsv"
    rows = ["Das Haus\tthe house", "Ein Baum\ta tree", "Ein Baum\tA tree", "OK\tOK"]
    path.write_text("\n".join(["de\ten", *rows]) + "\n")
    return f"tsv:{path}"


def test_prints_what_was_used_and_dropped(corpus, tmp_path, capsys):
    assert main(arguments("prepare", corpus, tmp_path / "w", "--config.vocab.size=30")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["de-en", "4", "2"]
    assert lines[1].endswith("corpus.tsv: 1 identical, 1 duplicate")
    assert lines[-1].split()[:2] == ["de-en", "2"]


def test_a_wrong_number_of_workers_is_wrong_use(corpus, tmp_path, capsys):
    assert main([*arguments("prepare", corpus, tmp_path / "w"), "--num-workers=0"]) == 2
    assert "--num-workers must be at least 1; found 0" in capsys.readouterr().err
    assert not (tmp_path / "w").exists()


def test_a_run_that_moved_trains_on_its_data_where_the_corpora_are_not(corpus, tmp_path, caplog):
    given = arguments("prepare", corpus, tmp_path / "w", "--config.vocab.size=30")
    assert main(given) == 0
    moved = str(tmp_path / "elsewhere")
    for name in ("data", "vocab"):
        shutil.copytree(tmp_path / "w" / name, tmp_path / "elsewhere" / name)
    shutil.rmtree(tmp_path / "elsewhere/data/text")
    Path(corpus.removeprefix("tsv:")).unlink()
    overrides = [word for word in given if word.startswith("--config.")]
    experiment = load(given[given.index("--config") + 1], overrides)
    with caplog.at_level(logging.WARNING):
        prepared = prepare_workdir(experiment, Workdir(moved))
    assert prepared.counts["pairs"]["de-en"]["rows"] == 2
    assert f"no such file; training on {Path(moved, 'data')}" in caplog.text
    with pytest.raises(FileNotFoundError, match="no such file"):  # `xling prepare`
        prepare_workdir(experiment, Workdir(moved), anew=True)
    experiment = experiment.replace({"cleaning.max_words": 7})
    with pytest.raises(FileNotFoundError, match="no such file"):
        prepare_workdir(experiment, Workdir(moved))


def test_preparation_imports_neither_jax_nor_tensorflow():
    code = (
        "import sys, xling_jax.cli.prepare_data; "
        "print([m for m in ('jax', 'tensorflow', 'tensorflow_datasets') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
