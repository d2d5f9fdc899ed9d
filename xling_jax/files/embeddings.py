"""Embedding files: `.npy` and LASER's headerless `.bin`, written as a stream, read as a map.

The writer never holds more than one chunk, so a file may be larger than memory, and the file
appears under its name only when it is complete. Nothing here knows about models or text.
"""

import contextlib
import errno
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np

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
        path: the output file, or "-" for stdout (spooled to a temporary file first, because the
            header of an `.npy` names the number of rows, and so that a failure emits nothing).
        chunks: arrays [any, dim], converted to little-endian float32; pulled one at a time.
        dim: embedding size, needed for files without rows.
        format: "npy" (float32 [n, dim]) or "laser" (the same numbers without a header).
        overwrite: replace an existing file.

    Returns:
        The number of rows written.

    Raises:
        ValueError: if the format is unknown, a chunk is not [any, dim], or `path` is a directory.
        FileExistsError: if `path` exists and `overwrite` is False.
    """
    if format not in FORMATS:
        raise ValueError(f"format={format!r} is not one of {', '.join(FORMATS)}")
    if os.fspath(path) == "-":
        with _naming(tempfile.gettempdir()), tempfile.TemporaryFile() as spool:
            rows = _write_stream(spool, chunks, dim, format)
            spool.seek(0)
            shutil.copyfileobj(spool, sys.stdout.buffer, 1 << 20)
            sys.stdout.buffer.flush()
        return rows
    with _naming(os.fspath(path)), _appear_whole(pathlib.Path(path), overwrite) as file:
        return _write_stream(file, chunks, dim, format)


def read_embeddings(
    path: str | os.PathLike[str], dim: int | None = None, mmap: bool = True
) -> np.ndarray:
    """Reads embeddings of either format, told apart by the first bytes of the file.

    Args:
        path: an `.npy` file holding floats [n, dim], or a LASER file (float32, no header).
        dim: embedding size. Checked for `.npy`; required for LASER files, which do not say.
        mmap: map float32 files instead of reading them; other float types are always converted
            in memory.

    Returns:
        float32 [n, dim], read-only when mapped.

    Raises:
        ValueError: if the size of the file and its header, or `dim`, do not agree.
    """
    with open(path, "rb") as file:
        is_npy = file.read(len(_NPY_MAGIC)) == _NPY_MAGIC
    if is_npy:
        return _read_npy(path, dim, mmap)
    return _read_laser(path, dim, mmap)


def _write_stream(file: BinaryIO, chunks: Iterable[np.ndarray], dim: int, format: str) -> int:
    if format == "npy":
        _write_npy_header(file, 0, dim)
    data_start = file.tell()
    rows = 0
    for chunk in chunks:
        chunk = np.ascontiguousarray(chunk, dtype=_DTYPE)
        if chunk.ndim != 2 or chunk.shape[1] != dim:
            raise ValueError(f"a chunk of embeddings must have shape [any, {dim}]: {chunk.shape}")
        file.write(chunk.data)
        rows += len(chunk)
    if format == "npy":
        # NumPy leaves room in the header for any number of rows, so patching cannot move data.
        file.seek(0)
        _write_npy_header(file, rows, dim)
        if file.tell() != data_start:
            raise RuntimeError("the .npy header changed its size with the number of rows")
        file.seek(0, os.SEEK_END)
    return rows


def _write_npy_header(file: BinaryIO, rows: int, dim: int) -> None:
    header = {"descr": _DTYPE.str, "fortran_order": False, "shape": (rows, dim)}
    np.lib.format.write_array_header_1_0(file, header)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Adds the file to the errors of writing, where the system names none.

    Around the whole, closing included, which writes what is still buffered; and only for errors
    that reading the text behind the chunks cannot raise.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise OSError(error.errno, os.strerror(error.errno), name) from error


@contextlib.contextmanager
def _appear_whole(path: pathlib.Path, overwrite: bool) -> Iterator[BinaryIO]:
    """Opens a temporary neighbour of `path` that takes its name when the block ends well."""
    if path.is_dir():
        raise ValueError(f"{path}: is a directory; name a file")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path}: already exists; pass overwrite=True to replace it")
    if path.exists() and not path.is_file():
        # A device or a named pipe (/dev/stdout) must be written to, not replaced by a file.
        raise ValueError(f"{path}: is not a regular file; use '-' to write to stdout")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb+") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_npy(path: str | os.PathLike[str], dim: int | None, mmap: bool) -> np.ndarray:
    with open(path, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
            else:
                shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(file)
        except (ValueError, EOFError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: the .npy header cannot be read: {reason}") from error
        data_start = file.tell()
    if len(shape) != 2 or dtype.kind != "f" or fortran_order:
        order = "column" if fortran_order else "row"
        raise ValueError(
            f"{path}: embeddings must be floats [n, dim] in row order; "
            f"found {dtype} {list(shape)} in {order} order"
        )
    if dim is not None and shape[1] != dim:
        raise ValueError(f"{path}: embeddings must have {dim} dimensions; found {shape[1]}")
    expected = shape[0] * shape[1] * dtype.itemsize
    found = os.path.getsize(path) - data_start
    if found != expected:
        raise ValueError(
            f"{path}: the header promises {shape[0]} rows of {shape[1]} {dtype}, {expected} bytes; "
            f"found {found}; the file was cut or damaged, write it again"
        )
    embeddings = _map_or_read(path, dtype, data_start, shape, mmap)
    return embeddings.astype(np.float32, copy=False)


def _read_laser(path: str | os.PathLike[str], dim: int | None, mmap: bool) -> np.ndarray:
    size = os.path.getsize(path)
    if dim is None:
        raise ValueError(f"{path}: has no .npy header; pass dim to read it as LASER floats")
    if size % (dim * _DTYPE.itemsize):
        raise ValueError(
            f"{path}: {size} bytes are not a whole number of rows of {dim} float32; "
            "dim is wrong or the file was cut"
        )
    return _map_or_read(path, _DTYPE, 0, (size // (dim * _DTYPE.itemsize), dim), mmap)


def _map_or_read(
    path: str | os.PathLike[str],
    dtype: np.dtype,
    offset: int,
    shape: tuple[int, int],
    mmap: bool,
) -> np.ndarray:
    if not shape[0] * shape[1]:  # an empty file cannot be mapped
        return np.zeros(shape, dtype)
    if mmap:
        return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)
    return np.fromfile(path, dtype=dtype, offset=offset).reshape(shape)
