"""Approximate neighbors: recall, exact scores, both ways, stored vectors, and what is refused."""

import sys

import numpy as np
import pytest

import xling_jax
from xling_jax.align import knn

INDEXES = ["ivf", "IVF16,SQ8:nprobe=8"]
INDEXES += [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("ivfpq", "hnsw")]


def clustered(n, seed, dim=32):
    """Unit vectors, a few around each of the centers that both sides share."""
    centers = np.random.default_rng(0).standard_normal((300, dim))
    rng = np.random.default_rng(seed)
    places = np.arange(n) % len(centers)
    return knn.normalize(centers[places] + 0.3 * rng.standard_normal((n, dim)))


@pytest.fixture
def sides():
    pytest.importorskip("faiss")
    return clustered(1200, 1), clustered(1800, 2)


def recall(found, expected):
    return (found[1][:, :, None] == expected[1][:, None]).any(axis=1).mean()


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_finds_nearly_all_neighbors_with_exact_scores(sides, index):
    for k in (1, 4):
        found = knn.top_k_both_ways(*sides, k, index=index)
        expected = knn.top_k_both_ways(*sides, k)
        for (queries, keys), mine, exact in zip((sides, sides[::-1]), found, expected):
            assert recall(mine, exact) > 0.95
            assert mine[0].shape == exact[0].shape and mine[1].dtype == np.int64
            products = np.einsum("nd,nkd->nk", queries, keys[mine[1]].astype(np.float64))
            np.testing.assert_allclose(mine[0], products, atol=1e-6)
            assert (np.diff(mine[0], axis=1) <= 0).all()
            one_way = knn.top_k(queries, keys, k, index=index)
            assert recall(one_way, exact) > 0.95


def test_mapped_rows_are_searched(sides, tmp_path):
    np.save(tmp_path / "x.npy", 3 * sides[0])
    mapped = knn.UnitRows(np.load(tmp_path / "x.npy", mmap_mode="r"))
    exact = knn.top_k(*sides, 4)
    assert recall(knn.top_k(mapped, sides[1], 4, index="ivfpq"), exact) > 0.95


def test_rows_with_too_few_candidates_are_searched_exactly(sides):
    """Far more neighbors are asked for than a cluster holds."""
    scores, indices = found = knn.top_k(*sides, 200, index="IVF64,Flat:nprobe=1")
    assert (indices >= 0).all() and np.isfinite(scores).all()
    assert recall(found, knn.top_k(*sides, 200)) > 0.9


def test_copies_of_a_key_come_lowest_index_first(sides):
    keys = np.repeat(sides[1][:300], 3, axis=0)
    _, indices = knn.top_k(keys[:60], keys, 3, index="ivf:nprobe=1000")
    np.testing.assert_array_equal(indices, 3 * np.repeat(np.arange(20), 3)[:, None] + np.arange(3))


def test_mine_finds_the_same_pairs_by_an_index(sides):
    rng = np.random.default_rng(3)
    target = sides[0] + 0.02 * rng.standard_normal(sides[0].shape)
    mined = xling_jax.mine(sides[0], target[::-1], index="ivf", retrieval="intersect")
    assert np.mean(mined.source == len(target) - 1 - mined.target) == 1
    assert len(mined) > 0.99 * len(target)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("nonsense", r"index='nonsense': faiss refuses it: .*known names are exact, ivf"),
        ("ivf:efSearch=3", "could not set parameter efSearch"),
        ("IVF16,PQ7", "index='IVF16,PQ7': faiss refuses it"),
        ("IVF5000,Flat", "index='IVF5000,Flat': faiss refuses it"),
    ],
)
def test_an_unknown_index_is_refused_in_one_line(sides, index, message):
    with pytest.raises(ValueError, match=message) as error:
        knn.top_k(*sides, 1, index=index)
    assert "\n" not in str(error.value) and ".cpp" not in str(error.value)


def test_an_index_is_not_searched_on_devices():
    with pytest.raises(ValueError, match="index='ivf' searches on the CPU"):
        knn.top_k(np.eye(2), np.eye(2), 1, index="ivf", backend="jax")


def test_faiss_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(
        ImportError, match=r"index='ivf' needs faiss; pip install .xling_jax\[faiss"
    ):
        xling_jax.mine(np.ones((999, 2)), np.eye(2), index="ivf")
