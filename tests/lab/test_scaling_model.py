"""lab/scaling/scaling_model.py: its arithmetic by hand."""

import pytest

from tests.lab.scripts import script


@pytest.fixture(scope="module")
def scaling_model():
    with script("scaling/scaling_model.py") as module:
        yield module


@pytest.fixture
def machine(scaling_model, monkeypatch):
    """Four devices with round numbers, all of which is reached."""
    reached = scaling_model.Reached(1.0, 1.0, 1.0, 1.0, 1e9)
    monkeypatch.setattr(scaling_model, "REACHED", reached)
    return scaling_model.Machine("four", 4, 2, 1e12, 1e11, 1e9, 1e9, 1e8, 1e10)


def update(scaling_model, **changes):
    numbers = {"name": "a", "rows": 8, "parameters": 1e6, "flops": 4e12, "state_arrays": 2}
    numbers |= {"gathered": 2e6, "reduced": 4e6, "recurrent": (), "vectors": 0.0}
    return scaling_model.Update(**numbers | changes)


def test_times_of_copies_and_of_split_parameters_by_hand(scaling_model, machine):
    copies = scaling_model.model_times(update(scaling_model), machine, False)
    # Products 4e12 / 4 / 1e12; optimizer p, g, m, v read and p, m, v written, 7 x 4 MB at 1 GB/s;
    # exchange twice 3/4 of 4 MB at 100 MB/s.
    assert [copies.products, copies.recurrence] == [1.0, 0.0]
    assert copies.optimizer == pytest.approx(0.028)
    assert copies.exchange == pytest.approx(0.06)
    assert copies.apart == pytest.approx(1.088) and copies.overlapped == pytest.approx(1.028)
    split = scaling_model.model_times(update(scaling_model), machine, True)
    assert split.optimizer == pytest.approx(0.007)
    assert split.exchange == pytest.approx(0.75 * 6e6 / 1e8)


def test_the_plan_of_a_search_by_hand(scaling_model, machine):
    # Half of 1 MiB for rows of 10 x 16 bytes, and 32 for each of 16 candidates: up to 780 keys a
    # device, 13 equal parts of 770, in tiles of a multiple of 128.
    plan = scaling_model.plan_search(100, 40_000, 16, machine, 1)
    assert (plan.keys_of_device, plan.blocks) == (896, 12)
    assert plan.host_bytes == 64 * (100 * 12 + 10_000)
    assert plan.host_seconds == pytest.approx(plan.host_bytes / 1e9)
    assert plan.seconds == pytest.approx(2 * 100 * 40_000 * 16 / 4 / 1e11)
    assert plan.bfloat16_seconds == pytest.approx(plan.seconds / 10)
    assert scaling_model.plan_search(1, 100, 16, machine, 1).blocks == 1
