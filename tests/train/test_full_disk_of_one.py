"""One of two processes cannot write its part of a checkpoint: both end, and with room continue."""

import resource
from pathlib import Path

import pytest

from tests.train import processes
from tests.train.two_processes import (
    HEARTBEAT_S,
    SETTINGS,
    end_together,
    finish_all,
    run_undisturbed,
    whole,
)

pytestmark = pytest.mark.exhaustive

# The largest files of either process have more, the log less.
ROOM_BYTES = 65_000


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def undisturbed(corpus, cache, tmp_path_factory) -> Path:
    return run_undisturbed(tmp_path_factory.mktemp("undisturbed"), corpus, cache)


def no_room_in_the_first(number, step):
    no_room_at_step_5(number == 0, step)


def no_room_in_the_second(number, step):
    no_room_at_step_5(number == 1, step)


def no_room_at_step_5(here, step):
    if here and step == 5:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, ROOM_BYTES))


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.exhaustive), 1])
def test_a_full_disk_of_one_ends_both_and_the_last_checkpoint_continues(
    number, corpus, cache, undisturbed, tmp_path
):
    at_step = [no_room_in_the_first, no_room_in_the_second][number]
    arguments = (tmp_path, corpus, SETTINGS)
    options = {"cache": cache, "num_devices": 4, "heartbeat_timeout_s": HEARTBEAT_S}
    pair = processes.start_several(2, *arguments, **options, at_step=at_step)
    statuses = end_together(pair)
    assert statuses[number] == 1 and statuses[1 - number] not in (0, None)
    said = processes.log_text(tmp_path, number)
    # The log is a file as well, and may be full of traces before the reason is told.
    assert "File too large" in said or len(said.encode()) >= ROOM_BYTES - 1000
    assert whole(tmp_path)[-1] in (2, 4)  # the second may be under way
    pair = processes.start_several(2, *arguments, **options)
    assert finish_all(pair) == [0, 0], processes.log_texts(tmp_path)
    assert "resuming from checkpoint" in processes.log_text(tmp_path)
    processes.check_same_training(tmp_path, undisturbed)
