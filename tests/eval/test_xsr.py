"""XSR: the draw of MUSE written out, samples on disk, scores by hand and by brute force."""

import numpy as np
import pytest

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


def test_the_draw_is_that_of_muse():
    source, target = text()
    sample = xsr.sample_as_muse(source, target, num_keys=200, num_queries=20)
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
    sample = xsr.sample_as_muse(source, target, num_keys=50, num_queries=10)
    sample.save(tmp_path / "sample.json")
    read = xsr.XsrSample.load(tmp_path / "sample.json")
    np.testing.assert_array_equal(read.keys, sample.keys)
    np.testing.assert_array_equal(read.queries, sample.queries)
    assert read.fingerprint == sample.fingerprint


def test_scores_by_hand():
    # Keys in the order 2, 0, 1; queries are the texts of rows 1 and 2.
    source, target = ["s 0", "s 50", "s 90"], ["t 5", "t 30", "t 55"]
    drawn = xsr.sample_as_muse(source, target, num_keys=3, num_queries=2)
    sample = xsr.XsrSample(np.array([2, 0, 1]), np.array([2, 0]), drawn.fingerprint)

    def on_circle(texts):
        radians = np.radians([float(t.split()[1]) for t in texts])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1)

    # 50 finds 55, then 30, its own; 90 finds 55, its own.
    found = xsr.measure_xsr(on_circle, source, target, sample, k_values=(1, 2))
    assert found == {"p_at_1": 0.5, "p_at_2": 1.0}


@pytest.mark.parametrize("pool", xsr.POOLS)
@pytest.mark.parametrize("similarity", ["cosine", "margin", "csls"])
def test_every_similarity_equals_brute_force(similarity, pool):
    source, target = text()
    sample = xsr.sample_as_muse(source[:300], target[:300], num_keys=250, num_queries=60)
    found = xsr.measure_xsr(
        encode, source[:300], target[:300], sample, similarity=similarity, pool=pool
    )
    x, y = (
        knn.normalize(encode([side[row] for row in sample.keys])).astype(np.float64)
        for side in (source, target)
    )
    cosine = x[sample.queries] @ y.T
    around = cosine if pool == "queries" else x @ y.T
    size = {"cosine": 1, "margin": 4, "csls": 10}[similarity]
    rows = np.sort(cosine, axis=1)[:, -size:].mean(axis=1)[:, None]
    columns = np.sort(around, axis=0)[-size:].mean(axis=0)[None]
    scores = {
        "cosine": cosine,
        "margin": cosine / np.maximum((rows + columns) / 2, 1e-3),
        "csls": 2 * cosine - rows - columns,
    }[similarity]
    own = scores[np.arange(60), sample.queries]
    ranks = (scores > own[:, None]).sum(axis=1)
    for k in (1, 5, 10):
        assert found[f"p_at_{k}"] == pytest.approx((ranks < k).mean())
    assert 0 < found["p_at_1"] < 1


def test_only_what_is_needed_is_embedded():
    source, target = text()
    sample = xsr.sample_as_muse(source, target, num_keys=100, num_queries=10)
    counts = []

    def counted(texts):
        counts.append(len(texts))
        return encode(texts)

    for pool, similarity in (("keys", "cosine"), ("queries", "margin"), ("keys", "margin")):
        xsr.measure_xsr(counted, source, target, sample, similarity=similarity, pool=pool)
    assert counts == [110, 110, 200]


def test_bad_input_is_refused(tmp_path):
    source, target = text()
    sample = xsr.sample_as_muse(source, target, num_keys=50, num_queries=10)
    with pytest.raises(ValueError, match="drawn from another text"):
        xsr.measure_xsr(encode, target, source, sample)
    with pytest.raises(ValueError, match="pool must be one of keys, queries"):
        xsr.measure_xsr(encode, source, target, sample, pool="all")
    with pytest.raises(ValueError, match="k_values must be at least 1"):
        xsr.measure_xsr(encode, source, target, sample, k_values=(0,))
    with pytest.raises(ValueError, match="at most the 300 distinct rows"):
        xsr.sample_as_muse(source, target, num_keys=301, num_queries=10)
    with pytest.raises(ValueError, match="got 305 and 304 rows"):
        xsr.sample_as_muse(source, target[:-1])
    for content in ("", "[]", '{"keys": [1]}', '{"keys": [1], "queries": [1], "text_sha256": ""}'):
        (tmp_path / "s.json").write_text(content)
        with pytest.raises(ValueError, match="s.json: "):
            xsr.XsrSample.load(tmp_path / "s.json")
