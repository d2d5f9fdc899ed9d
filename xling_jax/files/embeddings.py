"""Embedding files: `.npy` and LASER's headerless `.bin`, written as a stream and memory-mapped.

The writer holds one chunk at a time, so a file may be larger than memory. Nothing here knows about
models or text.
"""

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from typing import BinaryIO

import numpy as np

from xling_jax.files.whole import naming_errors, whole_file
from xling_jax.registry import check_choice

FORMATS = ("npy", "laser")

_DTYPE = np.dtype("<f4")
_NPY_MAGIC = b"\x93NUMPY"


def write_embeddings(
    path: str | os.PathLike[str],
    chunks: Iterable[np.ndarray],
    *,
    dim: int,
    format: str = "npy",
    overwrite: bool = False,
) -> int:
    """Writes embeddings chunk by chunk; the file appears whole or not at all.

    Args:
        path: the output file, or "-" for stdout. What goes to stdout is first written to a
            temporary file: the header of an `.npy` holds the number of rows, and a failure must
            emit nothing.
        chunks: arrays [any, dim], converted to little-endian float32; pulled one at a time.
        dim: embedding size; a file without rows needs it.
        format: "npy" (float32 [n, dim]) or "laser" (the same numbers without a header).
        overwrite: whether to replace an existing file.

    Returns:
        The number of rows written.

    Raises:
        ValueError: if the format is unknown, a chunk is not [any, dim], or `path` is not a
            regular file.
        FileExistsError: if `path` exists and `overwrite` is False.
        OSError: naming `path`, if writing fails.
    """
    check_choice("format", format, FORMATS)
    if os.fspath(path) == "-":
        with naming_errors(tempfile.gettempdir()), tempfile.TemporaryFile() as spool:
            rows = _write_stream(spool, chunks, dim, format)
            spool.seek(0)
            shutil.copyfileobj(spool, sys.stdout.buffer, 1 << 20)
            sys.stdout.buffer.flush()
        return rows
    if os.path.isfile(path) and not overwrite:
        raise FileExistsError(f"{path}: already exists; pass overwrite=True to replace it")
    with whole_file(path) as file:
        return _write_stream(file, chunks, dim, format)


def read_embeddings(
    path: str | os.PathLike[str], dim: int | None = None, mmap: bool = True
) -> np.ndarray:
    """Reads embeddings; the first bytes of the file show which format it has.

    Args:
        path: an `.npy` file holding floats [n, dim], or a LASER file (float32, no header).
        dim: embedding size; checked for `.npy`, required for LASER files.
        mmap: map float32 files instead of reading them; other floats are converted in memory.

    Returns:
        float32 [n, dim], read-only when mapped.

    Raises:
        ValueError: if the size of the file does not agree with its header or with `dim`.
    """
    with open(path, "rb") as file:
        is_npy = file.read(len(_NPY_MAGIC)) == _NPY_MAGIC
    dtype, offset, shape = _npy_layout(path, dim) if is_npy else _laser_layout(path, dim)
    if not math.prod(shape):  # an empty file cannot be mapped
        return np.zeros(shape, np.float32)
    if mmap:
        embeddings = np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)
    else:
        embeddings = np.fromfile(path, dtype=dtype, offset=offset).reshape(shape)
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite
        return embeddings.astype(np.float32, copy=False)


def _write_stream(file: BinaryIO, chunks: Iterable[np.ndarray], dim: int, format: str) -> int:
    if format == "npy":
        _write_npy_header(file, 0, dim)
    data_start = file.tell()
    rows = 0
    for chunk in chunks:
        chunk = np.ascontiguousarray(chunk, dtype=_DTYPE)
        if chunk.ndim != 2 or chunk.shape[1] != dim:
            raise ValueError(
                f"a chunk of embeddings must have shape [any, {dim}]; found {list(chunk.shape)}"
            )
        file.write(chunk.data)
        rows += len(chunk)
    if format == "npy":
        # NumPy pads the header for any number of rows, so writing it again moves no data.
        file.seek(0)
        _write_npy_header(file, rows, dim)
        if file.tell() != data_start:
            raise RuntimeError("the .npy header changed size with the number of rows")
        file.seek(0, os.SEEK_END)
    return rows


def _write_npy_header(file: BinaryIO, rows: int, dim: int) -> None:
    header = {"descr": _DTYPE.str, "fortran_order": False, "shape": (rows, dim)}
    np.lib.format.write_array_header_1_0(file, header)


def _npy_layout(
    path: str | os.PathLike[str], dim: int | None
) -> tuple[np.dtype, int, tuple[int, ...]]:
    """Type, offset and shape of the numbers in an `.npy` file."""
    with open(path, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
            elif version not in ((2, 0), (3, 0)):
                raise ValueError(f"version {version}")
            else:
                shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(file)
            # Those of NumPy may be negative or, as bool is an int, True.
            if any(type(size) is not int or size < 0 for size in shape):
                raise ValueError(f"shape {shape}")
        except Exception as error:  # NumPy parses it as Python, which fails in many ways
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{path}: damaged .npy header ({reason:.200}); write it again"
            ) from error
        offset = file.tell()
    if len(shape) != 2 or dtype.kind != "f" or fortran_order:
        order = "column" if fortran_order else "row"
        raise ValueError(
            f"{path}: embeddings must be floats [n, dim] in row order; "
            f"found {dtype} {list(shape)} in {order} order"
        )
    if dim is not None and shape[1] != dim:
        raise ValueError(f"{path}: embeddings must have {dim} dimensions; found {shape[1]}")
    expected = math.prod(shape) * dtype.itemsize
    found = os.path.getsize(path) - offset
    if found != expected:
        raise ValueError(
            f"{path}: the header says {shape[0]} rows of {shape[1]} {dtype}, {expected} bytes; "
            f"found {found}; the file is truncated or damaged, write it again"
        )
    return dtype, offset, shape


def _laser_layout(
    path: str | os.PathLike[str], dim: int | None
) -> tuple[np.dtype, int, tuple[int, ...]]:
    if dim is None or dim < 1:
        raise ValueError(f"{path}: no .npy header; pass dim to read it as a LASER file")
    rows, rest = divmod(os.path.getsize(path), dim * _DTYPE.itemsize)
    if rest:
        raise ValueError(
            f"{path}: {os.path.getsize(path)} bytes is not a whole number of rows of {dim} "
            "float32; dim is wrong or the file is truncated"
        )
    return _DTYPE, 0, (rows, dim)
