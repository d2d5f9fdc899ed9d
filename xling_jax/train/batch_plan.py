"""The global plan of batches: which rows of which pair form micro-batch n.

A pure function of (seed, n), the sentence lengths of the corpus and the batching options; a process
reads its slice (`train.batches`). One micro-batch holds one language pair and one length bucket, as
in LASER and T-LASER; its pair is drawn at random.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_DRAW_BLOCK = 4096  # pairs drawn at once; the block number is part of the stream's key
_PAIR_STREAM, _ROW_STREAM, _ORDER_STREAM = 0, 1, 2
_MOST_TOKENS = 1 << 28  # of a micro-batch; memory ends long before
# The share of real tokens that a chosen list of bucket lengths reaches, with at most so many.
EFFICIENCY, MOST_BUCKETS = 0.85, 32
# Updates for each chosen length, or its programs take longer to compile than they save.
UPDATES_PER_LENGTH = 50


class Bucket(NamedTuple):
    """A static shape: sentences padded to `length` tokens, `batch_size` rows."""

    length: int
    batch_size: int


class MicroBatch(NamedTuple):
    """Entry n of the plan, `epoch` complete passes over the corpus of its pair.

    `rows` are [batch_size] int64 row numbers of that corpus; -1 marks a padding row.
    """

    index: int
    pair: int
    bucket: Bucket
    rows: np.ndarray
    epoch: int


def make_buckets(
    bucket_lengths: Sequence[int], max_tokens: int, batch_multiple: int, batch_size: int = 0
) -> tuple[Bucket, ...]:
    """Gives every length the largest batch within `max_tokens` padded tokens, or `batch_size`.

    One of the two is 0, see `batches.DataOptions`. ValueError if `batch_multiple` rows do not fit.
    """
    lengths = tuple(int(length) for length in bucket_lengths)
    if not lengths or lengths[0] < 3 or any(a >= b for a, b in zip(lengths, lengths[1:])):
        raise ValueError(
            f"bucket_lengths={lengths} must be ascending, from 3 tokens (two special ones)"
        )
    if bool(batch_size) == bool(max_tokens):
        raise ValueError(
            f"set exactly one of data.max_tokens={max_tokens} and data.batch_size={batch_size}"
        )
    if lengths[-1] * max(batch_size, batch_multiple) >= _MOST_TOKENS or max_tokens >= _MOST_TOKENS:
        raise ValueError(
            f"a micro-batch of max_tokens={max_tokens} or batch_size={batch_size}, a multiple of "
            f"batch_multiple={batch_multiple}, with bucket_lengths up to {lengths[-1]} must have "
            f"fewer than {_MOST_TOKENS:,} tokens; use less"
        )
    if batch_size:
        if batch_size < 0 or batch_size % batch_multiple:
            raise ValueError(
                f"batch_size={batch_size} must be a multiple of batch_multiple={batch_multiple}"
            )
        return tuple(Bucket(length, batch_size) for length in lengths)
    if lengths[-1] * batch_multiple > max_tokens:
        raise ValueError(
            f"max_tokens={max_tokens} must hold batch_multiple={batch_multiple} sentences of the "
            f"longest bucket ({lengths[-1]} tokens); use at least {lengths[-1] * batch_multiple}"
        )
    return tuple(
        Bucket(length, max_tokens // length // batch_multiple * batch_multiple)
        for length in lengths
    )


class LengthCounts(NamedTuple):
    """Lengths of the rows of one pair, on which padding depends: [longest + 1] int64.

    These count rows by the length of the longer side; `tokens` are the real ones of all rows, the
    mean of both sides.
    """

    rows: np.ndarray
    tokens: float


def choose_bucket_lengths(
    counts: Mapping[str, LengthCounts],
    buckets_of: Callable[[Sequence[int]], Sequence[Bucket]],
    sampling_exponent: float,
    most: int = MOST_BUCKETS,
) -> tuple[int, ...]:
    """The fewest bucket lengths with which 85 % of the tokens of the batches are real.

    Every length costs a compilation, or two with accumulation. For each number of lengths, those
    with the least padding are found by dynamic programming over the lengths that occur. Since the
    sides of a pair differ in length, some text cannot reach 85 %; then 99 % of what 32 lengths
    reach is enough, and so are `most` lengths, in a run of few updates.

    Returns ascending lengths, a function of the arguments; the last is that of the longest row.
    """
    by_length = {
        pair: np.concatenate([[0, 0, 0, c.rows[:4].sum()], c.rows[4:]]).astype(np.int64)
        for pair, c in counts.items()
    }
    width = max(map(len, by_length.values()))
    shares = _shares([rows.sum() for rows in by_length.values()], sampling_exponent)
    weights = np.zeros(width)
    for share, pair, rows in zip(shares, counts, by_length.values()):
        weights[: len(rows)] += share * rows / counts[pair].tokens
    lists = _least_padding(weights, most)
    reached = [padding_efficiency(counts, buckets_of(part), sampling_exponent) for part in lists]
    enough = min(EFFICIENCY, 0.99 * max(reached))
    return next(part for part, efficiency in zip(lists, reached) if efficiency >= enough)


def _least_padding(weights: np.ndarray, most: int) -> list[tuple[int, ...]]:
    """For 1, 2 .. `most` buckets, the lengths that minimize Σ weights[l] · bucket of l."""
    lengths = np.flatnonzero(weights)
    total = np.concatenate([[0.0], np.cumsum(weights[lengths])])
    # cost[j]: of the first j lengths in so many buckets, the last of them lengths[j - 1].
    cost, last, lists = np.append(0.0, np.full(len(lengths), np.inf)), [], []
    for _ in range(min(most, len(lengths))):
        # [i, j]: a bucket for lengths i .. j - 1.
        step = (total[None, 1:] - total[:-1, None]) * lengths
        step = np.where(np.tri(len(lengths), k=-1, dtype=bool), np.inf, step)
        candidates = cost[:-1, None] + step
        last.append(np.argmin(candidates, axis=0))
        cost = np.append(np.inf, candidates.min(axis=0))
        end, chosen = len(lengths), []
        for starts in reversed(last):
            chosen.append(int(lengths[end - 1]))
            end = int(starts[end - 1])
        lists.append(tuple(reversed(chosen)))
    return lists


def padding_efficiency(
    counts: Mapping[str, LengthCounts], buckets: Sequence[Bucket], sampling_exponent: float
) -> float:
    """Expected share of real tokens in the micro-batches of a `BatchPlan`; arguments as above."""
    limits, sizes = np.array(buckets)[:, 0], np.prod(buckets, axis=1)
    shares = _shares([c.rows.sum() for c in counts.values()], sampling_exponent)
    real = padded = 0.0
    for share, (rows, tokens) in zip(shares, counts.values()):
        up_to = np.concatenate([[0], np.cumsum(rows)])[np.minimum(limits + 1, len(rows))]
        table = _batch_table(np.diff(up_to, prepend=0), buckets)
        real += share * tokens / len(table)
        padded += share * sizes[table[:, 0]].mean()
    return real / padded


def _shares(num_rows: Sequence[int], sampling_exponent: float) -> np.ndarray:
    """The probabilities of pairs in a draw."""
    weights = np.array(num_rows, np.float64) ** sampling_exponent
    return weights / weights.sum()


def _batch_table(sizes: np.ndarray, buckets: Sequence[Bucket]) -> np.ndarray:
    """[batches, 3] int64: bucket, start and end in an epoch's rows, of `sizes` rows by bucket."""
    table, start, carried = [], 0, 0
    last = int(np.flatnonzero(sizes)[-1])
    for number, (size, bucket) in enumerate(zip(sizes, buckets)):
        carried += int(size)
        while carried >= bucket.batch_size or (number == last and carried):
            count = min(carried, bucket.batch_size)
            table.append((number, start, start + count))
            start, carried = start + count, carried - count
    return np.array(table, np.int64).reshape(-1, 3)


def _random_raw(shape: int, *key: int) -> np.ndarray:
    """[shape] uint64 from Philox, identical on every platform and NumPy version."""
    return np.random.Philox(np.random.SeedSequence(key)).random_raw(shape)


def _permutation(size: int, *key: int) -> np.ndarray:
    return np.argsort(_random_raw(size, *key), kind="stable")


class BatchPlan:
    """All micro-batches of a training run, addressable by number.

    In each epoch of a pair every row that fits a bucket is used exactly once: rows are shuffled and
    cut into full batches bucket by bucket, rows that do not fill a batch move up to the next longer
    bucket, and only the last batch has padding rows. The order of batches is shuffled as well.

    Lengths are [rows] int by pair, of the longer side, special tokens included; `num_rows` and
    `num_skipped` count by pair those that fit a bucket and those that do not. ValueError if none
    does.
    """

    def __init__(
        self,
        lengths: Mapping[str, np.ndarray],
        buckets: Sequence[Bucket],
        *,
        seed: int,
        sampling_exponent: float = 0.0,
    ):
        self.pairs = tuple(lengths)
        self.buckets = tuple(buckets)
        self.seed = seed
        limits = np.array([bucket.length for bucket in self.buckets])
        self._bucket_of, self.num_skipped, self.num_rows = [], {}, {}
        for pair, pair_lengths in lengths.items():
            bucket_of = np.searchsorted(limits, pair_lengths).astype(np.int16)
            fitting = int((bucket_of < len(limits)).sum())
            if not fitting:
                raise ValueError(
                    f"pair {pair}: no sentence fits the longest bucket of {limits[-1]} tokens; "
                    "make it longer (the last of data.bucket_lengths, or data.longest_bucket) or "
                    "remove the pair from data.pairs"
                )
            self._bucket_of.append(bucket_of)
            self.num_skipped[pair] = len(bucket_of) - fitting
            self.num_rows[pair] = fitting
        weights = np.array(list(self.num_rows.values()), np.float64) ** sampling_exponent
        self._shares = weights / weights.sum()
        self._thresholds = np.cumsum(weights)[:-1] / weights.sum()
        number = len(self.buckets)
        self._tables = [
            _batch_table(np.bincount(bucket_of, minlength=number + 1)[:number], self.buckets)
            for bucket_of in self._bucket_of
        ]
        self._counts = [np.zeros(len(self.pairs), np.int64)]
        self._counting = threading.Lock()  # readers assemble batches in parallel
        self._epoch_rows = functools.lru_cache(maxsize=2 * len(self.pairs))(self._shuffled_rows)

    def _shuffled_rows(self, pair: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows by bucket, shuffled within each, and the order of the batches."""
        bucket_of = self._bucket_of[pair]
        shuffled = _permutation(len(bucket_of), self.seed, _ROW_STREAM, pair, epoch)
        rows = shuffled[np.argsort(bucket_of[shuffled], kind="stable")]
        order = _permutation(len(self._tables[pair]), self.seed, _ORDER_STREAM, pair, epoch)
        return rows, order

    def _draws(self, block: int) -> np.ndarray:
        raw = _random_raw(_DRAW_BLOCK, self.seed, _PAIR_STREAM, block)
        return np.searchsorted(self._thresholds, raw / 2.0**64, side="right")

    def _draw(self, index: int) -> tuple[int, int]:
        """The pair of micro-batch `index`, and the number of its earlier draws."""
        block, position = divmod(index, _DRAW_BLOCK)
        with self._counting:
            while len(self._counts) <= block:
                drawn = np.bincount(self._draws(len(self._counts) - 1), minlength=len(self.pairs))
                self._counts.append(self._counts[-1] + drawn)
        draws = self._draws(block)
        pair = int(draws[position])
        return pair, int(self._counts[block][pair] + (draws[:position] == pair).sum())

    @property
    def shapes(self) -> tuple[Bucket, ...]:
        """The buckets that have micro-batches."""
        used = np.unique(np.concatenate([table[:, 0] for table in self._tables]))
        return tuple(self.buckets[number] for number in used)

    @property
    def batches_per_epoch(self) -> dict[str, int]:
        """Micro-batches of one pass over each pair."""
        return {pair: len(table) for pair, table in zip(self.pairs, self._tables)}

    @property
    def epoch(self) -> float:
        """Micro-batches that draw as many rows as the pairs have, on average.

        Pairs of short sentences have more rows in a batch of the same number of tokens.
        """
        rows = np.array([*self.num_rows.values()], np.float64)
        per_batch = rows / [len(table) for table in self._tables]
        return float(rows.sum() / (self._shares @ per_batch))

    def __getitem__(self, index: int) -> MicroBatch:
        """Micro-batch `index`, any non-negative number."""
        pair, occurrence = self._draw(index)
        return self._batch(index, pair, *divmod(occurrence, len(self._tables[pair])))

    def one_pass(self, pair: int, epoch: int = 0) -> Iterator[MicroBatch]:
        """Each row of a pair once, as in an epoch of it; `index` counts from 0."""
        for position in range(len(self._tables[pair])):
            yield self._batch(position, pair, epoch, position)

    def _batch(self, index: int, pair: int, epoch: int, position: int) -> MicroBatch:
        rows, order = self._epoch_rows(pair, epoch)
        number, start, end = self._tables[pair][order[position]]
        bucket = self.buckets[number]
        padded = np.full(bucket.batch_size, -1, np.int64)
        padded[: end - start] = rows[start:end]
        return MicroBatch(index, pair, bucket, padded, epoch)
