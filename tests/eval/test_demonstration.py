"""What the quickstart shows, on texts and vectors small enough to check by hand."""

import types

import numpy as np
import pytest

from xling_jax.eval.demonstration import (
    ShuffledTexts,
    find_translations,
    format_accuracies,
    format_neighbors,
    format_translations,
    search_languages,
    shuffle_texts,
)

# Unit vectors in the plane, by angle.
ANGLES = {"one": 0, "eins": 2, "two": 38, "zwei": 43, "drei": 60, "four": 80, "fünf": 70}


def encode(texts):
    radians = np.radians([ANGLES[text] for text in texts])
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def test_shuffled_texts_keep_their_translations_and_a_third_has_none():
    english = [f"en{i}" for i in range(40)]
    texts = shuffle_texts(english, [text.replace("en", "de") for text in english])
    assert len(texts.source) == len(texts.target) == 30 and texts.num_translations == 20
    assert texts.source != sorted(texts.source, key=english.index)
    for source, place in zip(texts.source, texts.translation):
        other = source.replace("en", "de")
        assert (texts.target[place] == other) if place >= 0 else other not in texts.target
    again = shuffle_texts(english, english)
    assert again.source == texts.source


def test_precision_and_recall_count_right_pairs():
    # "four" has no translation, and is nearest to "fünf"; "drei" is nobody's nearest.
    texts = ShuffledTexts(
        ["one", "two", "four"], ["zwei", "drei", "eins", "fünf"], np.array([2, 0, -1])
    )
    found = find_translations(encode, texts, len)
    right = {texts.source[i]: ok for (_, i, _), ok in zip(found.pairs, found.is_right)}
    assert right == {"one": True, "two": True, "four": False}
    assert found.precision == pytest.approx(2 / 3) and found.recall == 1
    lines = format_translations(texts, found, width=16).splitlines()
    shown = {source.split()[1]: target.split() for source, target in zip(lines[::2], lines[1::2])}
    assert shown["tw"] == ["right", "zw"] and shown["fo"] == ["wrong", "fü"]  # cut at the width
    none = find_translations(encode, texts, lambda pairs: 0)
    assert np.isnan(none.precision) and none.recall == 0 and not format_translations(texts, none)


def test_a_query_is_searched_for_in_the_other_languages():
    texts = {"en": ["one", "four"], "de": ["eins", "drei"], "fr": ["zwei"]}
    unit = lambda texts, normalize: encode(texts)
    encoder = types.SimpleNamespace(encode_query=unit, encode_document=unit)
    queries = [("en", "two"), ("", "one")]
    hits = search_languages(encoder, queries, texts)
    assert [{code: hit.text for code, hit in of_query.items()} for of_query in hits] == [
        {"de": "drei", "fr": "zwei"},
        {"en": "one", "de": "eins", "fr": "zwei"},
    ]
    assert hits[0]["fr"].score == pytest.approx(np.cos(np.radians(5)), abs=1e-6)
    table = format_neighbors(queries, hits, width=16).splitlines()
    assert table[:3] == ["two", "  de   0.93  dr…", "  fr   1.00  zw…"]


def test_accuracies_stand_beside_the_baselines():
    matrix = {"train_languages": ["en"], "accuracy": {"en": {"en": 0.9, "de": 0.755}}}
    matrix |= {"bag_of_words": {"en": {"en": 1.0, "de": 0.25}}}
    matrix |= {"chance": {"en": {"en": 0.2, "de": 0.2}}}
    table = format_accuracies("mini", matrix, ("de", "en")).splitlines()
    assert table[0].split() == ["de", "en"]
    assert table[1].split() == ["mini", "75.5", "90.0"]
    assert table[2].split() == ["bag", "of", "words", "25.0", "100.0"]
