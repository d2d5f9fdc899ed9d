import pytest

from xling_jax.train.options import Epoch, resolve, resolve_schedule, run_length

EPOCH = Epoch(steps=250.0, examples=32_000)


@pytest.mark.parametrize(
    "given, steps",
    [
        ({"total_steps": 7}, 7),
        ({"total_epochs": 0.5}, 125),
        ({"total_epochs": 12.0}, 3000),
        ({"total_examples": 64_000}, 500),
        ({"total_epochs": 1e-9}, 1),
    ],
)
def test_the_length_of_a_run_is_given_once_in_any_unit(given, steps):
    assert run_length({"log_every_steps": 50, **given}, EPOCH) == steps


@pytest.mark.parametrize(
    "given, message",
    [
        ({}, "found none"),
        ({"total_steps": 0}, "train.total_steps=0 must be positive"),
        ({"total_epochs": -1.0}, "train.total_epochs=-1.0 must be positive"),
        ({"total_steps": 10, "total_epochs": 1.0}, "give the length of the run once"),
        ({"total_percent": 50.0}, "train.total_percent: must be in steps, epochs, examples"),
    ],
)
def test_a_run_without_one_length_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        run_length(given, EPOCH)


def test_all_durations_of_a_section_become_steps():
    section = {"keep_last": 2, "log_every_steps": 50, "evaluate_every_percent": 10.0}
    section["checkpoint_every_epochs"] = 1.0
    assert resolve(section, "train", EPOCH, total_steps=3000) == {
        "keep_last": 2,
        "log_every_steps": 50,
        "evaluate_every_steps": 300,
        "checkpoint_every_steps": 250,
    }


def test_a_duration_given_twice_is_refused():
    with pytest.raises(ValueError, match="schedule: warmup is given twice"):
        resolve({"warmup_steps": 1, "warmup_percent": 2.0}, "schedule", EPOCH, 100)


def test_a_decay_lasts_as_long_as_the_run_unless_it_is_told():
    cosine = {"name": "cosine_decay_schedule", "init_value": 1.0}
    assert resolve_schedule(cosine, EPOCH, 900)["decay_steps"] == 900
    own = cosine | {"decay_epochs": 2.0}
    assert resolve_schedule(own, EPOCH, 900)["decay_steps"] == 500
    linear = {"name": "linear_schedule", "init_value": 1.0, "end_value": 0.0}
    assert resolve_schedule(linear, EPOCH, 900)["transition_steps"] == 900
