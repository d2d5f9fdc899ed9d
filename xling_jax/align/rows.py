"""Arrays of embeddings: shape checks, finite blocks, and rows scaled to unit length.

Arrays may be memory-mapped and larger than memory; everything here reads them block by block.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import numpy as np

from xling_jax.files.embeddings import JoinedRows

# Called with the amount of work done and the total.
Report = Callable[[int, int], None]
# Scores and rows of the neighbors of each row, best first.
Neighbors = tuple[np.ndarray, np.ndarray]

# Appended to the name of a row whose inner products overflow.
NOT_FINITE = "inner products are not finite in float32; normalize the vectors"

# Rows read at a time.
BLOCK_ROWS = 8192


class UnitRows:
    """The rows of an array, scaled to unit length as they are read; the array is not copied.

    For arrays mapped from files larger than memory; `normalize` is faster for others. Can be
    indexed by slices and integer arrays, and replaces an array in `knn.top_k`.

    Args:
        array: [n, dim] of any real number type. Every selected row is read once on construction.
        rows: [p] int, the selected rows in order; None for all.
        name: of the array, for errors, such as of a value that is not finite.
    """

    def __init__(self, array: np.ndarray, rows: np.ndarray | None = None, name: str = "embeddings"):
        self._array = as_embeddings(array, name)
        self._rows = rows
        self.shape = (len(array) if rows is None else len(rows), array.shape[1])
        self.dtype = np.dtype(np.float32)
        self._scales = np.empty((self.shape[0], 1), np.float32)
        for block in slices(len(self)):
            values = self._read(block)
            norms = np.sqrt(np.einsum("nd,nd->n", values, values, dtype=np.float64))
            if not np.isfinite(norms).all():
                wrong = int(np.flatnonzero(~np.isfinite(norms))[0])
                excess, row = _excess(values[wrong]), block.start + wrong
                row = row if rows is None else int(rows[row])
                raise ValueError(f"{name}[{row}] must be finite; {excess}")
            scales = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
            self._scales[block, 0] = np.minimum(scales, np.finfo(np.float32).max)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, block: slice | np.ndarray) -> np.ndarray:
        return np.multiply(self._read(block), self._scales[block], dtype=np.float32)

    def span(self, block: slice) -> Self:
        """Some consecutive rows; reads nothing."""
        part = copy.copy(self)
        if self._rows is not None:
            part._rows = self._rows[block]
        elif isinstance(self._array, np.ndarray):
            part._array = self._array[block]
        else:  # gathers what is sliced
            part._rows = np.arange(len(self))[block]
        part._scales = self._scales[block]
        part.shape = (len(part._scales), self.shape[1])
        return part

    def _read(self, block: slice | np.ndarray) -> np.ndarray:
        return np.asarray(self._array[block if self._rows is None else self._rows[block]])


AnyRows = np.ndarray | UnitRows | JoinedRows


def as_embeddings(array: AnyRows, name: str, dim: int | None = None) -> AnyRows:
    """Checks shape and type of embeddings [n, dim] without reading or copying values.

    ValueError if they are not two-dimensional, have no width or another than `dim`, hold no real
    numbers, or int8 or uint8, which are codes.
    """
    if not isinstance(array, (UnitRows, JoinedRows)):
        array = np.asanyarray(array)
    if len(array.shape) != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have shape [n, dim] with dim > 0; got {array.shape}")
    if array.dtype in (np.int8, np.uint8):
        raise ValueError(
            f"{name} holds {array.dtype}, quantized values or packed bits; encode in float32 or "
            "float16"
        )
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must hold real numbers; got dtype {array.dtype}")
    if dim is not None and array.shape[1] != dim:
        raise ValueError(
            f"{name} must have dim {dim}; got {array.shape[1]}; were they made by the same encoder?"
        )
    return array


def check_same_dim(x: AnyRows, y: AnyRows, names: Sequence[str] = ("source", "target")) -> None:
    """Raises ValueError if two arrays of embeddings have different widths."""
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"{names[0]} and {names[1]} must have the same dim; got {x.shape[1]} and "
            f"{y.shape[1]}; were they made by the same model?"
        )


def normalize(embeddings: np.ndarray, name: str = "embeddings") -> np.ndarray:
    """Scales the rows of [n, dim] to unit length, float32; all-zero rows stay zero.

    ValueError if the shape is wrong or a value is not finite.
    """
    embeddings = as_embeddings(embeddings, name)
    unit = np.empty(embeddings.shape, np.float32)
    for rows in slices(len(unit)):
        # float64: squares of tiny and huge values leave the range of float32.
        block = finite_block(embeddings, rows, name).astype(np.float64)
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        unit[rows] = np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
    return unit


def l2_normalize(vectors: np.ndarray) -> np.ndarray:
    """Scales the last axis to Euclidean length 1, in the type of the vectors; zeros stay zero.

    For vectors in memory known to be finite; `normalize` checks and computes norms in float64.
    """
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)


def finite_block(
    array: AnyRows, rows: slice, name: str, dtype: type[np.floating] = np.float32
) -> np.ndarray:
    """Reads rows into memory as floats; ValueError names a row whose values are not finite."""
    with np.errstate(over="ignore"):  # refused below
        block = np.asarray(array[rows], dtype=dtype)
    if isinstance(array, UnitRows):  # checked on construction
        return block
    finite = np.isfinite(block)
    if not finite.all():
        row = int(np.flatnonzero(~finite.all(axis=1))[0]) + (rows.start or 0)
        excess = _excess(array[row : row + 1])
        raise ValueError(f"{name}[{row}] must be finite in {block.dtype}; {excess}")
    return block


def _excess(row: np.ndarray) -> str:
    """Says why a row cannot be used: values that are not finite, or too large to compute with."""
    if np.isfinite(row).all():
        return f"it holds {row.flat[np.abs(row).argmax()]:g}, which is too large; divide all by it"
    return "it holds NaN or infinity"


def slices(total: int, size: int | None = None) -> Iterator[slice]:
    """Cuts `total` rows into blocks of a size, by default `BLOCK_ROWS`."""
    size = size or BLOCK_ROWS
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def no_neighbors(rows: int, k: int) -> Neighbors:
    """Scores and rows [rows, k] to begin with: minus infinity and -1."""
    return np.full((rows, k), -np.inf, np.float32), np.full((rows, k), -1, np.int64)


def row_blocks(array: np.ndarray, name: str = "vectors") -> Iterator[tuple[slice, np.ndarray]]:
    """Yields slices of rows and their blocks, finite; float64 if the array is, else float32."""
    dtype = np.float64 if array.dtype == np.float64 else np.float32
    for rows in slices(len(array)):
        yield rows, finite_block(array, rows, name, dtype)
