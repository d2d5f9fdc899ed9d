"""Sentence weights and document vectors: by hand, invariances, empty documents, bad input."""

import numpy as np
import pytest

from xling_jax.align import rows
from xling_jax.documents.weighting import document_vectors, sentence_weights


def test_weights_by_hand():
    # The mean is 2, b is 1: 1 / (1 + P).
    np.testing.assert_allclose(sentence_weights([1, 1, 4]), [1 / 2, 1 / 2, 1 / 5])
    np.testing.assert_allclose(sentence_weights([0, 3], mean_density=2), [1, 1 / 4])


@pytest.mark.parametrize("factor", [1e-12, 0.3, 1e9])
def test_scaling_the_density_changes_no_weight(factor):
    density = np.random.default_rng(0).random(50)
    np.testing.assert_allclose(
        sentence_weights(factor * density), sentence_weights(density), rtol=1e-14
    )


def test_equal_densities_weigh_a_third():
    np.testing.assert_allclose(sentence_weights(np.full(7, 42)), 1 / 3)
    assert sentence_weights(np.array([])).shape == (0,)


@pytest.mark.parametrize(
    ("density", "message"),
    [([1, -1], "nonnegative"), ([1, np.nan], "finite"), ([0, 0], "mean density")],
)
def test_bad_densities_are_refused(density, message):
    with pytest.raises(ValueError, match=message):
        sentence_weights(density)


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


def test_weighted_sum_is_not_divided():
    vectors = np.array([[1.0, 2], [3, 4]])
    assert document_vectors(vectors, [0, 2], np.array([1, 0.5])).tolist() == [[2.5, 4]]
    assert document_vectors(vectors, [0, 2]).tolist() == [[2, 3]]


def test_sums_are_of_double_precision():
    vectors = np.array([[2**25], [1], [-(2**25)]], np.float32)
    assert document_vectors(vectors, [0, 3], np.ones(3)).tolist() == [[1]]


def test_no_documents_and_no_sentences():
    assert document_vectors(np.empty((0, 3)), np.array([0])).shape == (0, 3)
    assert document_vectors(np.empty((0, 3)), np.array([0, 0, 0])).tolist() == [[0] * 3] * 2


def test_mapped_equals_in_memory(tmp_path):
    vectors = np.random.default_rng(2).standard_normal((30, 4)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    offsets = np.array([0, 7, 30])
    np.testing.assert_array_equal(
        document_vectors(mapped, offsets), document_vectors(vectors, offsets)
    )


@pytest.mark.parametrize(
    ("offsets", "weights", "message"),
    [
        ([0, 2], None, "number of sentences, 3; got 0 to 2"),
        ([1, 3], None, "got 1 to 3"),
        ([0, 2, 1, 3], None, "decreasing"),
        ([0.0, 3.0], None, "integers"),
        ([], None, "integers of shape"),
        ([[0, 3]], None, "integers of shape"),
        ([0, 3], [1, 1], r"weights must have shape \(3,\); got \(2,\)"),
    ],
)
def test_bad_offsets_and_weights_are_refused(offsets, weights, message):
    with pytest.raises(ValueError, match=message):
        document_vectors(np.ones((3, 2)), offsets, weights)


def test_bad_vectors_are_refused():
    with pytest.raises(ValueError, match=r"vectors\[1\] must be finite"):
        document_vectors(np.array([[1.0], [np.nan]]), [0, 2])
