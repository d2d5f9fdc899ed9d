"""Files of arrays: embeddings as `.npy` or LASER's headerless `.bin`, and safetensors.

Embeddings are written as a stream and memory-mapped. The writer holds one chunk at a time, so a
file may be larger than memory. Nothing here knows about models or text.
"""

import errno
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import safetensors.numpy

from xling_jax.files.untrusted import one_line
from xling_jax.files.whole import naming_errors, whole_file
from xling_jax.registry import check_choice

FORMATS = ("npy", "laser")
PRECISIONS = ("float32", "float16")

_DTYPE = np.dtype("<f4")
_NPY_MAGIC = b"\x93NUMPY"


def write_embeddings(
    path: str | os.PathLike[str],
    chunks: Iterable[np.ndarray],
    *,
    dim: int,
    format: str = "npy",
    overwrite: bool = False,
    precision: str = "float32",
    comment: str = "",
) -> int:
    """Writes embeddings chunk by chunk; the file appears whole or not at all.

    Chunks are float arrays [any, dim], pulled one at a time, and converted to little-endian floats
    of the `precision`. The format "laser" is float32 without a header. What goes to stdout, "-", is
    first written to a temporary file: the header holds the number of rows, and a failure must emit
    nothing. A `comment` of at most 20 characters, "# …", stands in the header of an `.npy` file.

    Returns the number of rows. FileExistsError without `overwrite`; OSError names `path`.
    """
    check_choice("format", format, FORMATS)
    check_choice("precision", precision, PRECISIONS)
    if format != "npy" and precision != "float32":
        raise ValueError(f"format={format!r} is float32 only; found {precision}")
    dtype = np.dtype(precision).newbyteorder("<")

    def write(file: BinaryIO) -> int:
        rows = 0
        write_header(file, rows)
        for chunk in map(np.asarray, chunks):
            if chunk.ndim != 2 or chunk.shape[1] != dim:
                rule = f"a chunk of embeddings must have shape [any, {dim}]"
                raise ValueError(f"{rule}; found {[*chunk.shape]}")
            with np.errstate(over="ignore"):  # beyond float16 is infinite, which readers refuse
                file.write(np.ascontiguousarray(chunk, dtype).data)
            rows += len(chunk)
        file.seek(0)
        write_header(file, rows)  # as long as before
        file.seek(0, os.SEEK_END)
        return rows

    def write_header(file: BinaryIO, rows: int) -> None:
        if format == "npy":
            header = {"descr": dtype.str, "fortran_order": False, "shape": (rows, dim)}
            np.lib.format.write_array_header_1_0(text := io.BytesIO(), header)
            # NumPy reads it as Python, comments included, and pads it for any number of rows.
            file.write(text.getvalue()[: -len(comment) - 1] + f"{comment}\n".encode())

    if os.fspath(path) == "-":
        with tempfile.TemporaryFile() as spool:
            with naming_errors(tempfile.gettempdir()):
                rows = write(spool)
            spool.seek(0)
            with naming_errors("<stdout>"):
                shutil.copyfileobj(spool, sys.stdout.buffer, 1 << 20)
                sys.stdout.buffer.flush()
        return rows
    if os.path.isfile(path) and not overwrite:
        raise FileExistsError(f"{path}: already exists; pass overwrite=True to replace it")
    with whole_file(path) as file:
        return write(file)


def read_embeddings(path: str | os.PathLike[str], dim: int | None = None) -> np.ndarray:
    """Reads embeddings; the first bytes of the file show which format it has.

    An `.npy` file holds floats [n, dim]; one of LASER float32 without a header, and needs `dim`,
    which is checked for others. Returns float32 [n, dim], mapped read-only or, from other floats,
    converted in memory.
    """
    with open(path, "rb") as file:
        is_npy = file.read(len(_NPY_MAGIC)) == _NPY_MAGIC
    embeddings = _map_npy(path) if is_npy else _map_laser(path, dim)
    if dim is not None and embeddings.shape[1] != dim:
        found = embeddings.shape[1]
        raise ValueError(f"{path}: embeddings must have {dim} dimensions; found {found}")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite
        return embeddings.astype(np.float32, copy=False)


class JoinedRows:
    """The rows of several arrays [any, dim], one after the other; nothing is copied.

    Can be indexed by slices without steps and by integer arrays.
    """

    def __init__(self, arrays: Sequence[np.ndarray]):
        self._arrays = arrays
        self._ends = np.cumsum([len(array) for array in arrays])
        self.shape = (int(self._ends[-1]), arrays[0].shape[1])
        self.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        rows = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        owners = np.searchsorted(self._ends, rows, side="right")
        for owner in np.unique(owners):
            of_owner = owners == owner
            first = self._ends[owner] - len(self._arrays[owner])
            found[of_owner] = self._arrays[owner][rows[of_owner] - first]
        return found


def _map_npy(path: str | os.PathLike[str]) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, which fails in many ways
        raise ValueError(
            f"{path}: damaged .npy ({one_line(error, 200)}); write it again"
        ) from error
    if array.ndim != 2 or array.dtype.kind != "f" or not array.flags.c_contiguous:
        order = "row" if array.flags.c_contiguous else "column"
        raise ValueError(
            f"{path}: embeddings must be floats [n, dim] in row order; found {array.dtype} "
            f"{list(array.shape)} in {order} order"
        )
    if (found := os.path.getsize(path) - array.offset) != array.nbytes:
        raise ValueError(
            f"{path}: the header says {len(array)} rows of {array.shape[1]} {array.dtype}, "
            f"{array.nbytes} bytes; found {found}; the file is damaged, write it again"
        )
    return array


def _map_laser(path: str | os.PathLike[str], dim: int | None) -> np.ndarray:
    if dim is None or dim < 1:
        raise ValueError(f"{path}: no .npy header; give dim (--dim) to read it as a LASER file")
    size = os.path.getsize(path)
    rows, rest = divmod(size, dim * _DTYPE.itemsize)
    if rest:
        raise ValueError(
            f"{path}: {size} bytes is not a whole number of rows of {dim} float32; dim is wrong or "
            "the file is truncated"
        )
    # An empty file cannot be mapped.
    return np.memmap(path, _DTYPE, "r", shape=(rows, dim)) if rows else np.zeros((0, dim), _DTYPE)


def write_tensors(
    path: Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None
) -> None:
    """Writes a safetensors file with the permissions of any new file; OSError if it cannot."""
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    path.touch()
    mode = path.stat().st_mode  # safetensors creates files that only their owner can read
    try:
        safetensors.numpy.save_file(contiguous, path, metadata)
    except safetensors.SafetensorError as error:
        raise OSError(errno.EIO, f"the model could not be written: {error}") from error
    path.chmod(mode)
