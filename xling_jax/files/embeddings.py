"""Files of arrays: embeddings as `.npy` or LASER's headerless `.bin`, and safetensors.

Embeddings are written as a stream and memory-mapped. Of int8 and packed bits, `PATH.json` says
beside the file what they mean. The writer holds one chunk at a time, so a file may be larger than
memory. Nothing here knows about models or text.
"""

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import safetensors.numpy

from xling_jax.files.quantization import QuantizedRows, Quantizer
from xling_jax.files.untrusted import one_line, parse_json
from xling_jax.files.whole import naming_errors, whole_file, write_json
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
    quantizer: Quantizer | None = None,
) -> int:
    """Writes embeddings chunk by chunk; the file appears whole or not at all.

    Chunks are float arrays [any, dim], pulled one at a time, converted to little-endian float32 or
    as the `quantizer` says; with that of int8 or packed bits, `PATH.json` is written too. The
    format "laser" is the same numbers without a header. What goes to stdout, "-", is first written
    to a temporary file: the header holds the number of rows, and a failure must emit nothing.

    Returns the number of rows. FileExistsError without `overwrite`; OSError names `path`.
    """
    check_choice("format", format, FORMATS)
    quantizer = quantizer or Quantizer("float32", dim)
    if quantizer.dim != dim:
        raise ValueError(f"quantizer must be for {dim} dimensions; found {quantizer.dim}")
    is_described = quantizer.dtype.kind != "f"
    if format != "npy" and quantizer.dtype != _DTYPE:
        raise ValueError(f"format={format!r} is float32 only; found {quantizer.precision}")
    to_stdout, beside = os.fspath(path) == "-", meaning_path(path)
    if is_described and to_stdout:
        raise ValueError(
            f"vectors in precision {quantizer.precision} need a file, with what they mean in a "
            "second one beside it; stdout has none"
        )
    if is_described and os.path.isdir(beside):
        raise ValueError(f"{beside}: is a directory; choose another path")
    if to_stdout:
        with tempfile.TemporaryFile() as spool:
            with naming_errors(tempfile.gettempdir()):
                rows = _write_stream(spool, chunks, quantizer, format)
            spool.seek(0)
            with naming_errors("<stdout>"):
                shutil.copyfileobj(spool, sys.stdout.buffer, 1 << 20)
                sys.stdout.buffer.flush()
        return rows
    for file in (path, *([beside] if is_described else [])):
        if os.path.isfile(file) and not overwrite:
            raise FileExistsError(f"{file}: already exists; pass overwrite=True to replace it")
    with whole_file(path) as file:
        rows = _write_stream(file, chunks, quantizer, format)
        if is_described or overwrite:
            file.flush()
            os.fsync(file.fileno())  # a full disk leaves the old vectors and what they mean
            # Never beside the new vectors, which would be read with the old ranges.
            with contextlib.suppress(ValueError):  # those replaced were not described
                read_quantizer(path)
                os.unlink(beside)
    if is_described:
        write_json(beside, quantizer.to_json())
    return rows


def meaning_path(path: str | os.PathLike[str]) -> str:
    """The file beside an embedding file of int8 or packed bits, with its `Quantizer`."""
    return f"{os.fspath(path)}.json"


def read_quantizer(path: str | os.PathLike[str]) -> Quantizer:
    """Reads the `Quantizer` of an embedding file of int8 or packed bits; ValueError without one."""
    beside = meaning_path(path)
    if not os.path.isfile(beside):
        raise ValueError(
            f"{path}: holds int8 or uint8, and {beside} with their precision is missing; copy it "
            'from where the file was written, or write it: {"precision": "ubinary", "dim": 256}'
        )
    with open(beside, "rb") as file:
        return Quantizer.from_json(parse_json(file.read(), beside), beside)


def read_embeddings(
    path: str | os.PathLike[str], dim: int | None = None
) -> np.ndarray | QuantizedRows:
    """Reads embeddings; the first bytes of the file show which format it has.

    An `.npy` file holds floats [n, dim], or int8 or packed bits with their `PATH.json`; one of
    LASER float32 without a header, and needs `dim`, which is checked for others.

    Returns float32 [n, dim], mapped read-only or, from other floats, converted in memory; int8 and
    packed bits as `QuantizedRows`, which are decoded as they are selected.
    """
    with open(path, "rb") as file:
        is_npy = file.read(len(_NPY_MAGIC)) == _NPY_MAGIC
    embeddings = _map_npy(path) if is_npy else _map_laser(path, dim)
    quantizer = read_quantizer(path) if embeddings.dtype.kind != "f" else None
    found_dim = quantizer.dim if quantizer else embeddings.shape[1]
    if dim is not None and found_dim != dim:
        raise ValueError(f"{path}: embeddings must have {dim} dimensions; found {found_dim}")
    if quantizer:
        return QuantizedRows(embeddings, quantizer, name=os.fspath(path))
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite
        return embeddings.astype(np.float32, copy=False)


class JoinedRows:
    """The rows of several arrays [any, dim], one after the other; nothing is copied.

    Can be indexed by slices without steps and by integer arrays, as `QuantizedRows`.
    """

    def __init__(self, arrays: Sequence[np.ndarray | QuantizedRows]):
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


def join_embeddings(
    arrays: Sequence[np.ndarray | QuantizedRows],
) -> np.ndarray | QuantizedRows | JoinedRows:
    """The rows of one or more arrays of the same width, one after the other, without a copy."""
    return arrays[0] if len(arrays) == 1 else JoinedRows(arrays)


def _write_stream(
    file: BinaryIO, chunks: Iterable[np.ndarray], quantizer: Quantizer, format: str
) -> int:
    def write_header(rows: int) -> None:
        if format == "npy":
            shape = (rows, quantizer.width)
            header = {"descr": quantizer.dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)

    write_header(rows := 0)
    for chunk in map(np.asarray, chunks):
        if chunk.ndim != 2 or chunk.shape[1] != quantizer.dim:
            raise ValueError(
                f"a chunk of embeddings must have shape [any, {quantizer.dim}]; "
                f"found {list(chunk.shape)}"
            )
        file.write(np.ascontiguousarray(quantizer.quantize(chunk)).data)
        rows += len(chunk)
    file.seek(0)
    write_header(rows)  # NumPy pads it for any number of rows, so no data moves
    file.seek(0, os.SEEK_END)
    return rows


def _map_npy(path: str | os.PathLike[str]) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, which fails in many ways
        raise ValueError(
            f"{path}: damaged .npy ({one_line(error, 200)}); write it again"
        ) from error
    is_known = array.dtype.kind == "f" or array.dtype in (np.int8, np.uint8)
    if array.ndim != 2 or not is_known or not array.flags.c_contiguous:
        order = "row" if array.flags.c_contiguous else "column"
        raise ValueError(
            f"{path}: embeddings must be floats [n, dim] in row order, or int8 or uint8 as "
            f"xling embed --precision writes them; found {array.dtype} {list(array.shape)} in "
            f"{order} order"
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
