"""Which texts are worth mining, and which of the pairs found are worth keeping.

Every filter is off until asked for, and counts what it drops under one name.
"""

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Callable

import regex

from xling_jax.options import OptionError, option
from xling_jax.registry import import_extra
from xling_jax.text.languages import to_iso639_1
from xling_jax.text.splitting import count_words

_LETTER = regex.compile(r"(?V1)\p{L}[\p{M}--\p{Variation_Selector}]*")
# Digits, and groups of three after them: 1,000 and 1.000 and 1 000, with a narrow space or not.
_NUMBER = regex.compile(r"\d{1,3}(?:[.,'’ \u00a0\u2009\u202f]\d{3})+(?!\d)|\d+")

TextFilter = Callable[[str], str | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filters:
    """The filters of a run, as options; by default none."""

    min_words: int | None = option(None, "fewest words in a text, with punctuation", positive=True)
    max_words: int | None = option(None, "most words in a text, with punctuation", positive=True)
    languages: tuple[str, ...] = option(
        (),
        "of source and target, such as de,en: names them in the output and chooses the columns of "
        "--pairs",
        metavar="SOURCE,TARGET",
    )
    drop_other_languages: bool = option(
        False, "drop texts that py3langid takes for another language (extra langid)"
    )
    max_length_ratio: float | None = option(
        None, "drop pairs in which one text has more than this times the words of the other"
    )
    drop_copies: bool = option(
        False, "drop pairs that differ only in case, digits, spaces and punctuation"
    )
    numbers_agree: bool = option(
        False, "drop pairs whose numbers in digits differ; 1,000 and 1.000 are equal"
    )

    def __post_init__(self):
        if None not in (self.min_words, self.max_words) and self.max_words < self.min_words:
            raise OptionError(
                f"--max-words {self.max_words}: must be at least --min-words {self.min_words}"
            )
        if self.languages and len(self.languages) != 2:
            raise OptionError(
                f"--languages {','.join(self.languages)}: must be the language of --source and "
                "that of --target, such as de,en"
            )
        if self.drop_other_languages and not self.languages:
            raise OptionError("--drop-other-languages: needs --languages, such as de,en")
        if self.max_length_ratio is not None and not self.max_length_ratio >= 1:
            raise OptionError(f"--max-length-ratio {self.max_length_ratio:g}: must be at least 1")

    def of_side(self, side: int) -> TextFilter:
        """Says why a text of the source, 0, or target, 1, is not mined, or None.

        OptionError if the language is not one that can be identified.
        """
        is_other = _other_than(self.languages[side]) if self.drop_other_languages else None

        def problem(text: str) -> str | None:
            if self.min_words or self.max_words:
                num_words = count_words(text)
                if num_words < (self.min_words or 0):
                    return "too_short"
                if self.max_words and num_words > self.max_words:
                    return "too_long"
            if is_other and is_other(text):
                return "wrong_language"
            return None

        return problem

    def of_given_pairs(self) -> Callable[[str, str], str | None]:
        """Says why a given pair is dropped, or None: both texts must pass what mined ones must."""
        of_source, of_target = self.of_side(0), self.of_side(1)
        return lambda source, target: (
            of_source(source) or of_target(target) or self.pair_problem(source, target)
        )

    def pair_problem(self, source: str, target: str) -> str | None:
        """Why a pair is dropped, or None."""
        if self.drop_copies and letters_of(source) == letters_of(target):
            return "copied"
        if self.max_length_ratio is not None:
            shorter, longer = sorted(map(count_words, (source, target)))
            if longer > self.max_length_ratio * shorter:
                return "length_ratio"
        if self.numbers_agree and numbers_of(source) != numbers_of(target):
            return "numbers"
        return None


def letters_of(text: str) -> str:
    """The letters of a text in lower case, with their marks; the text itself if it has none.

    Words differ by marks, such as the vowel signs of Indic scripts. Variation selectors are marks,
    too, but only change how a character looks.
    """
    return "".join(_LETTER.findall(unicodedata.normalize("NFKC", text).casefold())) or text


def numbers_of(text: str) -> Counter[str]:
    """The numbers of a text that are written in digits of any script, and how often each occurs.

    Thousands may be grouped by a point, comma, apostrophe or space. The two sides of a decimal
    point or comma count as two numbers, since languages write either.
    """
    found = Counter()
    for match in _NUMBER.findall(unicodedata.normalize("NFKC", text)):
        digits = "".join(str(unicodedata.digit(c)) for c in match if c.isdecimal())
        found[digits.lstrip("0")] += 1
    return found


def _other_than(code: str) -> Callable[[str], bool]:
    """Returns whether py3langid takes a text for another language."""
    py3langid = import_extra("py3langid", "langid", "--drop-other-languages")
    from py3langid import langid

    py3langid.classify("")  # loads the model
    language = to_iso639_1(code)
    if language not in langid.IDENTIFIER.nb_classes:
        raise OptionError(f"--languages {code}: unknown to py3langid; omit --drop-other-languages")
    return lambda text: py3langid.classify(text)[0] != language
