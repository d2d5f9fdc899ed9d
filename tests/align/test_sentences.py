import itertools

import numpy as np
import pytest

from benchmarks.sentence_alignment import score_sentence_alignment
from xling_jax.align import sentences
from xling_jax.align.sentences import Group, SentenceAligner
from xling_jax.encode.sentence_alignment import overlap_vectors


def random_vectors(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def bag(dim=16):
    """An encoder whose vectors of texts are the sums of those of their words."""
    table = {}

    def encode(texts):
        rows = []
        for text in texts:
            for word in text.split():
                if word not in table:
                    table[word] = random_vectors(dim, seed=len(table) + 7)
            rows.append(sum(table[word] for word in text.split()))
        return np.stack(rows)

    return encode


def document(count, seed=0):
    generator = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(400)]
    return [" ".join(generator.choice(words, generator.integers(5, 12))) for _ in range(count)]


def align(source, target, **options):
    aligner = SentenceAligner(**options)
    encode = bag()
    return aligner.align(*overlap_vectors(encode, [source, target], aligner.num_overlaps))


def groups(found):
    return [(tuple(group.source), tuple(group.target)) for group in found]


def cosine_of(source, target, m, n, i, j):
    x, y = source[m - 1, i], target[n - 1, j]
    return x @ y / np.linalg.norm(x) / np.linalg.norm(y)


def cost_by_hand(source, target, norms, m, n, i, j):
    cosine = cosine_of(source, target, m, n, i, j)
    parts = [(m - 1, n, i, j), (m - 1, n, i + 1, j)] if m > 1 else []
    parts += [(m, n - 1, i, j), (m, n - 1, i, j + 1)] if n > 1 else []
    if any(cosine_of(source, target, *part) >= cosine for part in parts):
        return np.inf
    distance = (1 - cosine) / (norms[0][m - 1][i] + norms[1][n - 1][j] + 1e-6)
    return (m + n) * distance + 0.15 * (m + n - 2)


@pytest.mark.parametrize("seed", range(4))
def test_the_path_is_the_cheapest_of_all(seed, monkeypatch):
    monkeypatch.setattr(sentences, "_BLOCK_CELLS", 7)
    source, target = random_vectors(3, 5, 6, seed=seed), random_vectors(3, 4, 6, seed=seed + 50)
    # Two random draws decide nothing here: norms from all sentences.
    unit = [v / np.linalg.norm(v, axis=-1, keepdims=True) for v in (source, target)]
    costs = sentences._Costs(
        *unit, sentences._kinds(4), [side[0] for side in unit], 1, np.random.default_rng(0), 0.15
    )
    costs._norms = [
        1 - np.stack([overlap @ other[0].mean(0) for overlap in side])
        for side, other in (unit, unit[::-1])
    ]
    deletion = 0.9
    moves = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (1, 0), (0, 1)]

    def cheapest(i, j):
        if (i, j) == (0, 0):
            return 0.0
        found = [np.inf]
        for m, n in moves:
            if i >= m and j >= n:
                price = deletion
                if m and n:
                    price = cost_by_hand(source, target, costs._norms, m, n, i - m, j - n)
                found.append(cheapest(i - m, j - n) + price)
        return min(found)

    path, prices = sentences._cheapest_path(costs, deletion, None, 1)
    assert prices.sum() == pytest.approx(cheapest(5, 4), rel=1e-5)
    for (i, j), (k, end), price in zip(path, path[1:], prices):
        assert (k - i, end - j) in moves
        if k > i and end > j:
            wanted = cost_by_hand(source, target, costs._norms, k - i, end - j, i, j)
            assert price == pytest.approx(wanted, rel=1e-5)


def test_merged_split_and_dropped_sentences_are_found():
    source = document(30)
    target = list(source)
    target[4:6] = [" ".join(target[4:6])]  # 2-1
    words = target[15].split()
    target[15:16] = [" ".join(words[:4]), " ".join(words[4:])]  # 1-2
    del target[22]
    target.insert(9, document(1, seed=9)[0])
    found = groups(align(source, target))
    assert ((4, 5), (4,)) in found and ((16,), (16, 17)) in found
    assert ((), (9,)) in found and ((22,), ()) in found
    assert list(itertools.chain(*(pair[0] for pair in found))) == [*range(30)]
    assert list(itertools.chain(*(pair[1] for pair in found))) == [*range(len(target))]


def test_groups_of_many_sentences_have_more_kinds_than_a_byte_counts():
    source = document(20)
    found = groups(align(source, [" ".join(source[:16]), *source[16:]], max_sentences=17))
    assert found == [(tuple(range(16)), (0,)), *(((16 + i,), (1 + i,)) for i in range(4))]


def test_the_band_finds_the_same_as_all_cells(monkeypatch):
    source = document(700)
    target = [text for i, text in enumerate(source) if i % 37]
    target[100:100] = document(15, seed=3)
    banded = groups(align(source, target, max_sentences=4))
    monkeypatch.setattr(sentences, "_WHOLE", 10_000)
    whole = groups(align(source, target, max_sentences=4))
    assert score_sentence_alignment([banded], [whole])["strict_f1"] > 0.98
    right = sum(len(s) == len(t) == 1 and source[s[0]] == target[t[0]] for s, t in banded)
    assert right >= 0.98 * (700 - 19)


def test_long_vectors_of_half_precision_align_as_in_full():
    aligner, text = SentenceAligner(), document(20)
    vectors = overlap_vectors(bag(), [text, text[:5] + text[6:]], aligner.num_overlaps)
    expected = groups(aligner.align(*vectors))
    assert expected[5:7] == [((5,), ()), ((6,), (5,))]
    assert groups(aligner.align(*((200 * v).astype(np.float16) for v in vectors))) == expected


@pytest.mark.parametrize("count", [1, 2])
def test_copies_of_one_sentence_are_aligned(count):
    vectors = np.tile(random_vectors(16), (5, count, 1))
    found = SentenceAligner().align(vectors, vectors)
    assert groups(found) == [((i,), (i,)) for i in range(count)]
    assert max(group.cost for group in found) == pytest.approx(0, abs=0.03)


def test_costs_are_normalized_by_samples_drawn_with_the_seed():
    source = random_vectors(1, 12, 8)
    target = source + 0.2 * random_vectors(1, 12, 8, seed=1)
    found = SentenceAligner(max_sentences=2, num_samples=3, seed=5).align(source, target)
    assert groups(found) == [((i,), (i,)) for i in range(12)]
    random = np.random.default_rng(5)
    x, y = (side[0] / np.linalg.norm(side[0], axis=1, keepdims=True) for side in (source, target))
    norms = [1 - v @ other[random.integers(0, 12, 3)].mean(0) for v, other in ((x, y), (y, x))]
    expected = 2 * (1 - (x * y).sum(1)) / (norms[0] + norms[1])
    np.testing.assert_allclose([group.cost for group in found], expected, rtol=1e-4)


def test_other_sentences_normalize_if_either_document_has_few():
    source, target = random_vectors(1, 12, 8), random_vectors(1, 1, 8, seed=1)
    source[0, 5] = target[0, 0] + 0.2 * source[0, 5]
    others = random_vectors(1, 8, seed=2), 3 * random_vectors(1, 8, seed=3)
    found = SentenceAligner(max_sentences=2).align(source, target, others)
    (group,) = (group for group in found if len(group.source) == len(group.target))
    assert groups([group]) == [((5,), (0,))]
    x, y, *of_others = (
        v / np.linalg.norm(v) for v in (source[0, 5], target[0, 0], *map(sum, others))
    )
    norms = 2 - x @ of_others[1] - y @ of_others[0]
    assert group.cost == pytest.approx(2 * (1 - x @ y) / norms, rel=1e-4)


def test_documents_that_have_nothing_in_common_cost_as_much_as_random_ones():
    aligner = SentenceAligner()
    texts = [document(40), document(40, seed=5)]
    found = aligner.align(*overlap_vectors(bag(256), texts, aligner.num_overlaps))
    costs = np.array([group.cost for group in found if group.source and group.target])
    assert costs.mean() > 0.8 and np.mean(costs < 0.7) < 0.1  # 0.7: dropped from corpora


@pytest.mark.parametrize("sizes", [(0, 3), (2, 0), (0, 0), (1, 1)])
def test_empty_documents(sizes):
    found = SentenceAligner().align(*(random_vectors(5, size, 4) for size in sizes))
    covered = [sum(len(group[side]) for group in found) for side in (0, 1)]
    assert covered == list(sizes) and all(isinstance(group, Group) for group in found)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_sentences": 1}, "max_sentences=1"),
        ({"max_sentences": 51}, "max_sentences=51 must be at most 50"),
        ({"radius": 0}, "radius=0 must be"),
        ({"num_samples": 0}, "num_samples=0 must be"),
        ({"deletion": np.inf}, "deletion=inf .* must be finite"),
        ({"merging": -0.1}, "merging=-0.1 must be at least 0"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        SentenceAligner(**options)


def test_vectors_that_do_not_fit_are_refused():
    for vectors in (np.ones((2, 2)), np.ones((4, 2))):
        with pytest.raises(ValueError, match=f"one row per text; got {len(vectors)} rows for 3"):
            overlap_vectors(lambda _, vectors=vectors: vectors, [["a", "b"]], 2)
    encode = lambda texts: np.array([[np.nan if text == "b c" else 1.0] for text in texts])
    with pytest.raises(ValueError, match=r"embeddings\[4\] must be finite"):
        overlap_vectors(encode, [["a", "b", "c"]], 2)


def test_the_cost_of_a_group_is_that_of_a_pair_of_its_sentences():
    first, second, noise = np.eye(3)
    both = first + second
    # One sentence has the content of two; every sample of them is equally far from it.
    source = np.array([[first, second], [both, second], [both, second]])
    target = np.array([[both + 0.3 * noise]] * 3)
    (group,) = SentenceAligner(max_sentences=4).align(source, target)
    assert (group.source, group.target) == (range(2), range(1))
    length = np.sqrt(2.09)
    cosine, to_samples = 2 / np.sqrt(2) / length, 1 / length
    # Without the cost of merging: (m + n) (1 - cos) / (norm + norm), over (m + n) / 2.
    expected = 2 * (1 - cosine) / ((1 - cosine) + (1 - to_samples))
    assert group.cost == pytest.approx(expected, rel=1e-4)


def test_a_sentence_that_brings_the_sides_no_closer_stays_outside():
    first, second, noise = np.eye(3, dtype=np.float32)
    target = np.tile(first + 0.3 * noise, (5, 1, 1))
    for added, found in ((0.2, [((0, 1), (0,))]), (0, [((0,), (0,)), ((1,), ())])):
        # The vector of both sentences is that of the first, or a little nearer to the target.
        source = np.tile([first, second], (5, 1, 1))
        source[1:, 0] += added * noise
        assert groups(SentenceAligner(deletion=2).align(source, target)) == found


def test_two_by_two_is_one_group_where_contents_are_divided_differently():
    a, b, c = np.eye(3)
    noise = lambda seed: 0.1 * random_vectors(3, seed=seed)
    # Sentences a+b and c against a and b+c; and the same two pairs with nothing moved.
    moved = [a + b, c], [a, b + c + noise(2)]
    kept = [a + noise(3), c], [a, c + noise(4)]
    for (source, target), found in (
        (moved, [((0, 1), (0, 1))]),
        (kept, [((0,), (0,)), ((1,), (1,))]),
    ):
        sides = [np.array([side, *[[sum(side), side[1]]] * 4]) for side in (source, target)]
        assert groups(SentenceAligner().align(*sides)) == found


def test_one_sentence_a_side_is_one_group():
    """Normalized by itself it costs 1, as much as two deletions: a tie up to rounding."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        sides = rng.standard_normal((2, 1, 1, 8))
        (group,) = SentenceAligner(max_sentences=2).align(*sides)
        assert (group.source, group.target) == (range(1), range(1))
