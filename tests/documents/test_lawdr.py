"""LAWDR as a whole: the equations in float64, invariances, degenerate and bad input."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from xling_jax.align import rows
from xling_jax.documents.lawdr import Lawdr, document_vectors

SETTINGS = [
    {"rank": 3},
    {"rank": 3, "weighting": "none"},
    {"rank": None, "seed": 5},
    {"rank": None, "weighting": "none"},
]


def corpus(seed=0, n=200, dim=24):
    """Clustered sentence vectors with a language component, and documents, some empty."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((6, dim))
    vectors = centers[rng.integers(0, 6, n)] + 0.4 * rng.standard_normal((n, dim)) + 2
    cuts = np.sort(rng.integers(0, n + 1, 38))
    offsets = np.concatenate([[0, 0], cuts, [n, n]])
    return vectors.astype(np.float32), offsets


def reference(vectors, offsets, settings, bandwidth):
    """The paper's equations, step by step, in float64."""
    vectors = vectors.astype(np.float64)
    debiased = vectors
    if settings["rank"] is not None:
        u = np.linalg.svd(vectors)[2][: settings["rank"]].T
        debiased = vectors - vectors @ u @ u.T
    if settings.get("weighting") == "none":
        parts = [debiased[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
        return np.array([p.mean(axis=0) if len(p) else 0 * vectors[0] for p in parts])
    points = PCA(16, svd_solver="full").fit_transform(vectors)
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    density = (distances <= bandwidth).sum(axis=1)
    half = density.mean() / 2
    weighted = (half / (half + density))[:, None] * debiased
    return np.array(
        [weighted[a:b].sum(axis=0) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    )


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_documents_equal_the_equations(settings):
    vectors, offsets = corpus()
    lawdr = Lawdr(**settings).fit(vectors)
    documents = lawdr.transform(vectors, offsets)
    bandwidth = lawdr.density.bandwidth if lawdr.density else None
    expected = reference(vectors, offsets, settings, bandwidth)
    assert documents.dtype == np.float32
    np.testing.assert_allclose(documents, expected, atol=2e-5)
    empty = np.diff(offsets) == 0
    assert empty.sum() >= 2 and not documents[empty].any()
    if lawdr.components is not None:
        np.testing.assert_allclose(documents @ lawdr.components, 0, atol=2e-5)


def test_weights_are_a_third_at_the_mean_density():
    vectors, _ = corpus()
    lawdr = Lawdr(rank=3).fit(vectors)
    weights, counts = lawdr.weights(vectors), lawdr.density.fitted_counts
    assert ((weights > 0) & (weights <= 1)).all()
    np.testing.assert_allclose(weights, 1 / (1 + 2 * counts / counts.mean()), rtol=1e-12)
    assert len(np.unique(counts)) > 10
    # Far from all that was fitted there is no density.
    assert Lawdr(rank=3).fit(vectors).weights(vectors[:1] + 1000).tolist() == [1]
    assert Lawdr(weighting="none", rank=3).fit(vectors).weights(vectors[:4]).tolist() == [1] * 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_mapped_equals_in_memory_and_blocks_change_little(tmp_path, monkeypatch, dtype):
    vectors, offsets = corpus()
    vectors = vectors.astype(dtype)
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    expected = Lawdr(rank=3).fit(vectors).transform(vectors, offsets)
    found = Lawdr(rank=3).fit(mapped).transform(mapped, offsets)
    np.testing.assert_array_equal(found, expected)
    monkeypatch.setattr(rows, "BLOCK_ROWS", 7)
    blocks = Lawdr(rank=3).fit(mapped).transform(mapped, offsets)
    np.testing.assert_allclose(blocks, expected, atol=1e-4)


def test_one_sentence_and_one_document():
    vectors = np.arange(6, dtype=np.float32)[None]
    lawdr = Lawdr(rank=None).fit(vectors)
    np.testing.assert_allclose(lawdr.transform(vectors, [0, 1]), vectors / 3)
    with pytest.raises(ValueError, match="of which some must be left"):
        Lawdr(rank=1).fit(vectors)
    vectors, _ = corpus()
    assert Lawdr(rank=3).fit(vectors).transform(vectors, [0, 200]).shape == (1, 24)
    vectors, _ = corpus(n=4)  # fewer than folds and axes
    documents = Lawdr(rank=2).fit(vectors).transform(vectors, [0, 1, 4])
    assert np.isfinite(documents).all() and documents.any(axis=1).all()


def test_transform_before_fit_is_refused():
    with pytest.raises(ValueError, match="not fitted"):
        Lawdr().transform(np.eye(3), [0, 3])


def test_a_fit_that_fails_changes_nothing():
    vectors, offsets = corpus()
    lawdr = Lawdr(rank=3).fit(vectors)
    expected = lawdr.transform(vectors, offsets)
    with pytest.raises(ValueError, match="of which some must be left"):
        lawdr.fit(vectors[:2])
    np.testing.assert_array_equal(lawdr.transform(vectors, offsets), expected)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.empty((0, 4)), "at least one sentence"),
        (np.array([[1.0, 2], [np.nan, 1]]), r"vectors\[1\] must be finite"),
        (np.ones(4), "shape"),
    ],
)
def test_bad_vectors_are_refused(vectors, message):
    with pytest.raises(ValueError, match=message):
        Lawdr(rank=1).fit(vectors)


def test_vectors_of_another_encoder_are_refused():
    vectors, _ = corpus()
    lawdr = Lawdr(rank=3).fit(vectors)
    with pytest.raises(ValueError, match="dim 24.*got 23.*same encoder"):
        lawdr.transform(vectors[:, 1:], [0, 200])
    mean = Lawdr(rank=None, weighting="none").fit(vectors)
    with pytest.raises(ValueError, match="dim 24.*got 23.*same encoder"):
        mean.transform(vectors[:, 1:], [0, 200])
    with pytest.raises(ValueError, match="number of sentences, 200"):
        lawdr.transform(vectors, [0, 199])
    broken = vectors.copy()
    broken[7] = np.inf
    with pytest.raises(ValueError, match=r"vectors\[7\]"):
        lawdr.transform(broken, [0, 200])


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="rank must be at least 1, or None"):
        Lawdr(rank=0)
    with pytest.raises(ValueError, match="weighting='idf' must be one of kde, none"):
        Lawdr(weighting="idf")


def loop(vectors, offsets, weights):
    documents = np.zeros((len(offsets) - 1, vectors.shape[1]))
    for document, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        for sentence in range(start, end):
            share = 1 / (end - start) if weights is None else weights[sentence]
            documents[document] += share * vectors[sentence].astype(np.float64)
    return documents


@pytest.mark.parametrize("block", [1, 3, 8, 1000])
@pytest.mark.parametrize("weighted", [False, True])
def test_documents_equal_a_loop_for_every_block(monkeypatch, block, weighted):
    monkeypatch.setattr(rows, "BLOCK_ROWS", block)
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((40, 5)).astype(np.float32)
    # Empty documents at the start, at the end, two in a row; one of a sentence, one of many.
    offsets = np.array([0, 0, 1, 3, 3, 3, 8, 30, 32, 40, 40])
    weights = rng.random(40) if weighted else None
    documents = document_vectors(vectors, offsets, weights)
    assert documents.dtype == np.float32
    np.testing.assert_allclose(documents, loop(vectors, offsets, weights), atol=1e-6)
    assert not documents[[0, 3, 4, 9]].any()


def test_documents_by_hand():
    vectors = np.array([[1.0, 2], [3, 4]])
    assert document_vectors(vectors, [0, 2], np.array([1, 0.5])).tolist() == [[2.5, 4]]  # a sum
    assert document_vectors(vectors, [0, 2]).tolist() == [[2, 3]]
    vectors = np.array([[2**25], [1], [-(2**25)]], np.float32)  # sums are of double precision
    assert document_vectors(vectors, [0, 3], np.ones(3)).tolist() == [[1]]
    assert document_vectors(np.empty((0, 3)), np.array([0])).shape == (0, 3)
    assert document_vectors(np.empty((0, 3)), np.array([0, 0, 0])).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 2], "number of sentences, 3; got 0 to 2"),
        ([1, 3], "got 1 to 3"),
        ([0, 2, 1, 3], "must increase"),
        ([0.0, 3.0], "integers"),
        ([], "integers of shape"),
        ([[0, 3]], "integers of shape"),
    ],
)
def test_bad_offsets_are_refused(offsets, message):
    with pytest.raises(ValueError, match=message):
        document_vectors(np.ones((3, 2)), offsets)
