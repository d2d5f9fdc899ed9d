"""One of two processes is killed or cannot write: both end, and any number of them continues."""

import os
import resource
import shutil
import time
from pathlib import Path

import pytest

from tests.train import processes

TOTAL = 8
SETTINGS = {
    "train.total_steps": TOTAL,
    "train.checkpoint_every_steps": 2,
    "train.evaluate_every_steps": 4,
    "train.best_metric": "dev/score",
    "train.keep_last": 100,
    # So that both have parameters to write.
    "mesh.fsdp": 4,
    "encoder.width": 32,
    "decoder.width": 32,
    "encoder.ffn_width": 512,
    "decoder.ffn_width": 512,
}
HEARTBEAT_S = 10
# The state of either process is several times as large.
ROOM_BYTES = 65_000


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def undisturbed(corpus, cache, tmp_path_factory) -> Path:
    """The workdir of a run in one process on one device."""
    workdir = tmp_path_factory.mktemp("undisturbed")
    process = processes.start(workdir, corpus, SETTINGS | {"mesh.fsdp": 1}, cache=cache)
    assert processes.finish(process) == 0, processes.log_text(workdir)
    return workdir


def no_room_in_the_first(number, step):
    no_room_at_step_5(number == 0, step)


def no_room_in_the_second(number, step):
    no_room_at_step_5(number == 1, step)


def no_room_at_step_5(here, step):
    if here and step == 5:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, ROOM_BYTES))


def whole(workdir: Path) -> list[int]:
    """Steps of the checkpoints that are whole."""
    names = os.listdir(workdir / "checkpoints") if (workdir / "checkpoints").exists() else []
    return sorted(int(name) for name in names if name.isdigit())


def being_written(workdir: Path) -> bool:
    return any((workdir / "checkpoints").glob("*.orbax-checkpoint-tmp*"))


def finish_all(pair) -> list[int]:
    """Exit statuses; all must be there within the time that is promised, and some for leaving."""
    started = time.monotonic()
    statuses = [processes.finish(process) for process in pair]
    assert time.monotonic() - started < HEARTBEAT_S + 40
    return statuses


@pytest.mark.parametrize("number", [0, 1])
def test_a_full_disk_of_one_ends_both_and_the_last_checkpoint_continues(
    number, corpus, cache, undisturbed, tmp_path
):
    at_step = [no_room_in_the_first, no_room_in_the_second][number]
    arguments = (tmp_path, corpus, SETTINGS)
    options = {"cache": cache, "num_devices": 4, "heartbeat_timeout_s": HEARTBEAT_S}
    pair = processes.start_several(2, *arguments, **options, at_step=at_step)
    statuses = finish_all(pair)
    assert statuses[number] == 1 and statuses[1 - number] not in (0, None)
    assert "File too large" in processes.log_text(tmp_path, number)
    assert whole(tmp_path)[-1] in (2, 4)  # the second may be under way
    pair = processes.start_several(2, *arguments, **options)
    assert finish_all(pair) == [0, 0], processes.log_texts(tmp_path)
    assert "continuing from checkpoint" in processes.log_text(tmp_path)
    processes.check_same_training(tmp_path, undisturbed)


def test_one_killed_while_saving_ends_both_and_one_or_four_continue(
    corpus, cache, undisturbed, tmp_path
):
    options = {"cache": cache, "heartbeat_timeout_s": HEARTBEAT_S}
    workdir = tmp_path / "2"
    pair = processes.start_several(2, workdir, corpus, SETTINGS, num_devices=4, **options)
    assert processes.wait_for(lambda: whole(workdir) and being_written(workdir), 120)
    pair[1].kill()
    statuses = finish_all(pair)
    assert statuses[0] not in (0, None), processes.log_texts(workdir)
    assert 2 <= whole(workdir)[-1] < TOTAL
    for count in (1, 4):
        continued = tmp_path / f"{count} continue"
        shutil.copytree(workdir, continued)
        arguments = (continued, corpus, SETTINGS)
        several = processes.start_several(count, *arguments, num_devices=8 // count, **options)
        assert finish_all(several) == [0] * count, processes.log_texts(continued)
        assert "continuing from checkpoint" in processes.log_text(continued, count - 1)
        processes.check_same_training(continued, undisturbed)


def test_sigterm_while_saving_saves_the_same_step_in_both_and_leaves(
    corpus, cache, undisturbed, tmp_path
):
    options = {"cache": cache, "num_devices": 4}
    pair = processes.start_several(2, tmp_path, corpus, SETTINGS, **options)
    assert processes.wait_for(lambda: whole(tmp_path) and being_written(tmp_path), 120)
    pair[1].terminate()
    assert finish_all(pair) == [143, 143], processes.log_texts(tmp_path)
    assert 2 <= whole(tmp_path)[-1] < TOTAL and not being_written(tmp_path)
    pair = processes.start_several(2, tmp_path, corpus, SETTINGS, **options)
    assert finish_all(pair) == [0, 0], processes.log_texts(tmp_path)
    processes.check_same_training(tmp_path, undisturbed)
