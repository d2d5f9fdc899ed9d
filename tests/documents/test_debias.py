"""Language components: SVD in float64, streaming, the rank rule, degenerate and bad input."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from xling_jax.align import rows
from xling_jax.documents.debias import (
    NoRankError,
    choose_rank,
    gram_matrix,
    language_components,
    principal_axes,
    remove_components,
)


def skewed(rng, n, dim, mean=3.0):
    """Vectors with a mean and falling variances, so that singular vectors are well apart."""
    return mean + rng.standard_normal((n, dim)) * 2.0 ** -np.arange(dim)


def assert_same_axes(found, expected, tolerance=1e-9):
    """Columns equal up to their signs."""
    cosines = np.abs((found * expected).sum(axis=0))
    np.testing.assert_allclose(cosines, 1, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gram_matrix_is_the_sum_of_outer_products(dtype):
    vectors = skewed(np.random.default_rng(0), 50, 6).astype(dtype)
    exact = vectors.astype(np.float64)
    statistics = gram_matrix(vectors)
    np.testing.assert_allclose(statistics.gram, exact.T @ exact, rtol=1e-13)
    np.testing.assert_allclose(statistics.total, exact.sum(axis=0), rtol=1e-13)
    assert statistics.count == 50
    assert statistics.gram.dtype == statistics.total.dtype == np.float64


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_streamed_blocks_equal_the_whole(tmp_path, monkeypatch, size):
    vectors = skewed(np.random.default_rng(1), 50, 6).astype(np.float32)
    whole = gram_matrix(vectors)
    blocks = gram_matrix(vectors[start : start + size] for start in range(0, 50, size))
    np.save(tmp_path / "v.npy", vectors)
    mapped = gram_matrix(np.load(tmp_path / "v.npy", mmap_mode="r"))
    np.testing.assert_array_equal(mapped.gram, whole.gram)
    np.testing.assert_allclose(blocks.gram, whole.gram, rtol=1e-14)
    assert blocks.count == mapped.count == 50


def test_components_are_the_top_right_singular_vectors():
    vectors = skewed(np.random.default_rng(2), 200, 10)
    expected = np.linalg.svd(vectors)[2][:4].T
    components = language_components(gram_matrix(vectors), 4)
    assert components.shape == (10, 4)
    assert_same_axes(components, expected)
    np.testing.assert_allclose(components.T @ components, np.eye(4), atol=1e-13)


def test_debiased_vectors_are_orthogonal_to_the_components():
    vectors = skewed(np.random.default_rng(3), 100, 8)
    components = language_components(gram_matrix(vectors), 3)
    debiased = remove_components(vectors, components)
    expected = vectors - vectors @ components @ components.T
    np.testing.assert_allclose(debiased, expected, atol=1e-13)
    np.testing.assert_allclose(debiased @ components, 0, atol=1e-13)
    np.testing.assert_allclose(remove_components(debiased, components), debiased, atol=1e-13)
    single = remove_components(vectors.astype(np.float32), components)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=1e-5)


def test_a_rank_too_high_for_the_dim_or_the_sentences_is_refused():
    rng = np.random.default_rng(5)
    wide, few = gram_matrix(skewed(rng, 20, 4)), gram_matrix(rng.standard_normal((3, 8)))
    assert language_components(wide, 3).shape == (4, 3)
    assert language_components(wide, 0).shape == (4, 0)
    assert language_components(few, 2).shape == (8, 2)
    for statistics, rank, message in (
        *((wide, rank, "20 sentences span 4 dimensions") for rank in (-1, 4, 5)),
        (few, 3, "3 sentences span 3 dimensions"),
    ):
        with pytest.raises(ValueError, match=message):
            language_components(statistics, rank)


@pytest.mark.parametrize("vectors", [np.ones((1, 5)), np.full((9, 5), 0.1), np.zeros((9, 5))])
def test_identical_sentences_have_nothing_to_keep(vectors):
    with pytest.raises(ValueError, match="some must be left; remove at most 0, or add"):
        language_components(gram_matrix(vectors.astype(np.float32)), 1)


def test_principal_axes_equal_scikit_learn_s():
    vectors = skewed(np.random.default_rng(6), 80, 10)
    expected = PCA(4).fit(vectors).components_.T
    assert_same_axes(principal_axes(gram_matrix(vectors), 4), expected)


@pytest.mark.parametrize(("n", "dim", "expected"), [(1, 5, 1), (3, 5, 2), (50, 5, 5), (50, 40, 16)])
def test_no_more_principal_axes_than_there_are(n, dim, expected):
    vectors = np.random.default_rng(7).standard_normal((n, dim))
    assert principal_axes(gram_matrix(vectors), 16).shape == (dim, expected)


def languages(rng, shifts, n=600, dim=24, spread=0.3):
    """Vectors of n sentences of the same distribution, moved along directions of each language."""
    vectors = {}
    for number, shift in enumerate(shifts):
        directions = np.linalg.qr(rng.standard_normal((dim, 2)))[0]
        offset = shift * directions @ rng.standard_normal((2, n)) + 2 * directions[:, :1]
        vectors[f"l{number}"] = (spread * rng.standard_normal((n, dim)) + offset.T).astype(
            np.float32
        )
    return vectors


def test_rank_is_the_smallest_after_which_languages_look_alike():
    vectors = languages(np.random.default_rng(8), [1.0, 1.0], n=1500)
    rank, accuracies = choose_rank(vectors)
    assert rank in (1, 2, 4)
    assert accuracies[0] > 0.9 and accuracies[rank] < 0.55
    assert all(share >= 0.55 for tried, share in accuracies.items() if tried < rank)
    assert list(accuracies) == [0, *(2**p for p in range(rank.bit_length()))]
    assert choose_rank(vectors) == (rank, accuracies)


def accuracies_step_by_step(vectors, ranks, seed, max_sentences):
    """The rule in float64: equally many sentences, components of all but the test fifth, SVM."""
    random = np.random.default_rng(seed)
    size = min(max_sentences, *map(len, vectors.values()))
    found = {rank: ([], []) for rank in ranks}
    for array in vectors.values():
        drawn = random.choice(len(array), size, replace=False)
        test, train = np.sort(drawn[: size // 5]), np.sort(drawn[size // 5 :])
        seen = np.delete(array, test, axis=0).astype(np.float64)
        axes = np.linalg.svd(seen)[2].T
        for rank, parts in found.items():
            for part, rows_of_part in zip(parts, (train, test)):
                chosen = array[rows_of_part]
                part.append(chosen - chosen @ axes[:, :rank] @ axes[:, :rank].T)
    accuracies = {}
    for rank, (train, test) in found.items():
        svm = make_pipeline(StandardScaler(), LinearSVC(dual=False, random_state=seed))
        svm.fit(np.concatenate(train), np.repeat(np.arange(len(train)), len(train[0])))
        labels = np.repeat(np.arange(len(test)), len(test[0]))
        accuracies[rank] = svm.score(np.concatenate(test), labels)
    return accuracies


@pytest.mark.parametrize("max_sentences", [250, 5000])
def test_the_rank_rule_equals_its_steps_in_float64(monkeypatch, max_sentences):
    monkeypatch.setattr(rows, "BLOCK_ROWS", 64)
    vectors = languages(np.random.default_rng(20), [1.0, 1.0], n=900, spread=1.0)
    vectors["l1"] = vectors["l1"][:300]
    with pytest.raises(NoRankError, match=r"\(0: .*, 1: .*, 2: .*, 4: .*, 8: .*, 16: ") as error:
        choose_rank(vectors, 0.01, seed=3, max_sentences=max_sentences)
    expected = accuracies_step_by_step(vectors, [0, 1, 2, 4, 8, 16], 3, max_sentences)
    assert ", ".join(f"{rank}: {share:.1%}" for rank, share in expected.items()) in str(error.value)
    assert "below 1.0% (" in str(error.value)
    assert "by hand (--debias N) or none" in str(error.value)


def test_no_rank_is_tried_that_leaves_nothing_of_one_language():
    vectors = languages(np.random.default_rng(21), [1.0, 1.0])
    vectors["l1"][:, 3:] = 0
    with pytest.raises(NoRankError, match=r"\(0: [\d.]+%, 1: [\d.]+%, 2: [\d.]+%\);"):
        choose_rank(vectors, max_accuracy=0.01)


def test_an_accuracy_at_the_bound_is_not_below_it():
    vectors = {code: np.tile(np.eye(2), (50, 1)) for code in ("en", "de")}
    with pytest.raises(NoRankError, match=r"below 50\.0% \(0: 50\.0%, 1: "):
        choose_rank(vectors, max_accuracy=0.5)


def test_rank_of_several_languages_compares_with_chance():
    vectors = languages(np.random.default_rng(10), [1.0, 1.0, 1.0, 1.0], n=1500)
    rank, accuracies = choose_rank(vectors)
    assert accuracies[rank] < 0.30 < accuracies[0]


def test_languages_that_look_alike_from_the_start_keep_all_components():
    random = np.random.default_rng(13)
    vectors = {code: random.standard_normal((2000, 16)) for code in ("en", "de")}
    rank, accuracies = choose_rank(vectors)
    assert rank == 0 and list(accuracies) == [0] and accuracies[0] < 0.55


def test_components_of_the_rank_rule_have_not_seen_the_test_part():
    # The languages differ along a random direction; more components than 200 sentences determine.
    # With those of all sentences, the test part loses the difference (51 % at rank 8).
    random = np.random.default_rng(0)
    direction = random.standard_normal(128)
    direction *= 2 / np.linalg.norm(direction)
    spread = np.linspace(2, 0.5, 128)
    vectors = {
        code: random.standard_normal((200, 128)) * spread + sign * direction
        for code, sign in (("en", 1), ("de", -1))
    }
    with pytest.raises(ValueError, match=r"no rank .* 8: [67]\d\.\d%"):
        choose_rank(vectors)


def test_too_little_text_for_the_rank_rule_is_refused():
    with pytest.raises(NoRankError, match="de must have at least 50 sentences"):
        choose_rank({"en": np.eye(50), "de": np.eye(50)[:49]})


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([], "at least one sentence"),
        (np.empty((0, 4)), "at least one sentence"),
        ([np.ones((2, 3)), np.ones((2, 4))], "dim 3"),
        (np.ones(3), "shape"),
        (np.array([["a"]]), "real numbers"),
        (np.array([[1.0], [np.inf]]), r"vectors\[1\]"),
    ],
)
def test_bad_vectors_are_refused(blocks, message):
    with pytest.raises(ValueError, match=message):
        gram_matrix(blocks)
    vectors = np.ones((rows.BLOCK_ROWS + 5, 2), np.float32)
    vectors[rows.BLOCK_ROWS + 3, 1] = np.nan
    with pytest.raises(ValueError, match=rf"vectors\[{rows.BLOCK_ROWS + 3}\]"):
        gram_matrix(vectors)
