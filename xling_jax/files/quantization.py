"""Embeddings of fewer bytes: half floats, int8 in learned ranges, or signs as packed bits.

The codes are those of sentence-transformers' `quantize_embeddings`. What reads them gets floats
(`QuantizedRows`), so that searches need not know in which precision vectors are stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from xling_jax.registry import check_choice

# Name of a precision -> dtype of its codes, as stored.
DTYPES = {"float32": "<f4", "float16": "<f2", "int8": "|i1", "binary": "|i1", "ubinary": "|u1"}
PRECISIONS = tuple(DTYPES)

_INT8_STEPS = 255  # between the smallest and the largest code


@dataclasses.dataclass(frozen=True, eq=False)
class Quantizer:
    """Embeddings to codes of one precision, and back.

    "int8" divides the range of each dimension into 255 steps. "binary" and "ubinary" keep the sign
    of each dimension, eight to a byte, padded with zeros; the bytes of "binary" are those of
    "ubinary" minus 128.

    `ranges` are the smallest and largest value of each dimension, [2, dim] float, for "int8" only,
    see `learn_ranges`; values outside get the nearest code. `sample` says what they were learned
    from, for the record.
    """

    precision: str
    dim: int
    ranges: np.ndarray | None = None
    sample: str | None = None

    def __post_init__(self):
        check_choice("precision", self.precision, PRECISIONS)
        if type(self.dim) is not int or self.dim < 1:
            raise ValueError(f"dim must be a positive integer; found {self.dim!r:.40}")
        if (self.ranges is not None) != (self.precision == "int8"):
            raise ValueError(
                "ranges must be given for precision='int8' and only then; learn_ranges computes "
                f"them from a sample of embeddings; found precision={self.precision!r}"
            )
        if self.ranges is not None:
            ranges = np.asarray(self.ranges, np.float32)
            is_range = ranges.shape == (2, self.dim) and np.isfinite(ranges).all()
            if not is_range or not (ranges[0] <= ranges[1]).all():
                raise ValueError(
                    f"ranges must be [2, {self.dim}], the smallest and the largest value of each "
                    f"dimension, all finite; found {list(ranges.shape)}"
                )
            object.__setattr__(self, "ranges", ranges)

    @property
    def is_packed(self) -> bool:
        """True if a code is eight signs."""
        return self.precision in ("binary", "ubinary")

    @property
    def dtype(self) -> np.dtype:
        """Of the codes."""
        return np.dtype(DTYPES[self.precision])

    @property
    def width(self) -> int:
        """Codes of a vector: `dim`, or an eighth of it, rounded up."""
        return (self.dim + 7) // 8 if self.is_packed else self.dim

    def quantize(self, embeddings: np.ndarray) -> np.ndarray:
        """[..., dim] float -> [..., width] codes."""
        embeddings = np.asarray(embeddings)
        if embeddings.shape[-1] != self.dim:
            raise ValueError(
                f"embeddings must be [any, {self.dim}]; found {list(embeddings.shape)}"
            )
        if self.is_packed:
            bits = np.packbits(embeddings > 0, axis=-1)
            return bits if self.precision == "ubinary" else (bits ^ np.uint8(128)).view(np.int8)
        if self.ranges is None:
            with np.errstate(over="ignore"):  # beyond float16 is infinite, which readers refuse
                return embeddings.astype(self.dtype, copy=False)
        steps = self._steps
        codes = np.floor((embeddings - self.ranges[0]) / np.where(steps == 0, 1, steps))
        return (np.clip(codes, 0, _INT8_STEPS) - 128).astype(np.int8)

    def dequantize(self, codes: np.ndarray) -> np.ndarray:
        """[..., width] codes -> [..., dim] float32: the middle of the step, or the sign as ±1."""
        if self.is_packed:
            bits = codes if self.precision == "ubinary" else codes.view(np.uint8) ^ np.uint8(128)
            return np.unpackbits(bits, axis=-1, count=self.dim) * np.float32(2) - np.float32(1)
        if self.ranges is None:
            return codes.astype(np.float32)
        return (codes.astype(np.float32) + np.float32(128.5)) * self._steps + self.ranges[0]

    @property
    def _steps(self) -> np.ndarray:
        return (self.ranges[1] - self.ranges[0]) / _INT8_STEPS

    def to_json(self) -> dict[str, Any]:
        """As JSON values, for `from_json`."""
        values = dataclasses.asdict(self)
        if self.ranges is not None:
            values["ranges"] = self.ranges.tolist()
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, values: Any, where: str) -> Quantizer:
        """Reads what `to_json` wrote; ValueError naming `where`, if it is anything else."""
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{where}: {error}; it must hold precision and dim, and ranges for int8"
            ) from error


def learn_ranges(chunks: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the smallest and the largest value of each dimension, [2, dim] float32.

    `chunks` are arrays [any, dim], pulled one at a time; ValueError for fewer than two vectors.
    """
    low, high, rows = np.float32(np.inf), np.float32(-np.inf), 0
    for chunk in filter(len, chunks):
        rows += len(chunk)
        low, high = np.minimum(low, chunk.min(axis=0)), np.maximum(high, chunk.max(axis=0))
    if rows < 2:
        raise ValueError(
            f"precision='int8' learns its ranges from many embeddings, at least 2; found {rows}"
        )
    return np.stack([low, high]).astype(np.float32)


class QuantizedRows:
    """Quantized embeddings that read as float32 [n, dim]: rows are decoded when they are selected.

    Can be indexed by slices and integer arrays, and replaces an array of embeddings in searches.
    `codes` are [n, width] and may be memory-mapped; `name` is theirs in errors.
    """

    def __init__(self, codes: np.ndarray, quantizer: Quantizer, name: str = "embeddings"):
        codes = np.asanyarray(codes)
        if codes.ndim != 2 or codes.shape[1] != quantizer.width or codes.dtype != quantizer.dtype:
            raise ValueError(
                f"{name} in precision {quantizer.precision} must be {quantizer.dtype} "
                f"[n, {quantizer.width}], for {quantizer.dim} dimensions; "
                f"found {codes.dtype} {list(codes.shape)}"
            )
        self.codes, self.quantizer = codes, quantizer
        self.shape = (len(codes), quantizer.dim)
        self.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.quantizer.dequantize(self.codes[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or np.float32, copy=False)


def quantized_rows(
    codes: Any, precision: str, ranges: np.ndarray | None = None, name: str = "embeddings"
) -> QuantizedRows:
    """`QuantizedRows` of codes [n, width], whose width says their dimension.

    Packed bits count as eight dimensions a byte: those that pad a vector are equal in all, so that
    they do not change which are nearest. `ranges` [2, dim] are those that int8 codes were made on;
    without them the codes are compared, as if all dimensions had the same range around 0.
    """
    check_choice("precision", precision, PRECISIONS)
    codes = np.asanyarray(codes)
    if codes.ndim != 2 or not codes.shape[1]:
        raise ValueError(f"{name} must have shape [n, width]; got {list(codes.shape)}")
    dim = codes.shape[1] * (8 if precision in ("binary", "ubinary") else 1)
    if precision == "int8" and ranges is None:
        ranges = np.repeat(np.float32([[-128.5], [126.5]]), dim, axis=1)  # every step is 1
    return QuantizedRows(codes, Quantizer(precision, dim, ranges), name)
