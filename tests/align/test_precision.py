"""Precision from scores: known likelihoods, other shares of translations, cuts, stored curves."""

import dataclasses
import json

import numpy as np
import pytest

from xling_jax.align.margin import MARGINS
from xling_jax.align.mining import MinedPairs, RunnersUp, choose_pairs, find_candidates, mine
from xling_jax.align.precision import Calibration, ScoreCurve, Threshold, _share

RUNNERS_UP = RunnersUp("ratio", 4, mean=1.02, spread=0.02)


def draw(generator, count, share):
    """Scores of two normal distributions with the same spread: the log ratio is 4 z - 8."""
    is_translation = generator.random(count) < share
    return generator.normal(np.where(is_translation, 4.0, 0.0), 1.0), is_translation


@pytest.fixture(scope="module")
def curve():
    return ScoreCurve.fit(*draw(np.random.default_rng(0), 40_000, 0.3))


@pytest.fixture(scope="module")
def calibration(curve):
    threshold = Threshold(score=1.05, precision=0.9, recall=0.8, precision_at_tenth=0.4)
    data = {"name": "dev", "sha256": "ab", "num_rows": 7, "languages": ["de", "en"]}
    curves, thresholds = {"ratio": curve}, {"ratio": (threshold,)}
    return Calibration(4, ("de", "en"), (data,), curves, thresholds)


def pairs_of(z):
    """Pairs, best first, whose scores are these many spreads above the mean runner-up."""
    scores = RUNNERS_UP.mean + RUNNERS_UP.spread * np.sort(z)[::-1]
    rows = np.arange(len(z))
    return MinedPairs(rows, rows, scores, RUNNERS_UP)


def test_the_lines_are_the_log_likelihood_ratio(curve):
    for slope, intercept in curve.lines:
        assert slope == pytest.approx(4, rel=0.06)
        assert -intercept / slope == pytest.approx(2, abs=0.06)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_the_share_is_that_of_expectation_maximization(curve, share):
    odds = np.exp(curve.log_odds(draw(np.random.default_rng(1), 20_000, share)[0]))
    expected = 0.5
    for _ in range(3000):
        expected = np.mean(expected * odds / (expected * odds + 1 - expected))
    assert _share(odds) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_probabilities_and_cuts_follow_the_share_of_translations(calibration, share):
    z, is_translation = draw(np.random.default_rng(1), 100_000, share)
    is_translation = is_translation[np.argsort(-z)]
    pairs = pairs_of(z)
    found = calibration.probabilities(pairs)
    assert found.mean() == pytest.approx(is_translation.mean(), abs=0.01)
    assert (np.diff(found) <= 0).all()
    for wanted in (0.8, 0.95):
        count = calibration.count_for(pairs, wanted)
        assert is_translation[:count].mean() == pytest.approx(wanted, abs=0.02) or share > wanted
    true = np.cumsum(is_translation) / np.arange(1, len(z) + 1)
    np.testing.assert_allclose(calibration.precisions(pairs)[200:], true[200:], atol=0.05)


def test_text_without_translations_has_none(calibration):
    pairs = pairs_of(draw(np.random.default_rng(2), 5000, 0.0)[0])
    assert calibration.probabilities(pairs).sum() < 50
    assert calibration.count_for(pairs, 0.95) <= 5


@pytest.mark.parametrize("share", [1.0, 0.6, 0.0])
def test_an_estimate_holds_unless_translations_score_as_if_wrong(calibration, curve, share):
    pairs = pairs_of(draw(np.random.default_rng(1), 4_000, share)[0])
    assert calibration.describes(pairs)
    # A model whose translations score 3 spreads higher: these here are like its wrong pairs.
    higher = ScoreCurve(tuple((slope, intercept - 3 * slope) for slope, intercept in curve.lines))
    other = dataclasses.replace(calibration, curves={"ratio": higher})
    assert other.probabilities(pairs).mean() < 0.2
    assert other.describes(pairs) == (share == 0)


def test_odd_scores(curve, calibration):
    nothing = pairs_of(np.array([]))
    assert calibration.precisions(nothing).size == 0 == calibration.count_for(nothing, 0.9)
    found = curve.probabilities(np.array([6, 4, -np.inf], np.float32))
    assert found[2] == 0 and found[0] > 0.9
    assert curve.probabilities(np.empty(0)).size == 0
    np.testing.assert_allclose(curve.probabilities(np.array([1e4, -1e4])), [1, 0], atol=1e-6)


def test_equal_scores_are_kept_or_dropped_together(calibration):
    pairs = pairs_of(np.array([6, 5, 2, 2, 2, 2, -1, -1, -1, -1, -1]))
    counts = {calibration.count_for(pairs, wanted / 100) for wanted in range(1, 100)}
    assert counts <= {0, 1, 2, 6, 11} and {2, 6} <= counts


def test_pairs_that_make_no_curve():
    with pytest.raises(ValueError, match="translations score no higher than wrong pairs"):
        ScoreCurve.fit(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, False]))


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(("sizes", "counted"), [((6, 6), (0, 1)), ((7, 6), (1,)), ((6, 7), (0,))])
def test_runners_up_are_the_second_best_of_every_row_of_the_smaller_side(margin, sizes, counted):
    generator = np.random.default_rng(0)
    source, target = (generator.normal(size=(size, 5)) + 1 for size in sizes)
    candidates = find_candidates(source, target, 3)
    scores = candidates.scores(margin)
    second = [np.sort(scores[side], axis=1)[:, -2] for side in counted]
    found = mine(source, target, k=3, margin=margin).runners_up
    assert (found.margin, found.k) == (margin, 3)
    assert found.mean == pytest.approx(np.concatenate(second).mean(), rel=1e-5)
    assert found.spread == pytest.approx(np.concatenate(second).std(), rel=1e-4)
    # Dropping pairs must not change what wrong candidates are seen to score.
    assert choose_pairs(candidates, margin=margin, min_cosine=0.8).runners_up == found
    assert choose_pairs(candidates, margin=margin, threshold=0.9).runners_up == found


def test_scores_that_were_not_calibrated_are_refused(calibration):
    vectors = np.random.default_rng(0).normal(size=(9, 5))
    with pytest.raises(ValueError, match="k=3: the model was calibrated with k=4"):
        calibration.precisions(mine(vectors, vectors[::-1], k=3))
    with pytest.raises(ValueError, match="margin"):
        calibration.precisions(mine(vectors, vectors[::-1], margin="distance"))
    with pytest.raises(ValueError, match="no sentence has a second candidate"):
        calibration.precisions(mine(vectors[:1], vectors[:1]))


def test_what_is_stored_is_read(calibration):
    stored = json.loads(json.dumps(calibration.to_json()))
    assert Calibration.from_json(stored, "c") == calibration


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("k", value) for value in (1, True, 1e999)),
        ("languages", "de"),
        ("data", [{"name": "x"}]),
        ("data", [{"name": 1, "sha256": "", "num_rows": 1, "languages": []}]),
        ("curves", {}),
        ("curves", {"distance": [[1, 2]]}),
        *(("curves", {"ratio": [[slope, 2]]}) for slope in (0, float("nan"), 10**400, "1")),
        ("curves", {"ratio": []}),
        ("thresholds", {"ratio": [{"score": 1}]}),
        ("thresholds", []),
        ("more", 1),
    ],
)
def test_damaged_calibrations_are_refused_in_one_line(calibration, key, value):
    stored = json.loads(json.dumps(calibration.to_json()))
    with pytest.raises(ValueError, match="^c must be a calibration; calibrate it again: ") as error:
        Calibration.from_json({**stored, key: value}, "c")
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_margins_must_be_known_and_those_of_the_thresholds(calibration):
    stored = calibration.to_json()
    for renamed in (("curves",), ("curves", "thresholds")):
        changed = {name: {"ration": stored[name]["ratio"]} for name in renamed}
        with pytest.raises(ValueError, match="margins must be some of ratio, distance, absolute"):
            Calibration.from_json({**stored, **changed}, "c")
