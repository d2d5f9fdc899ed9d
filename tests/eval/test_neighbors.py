"""Nearest sentences by hand."""

import numpy as np

from xling_jax.eval import neighbors


def test_nearest_sentences_by_hand():
    places = {"sun": [1, 0], "ice": [0, 1], "Sonne": [0.9, 0.1], "Eis": [0.1, 0.9]}
    found = neighbors.nearest_sentences(
        lambda texts: np.array([places[text] for text in texts]),
        ["sun", "ice"],
        {"de": ["Eis", "Sonne"], "en": ["ice", "sun"]},
    )
    assert [(n.query, n.language, n.text) for n in found] == [
        (0, "de", "Sonne"),
        (0, "en", "sun"),
        (1, "de", "Eis"),
        (1, "en", "ice"),
    ]
    text = neighbors.format_neighbors(["sun", "ice"], found, width=18)
    assert text.splitlines()[:3] == ["sun", "  de   0.99  Sonne", "  en   1.00  sun"]
    assert max(map(len, text.splitlines())) <= 18
