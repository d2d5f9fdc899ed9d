"""Which checkpoints are kept and chosen."""

import math

import pytest

from xling_jax.train.checkpoint import score
from xling_jax.train.options import TrainOptions


def test_a_value_that_is_not_finite_is_worse_than_all_others():
    assert score(math.nan, "min") == score(math.inf, "max") == -math.inf


def test_scores_have_the_nine_digits_of_the_log():
    assert score(0.12345678912, "max") == score(0.12345678914, "max")
    assert score(0.123456781, "max") < score(0.123456782, "max")
    assert score(0.123456781, "min") > score(0.123456782, "min")


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
        ({"keep_best": -1}, "must be at least 0"),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainOptions(total_steps=10, **settings)
