"""Exact neighbors: values by hand, brute force in float64, ties, sizes, bad input."""

import contextlib
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from xling_jax.align import knn, knn_numpy


def brute_force(queries, keys, k):
    scores = queries.astype(np.float64) @ keys.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


def check_exactly(found, queries, keys, k):
    """Of values that are exact in float32: the same bits, ties lowest index first."""
    for mine, expected in zip(found, brute_force(queries, keys, k), strict=True):
        np.testing.assert_array_equal(mine, expected)


def use_threads(monkeypatch, threads):
    """Has the NumPy backend split the keys among threads, however few and whatever the CPU."""
    blas = lambda num_tasks: contextlib.nullcontext(threads)
    monkeypatch.setattr(knn_numpy, "threads_for", blas)


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
@pytest.mark.parametrize(
    ("tile", "threads"), [((1, 1), 1), ((3, 7), 1), ((50, 40), 1), ((1000, 1000), 1), ((6, 7), 5)]
)
def test_every_block_size_equals_brute_force_with_ties(monkeypatch, k, tile, threads):
    rng = np.random.default_rng(k)
    queries, keys = small_integers(rng, 23), small_integers(rng, 61)
    use_threads(monkeypatch, threads)
    monkeypatch.setattr(knn_numpy, "_tile_shape", lambda *_: tile)
    check_exactly(knn.top_k(queries, keys, k), queries, keys, k)


@pytest.mark.parametrize("memory_mb", [1e-6, 0.05, 256])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_real_vectors_equal_brute_force(memory_mb, dtype):
    rng = np.random.default_rng(0)
    queries, keys = (rng.standard_normal((n, 48)).astype(dtype) for n in (40, 300))
    scores, indices = knn.top_k(queries, keys, 5, memory_mb=memory_mb)
    expected_scores, expected_indices = brute_force(queries, keys, 5)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


def test_k_above_the_number_of_keys_returns_all_keys():
    scores, indices = knn.top_k(np.eye(3), np.eye(3)[:2], k=100)
    assert scores.shape == (3, 2)
    np.testing.assert_array_equal(indices, [[0, 1], [1, 0], [0, 1]])
    for found in knn.top_k(np.empty((0, 3)), np.eye(3), k=2):
        assert found.shape == (0, 2)


@pytest.mark.parametrize(("k", "both_ways"), [(4, True), (40, False)])
def test_working_memory_stays_within_the_bound(tmp_path, monkeypatch, k, both_ways):
    use_threads(monkeypatch, 2)
    rng = np.random.default_rng(2)
    np.save(tmp_path / "keys.npy", rng.standard_normal((6000, 64)).astype(np.float16))
    keys = np.load(tmp_path / "keys.npy", mmap_mode="r")
    queries = rng.standard_normal((300, 64)).astype(np.float32)
    tracemalloc.start()
    find = knn.top_k_both_ways if both_ways else knn.top_k
    found = find(queries, keys, k, memory_mb=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = sum(found, ()) if both_ways else found
    assert peak - sum(array.nbytes for array in found) < 3 * 2**20


@pytest.mark.parametrize(
    ("tile", "threads", "options"),
    [(tile, threads, {}) for tile in ((4, 5), (1000, 1000)) for threads in (1, 3)]
    + [(None, 1, {"backend": "jax", "memory_mb": memory_mb}) for memory_mb in (1e-4, 0.02)],
)
def test_both_ways_equals_one_way_and_the_other(monkeypatch, threads, tile, options):
    monkeypatch.setattr(knn_numpy, "_tile_shape", lambda *_: tile)
    use_threads(monkeypatch, threads)
    rng = np.random.default_rng(4)
    for k in (1, 4, 50) if options else (1, 4, 33):
        x, y = small_integers(rng, 37), small_integers(rng, 61)
        forward, backward = knn.top_k_both_ways(x, y, k, **options)
        check_exactly(forward, x, y, k)
        check_exactly(backward, y, x, k)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("memory_mb", [1e-4, 256])
def test_backends_agree_with_brute_force_and_break_ties_alike(backend, memory_mb):
    rng = np.random.default_rng(6)
    for k in (1, 4, 70):
        queries, keys = small_integers(rng, 23), small_integers(rng, 61)
        found = knn.top_k(queries, keys, k, memory_mb=memory_mb, backend=backend)
        check_exactly(found, queries, keys, k)
        assert [array.dtype for array in found] == [np.float32, np.int64]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("k", [1, 4, 20])
def test_the_best_of_groups_are_the_best_of_all(axis, k):
    """Large tiles are searched by the maxima of groups; here with many ties."""
    import jax.numpy as jnp

    from xling_jax.align import knn_jax

    scores = np.random.default_rng(11).integers(0, 9, (1024, 512)).astype(np.float32)
    values, indices = knn_jax._best(jnp.asarray(scores), k, axis, jnp.int32(7))
    across = scores if axis else scores.T
    expected = np.argsort(-across, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(indices, 7 + expected)
    np.testing.assert_array_equal(values, np.take_along_axis(across, expected, axis=1))


def test_products_that_overflow_are_refused_by_jax_too():
    with pytest.raises(ValueError, match="not finite"):
        knn.top_k(np.full((2, 2), 1e30), np.full((9, 2), 1e30), 1, backend="jax")


EIGHT_DEVICES = """
import jax
import numpy as np
from xling_jax.align import knn

assert len(jax.devices()) == 8
rng = np.random.default_rng(0)
for n, m, k, memory_mb in ((23, 61, 4, 256), (23, 61, 70, 256), (40, 500, 5, 1e-2), (3, 5, 4, 1)):
    x, y = (rng.integers(-3, 4, (rows, 4)).astype(np.float32) for rows in (n, m))
    for sides in ((x, y), (y, x)):
        expected = knn.top_k(*sides, k)
        found = knn.top_k(*sides, k, memory_mb=memory_mb, backend="jax")
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_array_equal(found[0], expected[0])
    found = knn.top_k_both_ways(x, y, k, memory_mb=memory_mb, backend="jax")
    for found, expected in zip(found, knn.top_k_both_ways(x, y, k)):
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_array_equal(found[0], expected[0])
"""


@pytest.mark.slow
def test_keys_split_over_eight_devices_give_the_same_neighbors_and_ties():
    flags = "--xla_force_host_platform_device_count=8"
    result = subprocess.run(
        [sys.executable, "-c", EIGHT_DEVICES],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def test_numpy_starts_no_device():
    program = (
        "import sys, numpy as np; from xling_jax.align import knn; "
        "knn.top_k(np.eye(3), np.eye(3), 2); assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_progress_ends_at_the_number_of_queries(monkeypatch, backend):
    monkeypatch.setattr(knn_numpy, "_tile_shape", lambda *_: (4, 5))
    seen = []
    knn.top_k(np.eye(10), np.eye(10), 2, backend=backend, report=lambda *done: seen.append(done))
    assert seen == sorted(seen) and seen[-1] == (10, 10)


def test_unit_rows_are_the_normalized_rows_without_a_copy(tmp_path):
    rng = np.random.default_rng(9)
    vectors = rng.standard_normal((300, 16)).astype(np.float32) * 10
    vectors[7] = 0
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    unit = knn.UnitRows(mapped)
    assert unit.shape == (300, 16) and len(unit) == 300
    np.testing.assert_allclose(unit[10:20], knn.normalize(vectors)[10:20], atol=1e-7)
    np.testing.assert_array_equal(unit[7:8], np.zeros((1, 16)))
    chosen = np.array([5, 7, 299])
    np.testing.assert_array_equal(knn.UnitRows(mapped, chosen)[0:3], unit[chosen])
    for backend in ("numpy", "jax"):
        scores, indices = knn.top_k(unit, unit, 3, backend=backend)
        expected = knn.top_k(knn.normalize(vectors), knn.normalize(vectors), 3)
        np.testing.assert_allclose(scores, expected[0], atol=1e-6)
        np.testing.assert_array_equal(np.delete(indices, 7, 0), np.delete(expected[1], 7, 0))


def test_a_bad_row_of_unit_rows_is_named_by_its_place_in_the_file():
    vectors = np.ones((9, 2))
    vectors[6] = np.nan
    with pytest.raises(ValueError, match=r"e\.npy\[6\] must be finite"):
        knn.UnitRows(vectors, np.array([1, 6, 8]), "e.npy")
    knn.UnitRows(vectors, np.array([1, 8]))


def test_normalize_gives_unit_rows_and_keeps_zero_rows():
    vectors = np.array([[3, 4], [0, 0], [3e30, 4e30], [3e-30, 4e-30]], np.float32)
    before = vectors.copy()
    unit = knn.normalize(vectors)
    np.testing.assert_allclose(unit, [[0.6, 0.8], [0, 0], [0.6, 0.8], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_array_equal(vectors, before)
    assert unit.dtype == np.float32


@pytest.mark.parametrize(
    ("queries", "keys", "k", "message"),
    [
        (np.eye(2), np.eye(3), 1, "same dim; got 2 and 3"),
        (np.eye(2), np.eye(2), 0, "k must be at least 1"),
        (np.eye(2), np.empty((0, 2)), 1, "at least one row"),
        (np.ones(2), np.eye(2), 1, r"queries must have shape \[n, dim\]"),
        (np.array([[0.0, 1], [np.nan, 0]]), np.eye(2), 1, r"queries\[1\] must be finite"),
        (np.eye(2), np.array([[0.0, 1], [np.inf, 0]]), 1, r"keys\[1\] must be finite"),
        (np.full((1, 2), 1e30), np.full((1, 2), 1e30), 1, "not finite"),
        (np.full((1, 2), 1e30), np.array([[1, 0], [1e30, -1e30]]), 1, "not finite"),
    ],
)
def test_bad_input_is_refused_with_its_place(queries, keys, k, message):
    with pytest.raises(ValueError, match=message):
        knn.top_k(queries, keys, k)


@pytest.mark.parametrize(("num_keys", "row", "threads"), [(7, 5, 1), (64, 63, 4)])
def test_a_bad_row_is_named_by_its_place_in_the_whole_array(monkeypatch, num_keys, row, threads):
    use_threads(monkeypatch, threads)
    monkeypatch.setattr(knn_numpy, "_tile_shape", lambda *_: (2, 2))
    keys = np.ones((num_keys, 2))
    keys[row, 1] = np.nan
    with pytest.raises(ValueError, match=rf"keys\[{row}\]"):
        knn.top_k(np.ones((3, 2)), keys, 1)
