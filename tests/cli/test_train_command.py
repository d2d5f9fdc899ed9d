"""`xling train` end to end in real processes: stopped, continued, on a full disk."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xling_jax
from tests.cli.corpora_for_cli import ROOT, arguments, write_tsv
from tests.train.processes import metrics_without_timing, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return f"tsv:{write_tsv(tmp_path_factory.mktemp('corpus') / 'corpus.tsv')}"


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> Path:
    """The workdir of a run that nothing disturbs; its compiled programs serve the others."""
    workdir = tmp_path_factory.mktemp("finished") / "w"
    process = start(corpus, workdir, "--config.train.total_steps=60")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return workdir


def start(corpus: str, workdir: Path, *overrides: str) -> subprocess.Popen:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    del environment["JAX_COMPILATION_CACHE_DIR"]  # programs are kept in the workdir
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "xling_jax.cli.main",
            *arguments("train", corpus, workdir, *overrides),
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def complaints(errors: str) -> list[str]:
    """Lines of stderr that are no log lines."""
    return [line for line in errors.splitlines() if not (line[2:3] == line[5:6] == ":")]


def test_a_finished_run_holds_what_was_promised(finished):
    for name in ("config.json", "vocab/sentencepiece.model", "data/counts.json", "metrics.jsonl"):
        assert (finished / name).is_file(), name
    assert any((finished / "tensorboard").iterdir())
    assert json.loads((finished / "config.json").read_text())["train"]["total_steps"] == 60
    assert metrics_without_timing(finished)[-1]["step"] == 60
    vectors = xling_jax.load(str(finished)).encode(["abcd efgh", ""])
    assert vectors.shape == (2, 16) and np.isfinite(vectors).all()


def test_stopped_and_killed_the_same_command_gives_the_same_encoder(corpus, finished, tmp_path):
    workdir, settings = tmp_path / "w", "--config.train.total_steps=60"
    shutil.copytree(finished / "xla_cache", workdir / "xla_cache")
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = start(corpus, workdir, settings)
        before = newest(workdir)
        assert wait_for(lambda before=before: newest(workdir) > before, 120)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
        if number == signal.SIGTERM:
            assert process.returncode == 143, errors
            assert "the same command continues" in errors and complaints(errors) == []
    process = start(corpus, workdir, settings)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and "resuming from checkpoint" in errors, errors
    encoder = "encoder/encoder.safetensors"
    assert (workdir / encoder).read_bytes() == (finished / encoder).read_bytes()
    assert metrics_without_timing(workdir) == metrics_without_timing(finished)


def newest(workdir: Path) -> int:
    steps = (workdir / "checkpoints").glob("[0-9]*[0-9]")
    return max((int(path.name) for path in steps), default=0)


@pytest.mark.exhaustive
def test_a_full_disk_is_one_line_and_with_room_the_same_command_continues(
    corpus, finished, tmp_path
):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a small disk here")
    try:
        workdir = disk / "w"
        shutil.copytree(finished / "xla_cache", workdir / "xla_cache")
        settings = ("--config.train.total_steps=60", "--config.train.keep_last=1000")
        process = start(corpus, workdir, *settings)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 1, errors
        # When several files of a checkpoint fail at once, tensorstore's threads print tracebacks of
        # their own about a closed event loop, at times; ours is one line.
        (line,) = (line for line in complaints(errors) if line.startswith("xling "))
        assert line.startswith("xling train: error: ") and str(workdir) in line
        assert "No space left on device" in line
        shutil.copytree(workdir, tmp_path / "roomy")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    process = start(corpus, tmp_path / "roomy", *settings)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and "resuming from checkpoint" in errors, errors
    encoder = "encoder/encoder.safetensors"
    assert (tmp_path / "roomy" / encoder).read_bytes() == (finished / encoder).read_bytes()
