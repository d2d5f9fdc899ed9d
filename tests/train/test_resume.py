"""Training that is stopped, killed and continued, in real processes, equals one that is not."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from jax import tree_util

from tests.train import processes

pytestmark = pytest.mark.slow

TOTAL = 24
SETTINGS = {
    "train.total_steps": TOTAL,
    "train.checkpoint_every_steps": 1,
    "train.keep_every_steps": TOTAL // 2,
    "train.evaluate_every_steps": 4,
    "train.log_every_steps": 3,  # most stops are within an interval of the log
    "train.best_metric": "dev/score",
    "train.export": "best",
}


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """Starts training in a workdir; all runs share their compiled programs."""
    cache = tmp_path_factory.mktemp("cache")

    def run(workdir: Path, num_devices: int = 1, at_step=None, **settings):
        devices = {"num_devices": num_devices, "at_step": at_step}
        return processes.start(workdir, corpus, SETTINGS | settings, cache=cache, **devices)

    return run


@pytest.fixture(scope="module")
def uninterrupted(run, tmp_path_factory) -> Path:
    """The workdir of a run that nothing disturbs."""
    workdir = tmp_path_factory.mktemp("uninterrupted")
    assert processes.finish(run(workdir)) == 0, processes.log_text(workdir)
    return workdir


def saved_state(workdir: Path, step: int = TOTAL) -> dict[str, np.ndarray]:
    """Parameters, optimizer state and step of a checkpoint."""
    with ocp.StandardCheckpointer() as checkpointer:
        state = checkpointer.restore(workdir / "checkpoints" / f"{step:08d}" / "state")
    leaves = tree_util.tree_leaves_with_path(state)
    return {tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def check_equal_to_the_last_bit(workdir: Path, uninterrupted: Path) -> None:
    """Compares state and metrics."""
    expected, found = saved_state(uninterrupted), saved_state(workdir)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    metrics = processes.metrics_without_timing
    assert metrics(workdir) == metrics(uninterrupted)


def check_same_choice(workdir: Path, uninterrupted: Path) -> None:
    """Compares what was kept and exported as the best."""
    with np.load(workdir / "final.npz") as a, np.load(uninterrupted / "final.npz") as b:
        assert all(np.array_equal(a[name], b[name]) for name in b)
    assert (workdir / "result.json").read_text() == (uninterrupted / "result.json").read_text()
    assert kept(workdir) == kept(uninterrupted)


def kept(workdir: Path) -> list[str]:
    return sorted(path.name for path in (workdir / "checkpoints").iterdir() if path.is_dir())


def being_written(workdir: Path) -> int:
    """Step of the checkpoint that is being written, 0 if none is."""
    paths = (workdir / "checkpoints").glob("*.orbax-checkpoint-tmp*")
    return max((int(path.name.split(".")[0]) for path in paths), default=0)


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_killed_even_while_saving_it_ends_with_the_same_bits(kills, run, uninterrupted, tmp_path):
    moments = random.Random(0)
    number = torn = 0
    while number < kills or not torn:  # some while a checkpoint is being written
        process = run(tmp_path)
        if number % 3 == 2:  # anywhere: start, restoring, compiling, steps
            time.sleep(moments.uniform(0.3, 4.0))
        else:  # a moment after a checkpoint begins to be written
            target = processes.newest(tmp_path) + 1 + moments.randint(0, 1)
            writing = lambda target=target: being_written(tmp_path) >= target
            assert processes.wait_for(writing), processes.log_text(tmp_path)
            time.sleep(moments.uniform(0.0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "the run ended before it could be killed"
        torn += being_written(tmp_path) > 0
        number += 1
    assert processes.finish(run(tmp_path)) == 0, processes.log_text(tmp_path)
    check_equal_to_the_last_bit(tmp_path, uninterrupted)
    check_same_choice(tmp_path, uninterrupted)
    assert "is damaged" not in processes.log_text(tmp_path)


def kill_while_deleting_a_checkpoint(number: int, step: int) -> None:
    """Lets the first deletion of a directory end the process halfway."""

    def rmtree(path, *_, **__):
        records = list(Path(path).rglob("identity"))
        for record in records:
            shutil.rmtree(record)
        if records:
            os.kill(os.getpid(), signal.SIGKILL)

    type(epath.Path(".")).rmtree = rmtree


@pytest.mark.exhaustive
def test_killed_while_deleting_a_checkpoint_leaves_none_that_is_damaged(
    run, uninterrupted, tmp_path
):
    process = run(tmp_path, at_step=kill_while_deleting_a_checkpoint)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, processes.log_text(tmp_path)
    assert processes.newest(tmp_path) < TOTAL
    assert processes.finish(run(tmp_path)) == 0, processes.log_text(tmp_path)
    assert "is damaged" not in processes.log_text(tmp_path)
    check_equal_to_the_last_bit(tmp_path, uninterrupted)
    check_same_choice(tmp_path, uninterrupted)


def test_eight_devices_go_on_with_the_batches_and_losses_of_one(run, uninterrupted, tmp_path):
    workdir = shutil.copytree(uninterrupted, tmp_path / "w")
    for name in kept(workdir):
        if int(name) > TOTAL // 2:
            shutil.rmtree(workdir / "checkpoints" / name)
    assert processes.finish(run(workdir, num_devices=8, **{"mesh.fsdp": 2})) == 0
    log = processes.log_text(workdir)
    assert f"resuming from checkpoint {TOTAL // 2}" in log and "8 devices" in log
    processes.check_metrics_close(workdir, uninterrupted)
    metrics = [(where / "metrics.jsonl").read_text() for where in (workdir, uninterrupted)]
    assert metrics[0] != metrics[1]  # the time of each step: they are not those that were copied
