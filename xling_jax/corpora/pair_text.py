r"""Cleaned text of one corpus, by language pair, on disk.

What reading and cleaning leave behind, so that another vocabulary, another corpus or an interrupted
run costs no second pass over the raw text:

    DIR/de-en.tsv.gz    rows "de\ten\n", one gzip member for each chunk of rows
    DIR/de-en.hashes    [rows] uint64 little-endian, equal for equal rows
    DIR/text.json       counts, and the members' sizes

Since the members are independent, processes compress and read them alone, and the bytes do not
depend on how many there are.
"""

import collections
import dataclasses
import gzip
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from xling_jax.corpora.cleaning import REASONS, RowCleaner
from xling_jax.corpora.readers.rows import Row
from xling_jax.files.whole import atomic_directory, naming_errors, read_json, write_json
from xling_jax.files.workers import map_in_order

# Part of every fingerprint: raise it when the files or the rules change their meaning.
FORMAT_VERSION = 1

# A chunk of rows goes to a process as one message and becomes one gzip member.
_CHUNK_ROWS = 10_000
_CHUNK_CHARS = 8_000_000
_COMPRESSION_LEVEL = 1
_MAX_LOGGED_PROBLEMS = 3

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Member:
    """One gzip member of a pair's text: where it stands in the file, and its rows."""

    path: str
    start: int
    size: int
    first_row: int
    num_rows: int

    def read(self) -> list[tuple[str, str]]:
        """Reads the rows, each two texts in the order of the pair."""
        with open(self.path, "rb") as file:
            file.seek(self.start)
            text = gzip.decompress(file.read(self.size)).decode("utf-8")
        return [tuple(line.split("\t")) for line in text.split("\n")[:-1]]


class PairText:
    """Reads the directory `write_pair_text` made.

    Args:
        directory: the directory.

    Attributes:
        counts: pair -> reason (and "read", "kept", "invisible_characters") -> rows.
        num_rows: pair -> rows.
    """

    def __init__(self, directory: Path):
        self._directory = directory
        content = read_json(directory / "text.json")
        if content is None:
            raise ValueError(f"{directory / 'text.json'}: missing or damaged; remove {directory}")
        self.counts: dict[str, dict[str, int]] = content["counts"]
        self._members: dict[str, list[list[int]]] = content["members"]
        self.num_rows = {
            pair: sum(rows for _, rows in members) for pair, members in self._members.items()
        }

    def hashes(self, pair: str) -> np.ndarray:
        """[rows] uint64, memory-mapped; empty for a pair this corpus does not have."""
        if not self.num_rows.get(pair):
            return np.zeros(0, "<u8")
        return np.memmap(self._directory / f"{pair}.hashes", "<u8", mode="r")

    def members(self, pair: str) -> Iterator[Member]:
        """The chunks of a pair's text, in order."""
        start = first_row = 0
        for size, num_rows in self._members.get(pair, []):
            path = str(self._directory / f"{pair}.tsv.gz")
            yield Member(path, start, size, first_row, num_rows)
            start, first_row = start + size, first_row + num_rows


def is_finished(directory: Path) -> bool:
    """Whether a directory holds a whole cleaned corpus."""
    return read_json(directory / "text.json") is not None


def write_pair_text(
    rows: Iterable[Row], directory: Path, cleaner: RowCleaner, *, where: str, num_workers: int
) -> None:
    """Cleans a corpus and writes its text by pair, whole or not at all.

    Args:
        rows: the corpus, read once.
        directory: where to write.
        cleaner: the rules.
        where: what the user calls the corpus, for messages.
        num_workers: processes that clean; the bytes do not depend on it.

    Raises:
        ValueError: if nothing is left, with the reasons and their counts.
        OSError: from reading or writing.
    """
    counter = RowCounter(where)
    chunks = map_in_order(ChunkCleaner(cleaner), counter.chunks(rows), num_workers)
    join_chunks(chunks, directory, counter)


def join_chunks(
    chunks: Iterable[Mapping[str, "ChunkPart"]], directory: Path, counter: "RowCounter"
) -> None:
    """Writes cleaned chunks as the text of one corpus, whole or not at all.

    Args:
        chunks: what `ChunkCleaner` made of each chunk, in the order of the corpus.
        directory: where to write.
        counter: has counted the rows once the chunks are used up.

    Raises:
        ValueError: if nothing is left, with the reasons and their counts.
        OSError: from writing.
    """
    members: dict[str, list[list[int]]] = collections.defaultdict(list)
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    with atomic_directory(directory) as temporary:
        for chunk in chunks:
            for pair, result in chunk.items():
                counts[pair].update(result.counts)
                if result.num_rows:
                    members[pair].append([len(result.text), result.num_rows])
                    _append(temporary / f"{pair}.tsv.gz", result.text)
                    _append(temporary / f"{pair}.hashes", result.hashes)
        totals = {pair: counter.total(pair, counts[pair]) for pair in sorted(counts)}
        if not any(total["kept"] for total in totals.values()):
            raise ValueError(counter.explain_nothing(totals))
        write_json(temporary / "text.json", {"counts": totals, "members": members})


def _append(path: Path, content: bytes) -> None:
    with naming_errors(path), open(path, "ab") as file:
        file.write(content)


@dataclasses.dataclass
class ChunkPart:
    """What one chunk gives for one pair: a gzip member, hashes, and counts."""

    text: bytes
    hashes: bytes
    num_rows: int
    counts: collections.Counter


class ChunkCleaner:
    """Cleans and compresses a chunk of rows; runs in a worker process."""

    def __init__(self, cleaner: RowCleaner):
        self._cleaner = cleaner

    def __call__(self, chunk: Sequence[Mapping[str, str]]) -> dict[str, ChunkPart]:
        """Returns the parts by pair, of `chunk`, a list of language -> text."""
        lines: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        hashes: dict[tuple[str, str], list[bytes]] = collections.defaultdict(list)
        counts: dict[tuple[str, str], collections.Counter] = collections.defaultdict(
            collections.Counter
        )
        for texts in chunk:
            for pair, reason, first, second in self._cleaner.clean(texts):
                counts[pair][reason or "kept"] += 1
                if reason is None:
                    line = f"{first.text}\t{second.text}\n"
                    lines[pair].append(line)
                    # Case counts as little here as in the vocabulary's usual preprocessing.
                    key = line.lower().encode()
                    hashes[pair].append(hashlib.blake2b(key, digest_size=8).digest())
                    if first.had_invisible or second.had_invisible:
                        counts[pair]["invisible_characters"] += 1
        return {
            "-".join(pair): ChunkPart(
                # mtime=0: the time of day must not get into the bytes.
                gzip.compress("".join(lines[pair]).encode(), _COMPRESSION_LEVEL, mtime=0),
                b"".join(hashes[pair]),
                len(lines[pair]),
                counts[pair],
            )
            for pair in counts
        }


@dataclasses.dataclass
class _FileCount:
    num_rows: int = 0
    languages: set[str] = dataclasses.field(default_factory=set)
    problems: collections.Counter = dataclasses.field(default_factory=collections.Counter)


class RowCounter:
    """Counts the rows of a corpus by file, on their way to the cleaner.

    Args:
        where: what the user calls the corpus, for messages.
    """

    def __init__(self, where: str):
        self._where = where
        self._files: dict[str, _FileCount] = collections.defaultdict(_FileCount)
        self._num_problems = 0

    def chunks(self, rows: Iterable[Row]) -> Iterator[list[Mapping[str, str]]]:
        """Groups the texts of usable rows; where a chunk ends depends on the rows alone."""
        chunk, num_chars = [], 0
        for texts, file, line, problem in rows:
            count = self._files[file]
            count.num_rows += 1
            if problem:
                count.problems[problem] += 1
                self._log(file, line, problem)
                continue
            count.languages.update(texts)
            if len(texts) < 2:
                continue
            chunk.append(texts)
            num_chars += sum(map(len, texts.values()))
            if len(chunk) >= _CHUNK_ROWS or num_chars >= _CHUNK_CHARS:
                yield chunk
                chunk, num_chars = [], 0
        if chunk:
            yield chunk

    def total(self, pair: str, counts: collections.Counter) -> dict[str, int]:
        """Adds what the cleaner does not see: broken rows, and rows without one of the sides.

        Returns:
            The counts of a pair over the files that have both languages. "read" is the sum of
            "kept" and all reasons.
        """
        files = [f for f in self._files.values() if f.languages.issuperset(pair.split("-"))]
        total = collections.Counter(counts)
        for file in files:
            total.update(file.problems)
        total["read"] = sum(file.num_rows for file in files)
        seen = total["kept"] + sum(total[reason] for reason in REASONS)
        total["empty"] += total["read"] - seen
        return {name: total[name] for name in ("read", "kept", "invisible_characters", *REASONS)}

    def explain_nothing(self, totals: Mapping[str, Mapping[str, int]]) -> str:
        """Says why no row is left."""
        num_rows = sum(file.num_rows for file in self._files.values())
        if not num_rows:
            return f"{self._where}: no rows; give a corpus with text or take it out of data.corpora"
        if not totals:
            languages = set().union(*(file.languages for file in self._files.values()))
            problems = sum((file.problems for file in self._files.values()), collections.Counter())
            found = f"texts in {', '.join(sorted(languages))}" if languages else "only blank rows"
            broken = "".join(f", {count} {problem}" for problem, count in problems.items())
            return (
                f"{self._where}: none of {num_rows} rows holds both languages of a pair in "
                f"data.pairs; found {found}{broken}"
            )
        dropped = sum((collections.Counter(total) for total in totals.values()), start=_NO_COUNT)
        reasons = ", ".join(f"{dropped[r]} {r}" for r in REASONS if dropped[r])
        return (
            f"{self._where}: cleaning dropped every row ({reasons}); relax the cleaning section "
            "or take the corpus out of data.corpora"
        )

    def _log(self, file: str, line: int, problem: str) -> None:
        self._num_problems += 1
        if self._num_problems <= _MAX_LOGGED_PROBLEMS:
            _logger.warning("%s:%d: %s, row dropped", file, line, problem.replace("_", " "))
        if self._num_problems == _MAX_LOGGED_PROBLEMS + 1:
            _logger.warning("%s: more broken rows; their number is in counts.json", file)


_NO_COUNT: collections.Counter = collections.Counter()
