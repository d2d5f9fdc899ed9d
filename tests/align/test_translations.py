import pytest

from xling_jax.align.translations import TranslationFilter, TranslationRules


def dropped(pairs, **rules):
    """What is dropped, by reason."""
    chosen = TranslationFilter(TranslationRules(**rules))
    kept = [pair for pair in pairs if chosen.keep(*pair)]
    assert chosen.counts.pop("kept", 0) == len(kept)
    return dict(chosen.counts)


@pytest.mark.parametrize(
    "pair, reason",
    [
        (("Where?", "Wo?", 0.1), None),
        (("Where?", "Wo?", 0.7), None),
        (("Where?", "Wo?", 0.71), "cost"),
        (("one two three", "eins " * 11, 0.1), None),
        (("one two three", "eins " * 12, 0.1), "length ratio"),
        (
            (
                "我们去年在北京看到了他们的新房子",
                "We saw their new house in Beijing last year",
                0.1,
            ),
            None,
        ),
        (("ACME  Corp.", "Acme Corp.", 0.1), "copy"),
    ],
)
def test_each_rule(pair, reason):
    assert dropped([pair]) == ({reason: 1} if reason else {})


def test_equal_pairs_are_kept_once_and_either_side_may_repeat():
    pairs = [("Yes.", "Ja.", 0.1), ("yes. ", "JA.", 0.2), ("Yes.", "Doch.", 0.1), ("a b", "c", 0.1)]
    pairs += [("a", "b c", 0.1)]
    pairs += [("Ja.", "Yes.", 0.1)]  # the other way round
    assert dropped(pairs) == {"duplicate": 1}
    assert dropped(pairs, keep_duplicates=True) == {}


def test_the_counts_in_words():
    chosen = TranslationFilter(TranslationRules())
    assert chosen.describe() == "0 translations; dropped: none"
    for pair in (("a", "a", 0.1), ("a", "b", 0.1), ("a", "b", 0.9)):
        chosen.keep(*pair)
    assert chosen.describe() == "1 translation; dropped: 1 copy, 1 cost"
