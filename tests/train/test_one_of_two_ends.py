"""One of two processes is killed or told to end while it saves; any number of them continues."""

import shutil
from pathlib import Path

import pytest

from tests.train import processes, two_processes
from tests.train.two_processes import (
    HEARTBEAT_S,
    being_written,
    end_together,
    finish_all,
    run_undisturbed,
    whole,
)

pytestmark = pytest.mark.exhaustive

# Steps take milliseconds: enough of them that both agree on a signal before the end.
TOTAL = 16
SETTINGS = two_processes.SETTINGS | {"train.total_steps": TOTAL}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def undisturbed(corpus, cache, tmp_path_factory) -> Path:
    return run_undisturbed(tmp_path_factory.mktemp("undisturbed"), corpus, cache, SETTINGS)


def test_one_killed_while_saving_ends_both_and_one_or_four_continue(
    corpus, cache, undisturbed, tmp_path
):
    options = {"cache": cache, "heartbeat_timeout_s": HEARTBEAT_S}
    workdir = tmp_path / "2"
    pair = processes.start_several(2, workdir, corpus, SETTINGS, num_devices=4, **options)
    assert processes.wait_for(lambda: whole(workdir) and being_written(workdir), 300)
    pair[1].kill()
    statuses = end_together(pair)
    assert statuses[0] not in (0, None), processes.log_texts(workdir)
    assert 2 <= whole(workdir)[-1] < TOTAL
    for count in (1, 4):
        continued = tmp_path / f"{count} continue"
        shutil.copytree(workdir, continued)
        arguments = (continued, corpus, SETTINGS)
        several = processes.start_several(count, *arguments, num_devices=8 // count, **options)
        assert finish_all(several) == [0] * count, processes.log_texts(continued)
        assert "resuming from checkpoint" in processes.log_text(continued, count - 1)
        processes.check_same_training(continued, undisturbed)


def test_sigterm_while_saving_saves_the_same_step_in_both_and_leaves(
    corpus, cache, undisturbed, tmp_path
):
    options = {"cache": cache, "num_devices": 4}
    pair = processes.start_several(2, tmp_path, corpus, SETTINGS, **options)
    assert processes.wait_for(lambda: whole(tmp_path) and being_written(tmp_path), 300)
    pair[1].terminate()
    assert finish_all(pair) == [143, 143], processes.log_texts(tmp_path)
    assert 2 <= whole(tmp_path)[-1] < TOTAL and not being_written(tmp_path)
    pair = processes.start_several(2, tmp_path, corpus, SETTINGS, **options)
    assert finish_all(pair) == [0, 0], processes.log_texts(tmp_path)
    processes.check_same_training(tmp_path, undisturbed)
