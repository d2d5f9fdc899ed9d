"""Altered copies: each rule by hand, names of the same text, what must never happen."""

import re

import pytest

from xling_jax.eval.perturbation_words import CALENDAR
from xling_jax.eval.perturbations import KINDS, LANGUAGES, perturb


def copies(text, kind, language="en", others=()):
    found = perturb([text, *others], language)
    return [one.text for one in found if one.row == 0 and one.kind == kind]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is not here.", ["It is here."]),
        ("They don't go.", ["They do go.", "They don't come."]),
        ("She won’t come.", ["She will come.", "She won’t go."]),
        ("We cannot see it.", ["We can see it."]),
        ("Can't we?", ["Can we?"]),
        ("We can see it.", ["We can not see it."]),
        ("It has been seen.", ["It has not been seen."]),
        ("He had a car.", []),
        ("Is it so?", []),
        ("They tie a knot.", []),
        ("Not only this.", []),
        ("A clear rule.", ["An unclear rule."]),
        ("Always the same.", ["Never the same."]),
        ("It was an early train", ["It was not an early train", "It was a late train"]),
    ],
)
def test_causality_by_hand(text, expected):
    assert copies(text, "causality") == expected


def test_one_digit_of_a_number_changes():
    found = copies("In 2006 they paid 1,500.50 euros.", "number")
    assert 4 <= len(found) <= 8
    for text in found:
        assert re.fullmatch(r"In [1-9]\d{3} they paid [1-9],\d{3}\.\d\d euros\.", text)
        differing = [a for a, b in zip(text, "In 2006 they paid 1,500.50 euros.") if a != b]
        assert len(differing) == 1 and differing[0].isdigit()


def test_ordinals_keep_their_ending():
    endings = {"1": "st", "2": "nd", "3": "rd"}
    for number in ("3rd", "11th", "20th"):
        found = copies(f"The {number} of May.", "number")
        assert found
        for text in found:
            digits, ending = re.fullmatch(r"The (\d+)(\w\w) of May\.", text).groups()
            teens = digits[-2:-1] == "1"
            assert ending == ("th" if teens else endings.get(digits[-1], "th"))


def test_codes_are_no_numbers():
    assert copies("See A5-0308 and R2D2 or B12x.", "number") == []


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en", "Twenty-five people", {"thirty", "two", "ninety", "nine"}),
        ("de", "Vor zwei Jahren", {"drei", "zwölf"}),
        ("fr", "Il y a deux ans", {"trois", "douze"}),
        ("es", "Hace dos años", {"tres", "doce"}),
        ("it", "Due anni fa", {"tre", "dodici"}),
    ],
)
def test_number_words_become_others_of_their_group(language, text, words):
    # A few of the group are drawn, other ones for another sentence.
    found = {
        word.lower()
        for ending in range(40)
        for copy in copies(f"{text} {'x' * ending}".strip(), "number", language)
        for word in re.findall(r"\w+", copy)
    }
    assert words <= found
    capital = text.split()[0][0].isupper()
    assert all(copy[0].isupper() == capital for copy in copies(text, "number", language))


PLACES = [
    "We saw it in Rome.",
    "They live in Oslo.",
    "He was in Paris.",
    "Not in Bonn.",
    "I am in Lima.",
]
VERBS = {"thank": "Smith", "know": "Barón", "ask": "Prodi", "saw": "Jones", "met": "Kok"}
PEOPLE = [f"We {verb} you, Mr {name}." for verb, name in VERBS.items()]


def test_names_behind_one_word_replace_each_other():
    texts = [*PLACES, *PEOPLE]
    found = [one for one in perturb(texts, "en") if one.kind == "entity"]
    in_rome = {one.text for one in found if one.row == 0}
    assert in_rome == {f"We saw it in {place}." for place in ("Oslo", "Paris", "Bonn", "Lima")}
    thanks = {one.text for one in found if one.row == len(PLACES)}
    assert thanks == {f"We thank you, Mr {name}." for name in ("Barón", "Prodi", "Jones", "Kok")}


def test_a_name_is_replaced_wherever_it_stands_in_a_sentence():
    found = copies("He was in Rome and in Rome's streets.", "entity", others=PLACES)
    assert len(found) == 4
    for text in found:
        place = re.fullmatch(r"He was in (\w+) and in (\w+)'s streets\.", text)
        assert place[1] == place[2] != "Rome"


def test_what_begins_a_sentence_or_is_common_is_no_name():
    others = [*PLACES, "All members agree.", "The members met.", "Some members left."]
    assert copies("Members came. Then Nobody said: Perhaps", "entity", others=others) == []
    assert copies("As Members of the house we go", "entity", others=others) == []
    assert copies("A Heading In Title Case", "entity", others=others) == []


def test_months_become_months():
    found = copies("It ends in May, on a Monday.", "entity")
    months = {text.split()[3].strip(",") for text in found if text.endswith("Monday.")}
    days = {text.split()[-1].strip(".") for text in found if " May," in text}
    assert len(months) == 4 and "May" not in months and months <= set(CALENDAR[0].split())
    assert len(days) == 4 and all(day.endswith("day") for day in days)


def test_copies_are_new_texts_few_and_the_same_again():
    texts = [
        *PLACES,
        *PEOPLE,
        "We saw it in Oslo.",  # which a copy of the first would be
        "In 1 2 3 4 5 6 7 8 9 10 cases, is it not so, but is it not, and never, not once, not up?",
        "",
        PLACES[0],
    ]
    found = perturb(texts, "en")
    new = [one.text for one in found]
    assert len(set(new)) == len(new) and not set(new) & set(texts)
    for row in range(len(texts)):
        for kind in KINDS:
            assert len([one for one in found if (one.row, one.kind) == (row, kind)]) <= 8
    assert found == perturb(texts, "en")
    assert [one.row for one in found] == sorted(one.row for one in found)


def test_only_what_has_rules_is_altered():
    text = "Im Jahr 1999 war Berlin nicht so groß wie heute Paris."
    for language in LANGUAGES:
        kinds = {one.kind for one in perturb([text, *PLACES, *PEOPLE], language)}
        expected = {"en": {*KINDS}, "de": {"number"}}.get(language, {"number", "entity"})
        assert kinds == expected
