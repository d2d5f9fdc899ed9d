"""Histograms of scores: bins, the valley between two modes, and the lines of text."""

import numpy as np
import pytest

from xling_jax.align.histogram import format_histogram, score_histogram


def two_modes(num_wrong=900, num_right=100, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(1.0, 0.03, num_wrong), random.normal(1.3, 0.08, num_right)


def test_every_score_is_counted_in_its_bin():
    scores = np.array([0.91, 0.95, 0.99, 1.0, 1.01, 1.1])
    histogram = score_histogram(scores, num_bins=4)
    np.testing.assert_allclose(histogram.edges, [0.9, 0.95, 1.0, 1.05, 1.1])
    # A score on an edge belongs to the bin above it, the last edge to the last bin.
    assert histogram.counts.tolist() == [1, 2, 2, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_valley_lies_between_both_modes(dtype):
    for seed in range(5):
        scores = np.concatenate(two_modes(seed=seed)).astype(dtype)
        assert 1.07 < score_histogram(scores).valley < 1.2
    # The order of the scores does not matter.
    assert score_histogram(scores[::-1]).valley == score_histogram(scores).valley


def test_one_mode_has_no_valley():
    random = np.random.default_rng(0)
    for count in (20, 300, 5000):
        assert score_histogram(random.normal(1, 0.05, count)).valley is None
        assert score_histogram(1 + random.gamma(3, 0.1, count)).valley is None
    assert score_histogram(np.concatenate(two_modes(5000, 3))).valley is None  # rare right pairs


@pytest.mark.parametrize("scores", [[1.0], [1.0] * 40, [0.9, 1.1], [1.0, 1.1, 1.2]])
def test_few_or_equal_scores_have_bins_and_no_valley(scores):
    histogram = score_histogram(np.array(scores))
    assert histogram.counts.sum() == len(scores) and histogram.valley is None
    assert len(format_histogram(histogram)) == len(histogram.counts)
    with pytest.raises(ValueError, match="num_bins must be at least 2; got 1"):
        score_histogram(np.array(scores), num_bins=1)


def test_scores_that_are_not_finite_are_left_out():
    scores = np.concatenate(two_modes())
    with_others = np.concatenate([[np.inf, -np.inf, np.nan], scores])
    expected, found = score_histogram(scores), score_histogram(with_others)
    np.testing.assert_array_equal(found.counts, expected.counts)
    assert found.valley == expected.valley
    nothing = score_histogram(np.array([np.nan, -np.inf]))
    assert len(nothing.counts) == 0 and nothing.valley is None
    assert nothing.count(scores).tolist() == [] and format_histogram(nothing) == ["no scores"]


def test_a_few_extreme_scores_do_not_hide_the_others():
    scores = np.concatenate([*two_modes(9000, 1000), [800.0, -300.0]])
    histogram = score_histogram(scores)
    assert histogram.edges[-1] < 3 and histogram.edges[0] > 0
    assert histogram.counts.sum() == len(scores) and 1.07 < histogram.valley < 1.2


def test_lines_show_edges_bars_counts_and_the_valley():
    scores = np.repeat([0.95, 1.0, 1.2], [30, 60, 40])
    lines = format_histogram(score_histogram(scores, num_bins=6), width=30)
    assert [line.rstrip() for line in lines] == [
        "0.95  ##########            30",
        "1.00  ####################  60",
        "1.05                         0",
        "1.10                         0  <- valley at 1.103",
        "1.15  ##############        40",
    ]


def test_bars_of_right_and_other_pairs_add_up():
    wrong, right = two_modes()
    histogram = score_histogram(np.concatenate([wrong, right]))
    counts = histogram.count(right)
    lines = format_histogram(histogram, right=counts)
    assert counts.sum() == 100
    for line, count, all_of_bin in zip(lines, counts, histogram.counts):
        numbers = line.partition("  <-")[0].split()[-2:]
        assert [int(number.replace(",", "")) for number in numbers] == [count, all_of_bin - count]
        assert len(line.partition("  <-")[0]) == 60
    assert "-" in lines[1] and "#" not in lines[0] and "#" in lines[-1]
