"""Parallel text of two languages from two corpora that share a third."""

import collections
import hashlib
from collections.abc import Iterable, Iterator

from xling_jax.corpora.readers.base import Row


def join_on(
    pivot: str, first: Iterable[Row], second: Iterable[Row], languages: tuple[str, str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Joins two corpora on equal text in the language that they share.

    Texts must be equal character for character. The k-th row of the first corpus with some pivot
    text joins the k-th row of the second with the same text, and rows without a partner are
    dropped: a formula such as "Thank you." that occurs n and m times gives min(n, m) rows, not n m.
    In corpora that follow the same documents in the same order, these are mostly the same places.

    Args:
        pivot: the language that both have.
        first: rows; those without text in both of its languages are skipped.
        second: the same. Its texts are held in memory, with about 250 bytes more for each row.
        languages: the other language of each corpus.

    Yields:
        The line of a row of `first`, and its text and that of its partner by language.
    """
    ours, theirs = languages
    waiting: dict[bytes, list[str]] = collections.defaultdict(list)
    for texts in (row.texts for row in second if {pivot, theirs} <= row.texts.keys()):
        waiting[_key(texts[pivot])].append(texts[theirs])
    for row in (row for row in first if {pivot, ours} <= row.texts.keys()):
        if partners := waiting.get(_key(row.texts[pivot])):
            yield row.line, {ours: row.texts[ours], theirs: partners.pop(0)}


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
