"""Which checkpoints are kept and chosen, and when a run ends."""

import math

import pytest

from xling_jax.train.options import TrainOptions
from xling_jax.train.selection import EarlyStopping, score


def ends(values, **settings):
    """Step at which values, measured every 10 steps, end a run; None if they do not."""
    stopping = EarlyStopping("dev/x", **settings)
    for number, value in enumerate(values, start=1):
        # A checkpoint between any two evaluations changes nothing.
        progress = stopping.progress_to_save()
        stopping = EarlyStopping("dev/x", **settings, progress=progress)
        stopping.update(10 * number, {"dev/x": value})
        if stopping.reason:
            return 10 * number
    return None


def test_a_run_ends_a_patience_after_its_last_improvement():
    values = [5.0, 4.0, 4.5, 3.9, 4.0, 4.0, 4.0]
    assert ends(values, goal="min", patience=30) == 70
    assert ends(values, goal="min", patience=25) == 70
    assert ends(values, goal="min", patience=20) == 60
    assert ends(values, goal="min", patience=31) is None
    assert ends(values, goal="max", patience=30) == 40


def test_an_improvement_beats_the_best_by_more_than_the_minimum():
    # 4.5 does not beat 5.0 by more than 0.5, nor 4.25; but 4.25 beats it by 0.75.
    assert ends([5.0, 4.5, 4.25, 4.25], goal="min", patience=20, min_improvement=0.5) is None
    assert ends([5.0, 4.5, 4.5], goal="min", patience=20, min_improvement=0.5) == 30


def test_a_difference_of_rounding_is_no_improvement():
    equal = [(8 / 101 + 9 / 101) / 2, (7 / 101 + 10 / 101) / 2, (7 / 101 + 10 / 101) / 2]
    assert equal[1] > equal[0]
    assert ends(equal, goal="max", patience=20) == 30
    assert ends([0.7, 0.8, 0.8], goal="max", patience=20, min_improvement=0.1) == 30


def test_a_value_that_is_not_finite_never_improves():
    assert ends([math.nan, 1.0, math.nan, math.inf, math.nan], goal="max", patience=30) == 50
    assert ends([math.nan, math.nan], goal="min", patience=20) == 20
    assert score(math.nan, "min") == score(math.inf, "max") == -math.inf


def test_scores_have_the_nine_digits_of_the_log():
    assert score(0.12345678912, "max") == score(0.12345678914, "max")
    assert score(0.123456781, "max") < score(0.123456782, "max")
    assert score(0.123456781, "min") > score(0.123456782, "min")


def test_other_settings_let_an_ended_run_go_on():
    stopping = EarlyStopping("dev/x", "max", patience=20)
    for step in (10, 20, 30):
        stopping.update(step, {"dev/x": 1.0})
    progress = stopping.progress_to_save()
    assert "has not improved on 1 of step 10 for 20 steps" in stopping.reason
    assert EarlyStopping("dev/x", "max", patience=20, progress=progress).reason
    assert not EarlyStopping("dev/x", "max", patience=30, progress=progress).reason
    assert not EarlyStopping("dev/y", "max", patience=20, progress=progress).reason


def kept(**settings):
    return sorted(TrainOptions(**settings).kept_steps)


def test_checkpoints_kept_for_good():
    assert kept(total_steps=50) == []
    assert kept(total_steps=50, keep_every_steps=20) == [20, 40]
    assert kept(total_steps=50, keep_every_steps=10, keep_from_steps=30) == [30, 40, 50]
    # Epochs of 33.4 steps, 10 to 20: every 33, from 334, of 668 in all.
    epochs = kept(total_steps=668, keep_every_steps=33, keep_from_steps=334)
    assert epochs == [33 * n for n in range(10, 21)]
    # Epochs of 33.6 steps: the twentieth would end after the run.
    epochs = kept(total_steps=672, keep_every_steps=34, keep_from_steps=336)
    assert epochs == [*(34 * n for n in range(10, 20)), 672]


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"keep_from_steps": 5}, "keep_from_steps=5 needs train.keep_every_steps"),
        (
            {"export": "best", "best_metric": "x", "keep_best": 0},
            "needs train.best_metric, .* and train.keep_best",
        ),
        ({"stop_metric": "dev/x"}, "stop_metric='dev/x' needs train.stop_patience_steps"),
        ({"stop_min_improvement": 5}, "stop_min_improvement=5 needs train.stop_metric"),
        ({"stop_metric": "x", "stop_patience_steps": -1}, "must be at least 0"),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainOptions(total_steps=10, **settings)
