"""Tophat density and weights: scikit-learn's PCA and KernelDensity, the bandwidth rule."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.neighbors import KernelDensity

from xling_jax.documents import density as module
from xling_jax.documents.debias import gram_matrix
from xling_jax.documents.density import (
    TophatDensity,
    choose_bandwidth,
    held_out_likelihood,
    sentence_weights,
)


def clustered(rng, n, dim, clusters=8):
    centers = rng.standard_normal((clusters, dim))
    return centers[rng.integers(0, clusters, n)] + 0.3 * rng.standard_normal((n, dim))


def test_density_equals_scikit_learn_s_pipeline():
    rng = np.random.default_rng(0)
    vectors = clustered(rng, 400, 30)
    vectors, others = vectors[:300], vectors[300:]
    statistics = gram_matrix(vectors)
    density = TophatDensity.fit(vectors, statistics)
    pca = PCA(16, svd_solver="full").fit(vectors)
    kde = KernelDensity(kernel="tophat", bandwidth=density.bandwidth).fit(pca.transform(vectors))
    expected = np.exp(kde.score_samples(pca.transform(vectors)))
    counts = density.counts(vectors)
    np.testing.assert_array_equal(counts, density.fitted_counts)
    np.testing.assert_allclose(expected / expected.sum(), counts / counts.sum(), rtol=1e-9)
    # Other sentences are counted among the fitted ones, and not among themselves.
    other_densities = np.exp(kde.score_samples(pca.transform(others)))
    constant = expected.sum() / counts.sum()
    np.testing.assert_allclose(other_densities, constant * density.counts(others), rtol=1e-9)


def scores_by_loop(points, candidates, fold):
    """Mean log likelihood of held-out points with one pseudo-point, by scikit-learn's KDE."""
    n, dim = points.shape
    radius = 2 * np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=1).mean())
    scores = []
    for bandwidth in candidates:
        logs = []
        for held_out in (fold == number for number in np.unique(fold)):
            fitted = points[~held_out]
            kde = KernelDensity(kernel="tophat", bandwidth=bandwidth).fit(fitted)
            background = KernelDensity(kernel="tophat", bandwidth=radius).fit(np.zeros((1, dim)))
            share = 1 / (len(fitted) + 1)
            mixed = (1 - share) * np.exp(kde.score_samples(points[held_out]))
            mixed += share * np.exp(background.score_samples(np.zeros((1, dim))))
            logs.extend(np.log(mixed))
        scores.append(np.mean(logs))
    return np.array(scores)


def test_bandwidth_scores_equal_a_loop_over_folds():
    points = np.unique(clustered(np.random.default_rng(1), 103, 5), axis=0)
    candidates = [0.05, 0.3, 0.6, 1.0, 2.0, 6.0]
    fold = np.random.default_rng(3).permutation(103) % 5
    scores = held_out_likelihood(points, np.array(candidates), fold)
    expected = scores_by_loop(points, candidates, fold)
    assert np.isfinite(scores).all()
    # The kernel's constant is left out.
    np.testing.assert_allclose(scores - scores[0], expected - expected[0], atol=1e-5)
    # The best of the candidates is taken.
    tried = module._candidates(points)
    best = tried[np.argmax(held_out_likelihood(points, tried, fold))]
    assert choose_bandwidth(points, seed=3) == best


def test_bandwidths_from_half_the_median_distance_to_the_nearest_are_tried():
    points = np.random.default_rng(0).standard_normal((101, 3))
    distances = np.linalg.norm(points[:, None] - points, axis=2) + np.diag([np.inf] * 101)
    spread = 2 * np.sqrt(np.square(points - points.mean(0)).sum(1).mean())
    candidates = module._candidates(points)
    assert candidates[0] == pytest.approx(np.median(distances.min(1)) / 2)
    assert candidates[-1] == pytest.approx(spread)
    points = np.arange(50.0)[:, None] * [1000, 0] + np.repeat([[0, 0], [0, 99]], 25, axis=0)
    assert len(module._candidates(np.concatenate([points, points + [0, 60]]))) == 64


def test_bandwidth_survives_an_outlier():
    points = np.random.default_rng(2).standard_normal((600, 16))
    without = choose_bandwidth(points)
    points[0] = 100
    # A likelihood of 0 would ask for a bandwidth that reaches the outlier, 400 away.
    assert choose_bandwidth(points) == pytest.approx(without, rel=0.25)


def test_repeated_points_do_not_make_the_bandwidth_fall():
    rng = np.random.default_rng(3)
    points = rng.standard_normal((500, 8))
    expected = choose_bandwidth(points)
    assert choose_bandwidth(np.concatenate([points, points[:150]])) == expected
    copies = points[:150] + 1e-7 * rng.standard_normal((150, 8))
    found = choose_bandwidth(np.concatenate([points, copies]))
    assert found == pytest.approx(expected, rel=0.25)
    # Nor do near copies of all of them.
    copies = points + 1e-7 * rng.standard_normal(points.shape)
    assert choose_bandwidth(np.concatenate([points, copies])) > 0.5
    for value in (0, 1):  # and equal points have none
        assert choose_bandwidth(np.full((9, 3), value)) == 0


@pytest.mark.parametrize("n", [2, 5, 7])
def test_fewer_points_than_folds(n):
    assert choose_bandwidth(np.random.default_rng(6).standard_normal((n, 3))) > 0


@pytest.mark.parametrize("value", [0, 0.1, 7])
def test_identical_sentences_have_one_density(value):
    vectors = np.full((40, 20), value, np.float32)
    density = TophatDensity.fit(vectors)
    assert density.fitted_counts.tolist() == [40] * 40
    # Another batch size of the encoder changes the last digits.
    assert density.counts(vectors[:3] * np.float32(1 + 1e-6)).tolist() == [40] * 3
    assert density.counts(vectors[:3] + 1).tolist() == [0] * 3


@pytest.mark.parametrize("count", [10, 1000])
def test_the_bandwidth_is_no_narrower_than_copies_of_a_sentence_differ(count):
    # A hundred thousandth of the root mean square length, 10⁴.
    vectors = np.zeros((count, 3))
    vectors[:, 0] = 1e4
    assert TophatDensity.fit(vectors).bandwidth == pytest.approx(1.0)  # ten times that
    rng = np.random.default_rng(0)
    vectors[:, 1] = np.arange(count) % 2 * 2
    vectors[:, 2] = rng.uniform(0, 0.005, count)
    assert TophatDensity.fit(vectors).bandwidth == pytest.approx(0.1, rel=1e-3)


def test_one_sentence_and_few_sentences():
    rng = np.random.default_rng(7)
    one = TophatDensity.fit(rng.standard_normal((1, 20)))
    assert one.fitted_counts.tolist() == [1] and one.points.shape == (1, 1)
    few = TophatDensity.fit(rng.standard_normal((6, 20)))
    assert few.points.shape == (6, 5) and (few.fitted_counts >= 1).all()
    narrow = TophatDensity.fit(rng.standard_normal((60, 3)))
    assert narrow.points.shape == (60, 3)


def test_fitted_sentences_are_not_counted_again(monkeypatch):
    vectors = clustered(np.random.default_rng(8), 60, 20).astype(np.float32)
    density = TophatDensity.fit(vectors)
    fewer = density.counts(vectors[:59])
    monkeypatch.setattr(module, "neighbor_counts", None)
    np.testing.assert_array_equal(density.counts(vectors)[:59], fewer)
    density.counts(vectors)[0] = 0
    assert density.fitted_counts[0] > 0


def test_vectors_of_another_width_are_refused():
    with pytest.raises(ValueError, match="dim 3"):
        TophatDensity.fit(np.eye(3)).counts(np.eye(4))


def test_weights_by_hand():
    # The mean is 2, b is 1: 1 / (1 + P).
    np.testing.assert_allclose(sentence_weights([1, 1, 4]), [1 / 2, 1 / 2, 1 / 5])
    np.testing.assert_allclose(sentence_weights([0, 3], mean_density=2), [1, 1 / 4])
    np.testing.assert_allclose(sentence_weights(np.full(7, 42)), 1 / 3)
