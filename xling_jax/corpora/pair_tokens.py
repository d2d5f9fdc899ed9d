"""From cleaned text to token shards: drops exact duplicates and tokenizes, pair by pair.

A pair is built in a hidden directory, shard by shard, and takes its name when it is complete; an
interrupted run continues after the finished shards. What a shard holds is planned beforehand from
the text alone, so neither interruptions nor the number of processes change a byte.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.corpora.options import Preparation
from xling_jax.corpora.pair_text import PairText, SelectedRows
from xling_jax.corpora.shards import file_hashes, token_dtype, write_shard
from xling_jax.corpora.stages import Stage
from xling_jax.files.whole import read_json, write_json
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


class RowChoice:
    """Which rows of each pair are trained on, and which are held out for the validation loss.

    Held out are the pairs of texts with the smallest hashes, in all their copies: which they are
    does not depend on the order of rows and corpora, and little on what is added.

    Args:
        preparation: what to make and how.
        texts: of the corpora to train on, in the order of the config.
    """

    def __init__(self, preparation: Preparation, texts: Sequence[PairText]):
        self._preparation, self._texts = preparation, texts
        self._split = functools.cache(self._split)

    def training(self, pair: str) -> list[np.ndarray]:
        """Rows of each corpus to train on, [rows] bool."""
        return self._split(pair)[0]

    def validation(self, pair: str) -> list[np.ndarray]:
        """Rows of each corpus for the validation loss, the first of equal ones."""
        return [held & first for held, first in zip(*self._split(pair)[1:])]

    def num_held(self, pair: str) -> list[int]:
        """Number of rows of each corpus that are held out, with their copies."""
        return [int(held.sum()) for held in self._split(pair)[1]]

    def _split(self, pair: str) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Rows to train on, rows that are held out, and first occurrences."""
        columns = [text.hashes(pair) for text in self._texts]
        first = first_occurrences(columns)
        rows = first
        if not self._preparation.cleaning.drop_duplicates:
            rows = [np.ones(len(column), bool) for column in columns]
        count = self._preparation.validation_pairs
        if not count:
            return rows, [np.zeros_like(mask) for mask in first], first
        hashes = np.concatenate([column[mask] for column, mask in zip(columns, first)])
        if len(hashes) <= count:
            raise ValueError(
                f"data.validation_pairs={count} would leave none of the {len(hashes)} different "
                f"rows of {pair} for training; set it lower, or name other text in "
                "data.validation_corpora"
            )
        limit = np.partition(hashes, count - 1)[count - 1]
        held = [np.asarray(column) <= limit for column in columns]
        return [mask & ~aside for mask, aside in zip(rows, held)], held, first


@dataclasses.dataclass(frozen=True)
class Shard:
    """Rows of one corpus that become one shard of a pair.

    Attributes:
        directory: where the pair is made.
        pair, corpus: their names.
        number: of the shard, from 0.
        rows: by chunk, in order.
    """

    directory: Path
    pair: str
    number: int
    corpus: str
    rows: tuple[SelectedRows, ...]

    @property
    def path(self) -> Path:
        """The shard's directory."""
        return self.directory / f"{self.number:05d}"

    def counts(self) -> dict[str, Any] | None:
        """Counts of a finished shard, None while there is none."""
        return read_json(self.path.with_suffix(".json"))


@dataclasses.dataclass(frozen=True)
class PairPlan:
    """The tokens of one pair, and what they are made from.

    Args:
        stage: a directory named by the pair, two codes in alphabetical order.
        texts: corpus -> its text, in the order of the config.
        rows: gives the rows of each corpus to keep, [rows] bool; called only when needed.
        num_held: gives the number of rows of each corpus that are held out of these.
    """

    stage: Stage
    texts: Mapping[str, PairText]
    rows: Callable[[], Sequence[np.ndarray]]
    num_held: Callable[[], Sequence[int]] | None = None

    @property
    def pair(self) -> str:
        """Its name."""
        return self.stage.directory.name

    def summary(self) -> dict[str, Any] | None:
        """The counts of a finished pair by the names that its corpora have now; None without."""
        if (found := self.stage.read()) is None or "names" not in found:
            return None
        counts = (found["corpora"][name] for name in found["names"])
        return {**found, "corpora": dict(zip(self._names(), counts, strict=True))}

    def selected(self) -> Iterator[tuple[str, list[tuple[int, SelectedRows]]]]:
        """Yields each corpus with its chunks: the number of rows to keep of each, and these."""
        for (name, text), mask in zip(self.texts.items(), self.rows(), strict=True):
            chunks = text.chunks(self.pair)
            yield name, [(int(mask[chunk.rows].sum()), chunk.select(mask)) for chunk in chunks]

    def shards(self) -> Iterator[Shard]:
        """Groups consecutive chunks of a corpus until about `SHARD_ROWS` rows are kept.

        A shard ends before the chunk with which it would have more; chunks of which nothing is
        kept are left out.
        """
        directory, number = self.stage.begin(), 0
        for corpus, chunks in self.selected():
            for rows in _grouped(chunks):
                yield Shard(directory, self.pair, number, corpus, tuple(rows))
                number += 1

    def finish(self, shards: Iterable[Shard]) -> None:
        """Sums the counts of the shards and gives the pair its name.

        Raises:
            ValueError: if nothing is left.
        """
        held = self.num_held() if self.num_held else [None] * len(self.texts)
        counts = {}
        for (name, text), mask, num_held in zip(self.texts.items(), self.rows(), held):
            left_out = text.num_rows.get(self.pair, 0) - int(mask.sum()) - (num_held or 0)
            counts[name] = {"duplicate": left_out, "too_many_tokens": 0, "rows": 0}
            if num_held is not None:
                counts[name]["validation"] = num_held
        sums = {name: dict.fromkeys(self.pair.split("-"), 0) for name in ("tokens", "unknown")}
        for shard in shards:
            found = shard.counts()
            for name, by_language in sums.items():
                for language, number in found.get(name, {}).items():
                    by_language[language] += number
            for key in ("too_many_tokens", "rows"):
                counts[shard.corpus][key] += found[key]
        num_rows = sum(found["rows"] for found in counts.values())
        if not num_rows:
            raise ValueError(
                f"data.pairs: nothing is left of {self.pair} after cleaning; relax the cleaning "
                "section, add a corpus that has the pair, or take it out of data.pairs"
            )
        summary = {"rows": num_rows, **sums, "corpora": counts, "names": self._names()}
        self.stage.finish(summary)

    def _names(self) -> list[str]:
        return [name for name, text in self.texts.items() if text.num_rows.get(self.pair)]


def _grouped(chunks: Iterable[tuple[int, SelectedRows]]) -> Iterator[list[SelectedRows]]:
    group, num_rows = [], 0
    for num_kept, rows in chunks:
        if group and num_rows + num_kept > SHARD_ROWS:
            yield group
            group, num_rows = [], 0
        if num_kept:
            group.append(rows)
            num_rows += num_kept
    if group:
        yield group


class ShardWriter:
    """Tokenizes and writes a shard; runs in a worker process.

    Args:
        vocab: the vocabulary.
        max_tokens: maximum pieces of a side; 0 for no limit.
        prompt: before every text.
    """

    def __init__(self, vocab: Vocabulary, max_tokens: int, prompt: str = ""):
        self._vocab, self._max_tokens, self._prompt = vocab, max_tokens, prompt

    def __call__(self, shard: Shard) -> dict[str, Any]:
        """Writes a shard, then its counts, whose presence says that it is whole; returns these."""
        parts = [self._tokenize(rows) for rows in shard.rows]
        lengths = np.concatenate([lengths for _, lengths, _ in parts], axis=1)
        unknown = [
            int(sum(np.count_nonzero(flat[side] == self._vocab.unk_id) for flat, _, _ in parts))
            for side in range(2)
        ]
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
            "unknown": dict(zip(languages, unknown, strict=True)),
            "hashes": file_hashes(shard.path),
        }
        write_json(shard.path.with_suffix(".json"), counts)
        return counts

    def _tokenize(self, selected: SelectedRows) -> tuple[list[np.ndarray], np.ndarray, int]:
        """Flat ids of both sides, their [2, rows] lengths, and the number of rows too long."""
        rows, sides, lengths, fits = self._encode(selected)
        flat = [
            np.concatenate(
                [ids for ids, fit in zip(side, fits, strict=True) if fit] or [[]]
            ).astype(token_dtype(self._vocab.size))
            for side in sides
        ]
        return flat, lengths[:, fits], int(len(rows) - fits.sum())

    def rows(self, selected: SelectedRows) -> list[tuple[str, str]]:
        """The rows that a shard holds, as text."""
        rows, _, _, fits = self._encode(selected)
        return [row for row, fit in zip(rows, fits, strict=True) if fit]

    def _encode(
        self, selected: SelectedRows
    ) -> tuple[list[tuple[str, str]], list[list[list[int]]], np.ndarray, np.ndarray]:
        """The rows, the ids of both sides, their [2, rows] lengths, and which rows fit."""
        rows = selected.read()
        # One thread: there are as many processes as cores already.
        sides = [
            self._vocab.encode([self._prompt + row[side] for row in rows], num_threads=1)
            for side in range(2)
        ]
        lengths = np.asarray([[len(ids) for ids in side] for side in sides], np.int64)
        lengths = lengths.reshape(2, len(rows))
        # A text of characters that SentencePiece's own normalization removes has no pieces.
        fits = (lengths > 0).all(axis=0)
        if self._max_tokens:
            fits &= (lengths <= self._max_tokens).all(axis=0)
        return rows, sides, lengths, fits


def write_pair_tokens(
    plans: Sequence[PairPlan], write: Callable[[Sequence[Shard]], Iterable[Any]]
) -> None:
    """Writes the shards of pairs, `DIR/a-b/00000` and so on, as far as they are missing.

    `write` calls a `ShardWriter` for each shard, and yields as often in the same order.

    Raises:
        OSError: naming a path, if writing fails.
        ValueError: if nothing is left of a pair.
    """
    plans = [plan for plan in plans if not plan.summary()]
    shards = [list(plan.shards()) for plan in plans]
    missing = [[shard for shard in group if shard.counts() is None] for group in shards]
    written = iter(write(sum(missing, [])))
    for plan, group, unwritten in zip(plans, shards, missing):
        for _ in unwritten:
            next(written)
        plan.finish(group)
    for _ in written:  # so that its processes end
        pass
