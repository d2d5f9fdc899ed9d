"""The valley between two modes of scores."""

import numpy as np
import pytest

from xling_jax.align.valley import score_valley


def two_modes(num_wrong=900, num_right=100, seed=0):
    random = np.random.default_rng(seed)
    return np.concatenate(
        [random.normal(1.0, 0.03, num_wrong), random.normal(1.3, 0.08, num_right)]
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_valley_lies_between_both_modes(dtype):
    for seed in range(5):
        scores = two_modes(seed=seed).astype(dtype)
        assert 1.07 < score_valley(scores) < 1.2
    # The order of the scores does not matter.
    assert score_valley(scores[::-1]) == score_valley(scores)


def test_one_mode_has_no_valley():
    random = np.random.default_rng(0)
    for count in (20, 300, 5000):
        assert score_valley(random.normal(1, 0.05, count)) is None
        assert score_valley(1 + random.gamma(3, 0.1, count)) is None
    assert score_valley(two_modes(5000, 3)) is None  # rare right pairs


@pytest.mark.parametrize("scores", [[1.0], [1.0] * 40, [0.9, 1.1], [1.0, 1.1, 1.2]])
def test_few_or_equal_scores_have_no_valley(scores):
    assert score_valley(np.array(scores)) is None


def test_scores_that_are_not_finite_are_left_out():
    scores = two_modes()
    with_others = np.concatenate([[np.inf, -np.inf, np.nan], scores])
    assert score_valley(with_others) == score_valley(scores)
    assert score_valley(np.array([np.nan, -np.inf])) is None


def test_a_few_extreme_scores_do_not_hide_the_others():
    scores = np.concatenate([two_modes(9000, 1000), [800.0, -300.0]])
    assert 1.07 < score_valley(scores) < 1.2
