"""Groups sentences of similar length into batches of a few fixed padded shapes."""

import dataclasses
from collections.abc import Iterator

import numpy as np

# Steps of at most 1.5: padding costs a third at worst and about a tenth on real text.
BUCKET_LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
BUCKET_LENGTHS += (3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)

# For longer inputs the scores of attention, whose number is the square of the length, decide how
# many rows fit into memory.
_LONG = 2048

# The size for a single sentence: few shapes, and still a quick answer.
_SMALLEST_BATCH = 8


@dataclasses.dataclass(frozen=True)
class BatchShapes:
    """The shapes an encoder may use.

    Attributes:
        max_length_tokens: the largest length; the others are `BUCKET_LENGTHS` below it.
        batch_tokens: tokens in a full batch, padding included.
        batch_size: rows in a full batch of any length, instead of `batch_tokens`.
        num_devices: the number of rows is a multiple of it.
    """

    max_length_tokens: int
    batch_tokens: int
    batch_size: int | None = None
    num_devices: int = 1

    def __post_init__(self):
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size} must be at least 1")

    @property
    def lengths(self) -> tuple[int, ...]:
        """Bucket lengths, increasing."""
        shorter = (length for length in BUCKET_LENGTHS if length < self.max_length_tokens)
        return (*shorter, self.max_length_tokens)

    def rows(self, length: int) -> tuple[int, ...]:
        """Batch sizes for a length, increasing: small, full, and one between if far apart."""
        if length > _LONG:
            full = self.batch_size or max(1, self.batch_tokens * _LONG // length**2)
            smallest = 1
        else:
            full = self.batch_size or max(_SMALLEST_BATCH, self.batch_tokens // length)
            smallest = min(_SMALLEST_BATCH, full)
        sizes = {smallest, full}
        if full // 8 >= 4 * smallest:
            sizes.add(full // 8)
        devices = self.num_devices
        return tuple(sorted({-(-size // devices) * devices for size in sizes}))

    def all(self) -> list[tuple[int, int]]:
        """Lists every (rows, length), shortest length first."""
        return [(rows, length) for length in self.lengths for rows in self.rows(length)]


def plan_batches(
    lengths: np.ndarray, shapes: BatchShapes
) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """Groups sentences into batches, longest first.

    The longest remaining sentence determines the length of a batch. Its size is the largest that
    sentences of that length fill by more than half; shorter ones take the free rows at no cost.
    `lengths` are [n] int, the tokens of each sentence, at most `shapes.max_length_tokens`.

    Yields:
        (indices of the sentences [at most rows], (rows, length)); every index once.
    """
    order = np.argsort(-lengths, kind="stable")
    buckets = np.searchsorted(shapes.lengths, lengths[order])
    done = 0
    while done < len(order):
        in_bucket = int(np.searchsorted(-buckets, -buckets[done], side="right")) - done
        length = shapes.lengths[buckets[done]]
        sizes = shapes.rows(length)
        rows = max([sizes[0], *(size for size in sizes if size < 2 * in_bucket)])
        yield order[done : done + rows], (rows, length)
        done += rows
