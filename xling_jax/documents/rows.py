"""The rows of an array of sentence vectors: checked, finite, block by block."""

from collections.abc import Iterator

import numpy as np

# Rows held in memory at a time, beside the array itself.
BLOCK_ROWS = 8192


def as_vectors(array: np.ndarray, name: str = "vectors", dim: int | None = None) -> np.ndarray:
    """Returns `array`, not copied, if it can hold sentence vectors; its values are not looked at.

    Args:
        array: [n, dim] of any real number type; may be memory-mapped.
        name: what to call the array in errors.
        dim: the width it must have; None for any.

    Raises:
        ValueError: if it has not two dimensions or another width, or does not hold real numbers.
    """
    array = np.asanyarray(array)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have shape [n, dim] with dim > 0; got {array.shape}")
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must hold real numbers; got dtype {array.dtype}")
    if dim is not None and array.shape[1] != dim:
        raise ValueError(
            f"{name} must have dim {dim}, as those fitted; got {array.shape[1]}; were they made by "
            "the same encoder?"
        )
    return array


def row_blocks(
    array: np.ndarray, name: str = "vectors", size: int = BLOCK_ROWS
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields the array block by block, with the rows each one holds.

    Args:
        array: [n, dim], see `as_vectors`.
        name: what to call the array in errors.
        size: rows of a block.

    Yields:
        The slice of rows and the block [rows, dim], float64 if the array is, float32 else.

    Raises:
        ValueError: if a value is not finite; its row is named.
    """
    dtype = np.float64 if array.dtype == np.float64 else np.float32
    for start in range(0, len(array), size):
        rows = slice(start, min(start + size, len(array)))
        block = np.asarray(array[rows], dtype=dtype)
        finite = np.isfinite(block)
        if not finite.all():
            row = start + int(np.flatnonzero(~finite.all(axis=1))[0])
            raise ValueError(f"{name}[{row}] must be finite in {block.dtype}; it holds NaN or inf")
        yield rows, block
