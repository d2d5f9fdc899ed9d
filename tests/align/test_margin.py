"""Margins: values by hand, published identities, small and negative neighborhoods."""

import numpy as np
import pytest

from xling_jax.align import margin

COSINE = np.array([[0.9, 0.6], [0.5, 0.8]])
SOURCE_MEAN = np.array([0.5, 0.4])
TARGET_MEAN = np.array([[0.7, 0.25], [0.7, 0.25]])


def test_ratio_margin_by_hand():
    expected = [[0.9 / 0.6, 0.6 / 0.375], [0.5 / 0.55, 0.8 / 0.325]]
    actual = margin.ratio_margin(COSINE, SOURCE_MEAN, TARGET_MEAN)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_distance_margin_and_csls_by_hand():
    expected = np.array([[0.3, 0.225], [-0.05, 0.475]])
    actual = margin.distance_margin(COSINE, SOURCE_MEAN, TARGET_MEAN)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    actual = margin.csls(COSINE, SOURCE_MEAN, TARGET_MEAN)
    np.testing.assert_allclose(actual, 2 * expected, rtol=1e-6)


@pytest.mark.parametrize("score", [margin.ratio_margin, margin.distance_margin, margin.csls])
def test_candidates_shared_by_all_sources_may_be_given_once(score):
    np.testing.assert_array_equal(
        score(COSINE, SOURCE_MEAN, TARGET_MEAN[:1]), score(COSINE, SOURCE_MEAN, TARGET_MEAN)
    )


def test_negative_neighborhoods_keep_the_sign_of_the_cosine_and_are_reported(caplog):
    means = np.array([-0.2]), np.array([[0.1, -0.1]])
    scores = margin.ratio_margin(np.array([[0.1, -0.3]]), *means)
    assert scores[0, 0] > 0 > scores[0, 1]
    margin.warn_of_raised(means, (np.ones(1), np.ones((1, 3))))
    assert "2 of 5 pairs" in caplog.text


@pytest.mark.parametrize(
    ("source_mean", "target_mean", "message"),
    [
        (np.ones(3), TARGET_MEAN, "source_mean must hold one value per row"),
        (SOURCE_MEAN, np.ones((2, 3)), "target_mean must hold one value per candidate"),
        (SOURCE_MEAN, np.ones(2), "target_mean must hold one value per candidate"),
    ],
)
def test_sizes_that_differ_are_refused(source_mean, target_mean, message):
    with pytest.raises(ValueError, match=message):
        margin.ratio_margin(COSINE, source_mean, target_mean)
