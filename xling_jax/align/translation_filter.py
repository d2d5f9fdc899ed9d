"""Which aligned sentences go into a corpus: rules for pairs of texts; counts of what they drop."""

from __future__ import annotations

import collections
import dataclasses
import hashlib

from xling_jax.options import option
from xling_jax.text.splitting import count_words

# In the order of the checks: a pair counts under the first that applies.
REASONS = ("cost", "length ratio", "copy", "duplicate")
# Words that the longer side may have beyond the ratio: short sentences differ more. With a ratio of
# 2 this drops 0.2 % of translations of debates, news, manuals and everyday sentences, and a quarter
# to a half of unrelated pairs of such sentences.
_SLACK_WORDS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationRules:
    """Rules for aligned sentences.

    Attributes:
        max_cost: of the aligned sentences, see `align.sentences.Group`.
        max_length_ratio: most words of the longer side for each of the shorter, beyond 5 words; a
            large number disables the rule.
        keep_copies: keep pairs whose sides differ at most in case and white space: untranslated.
        keep_duplicates: keep pairs that differ from an earlier one at most in case and white space.
    """

    max_cost: float = option(
        0.7, "drop aligned sentences that cost more", positive=True, metavar="COST"
    )
    max_length_ratio: float = option(
        2.0,
        "drop pairs whose longer side has more than RATIO times the words of the other, plus 5",
        positive=True,
        metavar="RATIO",
    )
    keep_copies: bool = option(False, "keep pairs of equal sides, which are not translated")
    keep_duplicates: bool = option(False, "keep pairs that are equal to an earlier one")


class TranslationFilter:
    """Applies the rules.

    Attributes:
        dropped: number of translations by reason.
        num_kept: number of the others.
    """

    def __init__(self, rules: TranslationRules):
        self._rules = rules
        self._seen: set[bytes] = set()
        self.dropped: collections.Counter[str] = collections.Counter()
        self.num_kept = 0

    def keep(self, source: str, target: str, cost: float) -> bool:
        """Counts a translation; returns whether it satisfies the rules."""
        reason = self._reason(source, target, cost)
        if reason:
            self.dropped[reason] += 1
        else:
            self.num_kept += 1
        return reason is None

    def describe(self) -> str:
        """The counts in one line."""
        counts = [f"{self.dropped[name]} {name}" for name in REASONS if self.dropped[name]]
        return f"{self.num_kept} translations; dropped: {', '.join(counts) or 'none'}"

    def _reason(self, source: str, target: str, cost: float) -> str | None:
        rules = self._rules
        if cost > rules.max_cost:
            return "cost"
        shorter, longer = sorted(map(count_words, (source, target)))
        if longer > rules.max_length_ratio * shorter + _SLACK_WORDS:
            return "length ratio"
        sides = [" ".join(text.casefold().split()) for text in (source, target)]
        if not rules.keep_copies and sides[0] == sides[1]:
            return "copy"
        if not rules.keep_duplicates:
            key = hashlib.blake2b("\n".join(sides).encode("utf-8", "surrogatepass"), digest_size=12)
            if key.digest() in self._seen:
                return "duplicate"
            self._seen.add(key.digest())
        return None
