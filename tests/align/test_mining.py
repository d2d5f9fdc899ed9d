"""Mining: LASER's procedure by loops, pairs by hand, guards, invariances, sizes, bad input."""

import numpy as np
import pytest

from tests.align import laser_mining
from xling_jax.align import knn, margin, mining


def clustered(seed=0, n=60, m=45, shared=30, dim=12, noise=0.5):
    """Sides that share some meanings, in different orders, and are close to their topics."""
    rng = np.random.default_rng(seed)
    # Far from the origin, so that all cosines are positive, as those of sentence encoders are.
    topics = rng.standard_normal((5, dim)) + 3
    meanings = topics[rng.integers(0, 5, n + m)] + 0.7 * rng.standard_normal((n + m, dim))
    source = meanings[:n]
    target = np.concatenate([meanings[:shared], meanings[n : n + m - shared]])
    source = source + noise * rng.standard_normal(source.shape) / 2
    target = target + noise * rng.standard_normal(target.shape) / 2
    return source, target[rng.permutation(m)]


def on_circle(degrees):
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


@pytest.mark.parametrize("retrieval", mining.RETRIEVALS)
@pytest.mark.parametrize("name", margin.MARGINS)
@pytest.mark.parametrize("k", [1, 4, 100])
def test_pairs_and_scores_are_those_of_lasers_procedure(retrieval, name, k):
    for seed in range(3):
        source, target = clustered(seed)
        expected = laser_mining.mine(source, target, k, name, retrieval)  # its threshold
        found = mining.mine(source, target, k=k, margin=name, retrieval=retrieval)
        # Scores that differ by rounding alone may change places.
        assert sorted(pair[1:] for pair in found) == sorted(pair[1:] for pair in expected)
        np.testing.assert_allclose(found.scores, [pair[0] for pair in expected], atol=2e-6)
        # With one neighbor no cosine is above the mean, and LASER writes nothing.
        assert len(expected) > 5 or (k, name, retrieval) == (1, "distance", "max")


def test_greedy_choice_by_hand():
    # Cosines by absolute margin. Source 0 and 1 both want target 0; 0 is nearer. Source 1 has
    # no other candidate among its one; target 1 wants source 1 and gets it.
    source, target = on_circle([10, 20]), on_circle([9, 40])
    found = mining.mine(source, target, k=1, margin="absolute")
    assert [pair[1:] for pair in found] == [(0, 0), (1, 1)]
    np.testing.assert_allclose(found.scores, np.cos(np.radians([1, 20])), rtol=1e-6)
    forward = mining.mine(source, target, k=1, margin="absolute", retrieval="fwd")
    assert [pair[1:] for pair in forward] == [(0, 0), (1, 0)]
    backward = mining.mine(source, target, k=1, margin="absolute", retrieval="bwd")
    assert [pair[1:] for pair in backward] == [(0, 0), (1, 1)]
    both = mining.mine(source, target, k=1, margin="absolute", retrieval="intersect")
    assert [pair[1:] for pair in both] == [(0, 0)]


def test_the_least_cosine_is_enough():
    source, target = np.eye(4)[:1], np.array([[1.0, 1, 1, 1]])  # a cosine of exactly 0.5
    candidates = mining.find_candidates(source, target, 1)
    least = {"margin": "absolute", "min_cosine": 0.5}
    for retrieval in mining.RETRIEVALS:
        found = mining.choose_pairs(candidates, retrieval=retrieval, **least)
        assert list(found) == [(0.5, 0, 0)]
    assert mining.score_pairs(source, target, ([0], [0]), candidates, **least).tolist() == [0.5]


def test_ratio_by_hand():
    # Two rows a side, k=2: every neighborhood is the whole other side.
    source, target = on_circle([0, 60]), on_circle([0, 90])
    x = [(1 + 0) / 2, (0.5 + np.sqrt(3) / 2) / 2]
    y = [(1 + 0.5) / 2, np.sqrt(3) / 4]
    found = mining.mine(source, target, k=2)
    assert [pair[1:] for pair in found] == [(0, 0), (1, 1)]
    expected = [1 / ((x[0] + y[0]) / 2), np.sqrt(3) / 2 / ((x[1] + y[1]) / 2)]
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5)
    # One row a side has ratio 1.
    assert list(mining.mine(source[1:], target[:1])) == [(pytest.approx(1), 0, 0)]


def without_scores(pairs):
    return sorted(pair[1:] for pair in pairs)


@pytest.mark.parametrize("retrieval", mining.RETRIEVALS)
def test_permuting_either_side_permutes_the_pairs(retrieval):
    source, target = clustered(3)
    rng = np.random.default_rng(1)
    orders = rng.permutation(len(source)), rng.permutation(len(target))
    plain = mining.mine(source, target, retrieval=retrieval)
    mixed = mining.mine(source[orders[0]], target[orders[1]], retrieval=retrieval)
    back = sorted((orders[0][i], orders[1][j]) for _, i, j in mixed)
    assert back == without_scores(plain)


def test_swapping_swaps_and_scales_and_backends_change_nothing():
    source, target = clustered(4)
    plain, back = mining.mine(source, target), mining.mine(target, source)
    assert sorted((j, i) for _, i, j in back) == without_scores(plain)
    scaled = source * np.random.default_rng(2).uniform(0.1, 10, (len(source), 1))
    found = mining.mine(scaled, target)
    np.testing.assert_array_equal(found.source, plain.source)
    np.testing.assert_allclose(found.scores, plain.scores, atol=1e-6)
    for backend in ("jax", "auto"):
        assert without_scores(mining.mine(source, target, backend=backend)) == without_scores(plain)


def test_mapped_files_give_the_same_pairs(tmp_path):
    sides = clustered(n=600, m=500, shared=200)
    mapped = []
    for name, side in zip("xy", sides):
        np.save(tmp_path / f"{name}.npy", side.astype(np.float32))
        mapped.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    plain = mining.mine(*(np.asarray(side) for side in mapped))
    for memory_mb in (0.1, 256):
        found = mining.mine(*mapped, memory_mb=memory_mb)
        assert {pair[1:] for pair in found} == {pair[1:] for pair in plain}
        np.testing.assert_allclose(found.scores, plain.scores, atol=1e-6)


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("retrieval", mining.RETRIEVALS)
def test_an_empty_side_gives_no_pairs(sizes, retrieval):
    source, target = (np.ones((size, 3)) for size in sizes)
    found = mining.mine(source, target, retrieval=retrieval)
    assert len(found) == 0 and list(found) == []


def test_threshold_is_exclusive_and_filters_every_retrieval():
    source, target = clustered()
    # After the greedy choice, as in LASER's procedure.
    found = mining.mine(source, target, threshold=1.01)
    assert len(found) > 5
    assert without_scores(found) == without_scores(
        laser_mining.mine(source, target, threshold=1.01)
    )
    for retrieval in mining.RETRIEVALS:
        everything = mining.mine(source, target, retrieval=retrieval)
        at = float(everything.scores[len(everything) // 2])
        found = mining.mine(source, target, retrieval=retrieval, threshold=at)
        np.testing.assert_array_equal(found.scores, everything.scores[everything.scores > at])
        assert 0 < len(found) < len(everything)


def test_a_cosine_floor_leaves_out_candidates_not_neighbors():
    source, target = clustered()
    everything = mining.mine(source, target, retrieval="fwd")
    unit = knn.normalize(source), knn.normalize(target)
    cosine = np.einsum("pd,pd->p", unit[0][everything.source], unit[1][everything.target])
    floor = float(np.sort(cosine)[20]) - 1e-6
    found = mining.mine(source, target, retrieval="fwd", min_cosine=floor)
    expected = {pair for pair, c in zip(everything, cosine) if c >= floor}
    # Those with a better margin at a lower cosine fall back on another candidate.
    assert expected <= set(found) and 0 < len(expected) < len(everything)
    assert all(unit[0][i] @ unit[1][j] >= floor - 1e-6 for _, i, j in found)


def test_copies_go_to_the_lowest_rows():
    source = np.array([[1.0, 0], [1, 0], [0, 1]])
    target = np.array([[0.0, 1], [1, 0], [1, 0], [1, 0]])
    found = mining.mine(source, target, k=1, margin="absolute")
    # Both first sources want target 1, all copies want source 0.
    assert sorted(pair[1:] for pair in found) == [(0, 1), (2, 0)]


def test_a_pair_that_is_no_candidate_is_scored_too():
    source, target = clustered()
    candidates = mining.find_candidates(source, target)
    cosine = np.array(laser_mining.cosines(source, target))
    x, y = np.sort(cosine, axis=1)[:, -4:].mean(axis=1), np.sort(cosine, axis=0)[-4:].mean(axis=0)
    rows, columns = np.unravel_index(np.arange(cosine.size), cosine.shape)
    scores = mining.score_pairs(source, target, (rows, columns), candidates, margin="distance")
    expected = cosine - (x[:, None] + y[None]) / 2
    np.testing.assert_allclose(scores.reshape(cosine.shape), expected, atol=1e-6)
    floored = mining.score_pairs(source, target, (rows, columns), candidates, min_cosine=0.5)
    np.testing.assert_array_equal(floored == -np.inf, cosine.ravel() < 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"margin": "cosine"}, "margin='cosine' must be one of ratio, distance, absolute"),
        ({"retrieval": "best"}, "retrieval='best' must be one of max, intersect, fwd, bwd"),
        ({"k": 2.5}, "k must be a whole number; got 2.5"),
        (
            {"source": np.array([[1, 2], [1e39, 0]])},
            r"source\[1\] .* float32; it holds 1e\+39, which",
        ),
        ({"memory_mb": 0}, "memory_mb must be positive"),
        ({"source": np.array([[1, 2], [np.nan, 0]])}, r"source\[1\] must be finite"),
        ({"target": np.array([[1, 2], [np.inf, 0]])}, r"target\[1\] must be finite"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    sides = {"source": np.eye(2), "target": np.eye(2)} | arguments
    with pytest.raises(ValueError, match=message):
        mining.mine(sides.pop("source"), sides.pop("target"), **sides)


def test_codes_are_refused():
    codes = np.zeros((3, 4), np.uint8)
    with pytest.raises(ValueError, match="source holds uint8, quantized values or packed bits; en"):
        mining.mine(codes, codes)
