"""Embeddings of fewer bytes, for vector databases: half floats, int8 in ranges, or packed signs.

The codes are those of sentence-transformers' `quantize_embeddings`.
"""

from collections.abc import Iterable

import numpy as np

from xling_jax.registry import check_choice

PRECISIONS = ("float32", "float16", "int8", "binary", "ubinary")

_INT8_STEPS = 255  # between the smallest and the largest code


def check_ranges(precision: str, ranges: np.ndarray | None, dim: int) -> np.ndarray | None:
    """Returns the ranges that `quantize` takes, [2, dim] float32 for "int8", otherwise None.

    ValueError if the precision is unknown, or the ranges are missing, left over or not finite.
    """
    check_choice("precision", precision, PRECISIONS)
    if (ranges is not None) != (precision == "int8"):
        raise ValueError(
            "ranges must be given for precision='int8' and only then; learn_ranges computes "
            f"them from a sample of embeddings; found precision={precision!r}"
        )
    if ranges is None:
        return None
    ranges = np.asarray(ranges, np.float32)
    is_range = ranges.shape == (2, dim) and np.isfinite(ranges).all()
    if not is_range or not (ranges[0] <= ranges[1]).all():
        raise ValueError(
            f"ranges must be [2, {dim}], the smallest and the largest value of each "
            f"dimension, all finite; found {list(ranges.shape)}"
        )
    return ranges


def quantize(
    embeddings: np.ndarray, precision: str, ranges: np.ndarray | None = None
) -> np.ndarray:
    """Embeddings [..., dim] float to codes of one precision.

    "int8" divides the range of each dimension, see `learn_ranges`, into 255 steps; values outside
    get the nearest code. "binary" and "ubinary" keep the sign of each dimension, eight to a byte,
    [..., ceil(dim / 8)], padded with zeros; the bytes of "binary" are those of "ubinary" minus 128.
    """
    if precision in ("binary", "ubinary"):
        bits = np.packbits(embeddings > 0, axis=-1)
        return bits if precision == "ubinary" else (bits ^ np.uint8(128)).view(np.int8)
    if precision == "int8":
        steps = (ranges[1] - ranges[0]) / _INT8_STEPS
        codes = np.floor((embeddings - ranges[0]) / np.where(steps == 0, 1, steps))
        return (np.clip(codes, 0, _INT8_STEPS) - 128).astype(np.int8)
    with np.errstate(over="ignore"):  # beyond float16 is infinite, which readers refuse
        return embeddings.astype(precision, copy=False)


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
