"""Decides which pairs of texts are fit for training, and why the others are not.

Pure functions of texts; `pair_text.py` reads, counts and writes. Every reason to drop a pair has
one name, which is also its key in `counts.json`.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from xling_jax.files.hashes import content_hash
from xling_jax.files.lines import PROBLEMS
from xling_jax.options import check_number
from xling_jax.text import scripts
from xling_jax.text.splitting import count_words
from xling_jax.text.vocab import normalize_text, remove_invisible

# In the order of the checks: a pair counts under the first that applies.
REASONS = (
    *PROBLEMS,
    "empty",
    "held_out",
    "no_letters",
    "too_long",
    "wrong_script",
    "wrong_letters",
    "identical",
    "length_ratio",
)

_LETTER = re.compile(r"[^\W\d_]")


@dataclasses.dataclass(frozen=True)
class CleaningRules:
    """The rules for a pair. The limits of words and length ratio are those of the T-LASER papers.

    Args:
        max_words: maximum words and punctuation marks of a side.
        max_chars: maximum characters of a side.
        max_length_ratio: maximum words of the longer side per word of the shorter; a large number
            disables it.
        length_ratio_slack: words that the longer side may have beyond that. The published filter
            has 0, which drops many short pairs ("Yes." and "That is right.").
        drop_duplicates: keep only the first of equal pairs, over all corpora, whatever their case.
            The published corpora keep all.
        drop_identical: drop pairs whose sides differ at most in case: untranslated text.
        require_letters: drop pairs with a side of digits and punctuation only.
        min_script_share: minimum share of a side's letters that belong to scripts of its language;
            0 disables the check. The default drops only what is obviously wrong.
        alphabet_only: drop pairs with a letter outside the alphabets of their two languages, as in
            the data of the lightweight dual encoder. Choice: digits and punctuation are not
            checked, since the paper does not list its characters.
    """

    max_words: int = 100
    max_chars: int = 1000
    max_length_ratio: float = 1.5
    length_ratio_slack: int = 0
    drop_duplicates: bool = True
    drop_identical: bool = True
    require_letters: bool = True
    min_script_share: float = 0.5
    alphabet_only: bool = False

    def __post_init__(self):
        check_number(self.max_words, "cleaning.max_words", 1)
        check_number(self.max_chars, "cleaning.max_chars", 1)
        check_number(self.max_length_ratio, "cleaning.max_length_ratio", 1)
        check_number(self.length_ratio_slack, "cleaning.length_ratio_slack", 0)
        check_number(self.min_script_share, "cleaning.min_script_share", 0, below=1.01)

    def check_languages(self, languages: Sequence[str]) -> None:
        """Raises ValueError if a rule needs an alphabet that is not known."""
        unknown = [code for code in languages if scripts.alphabet(code) is None]
        if self.alphabet_only and unknown:
            raise ValueError(
                f"cleaning.alphabet_only: unknown alphabet of {', '.join(unknown)}; set it to False"
            )

    def foreign_letter(self, first: str, second: str) -> re.Pattern[str]:
        """A pattern of lower-case letters outside the alphabets of both languages."""
        letters = "".join(sorted({*scripts.alphabet(first), *scripts.alphabet(second)}))
        return re.compile(r"[^\W\d_" + re.escape(letters) + "]")


@dataclasses.dataclass(slots=True)
class CleanText:
    """One text, normalized but for its case; why a pair with it is dropped, and by what."""

    text: str
    num_words: int = 0
    had_invisible: bool = False
    reason: str | None = None
    held_out_by: str = ""


class RowCleaner:
    """Applies the rules to rows of parallel text.

    `pairs` are those wanted, each two codes in alphabetical order; `held_out` maps the
    `content_hash` of each text that no row may repeat in any language to the fingerprint of its
    file. A row must have `min_languages` texts to be of use.
    """

    def __init__(
        self,
        rules: CleaningRules,
        pairs: Sequence[tuple[str, str]],
        held_out: Mapping[int, str] | None = None,
    ):
        self._rules, self._pairs, self._held_out = rules, tuple(pairs), dict(held_out or {})
        self.min_languages = 1 if any(first == second for first, second in pairs) else 2
        self._foreign = {}
        if rules.alphabet_only:
            self._foreign = {pair: rules.foreign_letter(*pair) for pair in self._pairs}

    def clean(
        self, texts: Mapping[str, str]
    ) -> list[tuple[tuple[str, str], str | None, CleanText, CleanText]]:
        """Cleans one row, language -> text.

        Returns for each wanted pair with both languages in it the pair, why it is dropped or None,
        and its sides. A language paired with itself wants rows with a text in that language only.
        """
        sides = {language: self._clean_text(language, text) for language, text in texts.items()}
        if self._held_out:
            found = [self._held_out.get(content_hash(side.text)) for side in sides.values()]
            if by := next(filter(None, found), None):
                for side in sides.values():
                    side.reason = side.reason if side.reason == "empty" else "held_out"
                    side.held_out_by = by
        return [
            (pair, self._pair_reason(pair, sides[pair[0]], sides[pair[1]]), *map(sides.get, pair))
            for pair in self._pairs
            if pair[0] in sides and pair[1] in sides and (pair[0] != pair[1] or len(sides) == 1)
        ]

    def _clean_text(self, language: str, text: str) -> CleanText:
        rules = self._rules
        visible = remove_invisible(text)
        side = CleanText(normalize_text(visible, lowercase=False))
        side.had_invisible = len(visible) != len(text)
        if not side.text:
            side.reason = "empty"
        elif len(side.text) > rules.max_chars:
            # Checked before the words are counted: the text may be a megabyte.
            side.reason = "too_long"
        else:
            side.num_words = count_words(side.text)
            side.reason = self._text_reason(language, side)
        return side

    def _text_reason(self, language: str, side: CleanText) -> str | None:
        rules = self._rules
        if rules.require_letters and not _LETTER.search(side.text):
            return "no_letters"
        if side.num_words > rules.max_words:
            return "too_long"
        if rules.min_script_share:
            check = scripts.script_check(language)
            if check and check.is_wrong(side.text, side.num_words, rules.min_script_share):
                return "wrong_script"
        return None

    def _pair_reason(
        self, pair: tuple[str, str], first: CleanText, second: CleanText
    ) -> str | None:
        rules = self._rules
        reasons = [side.reason for side in (first, second) if side.reason]
        if reasons:
            return min(reasons, key=REASONS.index)
        if rules.alphabet_only:
            foreign = self._foreign[pair]
            if foreign.search(first.text.lower()) or foreign.search(second.text.lower()):
                return "wrong_letters"
        if (
            pair[0] != pair[1]
            and rules.drop_identical
            and first.text.casefold() == second.text.casefold()
        ):
            return "identical"
        shorter, longer = sorted((first.num_words, second.num_words))
        if longer > rules.max_length_ratio * shorter + rules.length_ratio_slack:
            return "length_ratio"
        return None
