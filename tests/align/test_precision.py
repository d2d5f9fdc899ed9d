"""Precision from scores: known likelihoods, other shares of translations, cuts."""

import numpy as np
import pytest

from xling_jax.align.precision import ScoreCurve


def draw(generator, count, share):
    """Scores of two normal distributions with the same spread: the log ratio is linear."""
    is_translation = generator.random(count) < share
    return generator.normal(np.where(is_translation, 1.10, 1.02), 0.03), is_translation


@pytest.fixture(scope="module")
def curve():
    return ScoreCurve.fit(*draw(np.random.default_rng(0), 20_000, 0.3))


def test_the_curve_is_the_log_likelihood_ratio(curve):
    slope = (1.10 - 1.02) / 0.03**2
    assert curve.slope == pytest.approx(slope, rel=0.05)
    assert -curve.intercept / curve.slope == pytest.approx(1.06, abs=0.002)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_probabilities_and_cuts_follow_the_share_of_translations(curve, share):
    scores, is_translation = draw(np.random.default_rng(1), 100_000, share)
    order = np.argsort(-scores)
    scores, is_translation = scores[order], is_translation[order]
    found = curve.probabilities(scores)
    assert found.mean() == pytest.approx(is_translation.mean(), abs=0.01)
    assert (np.diff(found) <= 0).all()
    for wanted in (0.8, 0.95):
        count = curve.count_for(scores, wanted)
        assert is_translation[:count].mean() == pytest.approx(wanted, abs=0.03) or share > wanted
    precisions = curve.precisions(scores)
    true = np.cumsum(is_translation) / np.arange(1, len(scores) + 1)
    np.testing.assert_allclose(precisions[200:], true[200:], atol=0.05)


def test_text_without_translations_has_none(curve):
    scores, _ = draw(np.random.default_rng(2), 5000, 0.0)
    assert curve.probabilities(scores).sum() < 50
    assert curve.count_for(np.sort(scores)[::-1], 0.95) <= 5


def test_odd_scores(curve):
    assert curve.probabilities(np.array([], np.float32)).size == 0
    assert curve.count_for(np.array([], np.float32), 0.9) == 0
    found = curve.probabilities(np.array([1.2, 1.1, -np.inf], np.float32))
    assert found[2] == 0 and found[0] > 0.9


def test_pairs_of_one_kind_make_no_curve():
    with pytest.raises(ValueError, match="3 pairs, of which 3 are translations"):
        ScoreCurve.fit(np.array([1.0, 1.1, 1.2]), np.ones(3, bool))
