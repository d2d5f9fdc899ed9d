"""Histograms of scores: bins, the valley between two modes, and the lines of text."""

import numpy as np
import pytest

from xling_jax.align import histogram
from xling_jax.align.histogram import format_histogram, score_valley


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
def test_few_or_equal_scores_have_bins_and_no_valley(scores):
    assert score_valley(np.array(scores)) is None
    lines = format_histogram(np.array(scores))
    assert sum(int(line.split()[-1]) for line in lines) == len(scores)


def test_scores_that_are_not_finite_are_left_out():
    scores = two_modes()
    with_others = np.concatenate([[np.inf, -np.inf, np.nan], scores])
    assert format_histogram(with_others) == format_histogram(scores)
    assert score_valley(with_others) == score_valley(scores)
    nothing = np.array([np.nan, -np.inf])
    assert score_valley(nothing) is None and format_histogram(nothing) == ["no scores"]


def test_a_few_extreme_scores_do_not_hide_the_others():
    scores = np.concatenate([two_modes(9000, 1000), [800.0, -300.0]])
    lines = format_histogram(scores)
    assert float(lines[-1].split()[0]) < 3 and float(lines[0].split()[0]) > 0
    assert sum(int(line.split()[-1].replace(",", "")) for line in lines) == len(scores)
    assert 1.07 < score_valley(scores) < 1.2


def test_lines_show_edges_bars_counts_and_the_valley(monkeypatch):
    scores = np.repeat([0.95, 1.0, 1.2], [30, 60, 40])
    monkeypatch.setattr(histogram, "_NUM_BINS", 6)
    # A score on an edge belongs to the bin above it, the last edge to the last bin.
    lines = format_histogram(scores, score_valley(scores))
    assert [line.rstrip() for line in lines] == [
        f"0.95  {'#' * 25:50}  30",
        f"1.00  {'#' * 50:50}  60",
        f"1.05  {'':50}   0",
        f"1.10  {'':50}   0  <- valley at 1.103",
        f"1.15  {'#' * 34:50}  40",
    ]
