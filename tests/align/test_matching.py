"""Document alignment against values by hand and an exhaustive greedy in float64."""

import itertools
import logging

import numpy as np
import pytest

from xling_jax.align import margin, matching, mining
from xling_jax.align.matching import align_documents
from xling_jax.align.mining import MinedPairs, one_to_one


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def unit(vectors):
    vectors = np.asarray(vectors, np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def margins(x, y, k=4):
    """Equation 4 for all pairs, [n, m]: products over the two sums over neighbors by cosine."""
    cosine = unit(x) @ unit(y).T
    n, m = cosine.shape
    scores = np.empty((n, m))
    for i, j in itertools.product(range(n), range(m)):
        row = np.argsort(-cosine[i], kind="stable")[:k]
        column = np.argsort(-cosine[:, j], kind="stable")[:k]
        sums = k * cosine[i, row].mean() + k * cosine[column, j].mean()
        scores[i, j] = cosine[i, j] / max(sums, 2 * k * margin.MIN_DENOMINATOR)
    return scores


def exhaustive(scores):
    """Greedy over all pairs, as {source: (target, score)}."""
    places = sorted(np.ndindex(scores.shape), key=lambda place: (-scores[place], place))
    found, used = {}, set()
    for i, j in places:
        if i not in found and j not in used:
            found[i] = (j, scores[i, j])
            used.add(j)
    return found


def as_dict(pairs):
    assert len(set(pairs.target.tolist())) == len(pairs)
    return {i: (j, score) for score, i, j in pairs}


def check_equal(pairs, expected, atol=2e-6):
    found = as_dict(pairs)
    assert {i: j for i, (j, _) in found.items()} == {i: j for i, (j, _) in expected.items()}
    for i, (_, score) in found.items():
        assert score == pytest.approx(expected[i][1], abs=atol, rel=1e-4)


def test_one_to_one_by_hand():
    # 0-0 is best; it blocks 0-1 and 1-0; 1-1 is what is left for 1.
    pairs = MinedPairs(
        np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0.9, 0.8, 0.7, 0.1], np.float32)
    )
    kept = one_to_one(pairs, 2, 2)
    assert [*zip(kept.source, kept.target)] == [(0, 0), (1, 1)]
    np.testing.assert_allclose(kept.scores, [0.9, 0.1], rtol=1e-6)
    # Equal scores are taken in the order given.
    pairs = MinedPairs(np.array([1, 0, 0, 1]), np.array([0, 0, 1, 1]), np.ones(4, np.float32))
    kept = one_to_one(pairs, 2, 2)
    assert [*zip(kept.source, kept.target)] == [(1, 0), (0, 1)]


def test_one_to_one_equals_exhaustive_greedy_over_many_blocks(rng, monkeypatch):
    monkeypatch.setattr(mining, "_BLOCK_MATCHED", 7)
    scores = rng.standard_normal((13, 9)).astype(np.float32)
    rows, columns = (axis.ravel() for axis in np.indices(scores.shape))
    order = rng.permutation(scores.size)
    pairs = MinedPairs(rows[order], columns[order], scores.ravel()[order])
    check_equal(one_to_one(pairs, 13, 9), exhaustive(scores.astype(np.float64)))


@pytest.mark.parametrize("shape", [(30, 25), (25, 30), (3, 40), (1, 1), (1, 6), (6, 1)])
def test_all_pairs_equal_exhaustive_greedy(rng, shape):
    x, y = (rng.standard_normal((n, 8)) + 0.7 for n in shape)
    check_equal(align_documents(x, y), exhaustive(margins(x, y)))
    check_equal(align_documents(x, y, similarity="cosine"), exhaustive(unit(x) @ unit(y).T))
    check_equal(align_documents(x, y, k=2), exhaustive(margins(x, y, k=2)))


def test_candidates_are_the_nearest_by_cosine_of_either_side(rng):
    x, y = (rng.standard_normal((n, 6)) + 0.7 for n in (15, 12))
    cosine = unit(x) @ unit(y).T
    scores = margins(x, y)
    near = np.zeros(cosine.shape, bool)
    for i in range(15):
        near[i, np.argsort(-cosine[i])[:2]] = True
    for j in range(12):
        near[np.argsort(-cosine[:, j])[:2], j] = True
    expected = exhaustive(np.where(near, scores, -np.inf))
    expected = {i: found for i, found in expected.items() if found[1] > -np.inf}
    found = align_documents(x, y, candidates=2)
    check_equal(found, expected)
    assert len(found) < len(align_documents(x, y))


def test_a_domain_of_many_pairs_takes_the_default_number_of_candidates(rng, monkeypatch):
    x, y = (rng.standard_normal((n, 6)) + 0.7 for n in (30, 40))
    monkeypatch.setattr(matching, "ALL_PAIRS", 30 * 40)
    check_equal(align_documents(x, y), exhaustive(margins(x, y)))
    monkeypatch.setattr(matching, "ALL_PAIRS", 30 * 40 - 1)
    monkeypatch.setattr(matching, "DEFAULT_CANDIDATES", 3)
    check_equal(align_documents(x, y), as_dict(align_documents(x, y, candidates=3)))


def test_domains_are_aligned_one_by_one(rng):
    x, y = (rng.standard_normal((n, 6)) + 0.7 for n in (14, 17))
    domains = [*"aababbaabbaccd"], [*"abcabbeaabbacabba"]
    found = align_documents(x, y, domains=domains)
    expected = {}
    for name in "abc":
        rows, columns = (np.flatnonzero(np.array(side) == name) for side in domains)
        for i, (j, score) in exhaustive(margins(x[rows], y[columns])).items():
            expected[rows[i]] = (columns[j], score)
    check_equal(found, expected)
    assert (np.diff(found.scores) <= 0).all()


def test_empty_documents_are_never_matched_and_nobodys_neighbor(rng):
    x, y = (rng.standard_normal((n, 6)) + 0.7 for n in (9, 8))
    padded_x, padded_y = np.zeros((12, 6)), np.zeros((10, 6))
    rows, columns = np.array([0, 1, 3, 4, 5, 6, 8, 9, 11]), np.array([1, 2, 3, 4, 5, 6, 7, 9])
    padded_x[rows], padded_y[columns] = x, y
    for settings in ({}, {"candidates": 3}, {"similarity": "cosine"}):
        found = as_dict(align_documents(padded_x, padded_y, **settings))
        expected = {
            rows[i]: (columns[j], score)
            for i, (j, score) in as_dict(align_documents(x, y, **settings)).items()
        }
        assert found == expected


def test_sides_without_documents_or_text_have_no_pairs():
    ones = np.ones((3, 4))
    for x, y in ((ones[:0], ones), (ones, ones[:0]), (ones, 0 * ones), (ones[:0], ones[:0])):
        assert len(align_documents(x, y)) == 0


def test_identical_documents_are_matched_in_their_order():
    ones = np.ones((5, 4), np.float32)
    for settings in ({}, {"similarity": "cosine"}, {"candidates": 2}):
        pairs = align_documents(ones, ones[:4], **settings)
        assert [*zip(pairs.source, pairs.target)][:2] == [(0, 0), (1, 1)]
        assert len(pairs) == (4 if "candidates" not in settings else 2)
    # Every cosine is 1, every neighborhood 2k of them.
    np.testing.assert_allclose(align_documents(ones, ones).scores, 1 / 8, rtol=1e-6)


def test_negative_similarities_rank_last_and_are_reported(caplog):
    x = np.array([[1, 0], [0, 1]], np.float32)
    y = np.array([[-1, 0.1], [0.1, 1]], np.float32)
    with caplog.at_level(logging.WARNING):
        pairs = align_documents(x, y, k=1, domains=(["a", "b"], ["a", "b"]))
    assert [*zip(pairs.source, pairs.target)] == [(1, 1), (0, 0)]
    assert pairs.scores[0] == pytest.approx(0.5) and pairs.scores[1] < -400
    assert "1 pairs have a mean neighborhood below 0.001" in caplog.text


def test_accepted_pairs_come_first_and_leave_the_search(rng):
    x, y = (rng.standard_normal((n, 6)) + 0.7 for n in (8, 9))
    pairs = align_documents(x, y, accepted=(np.array([2, 5]), np.array([7, 0])))
    assert [*zip(pairs.source, pairs.target, pairs.scores)][:2] == [(2, 7, np.inf), (5, 0, np.inf)]
    rows, columns = np.delete(np.arange(8), [2, 5]), np.delete(np.arange(9), [7, 0])
    expected = exhaustive(margins(x[rows], y[columns])).items()
    rest = pairs.take(np.arange(2, len(pairs)))
    check_equal(rest, {rows[i]: (columns[j], score) for i, (j, score) in expected})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k must be at least 1; got 0"),
        ({"candidates": 0}, "candidates must be at least 1; got 0"),
        ({"target": np.ones((2, 5))}, "same dim; got 4 and 5"),
        ({"source": np.full((2, 4), np.nan)}, r"source\[0\] must be finite"),
        ({"domains": (["a"], ["a", "b"])}, "one value per source document; got 1 for 2"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    settings = {"source": np.ones((2, 4)), "target": np.ones((2, 4))} | change
    with pytest.raises(ValueError, match=message):
        align_documents(settings.pop("source"), settings.pop("target"), **settings)
