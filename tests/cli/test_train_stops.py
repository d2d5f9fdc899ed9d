"""`xling train` and `prepare` with Ctrl-C, started twice, on a full disk: one line each."""

import functools
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli import processes_for_cli as processes
from tests.cli.corpora_for_cli import ROOT, arguments, write_tsv
from tests.train.processes import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return f"tsv:{write_tsv(tmp_path_factory.mktemp('corpus') / 'corpus.tsv')}"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Directory of compiled programs, which all runs share."""
    return str(tmp_path_factory.mktemp("programs"))


def prepared(number, programs, change=None):
    import jax

    os.environ["JAX_COMPILATION_CACHE_DIR"] = programs
    jax.config.update("jax_compilation_cache_dir", programs)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if change:
        change()


@pytest.fixture
def start(corpus, programs, tmp_path):
    """Starts training in `w`; gives the process, and a function that returns what it has said."""
    count = 0

    def start(steps, change=None, command="train"):
        nonlocal count
        count += 1
        logs = tmp_path / f"logs{count}"
        given = f"--config.train.total_steps={steps}", "--config.train.log_every_steps=1"
        words = arguments(command, corpus, tmp_path / "w", *given)
        setup = functools.partial(prepared, programs=programs, change=change)
        (process,) = processes.start(logs, 1, words, setup)
        return process, lambda: processes.said(logs)

    return start


def ended(process, timeout_s=200):
    return processes.finish([process], timeout_s)[0]


def test_one_run_in_a_workdir_and_ctrl_c_saves_and_the_same_command_continues(start, tmp_path):
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
    assert "interrupted: saving after this step; Ctrl-C again leaves at once" in said()
    assert "checkpoint saved; the same command continues" in said()
    assert "Traceback" not in said() and not (tmp_path / "w" / "run.lock").exists()
    step = max(int(path.name) for path in (tmp_path / "w/checkpoints").glob("[0-9]*"))

    killed, said = start(100_000)
    assert wait_for(lambda: f"step {step + 3} loss" in said(), 300), said()
    killed.kill()
    killed.join()
    assert (tmp_path / "w" / "run.lock").exists()
    process, said = start(step + 1)  # at most what there is
    assert ended(process) == 0, said()
    assert "resuming from checkpoint" in said() and "sign of life" not in said()


def slow_saving():
    from xling_jax.train.checkpoint import Checkpoints

    Checkpoints.save = lambda *_: (print("saving now", flush=True), time.sleep(100))


@pytest.mark.exhaustive
def test_a_second_ctrl_c_leaves_at_once(start):
    process, said = start(100_000, slow_saving)
    assert wait_for(lambda: "saving now" in said(), 300), said()
    os.kill(process.pid, signal.SIGINT)
    assert wait_for(lambda: "Ctrl-C again leaves at once" in said(), 300), said()
    os.kill(process.pid, signal.SIGINT)
    assert ended(process, 5) == 130
    assert said().endswith("left at once; the same command continues\n")


def endless_cleaning():
    from xling_jax.corpora.pair_text import ChunkCleaner

    ChunkCleaner.__call__ = lambda *_: (print("cleaning now", flush=True), time.sleep(100))


@pytest.mark.exhaustive
def test_ctrl_c_while_preparing_is_one_line(start):
    process, said = start(4, endless_cleaning)
    assert wait_for(lambda: "cleaning now" in said(), 300), said()
    os.kill(process.pid, signal.SIGINT)
    assert ended(process, 20) == 130
    assert said() == "cleaning now\nxling train: interrupted; the same command continues\n"


def test_a_full_disk_is_one_line_and_the_checkpoint_before_stays(start, corpus, programs, tmp_path):
    """As a user starts it: what libraries say at the end of the process counts, too."""
    process, said = start(2)
    assert ended(process) == 0, said()
    workdir = tmp_path / "w"
    before = {path: path.read_bytes() for path in files(workdir / "checkpoints")}
    # The largest file of a checkpoint is cut.
    room = max(map(len, before.values())) // 2
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    words = arguments("train", corpus, workdir, "--config.train.total_steps=6")
    finished = subprocess.run(
        [sys.executable, "-m", "xling_jax.cli.main", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_COMPILATION_CACHE_DIR": programs},
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
