"""The rows of an array as embeddings: checked, finite, scaled to unit length, block by block."""

from __future__ import annotations

import numpy as np

NOT_FINITE = "inner products are not finite in float32; normalize the vectors"

# Rows converted at a time.
_BLOCK_ROWS = 8192


class UnitRows:
    """Rows of an array, scaled to unit length as they are read; the array is not copied.

    For arrays that are mapped from a file larger than memory; `normalize` suits others better.
    Takes slices and integer arrays, and can stand for an array in `knn.top_k`.

    Args:
        array: [n, dim] of any real number type. All its rows that are meant are read once here.
        rows: [p] int, the rows meant and their order; None for all.
        name: what to call the array in errors.

    Raises:
        ValueError: if the shape is wrong or a value is not finite.
    """

    def __init__(self, array: np.ndarray, rows: np.ndarray | None = None, name: str = "embeddings"):
        self._array = as_embeddings(array, name)
        self._rows = rows
        self.shape = (len(array) if rows is None else len(rows), array.shape[1])
        self.dtype = np.dtype(np.float32)
        self._scales = np.empty((self.shape[0], 1), np.float32)
        for start in range(0, len(self), _BLOCK_ROWS):
            block = slice(start, min(start + _BLOCK_ROWS, len(self)))
            values = self._read(block)
            norms = np.sqrt(np.einsum("nd,nd->n", values, values, dtype=np.float64))
            if not np.isfinite(norms).all():
                row = start + int(np.flatnonzero(~np.isfinite(norms))[0])
                row = row if rows is None else int(rows[row])
                raise ValueError(f"{name}[{row}] must be finite; it holds NaN or infinity")
            scales = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
            self._scales[block, 0] = np.minimum(scales, np.finfo(np.float32).max)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, block: slice | np.ndarray) -> np.ndarray:
        return np.multiply(self._read(block), self._scales[block], dtype=np.float32)

    def _read(self, block: slice | np.ndarray) -> np.ndarray:
        return np.asarray(self._array[block if self._rows is None else self._rows[block]])


AnyRows = np.ndarray | UnitRows


def as_embeddings(array: AnyRows, name: str = "embeddings") -> AnyRows:
    """Returns `array` if it can hold embeddings.

    Args:
        array: [n, dim] of any real number type.
        name: what to call the array in errors.

    Returns:
        The array as given, not copied. Its values are not looked at.

    Raises:
        ValueError: if it has not two dimensions, has no columns, or does not hold real numbers.
    """
    if isinstance(array, UnitRows):
        return array
    array = np.asanyarray(array)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have shape [n, dim] with dim > 0; got {array.shape}")
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must hold real numbers; got dtype {array.dtype}")
    return array


def normalize(embeddings: np.ndarray, name: str = "embeddings") -> np.ndarray:
    """Scales every row to unit length; all-zero rows stay zero.

    Args:
        embeddings: [n, dim] of any real number type.
        name: what to call the array in errors.

    Returns:
        [n, dim] float32, a new array.

    Raises:
        ValueError: if the shape is wrong or a value is not finite.
    """
    embeddings = as_embeddings(embeddings, name)
    unit = np.empty(embeddings.shape, np.float32)
    for start in range(0, len(unit), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        # float64, because squares of tiny and of huge values leave the range of float32.
        block = finite_block(embeddings, rows, name).astype(np.float64)
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        unit[rows] = np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
    return unit


def finite_block(array: AnyRows, rows: slice, name: str) -> np.ndarray:
    """The rows as float32 in memory; float32 input is not copied.

    Raises:
        ValueError: if a value is not finite; its row is named.
    """
    block = np.asarray(array[rows], dtype=np.float32)
    if isinstance(array, UnitRows):  # Checked when it was made.
        return block
    finite = np.isfinite(block)
    if not finite.all():
        row = int(np.flatnonzero(~finite.all(axis=1))[0]) + (rows.start or 0)
        raise ValueError(f"{name}[{row}] must be finite in float32; it holds NaN or infinity")
    return block
