"""Groups sentences of similar length into batches of a few fixed padded shapes."""

import bisect
import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

# Steps of at most 1.5: padding costs a third at worst and about a tenth on real text.
BUCKET_LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
BUCKET_LENGTHS += (3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)

# Batches that are not full come in fewer lengths: they are few, and each shape is a program.
_COARSE_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)

# For longer inputs the scores of attention, whose number is the square of the length, decide how
# many rows fit into memory.
_LONG = 2048

# Rows for a few sentences.
_FEW = 8


@dataclasses.dataclass(frozen=True)
class BatchShapes:
    """The shapes an encoder may use, of `BUCKET_LENGTHS` below `max_length_tokens`, and of that.

    A full batch has `batch_tokens`, padding included, or `batch_size` rows of any length; the
    number of rows is a multiple of `num_devices`, but `has_single_row` allows one for a sentence
    alone.
    """

    max_length_tokens: int
    batch_tokens: int
    batch_size: int | None = None
    num_devices: int = 1
    has_single_row: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        return self._below(BUCKET_LENGTHS)

    def full(self, length: int) -> int:
        """Rows of a full batch of a length."""
        if self.batch_size:
            return self._on_devices(self.batch_size)
        if length > _LONG:
            return self._on_devices(max(1, self.batch_tokens * _LONG // length**2))
        return self._on_devices(max(_FEW, self.batch_tokens // length))

    def partial(self, length: int) -> list[tuple[int, int]]:
        """Smaller (rows, length) for sentences of up to a length, rows increasing."""
        length = self._coarse(length)
        full = self.full(length)
        few = _FEW if length <= _LONG else 1
        rows = {self._on_devices(few)}
        if full // 8 >= 4 * few:
            rows.add(self._on_devices(full // 8))
        return [(number, length) for number in sorted(rows) if number < full]

    def single(self, length: int) -> tuple[int, int]:
        """(1, length) for one sentence alone of up to a length."""
        return (self._on_devices(1), self._coarse(length))

    def all(self, longest: int | None = None) -> list[tuple[int, int]]:
        """Every (rows, length) for inputs up to `longest`, shortest length first."""
        longest = min(longest or self.max_length_tokens, self.max_length_tokens)
        shapes = set()
        for length in self.lengths[: bisect.bisect_left(self.lengths, longest) + 1]:
            shapes.add((self.full(length), length))
            shapes.update(self.partial(length))
            if self.has_single_row:
                shapes.add(self.single(length))
        return sorted(shapes, key=lambda shape: (shape[1], shape[0]))

    def _coarse(self, length: int) -> int:
        """The length of batches that are not full for sentences of up to a length."""
        lengths = self._below((*_COARSE_LENGTHS, *(x for x in BUCKET_LENGTHS if x > _LONG)))
        return next(coarse for coarse in lengths if coarse >= length)

    def _below(self, lengths: Sequence[int]) -> tuple[int, ...]:
        shorter = (length for length in lengths if length < self.max_length_tokens)
        return (*shorter, self.max_length_tokens)

    def _on_devices(self, rows: int) -> int:
        return -(-rows // self.num_devices) * self.num_devices


def plan_batches(
    lengths: np.ndarray, shapes: BatchShapes
) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """Groups sentences into batches, longest first.

    The longest remaining sentence determines the length of a batch. It is a full one if sentences
    of that length fill it by more than half, else the largest partial one that they so fill, unless
    that has more tokens; shorter sentences take the free rows at no cost. `lengths` are [n] int,
    the tokens of each sentence. Yields the indices of some [at most rows], and (rows, length).
    """
    if len(lengths) == 1 and shapes.has_single_row:
        yield np.zeros(1, np.int64), shapes.single(int(lengths[0]))
        return
    order = np.argsort(-lengths, kind="stable")
    buckets = np.searchsorted(shapes.lengths, lengths[order])
    done = 0
    while done < len(order):
        in_bucket = int(np.searchsorted(-buckets, -buckets[done], side="right")) - done
        length = shapes.lengths[buckets[done]]
        shape = full, _ = (shapes.full(length), length)
        if full >= 2 * in_bucket:
            smallest, *others = shapes.partial(length) or [shape]
            partial = max([smallest, *(other for other in others if other[0] < 2 * in_bucket)])
            shape = min(shape, partial, key=math.prod)
        yield order[done : done + shape[0]], shape
        done += shape[0]
