"""Precision by threshold: counts by hand, estimates without gold pairs, decoys, the text."""

import json

import numpy as np
import pytest

from xling_jax.align import mining
from xling_jax.eval.score_tables import ScoreTable, decoy_pairs, estimate_precision


def drawn(num_right, num_wrong, seed=0):
    """Scores of mined pairs, which of them are right, and scores of decoys."""
    random = np.random.default_rng(seed)
    wrong = random.normal(1.0, 0.05, num_wrong)
    scores = np.concatenate([random.normal(1.3, 0.08, num_right), wrong])
    return scores, np.arange(len(scores)) < num_right, random.normal(1.0, 0.05, 2 * num_wrong)


def test_rows_by_hand():
    scores = np.array([1.25, 1.2, 1.1, 1.05, 1.0, 0.95])
    is_right = np.array([1, 1, 0, 1, 0, 0], bool)
    rows = np.arange(6)
    pairs = mining.MinedPairs(rows, rows, scores)
    table = ScoreTable.measure(pairs, is_right, 5, np.empty(0))
    by_threshold = {round(row.threshold, 3): row for row in table.rows}
    row = by_threshold[1.04]
    assert (row.num_pairs, row.precision, row.recall) == (4, 0.75, 0.6)
    assert row.estimate is None and table.at_valley is None
    assert table.histogram.counts.sum() == 6 and table.right.sum() == 3
    assert [row.threshold for row in table.rows] == sorted(row.threshold for row in table.rows)
    json.dumps(table.to_dict(), allow_nan=False)
    assert "precision, estimated" in table.to_text()


@pytest.mark.parametrize("num_right", [500, 1000, 4000])
def test_estimates_are_near_the_truth_without_gold_pairs(num_right):
    scores, is_right, decoys = drawn(num_right, 2000)
    for threshold in (0.9, 1.0, 1.05, 1.1, 1.15, 1.2):
        truth = is_right[scores >= threshold].mean()
        assert estimate_precision(scores, decoys, threshold) == pytest.approx(truth, abs=0.06)


def test_where_nothing_is_right_the_estimate_is_low():
    scores, _, decoys = drawn(0, 2000)
    for threshold in (0.9, 1.0, 1.05):
        assert estimate_precision(scores, decoys, threshold) < 0.1
    # Equal scores, and a threshold that no decoy reaches.
    assert estimate_precision(np.ones(5), np.ones(5), 1.0) == 0
    assert estimate_precision(np.array([2.0, 1.0]), np.ones(5), 2.0) == 1
    assert estimate_precision(np.ones(5), np.empty(0), 1.0) is None


def test_the_row_of_the_valley_is_found_and_marked():
    scores, is_right, decoys = drawn(1000, 2000)
    pairs = mining.MinedPairs(*[np.arange(3000)] * 2, scores.astype(np.float32))
    table = ScoreTable.measure(pairs, is_right, 1000, decoys)
    row = table.at_valley
    assert 1.1 < row.threshold < 1.2 and row.precision > 0.97 and row.recall > 0.95
    assert row.estimate == pytest.approx(row.precision, abs=0.03)
    lines = table.to_text().splitlines()
    assert sum("**valley**" in line for line in lines) == 1
    assert sum("<- valley" in line for line in lines) == 1


def test_decoys_are_mined_without_the_best_candidates():
    random = np.random.default_rng(0)
    x = random.standard_normal((40, 16))
    y = x + 0.1 * random.standard_normal((40, 16))
    candidates = mining.find_candidates(x, y, 5)
    pairs = decoy_pairs(candidates, "ratio", "max")
    assert len(pairs) > 20 and not (pairs.source == pairs.target).any()
    # As if each translation were missing: the neighbors are the next four.
    best = mining.choose_pairs(candidates, retrieval="fwd")
    assert (best.source == best.target).all() and best.scores.min() > pairs.scores.max()
    assert decoy_pairs(mining.find_candidates(x, y, 1), "ratio", "max") is None
