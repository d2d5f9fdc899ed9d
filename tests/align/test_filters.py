"""Filters of mining: each rule by examples, in several scripts."""

import pytest

from xling_jax.align.filters import Filters, letters_of, numbers_of
from xling_jax.options import OptionError


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,000 people", {"1000": 1}),
        ("1.000 Leute", {"1000": 1}),
        ("12 345 678 and 12\u202f345\u202f678", {"12345678": 2}),
        ("1'000 Franken", {"1000": 1}),
        ("3.5 %", {"3": 1, "5": 1}),
        ("3,5 %", {"3": 1, "5": 1}),
        ("12.05.2008", {"12": 1, "5": 1, "2008": 1}),
        ("in 2008, 2009", {"2008": 1, "2009": 1}),
        ("1234,567", {"1234": 1, "567": 1}),
        ("٣ and ３ and 3", {"3": 3}),
        ("none", {}),
        ("²" * 5 + "9" * 5000, {"2" * 5 + "9" * 5000: 1}),
    ],
)
def test_numbers(text, numbers):
    assert numbers_of(text) == numbers


def test_letters_ignore_case_digits_spaces_and_punctuation():
    assert letters_of("Seite 3:  “Groß”") == letters_of("SEITE 44 gross")
    assert letters_of("12:30") != letters_of("12:31")
    assert letters_of("東京、2020") == "東京"


@pytest.mark.parametrize(
    "pair", [("मैं", "में"), ("ที่", "ทั"), ("ကို", "ကာ"), ("schön", "schon"), ("की", "को")]
)
def test_words_that_differ_in_a_mark_are_not_copies(pair):
    assert Filters(drop_copies=True).pair_problem(*pair) is None


@pytest.mark.parametrize(
    "pair",
    [("é 1", "e\u0301"), ("I ❤ it", "I ❤\ufe0f it"), ("葛城", "葛\U000e0100城"), ("it´s", "it's")],
)
def test_how_a_mark_is_written_and_marks_without_letters_make_no_difference(pair):
    assert letters_of(pair[0]) == letters_of(pair[1])


@pytest.mark.parametrize(
    ("filters", "pair", "problem"),
    [
        ({}, ("a", "a"), None),
        ({"drop_copies": True}, ("Windows 10", "windows 11!"), "copied"),
        ({"drop_copies": True}, ("das Haus", "the house"), None),
        ({"max_length_ratio": 1}, ("one two", "eins zwei"), None),
        ({"max_length_ratio": 2}, ("one two", "eins zwei drei vier"), None),
        ({"max_length_ratio": 2}, ("one two", "eins zwei drei vier fünf"), "length_ratio"),
        ({"max_length_ratio": 2}, ("日本語を話します", "I speak Japanese now"), None),
        ({"numbers_agree": True}, ("3 of 4", "4 von 3"), None),
        ({"numbers_agree": True}, ("3 of 4", "3 von 3"), "numbers"),
        ({"numbers_agree": True}, ("5 and 5", "5"), "numbers"),
    ],
)
def test_pairs(filters, pair, problem):
    assert Filters(**filters).pair_problem(*pair) == problem


def test_texts():
    keep = Filters(min_words=2, max_words=3).of_side(0)
    texts = ("one", "one two", "one two three", "one two three four")
    assert [keep(text) for text in texts] == ["too_short", None, None, "too_long"]


def test_both_texts_of_given_pairs_must_pass():
    problem = Filters(max_words=3).of_given_pairs()
    short, long = "one two", "eins zwei drei vier fünf"
    assert [problem(short, long), problem(long, short)] == ["too_long"] * 2
    assert problem(short, short) is None


def test_languages_are_those_of_py3langid():
    pytest.importorskip("py3langid")
    filters = Filters(languages=("de", "zh_Hans"), drop_other_languages=True)
    german, chinese = filters.of_side(0), filters.of_side(1)
    text = "Der Ausschuss hat den Bericht gestern angenommen."
    assert german(text) is None and chinese(text) == "wrong_language"
    assert german("The committee adopted the report yesterday.") == "wrong_language"
    assert chinese("委员会昨天通过了这份报告。") is None
    problem = filters.of_given_pairs()
    assert problem(text, "委员会昨天通过了这份报告。") is None
    assert problem(text, text) == "wrong_language"
    with pytest.raises(OptionError, match="--languages xx: unknown to py3langid; omit --drop-oth"):
        Filters(languages=("de", "xx"), drop_other_languages=True).of_side(1)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"min_words": 5, "max_words": 4}, "--max-words 4: must be at least --min-words 5"),
        ({"languages": ("de",)}, "--languages de: must be the language of --source and that of"),
        ({"drop_other_languages": True}, "--drop-other-languages: needs --languages, such as"),
        ({"max_length_ratio": 0.5}, "--max-length-ratio 0.5: must be at least 1"),
    ],
)
def test_rules_that_nothing_can_satisfy_are_refused(filters, message):
    with pytest.raises(OptionError, match=message):
        Filters(**filters)
