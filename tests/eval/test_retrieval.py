"""Retrieval: counts by hand, brute force, identities between measures, gaps and copies."""

import types

import numpy as np
import pytest

from xling_jax.align import knn
from xling_jax.eval import retrieval
from xling_jax.eval.retrieval_data import ParallelText, RetrievalData

SIZES = {"cosine": 1, "margin": 4, "csls": 10}
# Angles in degrees: the second English vector lies nearest to the third German one.
ANGLES = {"en": [0, 50, 90], "de": [5, 30, 55]}


def on_circle(degrees):
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def encode_numbers(texts):
    """Texts such as "en 50": the number is the angle; blank text has no direction."""
    angles = [float(text.split()[-1]) if text else 0.0 for text in texts]
    return on_circle(angles) * np.array([[bool(text)] for text in texts])


def random_embeddings(seed=0, n=40, dim=8, noise=0.6):
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((n, dim))
    return {code: meaning + noise * rng.standard_normal((n, dim)) for code in ("en", "de", "fr")}


def neighbor_scores(cosine, around, similarity, size):
    """The scores of all pairs [n, m]; `around` are the cosines among which targets have theirs."""
    rows = np.sort(cosine, axis=1)[:, -size:].mean(axis=1)[:, None]
    columns = np.sort(around, axis=0)[-size:].mean(axis=0)[None]
    return {
        "cosine": cosine,
        "margin": cosine / np.maximum((rows + columns) / 2, 1e-3),
        "csls": 2 * cosine - rows - columns,
    }[similarity]


def data_of(name="toy", **texts):
    return RetrievalData(name, (ParallelText(name, texts),))


def measure(encode, data, **options):
    encoder = types.SimpleNamespace(encode=encode)
    return retrieval.Retrieval(**options).measure(encoder, data)[data.name]


def test_counts_by_hand():
    matrix = retrieval.retrieval_matrix(
        {code: on_circle(angles) for code, angles in ANGLES.items()}, k_values=(1, 2)
    )
    # en 0 -> de 5 right; en 50 -> de 55 wrong, then de 30 right; en 90 -> de 55 right.
    assert matrix.cells["en", "de"]["p_at_1"] == pytest.approx(2 / 3)
    assert matrix.cells["en", "de"]["p_at_2"] == 1
    # de 5 -> en 0 right; de 30 -> en 50 right; de 55 -> en 50 wrong, then en 90 right.
    assert matrix.cells["de", "en"]["p_at_1"] == pytest.approx(2 / 3)
    assert matrix.mean("error") == pytest.approx(1 / 3)
    assert np.isnan(matrix.array("p_at_1").diagonal()).all()
    assert list(matrix.cells) == [("en", "de"), ("de", "en")]


@pytest.mark.parametrize("similarity", retrieval.SIMILARITIES)
def test_every_similarity_equals_brute_force(similarity):
    embeddings = random_embeddings()
    matrix = retrieval.retrieval_matrix(embeddings, similarity=similarity, k_values=(1, 5))
    unit = {
        code: rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for code, rows in embeddings.items()
    }
    size = SIZES[similarity]
    for source, target in matrix.cells:
        cosine = unit[source] @ unit[target].T
        scores = neighbor_scores(cosine, cosine, similarity, size)
        ranks = (scores > np.diag(scores)[:, None]).sum(axis=1)
        assert matrix.cells[source, target]["p_at_1"] == pytest.approx((ranks < 1).mean())
        assert matrix.cells[source, target]["p_at_5"] == pytest.approx((ranks < 5).mean())
    # One row, and k above the candidates.
    one = {"en": np.ones((1, 3)), "de": np.ones((1, 3))}
    matrix = retrieval.retrieval_matrix(one, similarity=similarity, k_values=(1, 10))
    assert matrix.mean("p_at_1") == matrix.mean("p_at_10") == 1


def test_error_is_by_cosine_whatever_ranks():
    embeddings = random_embeddings(noise=1.0)
    by_cosine = retrieval.retrieval_matrix(embeddings)
    by_margin = retrieval.retrieval_matrix(embeddings, similarity="margin")
    np.testing.assert_allclose(by_cosine.array("error"), 1 - by_cosine.array("p_at_1"))
    np.testing.assert_array_equal(by_margin.array("error"), by_cosine.array("error"))
    assert by_margin.mean("p_at_1") != by_cosine.mean("p_at_1")


def test_distractors_count_in_error_and_xsim_as_in_brute_force():
    embeddings = random_embeddings(seed=4, noise=1.0)
    pools = {code: np.random.default_rng(7).standard_normal((100, 8)) for code in ("en", "de")}
    matrix = retrieval.retrieval_matrix(embeddings, distractors=pools)
    unit = {code: knn.normalize(rows).astype(np.float64) for code, rows in embeddings.items()}
    pool = {c: np.concatenate([unit[c], knn.normalize(pools.get(c, unit[c][:0]))]) for c in unit}
    for source, target in matrix.cells:
        cosine = unit[source] @ pool[target].T
        x_mean = np.sort(cosine, axis=1)[:, -4:].mean(axis=1)
        y_mean = np.sort(pool[source] @ pool[target].T, axis=0)[-4:].mean(axis=0)
        margins = cosine / ((x_mean[:, None] + y_mean) / 2)
        margins[cosine < np.sort(cosine, axis=1)[:, -4:-3]] = -np.inf
        xsim = (margins.argmax(axis=1) != np.arange(40)).mean()
        error = (cosine.argmax(axis=1) != np.arange(40)).mean()
        cell = matrix.cells[source, target]
        assert (cell["xsim"], cell["error"]) == pytest.approx((xsim, error))
    plain = retrieval.retrieval_matrix(embeddings)
    assert matrix.mean("xsim") > plain.mean("xsim") > 0


def test_the_diagonal_is_each_language_in_itself():
    data = data_of(en=["en 0", "en 0", "en 90", ""], de=["de 5", "de 60", "de 80", "de 200"])
    matrix = measure(encode_numbers, data)
    # Of two equal sentences one finds the other.
    assert matrix.cells["en", "en"]["p_at_1"] == pytest.approx(2 / 3)
    assert matrix.cells["en", "en"]["num_queries"] == 3
    assert matrix.cells["de", "de"]["p_at_1"] == 1
    assert "error" not in matrix.cells["en", "en"] and "xsim" not in matrix.cells["en", "en"]
    without = measure(encode_numbers, data, diagonal=False)
    assert matrix.mean("p_at_1") == without.mean("p_at_1")
    assert without.cells == {pair: matrix.cells[pair] for pair in (("en", "de"), ("de", "en"))}
    scores = matrix.scores()
    assert scores["p_at_1"] == without.scores()["p_at_1"]
    every = [cell["p_at_1"] for cell in matrix.cells.values()]
    assert scores["p_at_1_all"] == pytest.approx(np.mean(every))
    assert "error_all" not in scores and "p_at_1_all" not in without.scores()


@pytest.mark.parametrize("similarity", ["margin", "csls"])
def test_distractors_of_the_source_language_shape_the_neighborhoods(similarity):
    embeddings = random_embeddings(n=60)
    pool = np.random.default_rng(9).standard_normal((200, 8))
    unit = {code: knn.normalize(rows) for code, rows in embeddings.items()}
    cosine = unit["en"] @ unit["de"].T
    around = np.concatenate([unit["en"], knn.normalize(pool)]) @ unit["de"].T
    scores = neighbor_scores(cosine, around, similarity, SIZES[similarity])
    expected = (scores.argmax(axis=1) == np.arange(60)).mean()

    matrix = retrieval.retrieval_matrix(embeddings, similarity=similarity, distractors={"en": pool})
    assert matrix.cells["en", "de"]["p_at_1"] == pytest.approx(expected)
    plain = retrieval.retrieval_matrix(embeddings, similarity=similarity)
    assert matrix.cells["de", "fr"]["p_at_1"] == plain.cells["de", "fr"]["p_at_1"]


def test_rows_without_a_translation_are_left_out_of_that_direction():
    data = data_of(en=["en 0", "en 50", "en 90"], de=["de 5", "", "de 55"], fr=["", "fr 50", ""])
    matrix = measure(encode_numbers, data)
    counts = {pair: cell["num_queries"] for pair, cell in matrix.cells.items() if len({*pair}) > 1}
    assert counts == {("en", "de"): 2, ("en", "fr"): 1, ("de", "en"): 2, ("fr", "en"): 1}
    assert matrix.mean("p_at_1") == 1
    assert "fr" not in matrix.to_dict()["p_at_1"]["de"]


def test_a_copy_of_the_right_text_counts_for_xsim_only():
    data = data_of(en=["en 0", "en 0", "en 90"], de=["de 0", "de 0", "de 90"])
    matrix = measure(encode_numbers, data)
    assert matrix.mean("error") == pytest.approx(1 / 3) and matrix.mean("xsim") == 0
    assert matrix.cells["en", "de"]["p_at_1"] == pytest.approx(2 / 3)


def test_distractor_texts_equal_to_a_candidate_are_left_out(tmp_path):
    data = data_of(en=["en 0", "en 90"], de=["de 1", "de 91"])
    path = tmp_path / "more.de.txt"
    path.write_text("de 1 \nde 45\nde 45\n")
    matrix = measure(encode_numbers, data, distractors=(path,))
    assert matrix.cells["en", "de"]["num_candidates"] == 3
    assert matrix.mean("p_at_1") == 1


def test_bilingual_files_join_into_one_matrix():
    parts = (
        ParallelText("a", {"de": ["de 5", "de 60"], "en": ["en 0", "en 50"]}),
        ParallelText("b", {"fr": ["fr 0"], "en": ["en 3"]}),
    )
    matrix = measure(encode_numbers, RetrievalData("pairs", parts))
    assert matrix.cells["de", "en"]["p_at_1"] == matrix.cells["fr", "en"]["p_at_1"] == 1
    assert matrix.mean("p_at_1") == 1 and matrix.cells["en", "de"]["error"] == 0
    assert ("de", "fr") not in matrix.cells


def test_each_text_is_encoded_once():
    calls = []

    def encode(texts):
        calls.append(list(texts))
        return encode_numbers(texts)

    data = data_of(en=["en 0", "en 0", "en 90"], de=["de 0", "en 0", "de 90"])
    measure(encode, data)
    assert calls == [["en 0", "en 90", "de 0", "de 90"]]


@pytest.mark.parametrize(
    ("embeddings", "settings", "message"),
    [
        ({"en": np.eye(2), "de": np.full((2, 2), np.nan)}, {}, r"embeddings\[0\] must be finite"),
        ({"en": np.empty((0, 2)), "de": np.empty((0, 2))}, {}, "no row has text"),
    ],
)
def test_bad_embeddings_and_settings_are_refused(embeddings, settings, message):
    with pytest.raises(ValueError, match=message):
        retrieval.retrieval_matrix(embeddings, **settings)


@pytest.mark.parametrize(
    ("texts", "rows", "settings", "message"),
    [
        ("ab cd", 3, {}, "3 rows for 4 texts"),
        ("a_ _d", 3, {}, "no row has text in two"),
    ],
)
def test_texts_that_cannot_be_measured_are_refused(texts, rows, settings, message):
    english, german = ([text.strip("_") for text in side] for side in texts.split())
    with pytest.raises(ValueError, match=message):
        measure(lambda texts: np.ones((rows, 2)), data_of(en=english, de=german), **settings)
