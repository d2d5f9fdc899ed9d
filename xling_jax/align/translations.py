"""Writes aligned sentences: index groups, TSV, TMX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TextIO
from xml.sax.saxutils import escape, quoteattr

from xling_jax.align.sentences import Group

# What XML 1.0 does not allow.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class AlignedDocuments(NamedTuple):
    """Two documents and how their sentences correspond.

    Attributes:
        ids: of the documents; None for two files that are one document each.
        source, target: their sentences.
        groups: from `SentenceAligner.align`.
    """

    ids: tuple[str, str] | None
    source: Sequence[str]
    target: Sequence[str]
    groups: Sequence[Group]

    def translations(self) -> Iterator[tuple[Group, str, str]]:
        """Groups with sentences on both sides, and their texts, joined by spaces."""
        for group in self.groups:
            if group.source and group.target:
                sides = ((self.source, group.source), (self.target, group.target))
                yield group, *(" ".join(text[i] for i in rows) for text, rows in sides)


def write_groups(
    file: TextIO, documents: Iterable[AlignedDocuments], languages: tuple[str, str]
) -> None:
    """Lines `[0]:[0, 1]:0.123456` as vecalign writes them, after the ids if documents have them.

    Sentences without translation are in a line with an empty list.
    """
    for document in documents:
        ids = "".join(f"{_cell(name)}\t" for name in document.ids or ())
        for source, target, cost in document.groups:
            file.write(f"{ids}{[*source]}:{[*target]}:{cost:.6f}\n")


def write_tsv(
    file: TextIO, documents: Iterable[AlignedDocuments], languages: tuple[str, str]
) -> None:
    """Lines `cost<TAB>source<TAB>target`, of translations only."""
    for document in documents:
        for group, source, target in document.translations():
            file.write(f"{group.cost:.6f}\t{_cell(source)}\t{_cell(target)}\n")


def write_tmx(
    file: TextIO, documents: Iterable[AlignedDocuments], languages: tuple[str, str]
) -> None:
    """A translation memory (TMX 1.4b), of translations only."""
    created = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    file.write(
        '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n'
        '<header creationtool="xling_jax" creationtoolversion="1" segtype="block" '
        f'o-tmf="none" adminlang="en" srclang={quoteattr(languages[0])} datatype="plaintext" '
        f'creationdate="{created}"/>\n<body>\n'
    )
    for document in documents:
        for group, *texts in document.translations():
            file.write(f'<tu><prop type="cost">{group.cost:.6f}</prop>')
            for language, text in zip(languages, texts):
                segment = escape(_NOT_XML.sub(" ", text))
                file.write(f"<tuv xml:lang={quoteattr(language)}><seg>{segment}</seg></tuv>")
            file.write("</tu>\n")
    file.write("</body>\n</tmx>\n")


def _cell(text: str) -> str:
    return " ".join(text.split())


Writer = Callable[[TextIO, Iterable[AlignedDocuments], tuple[str, str]], None]
FORMATS: dict[str, Writer] = {"tsv": write_tsv, "groups": write_groups, "tmx": write_tmx}
