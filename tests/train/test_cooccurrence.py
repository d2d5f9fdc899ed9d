import numpy as np
import pytest

from xling_jax.train.warm_start import cooccurrence_vectors

EN = {"dog": 1, "cat": 2, "house": 3, "the": 4, "tax": 5, "law": 6}
DE = {"hund": 11, "katze": 12, "haus": 13, "das": 4, "steuer": 15, "gesetz": 16}
SIZE = 20


def flat(sentences, ids):
    rows = [[ids[word] for word in sentence.split()] for sentence in sentences]
    offsets = np.cumsum([0, *map(len, rows)])
    return np.array([i for row in rows for i in row], np.uint16), offsets


def text():
    english = ["the dog the house", "the cat", "the tax law", "the house", "tax law", "dog cat"]
    german = ["das hund das haus", "das katze", "das steuer gesetz", "das haus", "steuer gesetz"]
    german += ["hund katze"]
    return flat(german, DE), flat(english, EN)


def reference(german, english, width):
    """The definition, with loops, dense, in float64."""
    together, counts = np.zeros((SIZE, SIZE)), np.zeros(SIZE)
    for r in range(len(english[1]) - 1):
        sides = [tokens[ends[r] : ends[r + 1]] for tokens, ends in (german, english)]
        contexts = set(sides[1].tolist())
        for side in sides:
            np.add.at(counts, side, 1)
            for token in set(side.tolist()):
                for context in contexts:
                    together[token, context] += 1 / np.sqrt(len(contexts))
    context_share = together.sum(0) ** 0.75
    context_share /= context_share.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(together / (together.sum(1, keepdims=True) * context_share))
    information[~(information > 0) | (together <= 0.2)] = 0
    left, singular, _ = np.linalg.svd(information)
    vectors = left[:, :width] * np.sqrt(singular[:width])
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    probability = counts / counts.sum()
    vectors *= (1e-3 / (1e-3 + probability))[:, None]
    return vectors * information.any(1, keepdims=True)


def test_vectors_are_those_of_the_definition():
    german, english = text()
    found = cooccurrence_vectors([(german, english)], SIZE, 3)
    wanted = reference(german, english, 3)
    assert found.dtype == np.float32
    # Singular vectors are defined but for their sign.
    np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, atol=1e-8)


def test_once_in_a_row_of_more_than_25_tokens_is_chance():
    german = np.array([0, 1]), np.array([0, 1, 2])
    english = np.arange(2, 52), np.array([0, 26, 50])  # 26 tokens, and 24 others
    vectors = cooccurrence_vectors([(german, english)], 52, 2)
    assert not vectors[0].any() and vectors[1].any()


def test_parts_of_the_text_count_as_one():
    german, english = text()
    cut = lambda side, begin, end: (
        side[0][side[1][begin] : side[1][end]],
        side[1][begin : end + 1] - side[1][begin],
    )
    parts = [(cut(german, a, b), cut(english, a, b)) for a, b in ((0, 2), (2, 6))]
    whole = cooccurrence_vectors([(german, english)], SIZE, 3)
    np.testing.assert_allclose(
        cooccurrence_vectors(parts, SIZE, 3), whole, atol=1e-7
    )  # the order of sums


def test_more_dimensions_than_words_are_refused():
    with pytest.raises(ValueError, match=r"11 tokens occur .* fewer than the 12 dimensions"):
        cooccurrence_vectors([text()], SIZE, 12)
