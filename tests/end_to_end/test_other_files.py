"""Files of others in fresh processes: Parquet to an encoder; filter, then train."""

import subprocess
import sys

import pytest

from tests.cli.corpora_for_cli import ROOT, write_tsv

TINY = ["--config=static:smoke", "--config.languages=('en','de')", "--config.data.pairs=('en-de',)"]
TINY += ["--config.vocab.size=80", "--config.train.total_steps=4"]


def xling(directory, *words):
    done = subprocess.run(
        [sys.executable, "-m", "xling_jax.cli.main", *words],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(directory)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_a_parquet_data_set_of_hugging_face_becomes_an_encoder_in_two_commands(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.read_csv(write_tsv(tmp_path / "a.tsv"), sep="\t")
    frame = frame.rename(columns={"en": "english", "de": "non_english"})
    frame[["english", "non_english"]].to_parquet(tmp_path / "train-00000-of-00001.parquet")
    corpus = "--config.data.corpora=('parquet:train-*.parquet',)"
    xling(tmp_path, "train", "--workdir=w", corpus, *TINY)
    xling(tmp_path, "embed", "--model=w", "--input=a.tsv", "--output=a.npy")
    assert (tmp_path / "a.npy").stat().st_size > 1000
