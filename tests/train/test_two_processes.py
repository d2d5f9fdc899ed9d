"""Two processes train as one does; one of them may end, lack room or meet damage at any time."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.train import processes

pytestmark = pytest.mark.slow

# Large enough that fsdp has parameters to split, and both processes some to write.
SIZES = {
    f"{side}.{name}": size
    for side in ("encoder", "decoder")
    for name, size in (("width", 32), ("ffn_width", 512))
}
EQUAL = SIZES | {
    "train.total_steps": 6,
    "train.checkpoint_every_steps": 3,
    "train.evaluate_every_steps": 3,
    "train.best_metric": "validation/loss",
    "data.validation_pairs": 37,
}
# Steps take milliseconds: enough of them that both agree on a signal before the end.
TOTAL = 16
DISTURBED = SIZES | {
    "train.total_steps": TOTAL,
    "train.checkpoint_every_steps": 2,
    "train.evaluate_every_steps": 4,
    "train.best_metric": "dev/score",
    "train.keep_last": 100,
    "mesh.fsdp": 4,
}
HEARTBEAT_S = 10


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def one_device(corpus, cache, tmp_path_factory) -> Path:
    """The workdir of a run of `EQUAL` on one device."""
    return run_alone(tmp_path_factory.mktemp("one"), corpus, cache, EQUAL)


@pytest.fixture(scope="module")
def undisturbed(corpus, cache, tmp_path_factory) -> Path:
    """Likewise, of `DISTURBED`."""
    return run_alone(tmp_path_factory.mktemp("undisturbed"), corpus, cache, DISTURBED)


def run_alone(workdir: Path, corpus: Path, cache: Path, values) -> Path:
    """Runs to the end in one process on one device; returns the workdir."""
    process = processes.start(workdir, corpus, values | {"mesh.fsdp": 1}, cache=cache)
    assert processes.finish(process, 300) == 0, processes.log_text(workdir)
    return workdir


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


logs, check_same_training = processes.log_texts, processes.check_same_training


@pytest.mark.parametrize("fsdp", [pytest.param(1, marks=pytest.mark.exhaustive), 4])
def test_eight_devices_and_two_processes_train_like_one_device(
    fsdp, corpus, cache, one_device, tmp_path
):
    values = EQUAL | {"mesh.fsdp": fsdp}
    eight = processes.start(tmp_path / "8", corpus, values, cache=cache, num_devices=8)
    assert processes.finish(eight) == 0, processes.log_text(tmp_path / "8")
    assert "8 devices" in processes.log_text(tmp_path / "8")
    check_same_training(tmp_path / "8", one_device)

    pair = processes.start_several(2, tmp_path / "2x4", corpus, values, cache=cache, num_devices=4)
    assert finish_all(pair) == [0, 0], logs(tmp_path / "2x4")
    check_same_training(tmp_path / "2x4", one_device)


@pytest.mark.exhaustive
def test_one_killed_while_saving_ends_both_and_one_or_four_continue(
    corpus, cache, undisturbed, tmp_path
):
    options = {"cache": cache, "heartbeat_timeout_s": HEARTBEAT_S}
    workdir = tmp_path / "2"
    pair = processes.start_several(2, workdir, corpus, DISTURBED, num_devices=4, **options)
    assert processes.wait_for(lambda: whole(workdir) and being_written(workdir), 300)
    pair[1].kill()
    statuses = end_together(pair)
    assert statuses[0] not in (0, None), logs(workdir)
    assert 2 <= whole(workdir)[-1] < TOTAL
    for count in (1, 4):
        continued = tmp_path / f"{count} continue"
        shutil.copytree(workdir, continued)
        arguments = (continued, corpus, DISTURBED)
        several = processes.start_several(count, *arguments, num_devices=8 // count, **options)
        assert finish_all(several) == [0] * count, logs(continued)
        assert "resuming from checkpoint" in processes.log_text(continued, count - 1)
        check_same_training(continued, undisturbed)


@pytest.mark.exhaustive
def test_sigterm_while_saving_saves_the_same_step_in_both_and_leaves(
    corpus, cache, undisturbed, tmp_path
):
    options = {"cache": cache, "num_devices": 4}
    pair = processes.start_several(2, tmp_path, corpus, DISTURBED, **options)
    assert processes.wait_for(lambda: whole(tmp_path) and being_written(tmp_path), 300)
    pair[1].terminate()
    assert finish_all(pair) == [143, 143], logs(tmp_path)
    assert 2 <= whole(tmp_path)[-1] < TOTAL and not being_written(tmp_path)
    pair = processes.start_several(2, tmp_path, corpus, DISTURBED, **options)
    assert finish_all(pair) == [0, 0], logs(tmp_path)
    check_same_training(tmp_path, undisturbed)


def step_4_is_the_best_and_the_second_cannot_read_it(number, step):
    import orbax.checkpoint as ocp

    from xling_jax.train.checkpoint import Checkpoints

    def fail(*_, **__):
        raise ValueError("cannot be read here")

    Checkpoints.best_step = lambda self: 4 if 4 in self._manager.all_steps() else 8
    if number == 1:
        ocp.StandardCheckpointHandler.restore = fail


@pytest.mark.exhaustive
def test_both_take_the_checkpoint_before_the_damaged_one(corpus, tmp_path):
    workdir, checkpoints = tmp_path / "w", tmp_path / "w" / "checkpoints"
    settings = DISTURBED | {"train.total_steps": 8, "train.export": "best"}
    settings["mesh.fsdp"] = 8  # each has half of an array
    options = {"cache": tmp_path / "cache", "num_devices": 4}
    pair = processes.start_several(
        *(2, workdir, corpus, settings),
        **options,
        at_step=step_4_is_the_best_and_the_second_cannot_read_it,
    )
    assert finish_all(pair) == [0, 0], logs(workdir)
    for number in (0, 1):
        said = processes.log_text(workdir, number)
        assert f"checkpoint 4 in {checkpoints} is damaged (cannot be read here)" in said
    assert (checkpoints / "broken-00000004").is_dir()
    with np.load(workdir / "final.npz") as file:
        final = dict(file)

    for path in (checkpoints / "00000008" / "state" / "d").iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    pair = processes.start_several(2, workdir, corpus, settings, **options)
    assert finish_all(pair) == [0, 0], logs(workdir)
    for number in (0, 1):
        said = processes.log_text(workdir, number)
        assert f"checkpoint 8 in {checkpoints} is damaged" in said
        assert "resuming from checkpoint 6" in said
    with np.load(workdir / "final.npz") as file:
        for name in final:
            np.testing.assert_array_equal(file[name], final[name])
