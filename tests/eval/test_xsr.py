"""XSR: the draw of MUSE written out, scores by hand and by brute force."""

import types

import numpy as np
import pytest

from tests.eval.test_retrieval import SIZES, neighbor_scores
from xling_jax.align import knn
from xling_jax.eval.retrieval import Retrieval
from xling_jax.eval.retrieval_data import ParallelText, RetrievalData, draw_sample

WORDS = [f"w{i:03d}" for i in range(300)]


def text():
    """Rows with repeated texts on either side, other case and spacing, and a gap."""
    source, target = [f"En {w}" for w in WORDS], [f"de {w}" for w in WORDS]
    source += ["EN  w003", "en w004", "new", "x", ""]
    target += ["another", "another more", "DE w007", "", "y"]
    return source, target


def meaning(word):
    return np.random.default_rng(int(word[1:])).standard_normal(6)


def encode(texts, noise=1.0):
    """The meaning of the last word, and something of its own for each text."""
    rows = []
    for t in texts:
        own = np.random.default_rng(sum(t.encode())).standard_normal(6)
        rows.append(meaning(t.split()[1]) + noise * own)
    return np.array(rows)


def measure(encode, source, target, **options):
    """P@k of one direction."""
    data = RetrievalData("x", (ParallelText("x", {"en": source, "de": target}),))
    matrix = Retrieval(**options).measure(types.SimpleNamespace(encode=encode), data)["x"]
    cell = matrix.cells["en", "de"]
    return [value for name, value in cell.items() if name.startswith("p_at_")]


def test_the_draw_is_that_of_muse():
    source, target = text()
    keys, queries = draw_sample(source, target, 200, 20)
    # By np.unique on joined words: no word here sorts before a space, so the order is that of
    # lists of words.
    kept = [row for row in range(len(source)) if source[row].strip() and target[row].strip()]
    for side in (source, target):
        words = np.array([" ".join(side[row].lower().split()) for row in kept])
        kept = [kept[place] for place in np.unique(words, return_index=True)[1]]
    # Rows 300 and 301 repeat sources 3 and 4, row 302 repeats target 7.
    assert sorted(kept) == list(range(300))
    expected = np.array(kept)[np.random.RandomState(1234).permutation(len(kept))][:200]
    np.testing.assert_array_equal(keys, expected)
    drawn = np.random.RandomState(1234).choice(range(200), size=20, replace=False)
    np.testing.assert_array_equal(queries, drawn)
    keys, queries = draw_sample(source, target, 1000, 400)
    assert len(keys) == len(queries) == 300
    with pytest.raises(ValueError, match="no row has text on both sides"):
        draw_sample(["a", ""], ["", "b"], 50, 10)


@pytest.mark.parametrize(
    ("similarity", "encoded"), [("cosine", 310), ("margin", 500), ("csls", 500)]
)
def test_every_similarity_equals_brute_force(similarity, encoded):
    source, target = (side[:300] for side in text())
    counts = []

    def counting(texts):
        counts.append(len(texts))
        return encode(texts)

    found = measure(counting, source, target, xsr=(250, 60), similarity=similarity, k=(1, 5, 10))
    assert counts == [encoded] * 2  # what is needed, once a direction
    keys, queries = draw_sample(source, target, 250, 60)
    x, y = (
        knn.normalize(encode([side[row] for row in keys])).astype(np.float64)
        for side in (source, target)
    )
    scores = neighbor_scores(x[queries] @ y.T, x @ y.T, similarity, SIZES[similarity])
    own = scores[np.arange(60), queries]
    ranks = (scores > own[:, None]).sum(axis=1)
    assert found == pytest.approx([(ranks < k).mean() for k in (1, 5, 10)])
    assert 0 < found[0] < 1


def test_too_few_candidates_are_told(caplog):
    measure(encode, *text(), xsr=(301, 20))
    assert "xsr draws only 300 candidates" in caplog.text
