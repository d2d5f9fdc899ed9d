"""Steps of the pipeline that decide which rows are kept, and in which shard they are."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from xling_jax.corpora import pair_text
from xling_jax.corpora.beam.cleaning import Job, Key, read_piece
from xling_jax.corpora.pair_tokens import grouped
from xling_jax.corpora.summaries import CorpusRows

# What rows are for.
TRAINING, VALIDATION = "training", "validation"


class Kept(NamedTuple):
    """The rows of a piece that are kept of one pair.

    Attributes:
        piece: its key.
        path: of its text.
        num_rows: all of the pair.
        num_aside: taken out for the validation loss; None if that is not done.
        keep: [num_rows] bits.
        chunks: (chunk of `pair_text`, its last row in the piece + 1), ascending.
    """

    piece: Key
    path: str
    num_rows: int
    num_aside: int | None
    keep: bytes
    chunks: tuple[tuple[int, int], ...]

    def mask(self) -> np.ndarray:
        """[num_rows] bool, the rows that are kept."""
        return np.unpackbits(np.frombuffer(self.keep, np.uint8), count=self.num_rows).astype(bool)


class Stretch(NamedTuple):
    """Rows of a piece that go into one shard.

    Attributes:
        path: of the text of the piece.
        num_rows: of the piece.
        start: the first of them, kept or not.
        keep: bits, from `start` on.
        size: number of bits.
    """

    path: str
    num_rows: int
    start: int
    keep: bytes
    size: int

    def mask(self) -> np.ndarray:
        """[num_rows] bool, the rows that are kept."""
        mask = np.zeros(self.num_rows, bool)
        bits = np.unpackbits(np.frombuffer(self.keep, np.uint8), count=self.size)
        mask[self.start : self.start + self.size] = bits
        return mask


def find_duplicates(
    group: tuple[bool, str, int], found: Iterable[tuple[Key, bytes, bytes]]
) -> Iterator[tuple[Key, tuple[str, bytes]]]:
    """Finds the rows whose hash occurs before; yields (piece, (pair, rows)).

    Args:
        group: whether the rows are for training, their pair, and a part of the values of hashes.
        found: hashes and rows of a piece that are in the group.
    """
    for piece, hashes, rows in _marked(found):
        if len(rows := rows[~hashes]):
            yield piece, (group[1], rows.tobytes())


def smallest_hashes(
    count: int, group: tuple[bool, str, int], found: Iterable[tuple[Key, bytes, bytes]]
) -> Iterator[tuple[str, tuple[int, bytes]]]:
    """Yields (pair, (number of different hashes, the smallest)) of a group."""
    if group[0]:
        hashes = np.unique(np.concatenate([np.frombuffer(one, "<u8") for _, one, _ in found]))
        yield group[1], (len(hashes), hashes[:count].tobytes())


def merge_smallest(count: int, found: Iterable[tuple[int, bytes]]) -> tuple[int, bytes]:
    """Merges what `smallest_hashes` yields of several groups."""
    found = list(found)
    hashes = np.sort(np.frombuffer(b"".join(one for _, one in found), "<u8"))
    return sum(number for number, _ in found), hashes[:count].tobytes()


def mark_chunks(
    corpus: int, found: Iterable[tuple[int, int, bytes]]
) -> Iterator[tuple[Key, tuple[int, bytes]]]:
    """Finds where the chunks of `RowCounter.chunks` would end, had one process read the corpus.

    Args:
        corpus: its number.
        found: part, number, and characters of each row, of each piece.

    Yields:
        The key of a piece, the chunk that its first row may continue, and the places in the piece
        at which others begin.
    """
    chunk, rows, chars = 0, 0, 0  # the open chunk, and what it holds
    for part, number, packed in sorted(found):
        lengths = np.frombuffer(packed, "<u4")
        ends = np.cumsum(lengths, dtype=np.int64)
        first, begins, place = chunk, [], 0
        while place < len(lengths):
            # The row with which a chunk is full is its last.
            before = int(ends[place - 1]) if place else 0
            by_chars = int(np.searchsorted(ends, before + pair_text.CHUNK_CHARS - chars)) + 1
            end = min(place + pair_text.CHUNK_ROWS - rows, by_chars)
            if end > len(lengths):
                rows, chars = rows + len(lengths) - place, chars + int(ends[-1]) - before
                break
            chunk, rows, chars, place = chunk + 1, 0, 0, end
            begins.append(end)
        yield (corpus, part, number), (first, np.asarray(begins, "<u4").tobytes())


def keep_rows(
    job: Job,
    piece: Key,
    found: Mapping[str, Iterable[Any]],
    limits: Mapping[str, tuple[int, bytes]],
) -> Iterator[tuple[tuple[str, str], tuple]]:
    """Yields ((what for, pair), `Kept`) of a piece, as tuples.

    Args:
        job: what all steps know.
        piece: its key.
        found: `pieces`, `duplicates` and `chunks`, as the steps before yield them.
        limits: pair -> `merge_smallest`, if rows are taken out for the validation loss.
    """
    (key,) = found["pieces"]
    ((first_chunk, begins),) = found["chunks"]
    begins = np.frombuffer(begins, "<u4")
    duplicates: dict[str, list[np.ndarray]] = {}
    for pair, rows in found["duplicates"]:
        duplicates.setdefault(pair, []).append(np.frombuffer(rows, "<u4"))
    for pair, one in read_piece(job, key, piece).items():
        size = len(one.hashes)
        first = np.ones(size, bool)
        for rows in duplicates.get(pair, ()):
            first[rows] = False
        chunks = first_chunk + np.searchsorted(begins, one.places, side="right")
        numbers, starts = np.unique(chunks, return_index=True)
        ends = tuple(zip(numbers.tolist(), [*starts[1:].tolist(), size]))
        keep = first if job.settings.cleaning.drop_duplicates else np.ones(size, bool)
        held = num_aside = None
        if not job.is_training(piece[0]):
            yield (VALIDATION, pair), _kept(piece, one.path, None, first, ends)
            continue
        if pair in limits:
            held = one.hashes <= np.frombuffer(limits[pair][1], "<u8")[-1]
            num_aside, keep = int(held.sum()), keep & ~held
            yield (VALIDATION, pair), _kept(piece, one.path, None, held & first, ends)
        yield (TRAINING, pair), _kept(piece, one.path, num_aside, keep, ends)


def count_rows(kept: Iterable[tuple]) -> dict[int, CorpusRows]:
    """Adds the rows of a pair by corpus."""
    totals: dict[int, CorpusRows] = {}
    for one in map(Kept._make, kept):
        corpus = one.piece[0]
        rows, num_kept, aside = totals.get(corpus, CorpusRows(0, 0, None))
        if one.num_aside is not None:
            aside = (aside or 0) + one.num_aside
        totals[corpus] = CorpusRows(rows + one.num_rows, num_kept + int(one.mask().sum()), aside)
    return totals


def plan_shards(kept: Iterable[tuple]) -> Iterator[tuple[int, list[Stretch]]]:
    """Yields the corpus and the rows of each shard of a pair, in order."""
    by_corpus: dict[int, list[Kept]] = {}
    for one in sorted(map(Kept._make, kept)):
        by_corpus.setdefault(one.piece[0], []).append(one)
    for corpus, pieces in by_corpus.items():
        members: dict[int, tuple[int, list[Stretch]]] = {}
        for one in pieces:
            mask, start = one.mask(), 0
            for chunk, end in one.chunks:
                bits = mask[start:end]
                packed = np.packbits(bits).tobytes()
                stretch = Stretch(one.path, one.num_rows, start, packed, end - start)
                before, stretches = members.get(chunk, (0, []))
                members[chunk] = (before + int(bits.sum()), [*stretches, stretch])
                start = end
        for shard in grouped(members[chunk] for chunk in sorted(members)):
            yield corpus, [stretch for stretches in shard for stretch in stretches]


def _kept(piece: Key, path: str, num_aside: int | None, keep: np.ndarray, chunks: tuple) -> tuple:
    return tuple(Kept(piece, path, len(keep), num_aside, np.packbits(keep).tobytes(), chunks))


def _marked(
    found: Iterable[tuple[Key, bytes, bytes]],
) -> Iterator[tuple[Key, np.ndarray, np.ndarray]]:
    """Pieces in order, with which of their rows are the first of their hash, and the rows."""
    found = sorted(found)
    hashes = np.frombuffer(b"".join(one for _, one, _ in found), "<u8")
    is_first = np.zeros(len(hashes), bool)
    is_first[np.unique(hashes, return_index=True)[1]] = True
    start = 0
    for piece, _, packed in found:
        rows = np.frombuffer(packed, "<u4")
        yield piece, is_first[start : start + len(rows)], rows
        start += len(rows)
