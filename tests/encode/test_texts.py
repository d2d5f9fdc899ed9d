import types

import numpy as np
import pytest

from xling_jax.encode import texts


def test_windows_are_bounded_in_sentences_and_characters(monkeypatch):
    monkeypatch.setattr(texts, "_WINDOW_CHARACTERS", 10)
    stream = ["a", "b", "c", "d", "x" * 30, "e", "f"]
    assert list(texts.text_windows(iter(stream), 3)) == [
        ["a", "b", "c"],
        ["d", "x" * 30],
        ["e", "f"],
    ]
    assert list(texts.text_windows([], 3)) == []


@pytest.mark.parametrize(
    ("side", "long"), [("right", [1, 2, 7, 8, 9, 3, 11]), ("left", [1, 2, 8, 9, 10, 3, 11])]
)
def test_tokens_and_counts_by_hand(side, long):
    lists = {"long": [7, 8, 9, 10], "fits": [4, 5, 6], "short": [4], "": []}

    def encode_flat(given, num_threads):
        rows = [lists[text] for text in given]
        return np.array(sum(rows, []), np.int32), np.array([*map(len, rows)])

    vocab = types.SimpleNamespace(encode_flat=encode_flat, truncation_side=side, unk_id=8)
    given, prefix, suffix = ["short", "long", "", "fits"], np.array([1, 2]), np.array([3, 11])
    window, stats = texts.tokenize(given, vocab, prefix, suffix, room=3)
    rows = np.split(window.tokens, window.offsets[1:-1])
    expected = [[1, 2, 4, 3, 11], long, [1, 2, 3, 11], [1, 2, 4, 5, 6, 3, 11]]
    assert [row.tolist() for row in rows] == expected
    assert (stats.num_sentences, stats.num_empty, stats.num_truncated) == (4, 1, 1)
    assert stats.num_unknown == 1  # a quarter of "long"
    assert stats.num_tokens == len(window.tokens) == 23
