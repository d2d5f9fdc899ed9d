"""Altered copies of sentences that are no longer their translations, for xSIM++.

The three kinds of Chen et al. (2023): causality (a negation added or removed, a word replaced by
its opposite), entity (a name replaced by another of the same text) and number. Theirs are made from
English with a part-of-speech tagger, a name recognizer and WordNet; these by patterns and short
lists, so error rates are not comparable with theirs:

- a name is a run of capitalized words that does not begin a sentence. Names replace each other that
  stand behind the same word ("in Paris", "in Greece", "Mr Barón"), as this text has them;
- opposites are of some 150 pairs, which hold whatever the sentence; a word's sense is not known;
- numbers are digits, of which one changes, and number words.

In German every noun is capitalized, so only its numbers are altered; causality is English only.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from xling_jax.eval.perturbation_words import ANTONYMS, CALENDAR, NUMBER_WORDS, TITLES

KINDS = ("causality", "entity", "number")
LANGUAGES = tuple(NUMBER_WORDS)

# Choice: of a name or a number so many others are tried, and so many copies of a kind are kept.
_PER_SPAN, _PER_KIND = 4, 8
# Choice: names behind one word replace each other if there are so many; else those behind any.
_MIN_NAMES = 5

_ARTICLE = re.compile(r"\b([Aa])n? $")
_POSSESSIVE = re.compile(r"['’]s$")
_WORD = re.compile(r"[^\W\d_]+(?:[-'’.][^\W\d_]+)*")
_DIGITS = re.compile(r"(?<![\w.,-])\d+(?:[.,:]\d+)*(st|nd|rd|th)?(?![\w]|[.,:]\d)")
_ENDS_SENTENCE = re.compile(r"""(^|[.?!:;…"“”«»‘(\[–—/-])\W*$""")
_BETWEEN = re.compile(r" (?:(?:of|de|du|del|della|di|van|von|for) )?")
_PEOPLE = re.compile(r"(ish|ese|ians?|eans?|icans?|French|Germans?|Greeks?|Dutch|Swiss|Czechs?)$")

_NEGATIVE = re.compile(r"\b(\w+?)(n['’]t|not)\b(?! only)", re.IGNORECASE)
_NOT = re.compile(r" not\b(?! only)", re.IGNORECASE)
_IRREGULAR = {"wo": "will", "ca": "can", "sha": "shall", "can": "can"}
_BE = "is are was were"
_MODAL = "can could will would shall should may might must"
_AUXILIARY = re.compile(rf"(?<=\w )\b({'|'.join(f'{_BE} {_MODAL}'.split())})\b(?! not\b)(?=[ ,])")
_PERFECT = re.compile(r"(?<=\w )\b(has|have|had)\b(?= (?:been|\w+ed|\w+en)\b)")


class Perturbation(NamedTuple):
    """An altered copy of a text: the row of the original, one of `KINDS`, and the text."""

    row: int
    kind: str
    text: str


def perturb(texts: Sequence[str], language: str) -> list[Perturbation]:
    """Returns altered copies of texts, by row, kind and place; the same for the same texts.

    Every copy differs from its original in one negation, word, name or number. There are at most
    8 of a kind for a text, none that equals one of the texts, and none twice.

    Args:
        texts: [n] sentences; names of one are put into others.
        language: one of `LANGUAGES`.
    """
    names = _Names(texts, language) if language in TITLES else None
    rules: dict[str, Callable[[str, random.Random], Iterator[str]]] = {
        "number": lambda text, chance: _numbers(text, language, chance)
    }
    if names:
        rules["entity"] = names.replace
    if language == "en":
        rules["causality"] = lambda text, chance: _causality(text)
    seen, found = set(texts), []
    for row, text in enumerate(texts):
        for kind in KINDS:
            copies = rules[kind](text, random.Random(text)) if kind in rules else ()
            new = [copy for copy in dict.fromkeys(copies) if copy not in seen][:_PER_KIND]
            seen.update(new)
            found += [Perturbation(row, kind, copy) for copy in new]
    return found


def _causality(text: str) -> Iterator[str]:
    """English: negations removed, else one added; words replaced by their opposites."""
    negations = [*_NEGATIVE.finditer(text), *_NOT.finditer(text)]
    for match in negations:
        kept = ""
        if match.re is _NEGATIVE:
            stem = match[1]
            if match[2].lower() == "not" and stem.lower() != "can":
                continue  # a word such as "knot"
            kept = _like(stem, _IRREGULAR.get(stem.lower(), stem))
        yield _put(text, match, kept)
    if not negations:
        for match in (_AUXILIARY.search(text), _PERFECT.search(text)):
            if match:
                yield _put(text, match, f"{match[0]} not")
    for match in _WORD.finditer(text):
        for opposite in _OPPOSITES.get(match[0].lower(), ()):
            before = _with_article(text[: match.start()], opposite)
            yield before + _like(match[0], opposite) + text[match.end() :]


def _with_article(before: str, word: str) -> str:
    """The text before a word, with "a" or "an" as its first letter asks for."""
    return _ARTICLE.sub(r"\1n " if word[0].lower() in "aeiou" else r"\1 ", before)


def _numbers(text: str, language: str, chance: random.Random) -> Iterator[str]:
    """Numbers with one digit changed, and number words replaced by others of their kind."""
    for match in _DIGITS.finditer(text):
        digits = [place for place, char in enumerate(match[0]) if char.isdigit()]
        changed = set()
        for _ in range(_PER_SPAN):
            place = chance.choice(digits)
            lowest = 1 if place == 0 else 0
            digit = chance.choice([d for d in range(lowest, 10) if str(d) != match[0][place]])
            number = match[0][:place] + str(digit) + match[0][place + 1 :]
            changed.add(_ordinal(number) if match[1] else number)
        for number in sorted(changed):
            yield _put(text, match, number)
    for match in _WORD.finditer(text):
        for start, part in _parts(match):
            group = [word for word in _NUMBERS[language].get(part.lower(), ()) if word != part]
            for word in chance.sample(group, min(_PER_SPAN, len(group))):
                yield text[:start] + _like(part, word) + text[start + len(part) :]


def _parts(match: re.Match) -> Iterator[tuple[int, str]]:
    """Place and text of the parts of a word with hyphens, such as "twenty-five"."""
    start = match.start()
    for part in match[0].split("-"):
        yield start, part
        start += len(part) + 1


def _ordinal(number: str) -> str:
    """Gives an English ordinal the ending of its digits."""
    digits = number[:-2]
    last = "th" if digits[-2:-1] == "1" else {"1": "st", "2": "nd", "3": "rd"}.get(digits[-1], "th")
    return digits + last


class _Mention(NamedTuple):
    """A name in a text: where, and the kind of the names that may replace it."""

    start: int
    end: int
    name: str
    kind: str


class _Names:
    """The names of a text, and sentences in which one is replaced by another."""

    def __init__(self, texts: Sequence[str], language: str):
        self._titles = set(TITLES[language].split())
        words = Counter(match[0] for text in texts for match in _WORD.finditer(text))
        # "Commission" is a name, "Members" hardly: most often it is lower-cased.
        self._common = {word for word in words if words[word.lower()] >= words[word]}
        self._is_english = language == "en"
        mentions = {text: [*self._mentions(text)] for text in texts}
        kinds: dict[str, set[str]] = defaultdict(set)
        for mention in (one for found in mentions.values() for one in found):
            kinds[mention.kind].add(mention.name)
        rare = {kind for kind, names in kinds.items() if len(names) < _MIN_NAMES}
        others: dict[str, set[str]] = defaultdict(set)
        for kind, names in kinds.items():
            others["" if kind in rare else kind] |= names
        if self._is_english:
            others |= {group: set(group.split()) for group in CALENDAR}
        self._others = {kind: sorted(names) for kind, names in others.items()}
        self._by_text = {
            text: [
                one._replace(kind="") if one.kind in rare - {*CALENDAR} else one for one in found
            ]
            for text, found in mentions.items()
        }

    def replace(self, text: str, chance: random.Random) -> Iterator[str]:
        """Copies of one of the texts with another name, wherever that stands in it."""
        by_name: dict[str, list[_Mention]] = defaultdict(list)
        for mention in self._by_text[text]:
            by_name[mention.name].append(mention)
        for name, mentions in by_name.items():
            names = self._others[mentions[0].kind]
            free = [other for other in names if other not in text and name not in other]
            for other in chance.sample(free, min(_PER_SPAN, len(free))):
                copy = text
                for mention in reversed(mentions):
                    before = copy[: mention.start]
                    before = _with_article(before, other) if self._is_english else before
                    copy = before + other + copy[mention.end :]
                yield copy

    def _mentions(self, text: str) -> Iterator[_Mention]:
        """Runs of capitalized words; not the first word of a sentence."""
        words = [*_WORD.finditer(text)]
        capitalized = [match for match in words if match[0][0].isupper()]
        if len(words) > 3 and len(capitalized) > 0.6 * len(words):
            return  # a heading
        runs: list[list[re.Match]] = []
        for match in capitalized:
            begins = _ENDS_SENTENCE.search(text[: match.start()])
            if begins or match[0] in self._titles or match[0] in self._common:
                continue
            if runs and _BETWEEN.fullmatch(text, runs[-1][-1].end(), match.start()):
                runs[-1].append(match)
            else:
                runs.append([match])
        for run in runs:
            start, end = run[0].start(), run[-1].end()
            if self._is_english and (ending := _POSSESSIVE.search(text[start:end])):
                end = start + ending.start()
            name = text[start:end]
            before = [match[0] for match in words if match.end() < start]
            yield _Mention(start, end, name, self._kind(name, before[-1].lower() if before else ""))

    def _kind(self, name: str, word_before: str) -> str:
        if self._is_english:
            for group in CALENDAR:
                if name in group.split():
                    return group
            if " " not in name and _PEOPLE.search(name):
                return "people"
        return "acronym" if name.isupper() else f"behind {word_before}"


def _put(text: str, match: re.Match, replacement: str) -> str:
    return text[: match.start()] + replacement + text[match.end() :]


def _like(word: str, other: str) -> str:
    """The other word, capitalized if the word is."""
    return other[:1].upper() + other[1:] if word[:1].isupper() else other


def _opposites() -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for pair in ANTONYMS.split("\n")[1:-1]:
        one, other = pair.split()
        found[one].append(other)
        found[other].append(one)
    return dict(found)


_OPPOSITES = _opposites()
_NUMBERS = {
    language: {word: line.split() for line in lines.split("\n") for word in line.split()}
    for language, lines in NUMBER_WORDS.items()
}
