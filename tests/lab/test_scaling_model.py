"""lab/scaling/scaling_model.py: its arithmetic by hand, and README.md as it prints it."""

import pytest

from tests.lab.scripts import LAB, script


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


def test_small_batches_wait_for_weights_and_recurrences_for_their_steps(scaling_model, machine):
    small = update(scaling_model, flops=1.0, recurrent=(1e6, 1.0), vectors=1e6)
    times = scaling_model.model_times(small, machine, False)
    assert times.products == pytest.approx(3 * 2e6 / 1e9)
    assert times.recurrence == pytest.approx(64 * (1e-3 + 10e-6))
    assert times.exchange == pytest.approx(0.75 * (8e6 + 2e6) / 1e8)


def test_at_break_even_products_take_as_long_as_the_exchange(scaling_model, machine):
    rows = scaling_model.break_even_rows(update(scaling_model), machine, False)
    assert rows == pytest.approx(0.06 / 0.5)  # 0.5 s a pair
    batch = rows * machine.devices
    even = update(scaling_model, rows=batch, flops=batch * 0.5e12)
    times = scaling_model.model_times(even, machine, False)
    assert times.products == pytest.approx(times.exchange)


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


def test_an_update_is_counted_from_its_config(scaling_model, monkeypatch):
    monkeypatch.chdir(LAB.parent)
    counted = scaling_model.make_update("lightweight:smoke", 16)
    table, state = counted.parameters, counted.state_arrays
    assert state == 3 and table > 384 * 32
    # The only table is looked up and multiplied with: 4 bytes each way, the rest 2.
    assert 2 * table < counted.gathered < 4 * table
    assert counted.reduced == counted.gathered
    assert counted.vectors == 2 * 4 * 16 * 32
    assert counted.flops > 0 and counted.recurrent == ()


def test_the_page_shows_the_search_that_is_printed(scaling_model, capsys):
    scaling_model.search_tables()
    page = (LAB / "scaling/README.md").read_text("utf-8")
    for table in capsys.readouterr().out.strip().split("\n\n"):
        assert table.strip() in page
