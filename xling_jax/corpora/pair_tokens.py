"""From cleaned text to token shards: drops exact duplicates and tokenizes, pair by pair.

A pair is built in a hidden directory, shard by shard, and takes its name when it is complete; an
interrupted run continues after the finished shards. What a shard holds is planned beforehand from
the text alone, so neither interruptions nor the number of processes change a byte.
"""

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.corpora.pair_text import Member, PairText
from xling_jax.corpora.shards import prepared_array, token_dtype, write_shard
from xling_jax.corpora.summaries import CorpusRows, pair_summary, renamed
from xling_jax.files.whole import naming_errors, read_json, rename_directory, write_json
from xling_jax.text.vocabularies import Vocabulary

SHARD_ROWS = 100_000

# Rows whose hashes are sorted at a time, at about 40 bytes each.
_DEDUPLICATION_ROWS = 1 << 22
_BLOCK_ROWS = 1 << 20


def first_occurrences(
    columns: Sequence[np.ndarray], max_rows: int = _DEDUPLICATION_ROWS
) -> list[np.ndarray]:
    """Marks the first of equal rows over several columns of hashes.

    Args:
        columns: [rows] uint64 each, may be memory-mapped.
        max_rows: about how many hashes to hold in memory; more take several passes, each over one
            range of hash values.

    Returns:
        [rows] bool for each column: False where the same hash occurs before.
    """
    total = sum(map(len, columns))
    keep = np.zeros(total, bool)
    bits = max(0, (max(total, 1) - 1) // max_rows).bit_length()
    for part in range(1 << bits):
        values, positions, start = [], [], 0
        for column in columns:
            for begin in range(0, len(column), _BLOCK_ROWS):
                block = np.asarray(column[begin : begin + _BLOCK_ROWS], np.uint64)
                if bits:
                    where = np.flatnonzero(block >> np.uint64(64 - bits) == part)
                    block = block[where]
                else:
                    where = np.arange(len(block))
                values.append(block)
                positions.append(where + (start + begin))
            start += len(column)
        if values:
            _, first = np.unique(np.concatenate(values), return_index=True)
            keep[np.concatenate(positions)[first]] = True
    return np.split(keep, np.cumsum([len(column) for column in columns])[:-1])


def all_rows(columns: Sequence[np.ndarray]) -> list[np.ndarray]:
    """As `first_occurrences`, with every row marked."""
    return [np.ones(len(column), bool) for column in columns]


@dataclasses.dataclass(frozen=True)
class PairPlan:
    """What the tokens of one pair are made from.

    Args:
        pair: two codes in alphabetical order, joined by a hyphen.
        fingerprint: of everything the tokens depend on.
        corpora: name and text of each corpus, in the order of the config.
        keep: gives the rows of each corpus to keep, [rows] bool; called only when needed.
        num_aside: gives the number of rows of each corpus that are neither kept nor duplicates.
    """

    pair: str
    fingerprint: str
    corpora: tuple[tuple[str, PairText], ...]
    keep: Callable[[], Sequence[np.ndarray]]
    num_aside: Callable[[], Sequence[int]] | None = None


@dataclasses.dataclass(frozen=True)
class Shard:
    """Members of one corpus that become one shard of a pair.

    Attributes:
        directory: where the pair is built.
        pair, corpus: their names.
        number: of the shard, from 0.
        members: in order.
        keep: `.npy` file with the rows of the corpus to keep, [rows] bool.
    """

    directory: Path
    pair: str
    number: int
    corpus: str
    members: tuple[Member, ...]
    keep: Path

    @property
    def path(self) -> Path:
        """The shard's directory."""
        return self.directory / f"{self.number:05d}"

    def counts(self) -> dict[str, Any] | None:
        """Counts of a finished shard, None while there is none."""
        return read_json(self.path.with_suffix(".json"))


class ShardWriter:
    """Tokenizes and writes a shard; runs in a worker process.

    Args:
        vocab: the vocabulary.
        max_tokens: maximum pieces of a side; 0 for no limit.
    """

    def __init__(self, vocab: Vocabulary, max_tokens: int):
        self._vocab, self._max_tokens = vocab, max_tokens

    def __call__(self, shard: Shard) -> None:
        """Writes a shard, then its counts, whose presence says that the shard is complete."""
        what, way_out = "missing or damaged rows to keep", "run the same command again"
        with prepared_array(shard.keep, what, way_out) as keep:
            if keep.dtype != bool:
                raise ValueError(f"found {keep.dtype}")
        parts = [self._tokenize(member, keep[member.rows]) for member in shard.members]
        lengths = np.concatenate([lengths for _, lengths, _ in parts], axis=1)
        offsets = np.zeros((2, lengths.shape[1] + 1), np.int64)
        np.cumsum(lengths, axis=1, out=offsets[:, 1:])
        languages = shard.pair.split("-")
        if lengths.shape[1]:
            columns = {
                language: (np.concatenate([flat[side] for flat, _, _ in parts]), offsets[side])
                for side, language in enumerate(languages)
            }
            write_shard(shard.path, columns)
        counts = {
            "rows": lengths.shape[1],
            "too_many_tokens": sum(num_too_many for _, _, num_too_many in parts),
            "tokens": dict(zip(languages, lengths.sum(axis=1).tolist(), strict=True)),
        }
        write_json(shard.path.with_suffix(".json"), counts)

    def _tokenize(
        self, member: Member, keep: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray, int]:
        """Flat ids of both sides, their [2, rows] lengths, and the number of rows too long."""
        rows, sides, lengths, fits = self._encode(member, keep)
        flat = [
            np.concatenate(
                [ids for ids, fit in zip(side, fits, strict=True) if fit] or [[]]
            ).astype(token_dtype(self._vocab.size))
            for side in sides
        ]
        return flat, lengths[:, fits], int(len(rows) - fits.sum())

    def rows(self, member: Member, keep: np.ndarray) -> list[tuple[str, str]]:
        """The rows of a member that a shard holds, as text."""
        rows, _, _, fits = self._encode(member, keep)
        return [row for row, fit in zip(rows, fits, strict=True) if fit]

    def _encode(
        self, member: Member, keep: np.ndarray
    ) -> tuple[list[tuple[str, str]], list[list[list[int]]], np.ndarray, np.ndarray]:
        """The rows to keep, the ids of both sides, their [2, rows] lengths, and which rows fit."""
        rows = [row for row, kept in zip(member.read(), keep, strict=True) if kept]
        # One thread: there are as many processes as cores already.
        sides = [
            self._vocab.encode([row[side] for row in rows], num_threads=1) for side in range(2)
        ]
        lengths = np.asarray([[len(ids) for ids in side] for side in sides], np.int64)
        lengths = lengths.reshape(2, len(rows))
        # A text of characters that SentencePiece's own normalization removes has no pieces.
        fits = (lengths > 0).all(axis=0)
        if self._max_tokens:
            fits &= (lengths <= self._max_tokens).all(axis=0)
        return rows, sides, lengths, fits


def read_summary(directory: Path, fingerprint: str) -> dict | None:
    """The counts of a finished pair; None if it is missing or made from something else."""
    content = read_json(directory / "pair.json")
    return content if content and content.get("fingerprint") == fingerprint else None


def summary_of(directory: Path, plan: PairPlan) -> dict | None:
    """The counts of a finished pair by the names that its corpora have in the plan.

    None if it is missing, made from something else, or its counts are not told apart: until 0.3
    the names had no order.
    """
    names = [name for name, text in plan.corpora if text.num_rows.get(plan.pair)]
    summary = read_summary(directory / plan.pair, plan.fingerprint)
    if not summary or not ("names" in summary or summary["corpora"].keys() >= {*names}):
        return None
    return renamed(summary, names)


def write_pair_tokens(
    directory: Path,
    plans: Sequence[PairPlan],
    write_all: Callable[[Sequence[Shard]], Iterable[Any]],
) -> None:
    """Writes the shards of pairs, `DIR/a-b/00000` and so on, as far as they are missing.

    `write_all` calls a `ShardWriter` for each shard, and yields as often in the same order.

    Raises:
        OSError: naming a path, if writing fails.
        ValueError: if nothing is left of a pair.
    """
    plans = [p for p in plans if not summary_of(directory, p)]
    shards = {plan.pair: list(_plan_shards(directory, plan)) for plan in plans}
    missing = {pair: [s for s in shards[pair] if s.counts() is None] for pair in shards}
    written = iter(write_all(sum(missing.values(), [])))
    for plan in plans:
        for _ in missing[plan.pair]:
            next(written)
        _finish(directory, plan, shards[plan.pair])
    for _ in written:  # so that its processes end
        pass


def _plan_shards(directory: Path, plan: PairPlan) -> Iterator[Shard]:
    """Groups consecutive members of a corpus until about `SHARD_ROWS` rows are kept."""
    partial, number = _partial(directory, plan), 0
    for path in directory.glob(f".{plan.pair}.*.partial"):
        if path != partial:  # interrupted with other settings
            shutil.rmtree(path, ignore_errors=True)
    partial.mkdir(parents=True, exist_ok=True)
    for index, ((corpus, text), keep) in enumerate(zip(plan.corpora, plan.keep(), strict=True)):
        file = partial / f".keep-{index}.npy"
        with naming_errors(file):
            np.save(file, keep)
        members = ((int(keep[m.rows].sum()), m) for m in text.members(plan.pair))
        for group in grouped(members):
            yield Shard(partial, plan.pair, number, corpus, tuple(group), file)
            number += 1


def grouped(members: Iterable[tuple[int, Any]]) -> Iterator[list[Any]]:
    """Groups the consecutive members of a corpus, each with its rows to keep, into shards.

    A shard ends before the member with which it would have more than `SHARD_ROWS` rows; members
    of which nothing is kept are left out.
    """
    group, num_rows = [], 0
    for num_kept, member in members:
        if group and num_rows + num_kept > SHARD_ROWS:
            yield group
            group, num_rows = [], 0
        if num_kept:
            group.append(member)
            num_rows += num_kept
    if group:
        yield group


def _partial(directory: Path, plan: PairPlan) -> Path:
    return directory / f".{plan.pair}.{plan.fingerprint}.partial"


def _finish(directory: Path, plan: PairPlan, shards: Sequence[Shard]) -> None:
    """Sums the counts of a pair's shards and gives the pair its name."""
    partial = _partial(directory, plan)
    aside = plan.num_aside() if plan.num_aside else [None] * len(plan.corpora)
    corpora = {
        name: CorpusRows(text.num_rows.get(plan.pair, 0), int(keep.sum()), num_aside)
        for (name, text), keep, num_aside in zip(plan.corpora, plan.keep(), aside, strict=True)
    }
    summary = pair_summary(plan.pair, corpora, ((s.corpus, s.counts()) for s in shards))
    write_json(partial / "pair.json", {"fingerprint": plan.fingerprint, **summary})
    for hidden in partial.glob(".*"):  # rows to keep, and what killed processes left
        shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()
    rename_directory(partial, directory / plan.pair)
