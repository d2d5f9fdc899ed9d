r"""Cleaned text of one corpus, by language pair, on disk.

It is kept so that another vocabulary, another corpus or an interrupted run need no second pass over
the raw text:

    DIR/de-en.tsv.gz    rows "de\ten\n", one gzip member for each chunk of rows
    DIR/de-en.hashes    [rows] uint64 little-endian, equal for equal rows
    DIR/text.json       counts, and the sizes of the members

Members are independent, so each is compressed and read by one process, and the bytes do not depend
on the number of processes.
"""

import collections
import dataclasses
import gzip
import hashlib
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.corpora.cleaning import REASONS, RowCleaner
from xling_jax.corpora.readers.base import Row
from xling_jax.corpora.stages import Stage
from xling_jax.files.lines import BROKEN_UTF8, PROBLEMS
from xling_jax.files.whole import naming_errors

# A chunk of rows goes to a process as one message and becomes one gzip member.
CHUNK_ROWS = 10_000
CHUNK_CHARS = 8_000_000
_COMPRESSION_LEVEL = 1
_MAX_LOGGED_PROBLEMS = 3
_LATIN1 = "if it is Latin-1, convert it with iconv -f ISO-8859-1 -t UTF-8"
# Begins the name of a count; the fingerprint of the file that holds the rows out follows.
_HELD_OUT_BY = "held_out_by:"

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class SelectedRows:
    """Rows of a chunk, which may be read by another process.

    Its gzip member is in the file `path` from byte `start` on, of `size` bytes; `bits` has one for
    each of its `total` rows, and selects `num_rows`.
    """

    path: str
    start: int
    size: int
    total: int
    bits: bytes
    num_rows: int

    def read(self) -> list[tuple[str, str]]:
        """Reads the rows, each two texts in the order of the pair."""
        with open(self.path, "rb") as file:
            file.seek(self.start)
            content = file.read(self.size)
        lines = gzip.decompress(content).decode("utf-8").split("\n")
        mask = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.total)
        return [tuple(lines[row].split("\t")) for row in np.flatnonzero(mask)]


class PairText:
    """The cleaned text of a corpus, of a finished stage.

    Attributes:
        key: of the stage.
        counts: pair -> reason (and "read", "kept", "invisible_characters") -> rows.
        held_out_by: pair -> fingerprint of a file -> rows that repeat one of its texts.
        num_rows: pair -> rows.
    """

    def __init__(self, stage: Stage):
        self._directory, self.key = stage.directory, stage.key
        if (record := stage.read()) is None:
            path = stage.directory / stage.record
            raise ValueError(f"{path}: missing or damaged; remove {stage.directory}")
        self.counts: dict[str, dict[str, int]] = {}
        self.held_out_by: dict[str, dict[str, int]] = {}
        for pair, counts in record["counts"].items():
            by = sorted(name for name in counts if name.startswith(_HELD_OUT_BY))
            self.held_out_by[pair] = {n.removeprefix(_HELD_OUT_BY): counts.pop(n) for n in by}
            self.counts[pair] = counts
        self._members: dict[str, list[list[int]]] = record["members"]
        self.num_rows = {
            pair: sum(rows for _, rows in members) for pair, members in self._members.items()
        }

    def check_broken(self, name: str, most: float) -> None:
        """Raises ValueError if more than one row, and more than this share of a pair, is broken."""
        for pair, counts in self.counts.items():
            broken = {what: counts[what] for what in PROBLEMS if counts.get(what)}
            if (total := sum(broken.values())) <= max(1, most * counts["read"]):
                continue
            found = ", ".join(f"{count} {what}" for what, count in broken.items())
            way_out = _LATIN1 if BROKEN_UTF8 in broken else "correct them"
            enough = math.ceil(100 * total / counts["read"]) / 100
            raise ValueError(
                f"{name}: {total} of {counts['read']} rows of {pair} are broken ({found}); "
                f"{way_out}, or allow more with --config.data.max_broken_share={enough}"
            )

    def hashes(self, pair: str) -> np.ndarray:
        """[rows] uint64, memory-mapped; empty for a pair that this corpus does not have."""
        if not self.num_rows.get(pair):
            return np.zeros(0, "<u8")
        return np.memmap(self._directory / f"{pair}.hashes", "<u8", mode="r")

    def select(self, pair: str, mask: np.ndarray) -> Iterator[SelectedRows]:
        """Selects rows of a pair by a mask, [rows] bool; yields those of each chunk, in order."""
        start = first_row = 0
        path = str(self._directory / f"{pair}.tsv.gz")
        for size, total in self._members.get(pair, []):
            chosen = mask[first_row : first_row + total]
            bits = np.packbits(chosen).tobytes()
            yield SelectedRows(path, start, size, total, bits, int(chosen.sum()))
            start, first_row = start + size, first_row + total


class PairChunk(NamedTuple):
    """The rows of a chunk that are kept for one pair.

    `text` is a gzip member; `hashes` are of its rows, uint64 each.
    """

    text: bytes
    hashes: bytes
    counts: Mapping[str, int]
    num_rows: int


def write_pair_text(
    chunks: Iterable[Mapping[str, PairChunk]], directory: Path, counter: "RowCounter"
) -> dict[str, Any]:
    """Writes the chunks of a corpus to an empty directory; returns the record of the stage.

    The `counter` has counted the rows once the chunks are used up.
    """
    members: dict[str, list[Sequence[int]]] = collections.defaultdict(list)
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for chunk in chunks:
        for pair, found in chunk.items():
            counts[pair].update(found.counts)
            if found.hashes:
                members[pair].append((len(found.text), found.num_rows))
                _append(directory / f"{pair}.tsv.gz", found.text)
                _append(directory / f"{pair}.hashes", found.hashes)
    return {"counts": counter.totals(counts), "members": members}


def _append(path: Path, content: bytes) -> None:
    with naming_errors(path), open(path, "ab") as file:
        file.write(content)


class ChunkCleaner:
    """Cleans and compresses a chunk of rows; runs in a worker process."""

    def __init__(self, cleaner: RowCleaner):
        self._cleaner, self.min_languages = cleaner, cleaner.min_languages

    def __call__(self, chunk: Sequence[Mapping[str, str]]) -> dict[str, PairChunk]:
        """Returns the result for each pair of `chunk`, a list of language -> text."""
        lines: dict[str, list[str]] = collections.defaultdict(list)
        hashes: dict[str, list[bytes]] = collections.defaultdict(list)
        counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        for texts in chunk:
            for codes, reason, first, second in self._cleaner.clean(texts):
                pair = "-".join(codes)
                counts[pair][reason or "kept"] += 1
                if reason == "held_out":
                    counts[pair][_HELD_OUT_BY + first.held_out_by] += 1
                if reason is None:
                    line = f"{first.text}\t{second.text}\n"
                    lines[pair].append(line)
                    # Case is ignored, as it usually is in the vocabulary.
                    key = line.lower().encode()
                    hashes[pair].append(hashlib.blake2b(key, digest_size=8).digest())
                    if first.had_invisible or second.had_invisible:
                        counts[pair]["invisible_characters"] += 1
        found = {}
        for pair in counts:
            # mtime=0 keeps the time of day out of the bytes.
            text = gzip.compress("".join(lines[pair]).encode(), _COMPRESSION_LEVEL, mtime=0)
            found[pair] = PairChunk(text, b"".join(hashes[pair]), counts[pair], len(lines[pair]))
        return found


class RowCounter:
    """Counts the rows of a corpus by file, on their way to the cleaner.

    Attributes:
        files: file -> its number of rows, its languages, and problem -> rows.
    """

    def __init__(self, where: str, files: Mapping[str, dict[str, Any]] | None = None):
        self._where, self._num_problems = where, 0
        self.files: dict[str, dict[str, Any]] = dict(files or {})

    def chunks(
        self, rows: Iterable[Row], min_languages: int = 2
    ) -> Iterator[list[Mapping[str, str]]]:
        """Groups the texts of usable rows."""
        chunk, num_chars = [], 0
        for texts, file, line, problem, broken_file, detail in rows:
            if (count := self.files.get(file)) is None:
                count = self.files[file] = {"rows": 0, "languages": {}, "problems": {}}
            count["rows"] += 1
            if problem:
                count["problems"][problem] = count["problems"].get(problem, 0) + 1
                self._log(broken_file or file, line, detail or problem.replace("_", " "))
                continue
            for language in texts:
                count["languages"][language] = True
            if len(texts) < min_languages:
                continue
            chunk.append(texts)
            num_chars += sum(map(len, texts.values()))
            if len(chunk) >= CHUNK_ROWS or num_chars >= CHUNK_CHARS:
                yield chunk
                chunk, num_chars = [], 0
        if chunk:
            yield chunk

    def totals(self, counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """The counts of the pairs that the cleaner counted, over the files with both languages.

        Adds what the cleaner does not see: broken rows, and rows without one of the sides. "read"
        is the sum of "kept" and all reasons.
        """
        totals = {}
        for pair in sorted(counts):
            total = collections.Counter(counts[pair])
            total["read"] = 0
            for file in self.files.values():
                if file["languages"].keys() >= set(pair.split("-")):
                    total["read"] += file["rows"]
                    total.update(file["problems"])
            total["empty"] += total["read"] - sum(total[name] for name in ("kept", *REASONS))
            names = ("read", "kept", "invisible_characters", *REASONS)
            names += tuple(name for name in total if name.startswith(_HELD_OUT_BY))
            totals[pair] = {name: total[name] for name in names}
        if not any(total["kept"] for total in totals.values()):
            raise ValueError(self._explain_nothing(totals))
        return totals

    def _explain_nothing(self, totals: Mapping[str, Mapping[str, int]]) -> str:
        """Says why no row is left."""
        if totals:
            dropped = sum(map(collections.Counter, totals.values()), start=collections.Counter())
            reasons = ", ".join(f"{dropped[r]} {r}" for r in REASONS if dropped[r])
            way_out = "relax the cleaning section"
            if dropped["held_out"] == sum(dropped[reason] for reason in REASONS):
                way_out = "evaluate on other text"
            return (
                f"{self._where}: cleaning dropped every row ({reasons}); {way_out} or take the "
                "corpus out of data.corpora"
            )
        files = self.files.values()
        found = sorted(set().union(*({*f["languages"], *f["problems"]} for f in files)))
        way_out = f"; {_LATIN1}" if BROKEN_UTF8 in found else ""
        return (
            f"{self._where}: none of {sum(file['rows'] for file in files)} rows has both languages "
            f"of a pair in data.pairs; found {', '.join(found) or 'only blank rows'}{way_out}"
        )

    def _log(self, file: str, line: int, what: str) -> None:
        self._num_problems += 1
        if self._num_problems <= _MAX_LOGGED_PROBLEMS:
            _logger.warning("%s:%d: %s, row dropped", file, line, what)
        if self._num_problems == _MAX_LOGGED_PROBLEMS + 1:
            _logger.warning("%s: more broken rows; counts.json has their number", file)
