"""XSR: the draw of MUSE written out, samples on disk, scores by hand and by brute force."""

import numpy as np
import pytest

from tests.eval.test_retrieval import SIZES, neighbor_scores
from xling_jax.align import knn
from xling_jax.eval import xsr

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


def measure(encode, source, target, sample, **settings):
    """P@k of one direction."""
    cell = xsr.measure_direction(encode, source, target, sample, **settings)
    return [value for name, value in cell.items() if name.startswith("p_at_")]


def test_the_draw_is_that_of_muse():
    source, target = text()
    sample = xsr.draw_sample(source, target, 200, 20)
    # By np.unique on joined words: no word here sorts before a space, so the order is that of
    # lists of words.
    kept = [row for row in range(len(source)) if source[row].strip() and target[row].strip()]
    for side in (source, target):
        words = np.array([" ".join(side[row].lower().split()) for row in kept])
        kept = [kept[place] for place in np.unique(words, return_index=True)[1]]
    # Rows 300 and 301 repeat sources 3 and 4, row 302 repeats target 7.
    assert sorted(kept) == list(range(300))
    expected = np.array(kept)[np.random.RandomState(1234).permutation(len(kept))][:200]
    np.testing.assert_array_equal(sample.keys, expected)
    queries = np.random.RandomState(1234).choice(range(200), size=20, replace=False)
    np.testing.assert_array_equal(sample.queries, queries)


def test_a_sample_is_stored_and_read_again(tmp_path):
    source, target = text()
    sample = xsr.draw_sample(source, target, 50, 10)
    sample.save(tmp_path / "sample.json")
    read = xsr.XsrSample.load(tmp_path / "sample.json")
    np.testing.assert_array_equal(read.keys, sample.keys)
    np.testing.assert_array_equal(read.queries, sample.queries)
    assert read.fingerprint == sample.fingerprint


def test_scores_by_hand():
    # Keys in the order 2, 0, 1; queries are the texts of rows 1 and 2.
    source, target = ["s 0", "s 50", "s 90"], ["t 5", "t 30", "t 55"]
    drawn = xsr.draw_sample(source, target, 3, 2)
    sample = xsr.XsrSample(np.array([2, 0, 1]), np.array([2, 0]), drawn.fingerprint)

    def on_circle(texts):
        radians = np.radians([float(t.split()[1]) for t in texts])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1)

    # 50 finds 55, then 30, its own; 90 finds 55, its own.
    assert measure(on_circle, source, target, sample, k_values=(1, 2)) == [0.5, 1.0]


@pytest.mark.parametrize("similarity", ["margin", "csls"])
def test_every_similarity_equals_brute_force(similarity):
    source, target = text()
    sample = xsr.draw_sample(source[:300], target[:300], 250, 60)
    found = measure(encode, source[:300], target[:300], sample, similarity=similarity)
    x, y = (
        knn.normalize(encode([side[row] for row in sample.keys])).astype(np.float64)
        for side in (source, target)
    )
    cosine = x[sample.queries] @ y.T
    scores = neighbor_scores(cosine, x @ y.T, similarity, SIZES[similarity])
    own = scores[np.arange(60), sample.queries]
    ranks = (scores > own[:, None]).sum(axis=1)
    assert found == pytest.approx([(ranks < k).mean() for k in (1, 5, 10)])
    assert 0 < found[0] < 1


def test_only_what_is_needed_is_embedded():
    source, target = text()
    sample = xsr.draw_sample(source, target, 100, 10)
    counts = []

    def counted(texts):
        counts.append(len(texts))
        return encode(texts)

    for similarity in ("cosine", "margin"):
        measure(counted, source, target, sample, similarity=similarity)
    assert counts == [110, 200]


def test_bad_input_is_refused(tmp_path):
    source, target = text()
    sample = xsr.draw_sample(source, target, 50, 10)
    with pytest.raises(ValueError, match="drawn from another text"):
        measure(encode, target, source, sample)
    with pytest.raises(ValueError, match="at most the 300 distinct rows"):
        xsr.draw_sample(source, target, 301, 10)
    with pytest.raises(ValueError, match="got 305 and 304 rows"):
        xsr.draw_sample(source, target[:-1], 50, 10)
    sample = '{"keys": %s, "queries": %s, "text_sha256": ""}'
    wrong = [sample % pair for pair in (("[1]", "[1]"), ("[1]", "0"), ("[1e99]", "[0]"))]
    for content in ("", "[]", '{"keys": [1]}', sample % (f"[{1 << 64}]", "[0]"), *wrong):
        (tmp_path / "s.json").write_text(content)
        with pytest.raises(ValueError, match="s.json: "):
            xsr.XsrSample.load(tmp_path / "s.json")
