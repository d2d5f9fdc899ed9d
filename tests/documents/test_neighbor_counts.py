"""Neighbor counts: values by hand, brute force in float64, the boundary, sizes, bad input."""

import contextlib

import numpy as np
import pytest

from xling_jax.documents import density as module
from xling_jax.documents.density import neighbor_counts


def brute_force(queries, points, radius):
    queries, points = np.asarray(queries, np.float64), np.asarray(points, np.float64)
    return np.array([(np.square(points - q).sum(axis=1) <= radius**2).sum() for q in queries])


def test_values_by_hand():
    points = np.array([[0.0], [1], [3], [3], [10]])
    np.testing.assert_array_equal(neighbor_counts(points, points, 2), [2, 4, 3, 3, 1])
    np.testing.assert_array_equal(neighbor_counts(np.array([[2.0], [-5]]), points, 1), [3, 0])
    np.testing.assert_array_equal(neighbor_counts(points, points, 0), [1, 1, 2, 2, 1])


@pytest.mark.parametrize("tile", [8, 24, 512])
@pytest.mark.parametrize(("n", "m", "dim"), [(1, 1, 1), (7, 9, 3), (130, 261, 16), (300, 1, 5)])
def test_counts_equal_brute_force_for_every_tile(monkeypatch, tile, n, m, dim):
    monkeypatch.setattr(module, "_TILE", tile)
    rng = np.random.default_rng(n)
    queries, points = (rng.standard_normal((size, dim)).astype(np.float32) for size in (n, m))
    for radius in (0.3, 2, 4.5, 50):
        expected = brute_force(queries, points, radius)
        np.testing.assert_array_equal(neighbor_counts(queries, points, radius), expected)
        expected = brute_force(points, points, radius)
        np.testing.assert_array_equal(neighbor_counts(points, points, radius), expected)
        np.testing.assert_array_equal(neighbor_counts(points.copy(), points, radius), expected)


@pytest.mark.parametrize("shift", [0, 1000])
@pytest.mark.parametrize("radius", [1, 2, 3, 5, 1e-9])
def test_points_on_the_boundary_are_within(shift, radius):
    # Squared distances are whole numbers: many pairs lie exactly on the boundary.
    rng = np.random.default_rng(1)
    points = rng.integers(-3, 4, (700, 5)).astype(np.float32) + np.float32(shift)
    expected = brute_force(points, points, radius)
    np.testing.assert_array_equal(neighbor_counts(points, points, radius), expected)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30])
def test_scale_and_outliers_do_not_blur_the_boundary(scale):
    rng = np.random.default_rng(2)
    points = rng.standard_normal((600, 16)).astype(np.float32)
    points[:3] *= 10
    points *= np.float32(scale)
    exact = points.astype(np.float64)
    for radius in np.linalg.norm(exact[10:14] - exact[20:24], axis=1):
        more, fewer = (neighbor_counts(points, points, radius * f) for f in (1 + 1e-9, 1 - 1e-9))
        np.testing.assert_array_equal(more, brute_force(points, points, radius * (1 + 1e-9)))
        assert (more - fewer).sum() == 2


@pytest.mark.parametrize("threads", [1, 3])
def test_number_of_threads_changes_nothing(monkeypatch, threads):
    monkeypatch.setattr(module, "threads_for", lambda _: contextlib.nullcontext(threads))
    points = np.random.default_rng(0).standard_normal((2000, 16)).astype("f4")
    counts = neighbor_counts(points, points, 4.0)
    np.testing.assert_array_equal(counts, brute_force(points, points, 4.0))
