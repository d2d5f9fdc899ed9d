"""`xling train` and `prepare` stopped, killed, started twice, on a full disk: one line each."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import xling_jax
from tests.cli import processes_for_cli as processes
from tests.cli.corpora_for_cli import ROOT, arguments, write_tsv
from tests.train.processes import metrics_without_timing, newest, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return f"tsv:{write_tsv(tmp_path_factory.mktemp('corpus') / 'corpus.tsv')}"


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """The workdir of a run of two steps."""
    top = tmp_path_factory.mktemp("trained")
    words = arguments("train", corpus, top / "w", "--config.train.total_steps=2")
    processes.run(top / "logs", 1, words)
    return top / "w"


@pytest.fixture
def start(corpus, tmp_path):
    """Starts training in `w`; gives the process, and a function that returns what it has said."""
    count = 0

    def start(steps, setup=None, command="train"):
        nonlocal count
        count += 1
        logs = tmp_path / f"logs{count}"
        given = f"--config.train.total_steps={steps}", "--config.train.log_every_steps=1"
        words = arguments(command, corpus, tmp_path / "w", *given)
        (process,) = processes.start(logs, 1, words, setup)
        return process, lambda: processes.said(logs)

    return start


def ended(process, timeout_s=200):
    return processes.finish([process], timeout_s)[0]


def test_stopped_and_killed_the_same_command_gives_the_same_encoder(corpus, tmp_path):
    """As a user starts it: a process of its own, which keeps its programs in the workdir."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    del environment["JAX_COMPILATION_CACHE_DIR"]

    def start(workdir: Path) -> subprocess.Popen:
        words = arguments("train", corpus, workdir, "--config.train.total_steps=24")
        return subprocess.Popen(
            [sys.executable, "-m", "xling_jax.cli.main", *words],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    finished, workdir = tmp_path / "finished", tmp_path / "w"
    process = start(finished)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    shutil.copytree(finished / "xla_cache", workdir / "xla_cache")  # compiled once
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = start(workdir)
        before = newest(workdir)
        assert wait_for(lambda before=before: newest(workdir) > before, 120)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == (143 if number == signal.SIGTERM else -number), errors
        if number == signal.SIGTERM:
            assert "run the same command to resume" in errors
            assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in errors.splitlines()), errors
    process = start(workdir)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and "resuming from checkpoint" in errors, errors
    assert any((workdir / "tensorboard").iterdir())
    encoder = "encoder/encoder.safetensors"
    assert (workdir / encoder).read_bytes() == (finished / encoder).read_bytes()
    assert metrics_without_timing(workdir) == metrics_without_timing(finished)
    assert json.loads((workdir / "config.json").read_text())["train"]["total_steps"] == 24
    vectors = xling_jax.load(str(workdir)).encode(["abcd efgh", ""])
    assert vectors.shape == (2, 16) and np.isfinite(vectors).all()


def test_one_run_in_a_workdir_and_ctrl_c_saves_and_the_same_continues(start, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "w")
    first, said = start(100_000)
    assert wait_for(lambda: "step 3 loss" in said(), 300), said()
    for command in ("train", "prepare"):
        second, refusal = start(100_000, command=command)
        assert ended(second) == 1
        lines = [line for line in refusal().splitlines() if line.startswith("xling")]
        assert len(lines) == 1 and f"by process {first.pid} on {os.uname().nodename}" in lines[0]
        assert lines[0].startswith(f"xling {command}: error: {tmp_path / 'w'}: in use since")
    os.kill(first.pid, signal.SIGINT)
    assert ended(first) == 130
    assert "interrupted: saving after this step; Ctrl-C again exits immediately" in said()
    assert "checkpoint saved; run the same command to resume" in said()
    assert "Traceback" not in said() and not (tmp_path / "w" / "run.lock").exists()
    step = newest(tmp_path / "w")

    killed, said = start(100_000)
    assert wait_for(lambda: f"step {step + 3} loss" in said(), 300), said()
    killed.kill()
    killed.join()
    assert (tmp_path / "w" / "run.lock").exists()
    process, said = start(step + 1)  # at most what there is
    assert ended(process) == 0, said()
    assert "resuming from checkpoint" in said() and "heartbeat" not in said()


def slow_saving(number):
    from xling_jax.train.checkpoint import Checkpoints

    Checkpoints.save = lambda *_: (print("saving now", flush=True), time.sleep(100))


@pytest.mark.exhaustive
def test_a_second_ctrl_c_leaves_at_once(start):
    process, said = start(100_000, slow_saving)
    assert wait_for(lambda: "saving now" in said(), 300), said()
    os.kill(process.pid, signal.SIGINT)
    assert wait_for(lambda: "Ctrl-C again exits immediately" in said(), 300), said()
    os.kill(process.pid, signal.SIGINT)
    assert ended(process, 5) == 130
    assert said().endswith("exited immediately; run the same command to resume\n")


def test_a_full_disk_is_one_line_and_the_checkpoint_before_stays(trained, corpus, tmp_path):
    """As a user starts it: what libraries say at the end of the process counts, too."""
    workdir = shutil.copytree(trained, tmp_path / "w")
    before = {path: path.read_bytes() for path in files(workdir / "checkpoints")}
    # How the arrays are spread over files depends on timing; one holds at least a sixth of all.
    room = sum(map(len, before.values())) // 10
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    words = arguments("train", corpus, workdir, "--config.train.total_steps=6")
    finished = subprocess.run(
        [sys.executable, "-m", "xling_jax.cli.main", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = finished.stderr.splitlines()
    assert finished.returncode == 1, lines
    assert lines[-1].startswith(f"xling train: error: {workdir}/checkpoints: writing a checkpoint")
    assert "File too large; the last good checkpoint is 2; make room and start" in lines[-1]
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines[:-1]), finished.stderr
    kept = {path: path.read_bytes() for path in files(workdir / "checkpoints/00000002")}
    assert kept == before


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_a_flipped_bit_in_a_shard_is_made_good_before_it_is_learned(start, trained, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "w")
    (shard,) = (workdir / "data" / "de-en").glob("*/de.tokens.npy")
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for directory in ("checkpoints", "encoder"):
        shutil.rmtree(workdir / directory)
    process, said = start(2)
    assert ended(process) == 0, said()
    assert "made again, as it is damaged" in said() and shard.read_bytes() == content
    encoder = "encoder/encoder.safetensors"
    assert (workdir / encoder).read_bytes() == (trained / encoder).read_bytes()
