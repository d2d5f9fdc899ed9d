"""From cleaned text to token shards: drops exact duplicates and tokenizes, pair by pair.

A pair is built in a hidden directory, shard by shard, and takes its name when it is complete; an
interrupted run continues after the finished shards. What a shard holds is planned beforehand from
the text alone, so neither interruptions nor the number of processes change a byte.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.corpora.options import Preparation
from xling_jax.corpora.pair_text import PairText, SelectedRows
from xling_jax.corpora.shards import file_hashes, token_dtype, write_shard
from xling_jax.corpora.stages import Stage
from xling_jax.files.whole import read_json, write_record
from xling_jax.text.vocabularies import Vocabulary

SHARD_ROWS = 100_000

# Rows whose hashes are sorted at a time, at about 40 bytes each.
_DEDUPLICATION_ROWS = 1 << 22
_BLOCK_ROWS = 1 << 20


def first_occurrences(
    columns: Sequence[np.ndarray], max_rows: int = _DEDUPLICATION_ROWS
) -> list[np.ndarray]:
    """Marks the first of equal rows over several columns of hashes, [rows] uint64 each.

    About `max_rows` hashes are held in memory; more take several passes, each over one range of
    values. Returns [rows] bool for each column: False where the same hash occurs before.
    """
    total = sum(map(len, columns))
    keep = np.zeros(total, bool)
    bits = max(0, (max(total, 1) - 1) // max_rows).bit_length()
    for part in range(1 << bits):
        values, positions, start = [], [], 0
        for column in columns:
            for begin in range(0, len(column), _BLOCK_ROWS):
                block = np.asarray(column[begin : begin + _BLOCK_ROWS], np.uint64)
                # A shift by 64 bits is 0 in NumPy: with one range, all values are in it.
                where = np.flatnonzero(block >> np.uint64(64 - bits) == part)
                values.append(block[where])
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

    def num_held(self, pair: str) -> dict[str, int]:
        """Rows that are held out, with their copies, by the key of a text; empty if none are."""
        if not self._preparation.validation_pairs:
            return {}
        return {t.key: int(held.sum()) for t, held in zip(self._texts, self._split(pair)[1])}

    def sample(
        self, sentences: int, languages: Sequence[str]
    ) -> Iterator[tuple[str, SelectedRows]]:
        """Draws rows to train on with the seed, about so many sentences on both sides.

        Yields them with their pair; only pairs that have one of `languages`. A sentence that occurs
        in several pairs may be drawn several times, as for the published vocabularies, which were
        trained on the concatenation of all pair files.
        """
        pairs = [p for p in self._preparation.pairs if {*p.split("-")} & {*languages}]
        totals = {pair: sum(int(mask.sum()) for mask in self.training(pair)) for pair in pairs}
        for pair in totals:
            drawn, start = draw_rows(self._preparation, totals, sentences, pair), 0
            for text, mask in zip(self._texts, self.training(pair), strict=True):
                chosen = np.zeros_like(mask)
                end = start + int(mask.sum())
                chosen[mask], start = drawn[start:end], end
                yield from ((pair, rows) for rows in text.select(pair, chosen) if rows.num_rows)

    def _split(self, pair: str) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Rows to train on, rows that are held out, and first occurrences."""
        columns = [text.hashes(pair) for text in self._texts]
        first = rows = first_occurrences(columns)
        if not self._preparation.cleaning.drop_duplicates:
            rows = [np.ones(len(column), bool) for column in columns]
        count = self._preparation.validation_pairs
        if not count:
            return rows, [np.zeros_like(mask) for mask in first], first
        hashes = np.concatenate([column[mask] for column, mask in zip(columns, first)])
        if len(hashes) <= count:
            raise ValueError(
                f"data.validation_pairs={count} would leave none of the {len(hashes)} different "
                f"rows of {pair} for training; set it lower"
            )
        limit = np.partition(hashes, count - 1)[count - 1]
        held = [np.asarray(column) <= limit for column in columns]
        return [mask & ~aside for mask, aside in zip(rows, held)], held, first


def draw_rows(
    preparation: Preparation, totals: Mapping[str, int], sentences: int, pair: str
) -> np.ndarray:
    """Draws rows of a pair for about so many sentences of all pairs, with the seed; [rows] bool.

    `totals` are the rows to train on by pair; a row has two sentences.
    """
    exponent = preparation.vocab.sampling_exponent
    weights = {name: n**exponent for name, n in totals.items() if n}
    rows = sentences / 2 / max(1, sum(weights.values()))
    rng = np.random.default_rng([preparation.seed, preparation.pairs.index(pair)])
    chosen = np.zeros(totals[pair], bool)
    wanted = min(totals[pair], round(rows * weights.get(pair, 0)))
    chosen[rng.choice(totals[pair], wanted, replace=False)] = True
    return chosen


@dataclasses.dataclass(frozen=True)
class Shard:
    """Rows of one corpus, by chunk, that become shard `number` of a pair made in `directory`."""

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

    The `stage` is named by the pair; `texts` maps each corpus to its text, in the order of the
    config; the `choice` of rows, those to train on or the held-out ones, is asked when needed.
    """

    stage: Stage
    texts: Mapping[str, PairText]
    choice: RowChoice
    is_validation: bool = False

    @property
    def pair(self) -> str:
        """Two codes in alphabetical order."""
        return self.stage.directory.name

    @property
    def rows(self) -> Sequence[np.ndarray]:
        """The rows of each corpus to keep, [rows] bool."""
        choose = self.choice.validation if self.is_validation else self.choice.training
        return choose(self.pair)

    def summary(self) -> dict[str, Any] | None:
        """The counts of a finished pair by the names that its corpora have now; None without."""
        found = self.stage.read()
        if found is None or not isinstance(found["corpora"], list):  # of 0.3: by names of then
            return None
        names = [name for name, text in self.texts.items() if text.num_rows.get(self.pair)]
        return {**found, "corpora": dict(zip(names, found["corpora"], strict=True))}

    def has_all_records(self) -> bool:
        """Returns whether each shard of a finished pair has its record, undamaged."""
        shards = [path for path in self.stage.directory.iterdir() if path.is_dir()]
        return all(read_json(path.with_suffix(".json")) is not None for path in shards)

    def selected(self) -> Iterator[tuple[str, list[SelectedRows]]]:
        """Yields each corpus with the rows to keep, by chunk."""
        for (name, text), mask in zip(self.texts.items(), self.rows, strict=True):
            yield name, list(text.select(self.pair, mask))

    def shards(self) -> Iterator[Shard]:
        """Groups consecutive chunks of a corpus until about `SHARD_ROWS` rows are kept.

        A shard ends before the chunk with which it would have more; chunks of which nothing is
        kept are left out.
        """
        directory, number = self.stage.begin(), itertools.count()
        for corpus, chunks in self.selected():
            groups, num_rows = [], 0
            for rows in filter(lambda rows: rows.num_rows, chunks):
                num_rows += rows.num_rows
                if not groups or num_rows > SHARD_ROWS:
                    groups.append([])
                    num_rows = rows.num_rows
                groups[-1].append(rows)
            for group in groups:
                yield Shard(directory, self.pair, next(number), corpus, tuple(group))

    def finish(self, shards: Iterable[Shard]) -> None:
        """Sums the counts of the shards and gives the pair its name."""
        counts = {}
        held = {} if self.is_validation else self.choice.num_held(self.pair)
        for (name, text), mask in zip(self.texts.items(), self.rows):
            if num_rows := text.num_rows.get(self.pair):
                left_out = num_rows - int(mask.sum()) - held.get(text.key, 0)
                counts[name] = {"duplicate": left_out, "no_tokens": 0, "rows": 0}
                counts[name] |= {"validation": held[text.key]} if held else {}
        sums = {name: dict.fromkeys(self.pair.split("-"), 0) for name in ("tokens", "unknown")}
        for shard in shards:
            found = shard.counts()
            for name, by_language in sums.items():
                for language, number in found.get(name, {}).items():
                    by_language[language] += number
            for key in ("no_tokens", "rows"):
                counts[shard.corpus][key] += found.get(key, found.get("too_many_tokens"))  # of 0.3
        num_rows = sum(found["rows"] for found in counts.values())
        if not num_rows:
            raise ValueError(
                f"data.pairs: nothing is left of {self.pair} after cleaning; relax the cleaning "
                "section, add a corpus that has the pair, or take it out of data.pairs"
            )
        self.stage.finish({"rows": num_rows, **sums, "corpora": [*counts.values()]})


class ShardWriter:
    """Tokenizes and writes a shard, `prompt` before every text; runs in a worker process."""

    def __init__(self, vocab: Vocabulary, prompt: str = ""):
        self._vocab, self._prompt = vocab, prompt

    def __call__(self, shard: Shard) -> dict[str, Any]:
        """Writes a shard, then its counts, whose presence says that it is whole; returns these."""
        rows, flat, lengths = zip(*map(self.tokenize, shard.rows))
        lengths, languages = np.concatenate(lengths, axis=1), shard.pair.split("-")
        columns, counts = {}, {"tokens": {}, "unknown": {}}
        for side, language in enumerate(languages):
            ids = np.concatenate([one[side] for one in flat])
            offsets = np.zeros(lengths.shape[1] + 1, np.int64)
            np.cumsum(lengths[side], out=offsets[1:])
            columns[language] = ids, offsets
            counts["tokens"][language] = len(ids)
            counts["unknown"][language] = int(np.count_nonzero(ids == self._vocab.unk_id))
        if lengths.shape[1]:
            write_shard(shard.path, columns)
        num_read = sum(chunk.num_rows for chunk in shard.rows)
        counts |= {"rows": lengths.shape[1], "no_tokens": num_read - lengths.shape[1]}
        counts["hashes"] = file_hashes(shard.path)
        write_record(shard.path.with_suffix(".json"), counts)
        return counts

    def tokenize(
        self, selected: SelectedRows
    ) -> tuple[list[tuple[str, str]], list[np.ndarray], np.ndarray]:
        """The rows that a shard holds, the ids of either side, [any], and [2, rows] lengths."""
        rows = selected.read()
        # One thread: there are as many processes as cores already.
        flat, lengths = zip(
            *(
                self._vocab.encode_flat([self._prompt + row[side] for row in rows], num_threads=1)
                for side in range(2)
            )
        )
        lengths = np.stack(lengths)
        # A text of characters that SentencePiece's own normalization removes has no pieces.
        has_pieces = (lengths > 0).all(axis=0)
        dtype = token_dtype(self._vocab.size)
        ids = [ids[np.repeat(has_pieces, count)].astype(dtype) for ids, count in zip(flat, lengths)]
        return list(itertools.compress(rows, has_pieces)), ids, lengths[:, has_pieces]


def write_pair_tokens(
    plans: Sequence[PairPlan], write: Callable[[Sequence[Shard]], Iterable[Any]]
) -> None:
    """Writes the shards of pairs, `DIR/a-b/00000` and so on, as far as they are missing.

    `write` calls a `ShardWriter` for each shard, and yields as often in the same order.
    """
    plans = [plan for plan in plans if not (plan.summary() and plan.has_all_records())]
    shards = [list(plan.shards()) for plan in plans]
    missing = [[shard for shard in group if shard.counts() is None] for group in shards]
    written = iter(write(sum(missing, [])))
    for plan, group, unwritten in zip(plans, shards, missing):
        for _ in unwritten:
            next(written)
        plan.finish(group)
    for _ in written:  # so that its processes end
        pass
