"""Exact neighbors: values by hand, brute force in float64, ties, sizes, bad input."""

import tracemalloc

import numpy as np
import pytest

from xling_jax.align import knn


def brute_force(queries, keys, k):
    scores = queries.astype(np.float64) @ keys.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


def small_integers(rng, n, dim=4, high=3):
    """Vectors whose products are exact in float32 and often equal."""
    return rng.integers(-high, high + 1, (n, dim)).astype(np.float32)


def test_values_by_hand():
    keys = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    scores, indices = knn.top_k(np.array([[1, 0], [0, 2]], np.float32), keys, k=2)
    np.testing.assert_array_equal(indices, [[0, 2], [1, 2]])
    np.testing.assert_allclose(scores, [[1, 0.6], [2, 1.6]], rtol=1e-6)
    assert scores.dtype == np.float32 and indices.dtype == np.int64


@pytest.mark.parametrize("k", [1, 4, 33, 60])
@pytest.mark.parametrize("tile", [(1, 1), (3, 7), (50, 40), (1000, 1000)])
def test_every_block_size_equals_brute_force_with_ties(monkeypatch, k, tile):
    rng = np.random.default_rng(k)
    queries, keys = small_integers(rng, 23), small_integers(rng, 61)
    monkeypatch.setattr(knn, "_tile_shape", lambda *_: tile)
    scores, indices = knn.top_k(queries, keys, k)
    expected_scores, expected_indices = brute_force(queries, keys, k)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_array_equal(scores, expected_scores)


@pytest.mark.parametrize("memory_mb", [1e-6, 0.05, 256])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_real_vectors_equal_brute_force(memory_mb, dtype):
    rng = np.random.default_rng(0)
    queries, keys = (rng.standard_normal((n, 48)).astype(dtype) for n in (40, 300))
    scores, indices = knn.top_k(queries, keys, 5, memory_mb=memory_mb)
    expected_scores, expected_indices = brute_force(queries, keys, 5)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


@pytest.mark.parametrize("k", [3, 40])
def test_equal_scores_come_lowest_index_first(k):
    _, indices = knn.top_k(np.ones((2, 3)), np.ones((50, 3)), k)
    np.testing.assert_array_equal(indices, [np.arange(k)] * 2)


def test_k_above_the_number_of_keys_returns_all_keys():
    scores, indices = knn.top_k(np.eye(3), np.eye(3)[:2], k=100)
    assert scores.shape == (3, 2)
    np.testing.assert_array_equal(indices, [[0, 1], [1, 0], [0, 1]])


def test_no_queries_give_empty_results():
    scores, indices = knn.top_k(np.empty((0, 3)), np.eye(3), k=2)
    assert scores.shape == indices.shape == (0, 2)


def test_score_tile_changes_what_is_ranked(monkeypatch):
    rng = np.random.default_rng(1)
    queries, keys, penalty = small_integers(rng, 9), small_integers(rng, 31), rng.random(31)
    monkeypatch.setattr(knn, "_tile_shape", lambda *_: (4, 5))
    _, indices = knn.top_k(
        queries, keys, 3, score_tile=lambda tile, rows, columns: tile - penalty[columns]
    )
    expected = np.argsort(-(queries @ keys.T - penalty), axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(indices, expected)


@pytest.mark.parametrize("k", [4, 40])
def test_working_memory_stays_within_the_bound(tmp_path, k):
    rng = np.random.default_rng(2)
    np.save(tmp_path / "keys.npy", rng.standard_normal((20_000, 64)).astype(np.float16))
    keys = np.load(tmp_path / "keys.npy", mmap_mode="r")
    queries = rng.standard_normal((1000, 64)).astype(np.float32)
    tracemalloc.start()
    scores, indices = knn.top_k(queries, keys, k, memory_mb=6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - scores.nbytes - indices.nbytes < 6 * 2**20


def test_normalize_gives_unit_rows_and_keeps_zero_rows():
    unit = knn.normalize(np.array([[3, 4], [0, 0], [3e30, 4e30], [3e-30, 4e-30]]))
    np.testing.assert_allclose(unit, [[0.6, 0.8], [0, 0], [0.6, 0.8], [0.6, 0.8]], rtol=1e-6)
    assert unit.dtype == np.float32


def test_normalize_leaves_its_input_alone():
    vectors = np.array([[3, 4]], np.float32)
    knn.normalize(vectors)
    np.testing.assert_array_equal(vectors, [[3, 4]])


@pytest.mark.parametrize(
    ("queries", "keys", "k", "message"),
    [
        (np.eye(2), np.eye(3), 1, "same dim; got 2 and 3"),
        (np.eye(2), np.eye(2), 0, "k must be at least 1"),
        (np.eye(2), np.empty((0, 2)), 1, "at least one row"),
        (np.ones(2), np.eye(2), 1, r"queries must have shape \[n, dim\]"),
        (np.eye(2), np.full((2, 2), "a"), 1, "keys must hold real numbers"),
        (np.array([[0.0, 1], [np.nan, 0]]), np.eye(2), 1, r"queries\[1\] must be finite"),
        (np.eye(2), np.array([[0.0, 1], [np.inf, 0]]), 1, r"keys\[1\] must be finite"),
        (np.full((1, 2), 1e30), np.full((1, 2), -1e30), 1, "not finite"),
    ],
)
def test_bad_input_is_refused_with_its_place(queries, keys, k, message):
    with pytest.raises(ValueError, match=message):
        knn.top_k(queries, keys, k)


def test_a_bad_row_is_named_by_its_place_in_the_whole_array(monkeypatch):
    monkeypatch.setattr(knn, "_tile_shape", lambda *_: (2, 2))
    keys = np.ones((7, 2))
    keys[5, 1] = np.nan
    with pytest.raises(ValueError, match=r"keys\[5\]"):
        knn.top_k(np.ones((3, 2)), keys, 1)
