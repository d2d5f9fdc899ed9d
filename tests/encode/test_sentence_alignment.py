import numpy as np
import pytest

import xling_jax
from xling_jax.align.sentences import SentenceAligner
from xling_jax.encode import sentence_alignment
from xling_jax.encode.sentence_alignment import align_pairs, overlap_vectors

GERMAN = ["Wo ist der Bahnhof?", "Der Ausschuss hat den Vorschlag abgelehnt.", "Er war zu teuer."]
ENGLISH = ["Where is the station?", "The committee rejected the proposal. It was too expensive."]


@pytest.fixture(scope="module")
def mini():
    return xling_jax.load("mini")


def positions(groups):
    return [([*group.source], [*group.target]) for group in groups]


def test_two_documents_with_the_encoder_of_the_package(mini):
    wanted = [([0], [0]), ([1, 2], [1])]
    assert positions(xling_jax.align_sentences(GERMAN, ENGLISH)) == wanted
    found = xling_jax.align_sentences(" ".join(GERMAN), ENGLISH, mini, max_sentences=3)
    assert positions(found) == wanted
    assert positions(xling_jax.align_sentences(GERMAN, ENGLISH, mini.encode)) == wanted


def test_many_documents_are_aligned_as_one_by_one(monkeypatch, mini):
    generator = np.random.default_rng(0)
    texts = [f"word{i} in sentence {i * 7 % 13}" for i in range(30)]
    sources = [list(generator.permutation(texts)[:size]) for size in (12, 1, 0, 30, 11)]
    targets = [[*source[:4], *source[5:]] for source in sources]
    aligner = SentenceAligner()
    found = [g for _, g in align_pairs(aligner, mini.encode, zip(sources, targets))]
    for source, target, groups in zip(sources, targets, found):
        if min(len(source), len(target)) >= 10:  # shorter ones look at each other
            vectors = overlap_vectors(mini.encode, [source, target], aligner.num_overlaps)
            assert groups == aligner.align(*vectors)
        assert [i for group in groups for i in group.source] == [*range(len(source))]
    monkeypatch.setattr(sentence_alignment, "_WINDOW", 1)
    alone = [g for _, g in align_pairs(aligner, mini.encode, zip(sources, targets))]
    assert alone[3] == found[3]


def test_short_documents_among_others_have_the_costs_of_long_ones(mini):
    pairs = [(GERMAN, ENGLISH), (GERMAN[:1], ENGLISH[:1])]
    _, (_, (group,)) = align_pairs(SentenceAligner(), mini.encode, pairs)
    assert group.cost < 0.3 and group.source and group.target
    # Alone, there is nothing to compare with: a pair costs as much as leaving out both sentences.
    for alone in xling_jax.align_sentences(GERMAN[:1], ENGLISH[:1], mini):
        assert not (alone.source and alone.target) or alone.cost == pytest.approx(1, abs=0.01)


def test_empty_documents_and_blank_sentences_keep_their_positions(mini):
    assert xling_jax.align_sentences([], [], mini) == []
    assert positions(xling_jax.align_sentences([], ENGLISH, mini)) == [([], [0]), ([], [1])]
    # SentenceTransformer.encode([]) has no width.
    encode = lambda texts: np.array([[1.0, len(text)] for text in texts])
    assert positions(xling_jax.align_sentences([], ["a"], encode)) == [([], [0])]
    found = positions(xling_jax.align_sentences([GERMAN[0], "", *GERMAN[1:]], ENGLISH, mini))
    assert [i for group in found for i in group[0]] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "source, target, options, message",
    [
        (
            GERMAN,
            ENGLISH,
            {"delete": 1},
            "delete is not an option of SentenceAligner; it takes max",
        ),
        (GERMAN, ENGLISH, {"radius": 0}, "radius=0 must be at least 1"),
        ([GERMAN], ENGLISH, {}, r"source\[0\] must be a string"),
        (["a", 3], ENGLISH, {}, r"source\[1\] must be a string"),
    ],
)
def test_wrong_arguments(mini, source, target, options, message):
    with pytest.raises(ValueError, match=message):
        xling_jax.align_sentences(source, target, mini, **options)


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (3, [3]), (2000, [2000]), (4001, [2000, 2001])]
)
def test_the_last_documents_have_others_to_be_compared_with(count, sizes, monkeypatch):
    windows = lambda pairs: [len(window) for window in sentence_alignment._windows(pairs)]
    assert windows([["one"], ["ein"]] for _ in range(count)) == sizes
    # Windows end with enough sentences of the longer side.
    monkeypatch.setattr(sentence_alignment, "_WINDOW", 4)
    assert windows([(["a"] * 2, ["b"]), (["a"], ["b"] * 2)] * 3) == [2, 2, 2]
