"""Aligned sentences as a corpus: rules for pairs of texts; index groups."""

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO

from xling_jax.align.pair_files import PAIR_FORMATS, ScoredPair, cell
from xling_jax.align.sentences import Group
from xling_jax.files.progress import counted
from xling_jax.options import option
from xling_jax.text.splitting import count_words


class AlignedDocuments(NamedTuple):
    """Two documents, their sentences and how these correspond.

    Attributes:
        ids: of the documents; None for two files that are one document each.
        lines: of each side, the line of each sentence in its file or its position among all
            sentences of the document, blank ones included, from 0; None if nothing is blank.
    """

    ids: tuple[str, str] | None
    source: Sequence[str]
    target: Sequence[str]
    groups: Sequence[Group]
    lines: tuple[Sequence[int], Sequence[int]] | None = None

    @property
    def cost(self) -> float:
        """Mean cost of the groups with sentences on both sides; infinite without any.

        About 0.2 for translations and 0.8 for documents that have nothing to do with each other.
        """
        costs = [group.cost for group in self.groups if group.source and group.target]
        return sum(costs) / len(costs) if costs else math.inf

    def translations(self) -> Iterator[ScoredPair]:
        """The groups with sentences on both sides."""
        for group in self.groups:
            if group.source and group.target:
                sides = ((self.source, group.source), (self.target, group.target))
                texts = (" ".join(text[i] for i in rows) for text, rows in sides)
                yield ScoredPair(group.cost, *texts, self.ids)


# Words that the longer side may have beyond the ratio: short sentences differ more. With a ratio of
# 2 this drops 0.2 % of translations of debates, news, manuals and everyday sentences, and a quarter
# to a half of unrelated pairs of such sentences.
_SLACK_WORDS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationRules:
    """Rules for aligned sentences; a length ratio that is large enough disables that rule."""

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
    """Applies the rules; counts translations by why they were dropped, or as kept."""

    def __init__(self, rules: TranslationRules):
        self._rules = rules
        # Hashes of 64 bits take a tenth of the room; of ten million pairs, two different ones share
        # one with a probability of 3 in a million.
        self._seen: set[int] = set()
        self.counts: collections.Counter[str] = collections.Counter()

    def keep(self, source: str, target: str, cost: float) -> bool:
        """Counts a translation; returns whether it satisfies the rules."""
        reason = self._reason(source, target, cost)
        self.counts[reason or "kept"] += 1
        return reason is None

    def describe(self) -> str:
        """The counts in one line."""
        dropped = [f"{n} {why}" for why, n in sorted(self.counts.items()) if why != "kept"]
        kept = counted(self.counts["kept"], "translation")
        return f"{kept}; dropped: {', '.join(dropped) or 'none'}"

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
            key = hash(tuple(sides))
            if key in self._seen:
                return "duplicate"
            self._seen.add(key)
        return None


def write_groups(file: TextIO, documents: Iterable[AlignedDocuments]) -> None:
    """Lines `[0]:[0, 1]:0.123456` as vecalign writes them, after the ids if documents have them.

    Sentences without translation are in a line with an empty list.
    """
    for document in documents:
        ids = "".join(f"{cell(name)}\t" for name in document.ids or ())
        for source, target, cost in document.groups:
            rows = [list(source), list(target)]
            if document.lines is not None:
                rows = [[lines[i] for i in side] for lines, side in zip(document.lines, rows)]
            file.write(f"{ids}{rows[0]}:{rows[1]}:{cost:.6f}\n")


FORMATS = ("groups", *PAIR_FORMATS)
