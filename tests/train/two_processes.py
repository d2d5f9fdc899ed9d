"""A short training run in two processes of which one will end, and what is left of it."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from tests.train import processes

TOTAL = 8
SETTINGS = {
    "train.total_steps": TOTAL,
    "train.checkpoint_every_steps": 2,
    "train.evaluate_every_steps": 4,
    "train.best_metric": "dev/score",
    "train.best_goal": "max",
    "train.keep_last": 100,
    # So that both have parameters to write.
    "mesh.fsdp": 4,
    "encoder.width": 32,
    "decoder.width": 32,
    "encoder.ffn_width": 512,
    "decoder.ffn_width": 512,
}
HEARTBEAT_S = 10


def whole(workdir: Path) -> list[int]:
    """Steps of the checkpoints that are whole."""
    names = os.listdir(workdir / "checkpoints") if (workdir / "checkpoints").exists() else []
    return sorted(int(name) for name in names if name.isdigit())


def being_written(workdir: Path) -> bool:
    """Whether a checkpoint is."""
    return any((workdir / "checkpoints").glob("*.orbax-checkpoint-tmp*"))


def end_together(pair: Sequence) -> list[int]:
    """Exit statuses of two of which one ends; the other must within the time that is promised."""
    assert processes.wait_for(lambda: any(p.exitcode is not None for p in pair), 300, 0.05)
    started = time.monotonic()
    statuses = [processes.finish(process) for process in pair]
    assert time.monotonic() - started < HEARTBEAT_S + 40  # to leave takes time, too
    return statuses


def finish_all(several: Sequence) -> list[int]:
    """Exit statuses of processes that do all there is to do."""
    return [processes.finish(process, 300) for process in several]


def run_undisturbed(workdir: Path, corpus: Path, cache: Path, settings=SETTINGS) -> Path:
    """Runs to the end in one process on one device; returns the workdir."""
    process = processes.start(workdir, corpus, settings | {"mesh.fsdp": 1}, cache=cache)
    assert processes.finish(process, 300) == 0, processes.log_text(workdir)
    return workdir
