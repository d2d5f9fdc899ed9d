"""Rows of a static encoder: stored in 32, 8 or 4 bits, and summed."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

# Storage of integers -> the largest.
_LARGEST = {"int8": 127, "int4": 7}
STORAGES = ("float32", *_LARGEST, "mixed")
# Of the factor of a row in 4 bits, relative to the one that fits its largest element.
_SHRINKS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)


def storage_of(storage: str, kind: str) -> str:
    """Storage of the rows of one kind, `token` or `feature`, which needs fewer bits in `mixed`."""
    return {"token": "int8", "feature": "int4"}[kind] if storage == "mixed" else storage


class Table(NamedTuple):
    """Rows to sum up, each times its factor.

    Attributes:
        rows: [rows, dims] float32 or int8; or [rows, dims / 2] uint8, two numbers of 4 bits a byte,
            each plus 8, that of the even dimension in the lower bits.
        factors: [rows] float32.
    """

    rows: np.ndarray
    factors: np.ndarray

    @property
    def is_packed(self) -> bool:
        """Whether rows hold two numbers of 4 bits in a byte."""
        return self.rows.dtype == np.uint8

    def unpacked(self) -> Table:
        """The same with numbers of 4 bits as int8."""
        return self._replace(rows=unpacked(np.asarray(self.rows))) if self.is_packed else self

    def vectors(self) -> np.ndarray:
        """[rows, dims] float32, times the factors."""
        return self.unpacked().rows.astype(np.float32, copy=False) * self.factors[:, None]


def quantized(rows: np.ndarray, storage: str) -> Table:
    """Vectors [rows, dims] float32 in fewer bits, `int8` or `int4`.

    Row r becomes q_r f_r, where q_r are integers and f_r is a factor. In 8 bits its largest element
    becomes ±127. In 4 bits, f_r is the one of a few that leaves the least squared error; with a
    smaller one, the largest elements are cut.
    """
    largest = _LARGEST[storage]
    fitting = np.abs(rows).max(axis=1) / np.float32(largest)
    fitting[fitting == 0] = 1  # rows of zeros, for padding
    factors, values = fitting, np.round(rows / fitting[:, None])
    if storage == "int4":
        least = np.square(values * factors[:, None] - rows).sum(axis=1)
        for shrink in _SHRINKS[1:]:
            smaller = fitting * np.float32(shrink)
            cut = np.clip(np.round(rows / smaller[:, None]), -largest, largest)
            error = np.square(cut * smaller[:, None] - rows).sum(axis=1)
            is_better = error < least
            values[is_better], least[is_better] = cut[is_better], error[is_better]
            factors = np.where(is_better, smaller, factors)
    factors = np.where(values.any(axis=1), factors, 0)
    return Table(values.astype(np.int8) if storage == "int8" else _packed(values), factors)


def _packed(values: np.ndarray) -> np.ndarray:
    """[rows, width] from -7 to 7 -> [rows, width / 2] uint8."""
    shifted = (values + 8).astype(np.uint8)
    return shifted[:, ::2] | shifted[:, 1::2] << 4


def unpacked(packed: np.ndarray) -> np.ndarray:
    """Rows in 4 bits, [rows, width / 2] uint8, as integers, [rows, width] int8."""
    values = np.empty((len(packed), 2 * packed.shape[1]), np.int8)
    values[:, ::2] = packed & 15
    values[:, 1::2] = packed >> 4
    values -= 8
    return values


# The values that a byte stands for are looked up as one item: several times as fast as shifting.
_VALUES_OF_BYTES = (
    unpacked(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float32).view(np.complex64).ravel()
)


class RowSums:
    """Sums of the rows of a table, each times its factor: vectors of `dims` elements."""

    def __init__(self, table: Table):
        self._rows, self._factors, self._is_packed = table.rows, table.factors, table.is_packed
        self.dims = table.rows.shape[1] * (1 + self._is_packed)

    def sum(self, rows: np.ndarray, share: np.float32) -> np.ndarray:
        """Those of one sentence: [rows] int32 -> [dims] float32, times `share`."""
        picked = self._rows.take(rows, axis=0)
        if self._is_packed:
            picked = _VALUES_OF_BYTES.take(picked).view(np.float32)
        return (self._factors.take(rows) * share) @ picked.astype(np.float32, copy=False)

    def add_sums(
        self, rows: np.ndarray, ends: np.ndarray, shares: np.ndarray, vectors: np.ndarray
    ) -> None:
        """Adds those of many sentences to their `vectors` [sentences, at least dims] float32.

        `rows` [sum of counts] int32; `ends` [sentences + 1], where the rows of each sentence begin
        and those of the last end; `shares` [sentences] float32, factor of each sum.
        """
        try:  # Imported here: a single sentence is encoded before SciPy is imported.
            from scipy.sparse import csr_array
        except ImportError:  # which launch/Dockerfile.serve leaves out: half as fast, half the size
            for vector, (start, end), share in zip(vectors, pairwise(ends.tolist()), shares):
                vector[: self.dims] += self.sum(rows[start:end], share)
            return
        factors = self._factors[rows] * np.repeat(shares, np.diff(ends))
        table = self._rows
        if table.dtype != np.float32:
            is_used = np.zeros(len(table), bool)
            is_used[rows] = True
            used = np.flatnonzero(is_used)
            indices = np.empty(len(table), np.int32)
            indices[used] = np.arange(len(used), dtype=np.int32)
            rows, table = indices[rows], table.take(used, axis=0)
        if self._is_packed:
            table = _halves(table)
        table = table.astype(np.float32, copy=False)
        sums = csr_array((factors, rows, ends), (len(shares), len(table))) @ table
        if self._is_packed:
            even, odd = np.split(sums, 2, axis=1)
            vectors[:, : self.dims : 2] += even
            vectors[:, 1 : self.dims : 2] += odd
        else:
            vectors[:, : self.dims] += sums


def _halves(packed: np.ndarray) -> np.ndarray:
    """Rows in 4 bits, [rows, width / 2] uint8, as float32 with the elements of even place first.

    Apart, they are unpacked in a third of the time, which for many sentences is much of the whole.
    """
    count, width = packed.shape
    floats = np.empty((count, 2, width), np.float32)
    for half, values in enumerate((packed & 15, packed >> 4)):
        values -= 8
        floats[:, half] = values.view(np.int8)
    return floats.reshape(count, 2 * width)
