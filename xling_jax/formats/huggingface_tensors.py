"""The tensors of a Hugging Face directory: safetensors or PyTorch files, whole or sharded."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from xling_jax.files.errors import one_line
from xling_jax.formats.huggingface_config import read_settings
from xling_jax.formats.torch_file import load_torch, to_numpy

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TORCH_FILE = "pytorch_model.bin"
TORCH_INDEX_FILE = "pytorch_model.bin.index.json"

_FLOATS = ("F64", "F32", "F16", "BF16")
_INTEGERS = ("I8", "I32", "I64")


class Tensors:
    """The tensors of a directory by name; read one at a time, as float32.

    Args:
        directory: with `WEIGHTS_FILE`, or `INDEX_FILE` and its shards, or `TORCH_FILE`, or
            `TORCH_INDEX_FILE` and its shards.
        path: another file there, which is then read.

    Attributes:
        path: the file that was read.
        prefix: put before all names that are read.
        added: name of a matrix -> two factors, whose product is added to it by `take`.

    Raises:
        ValueError: if there is none, or it is damaged.
        ImportError: for a PyTorch file without PyTorch.
    """

    def __init__(self, directory: Path, path: Path | None = None):
        self.prefix = ""
        self.added: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._readers: dict[str, Callable[..., np.ndarray]] = {}
        if path is not None:
            self.path = path
            if not path.is_file():
                raise ValueError(f"{path}: missing")
            (self._open if path.suffix == ".safetensors" else self._open_torch)(path)
            return
        for name in (WEIGHTS_FILE, INDEX_FILE, TORCH_FILE, TORCH_INDEX_FILE):
            self.path = directory / name
            if self.path.is_file():
                is_index = name in (INDEX_FILE, TORCH_INDEX_FILE)
                for file in _shards(self.path) if is_index else [self.path]:
                    (self._open if name in (WEIGHTS_FILE, INDEX_FILE) else self._open_torch)(file)
                return
        raise ValueError(
            f"{directory}: must hold {WEIGHTS_FILE}, {INDEX_FILE} with its shards, or "
            f"{TORCH_FILE}; found {', '.join(sorted(p.name for p in directory.glob('*.*')))}"
        )

    @property
    def names(self) -> set[str]:
        """Names of the tensors."""
        return set(self._readers)

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Returns a tensor, which must have the given shape.

        Raises:
            ValueError: if it is missing, has another shape or is not of floats.
        """
        name = self.prefix + name
        if name not in self._readers:
            raise ValueError(
                f"{self.path}: tensor {name} {list(shape)} is missing; it holds {len(self.names)} "
                f"tensors, such as {', '.join(sorted(self.names)[:2]) or 'none'}"
            )
        value = self._readers[name]()
        if value.shape != shape:
            raise ValueError(
                f"{self.path}: tensor {name} must be {list(shape)}; found {list(value.shape)}"
            )
        if name in self.added:
            outer, inner = self.added[name]
            if (len(outer), inner.shape[1]) != shape:
                raise ValueError(f"{self.path}: tensor {name} {list(shape)} is not the adapter's")
            value = value + outer @ inner
        return value

    def table(self, name: str) -> np.ndarray:
        """Returns a tensor of any shape: float32, or integers as stored.

        Raises:
            ValueError: if it is missing or of another type.
        """
        if name not in self._readers:
            raise ValueError(
                f"{self.path}: tensor {name} is missing; found "
                f"{', '.join(sorted(self.names)[:5]) or 'none'}"
            )
        return self._readers[name](dtypes=(*_FLOATS, *_INTEGERS))

    def norm(self, name: str, width: int) -> dict[str, np.ndarray]:
        """Parameters of a layer norm in Linen."""
        return {
            "scale": self.take(f"{name}.weight", width),
            "bias": self.take(f"{name}.bias", width),
        }

    def dense(
        self, name: str, inputs: int, outputs: int, use_bias: bool = True
    ) -> dict[str, np.ndarray]:
        """Parameters of a dense layer in Linen; PyTorch stores the transposed matrix."""
        params = {"kernel": self.take(f"{name}.weight", outputs, inputs).T}
        return params | ({"bias": self.take(f"{name}.bias", outputs)} if use_bias else {})

    def _open(self, path: Path) -> None:
        try:
            file = safetensors.safe_open(path, framework="numpy")
        except safetensors.SafetensorError as error:
            raise ValueError(f"{path}: is cut or damaged: {one_line(error, 200)}") from error
        for name in file.keys():  # noqa: SIM118, safe_open is no mapping
            self._readers[_modern(name)] = functools.partial(_read, path, file, name)

    def _open_torch(self, path: Path) -> None:
        hint = f"; use the model's {WEIGHTS_FILE}"
        for name, value in load_torch(path, hint, tensors_only=True).items():
            where = f"{path}: tensor {name}"
            self._readers[_modern(name)] = functools.partial(_read_torch, value, where)


def _read(path: Path, file: Any, name: str, dtypes: Sequence[str] = _FLOATS) -> np.ndarray:
    dtype = file.get_slice(name).get_dtype()
    if dtype not in dtypes:
        raise ValueError(
            f"{path}: tensor {name} must be one of {', '.join(dtypes)}; found {dtype}, as in a "
            "quantized model; take the model it was made from"
        )
    value = file.get_tensor(name)
    return value if dtype in _INTEGERS else value.astype(np.float32)


def _read_torch(value: Any, where: str, dtypes: Sequence[str] = _FLOATS) -> np.ndarray:
    return to_numpy(value, where)  # of floats


def _modern(name: str) -> str:
    """Names of layer norms as they are since 2019."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _shards(index: Path) -> list[Path]:
    """The files that an index names."""
    found = read_settings(index).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(file, str) for file in found.values()):
        raise ValueError(f"{index}: must hold a weight_map from tensors to files")
    shards = sorted(set(found.values()))
    for shard in shards:
        if not shard or Path(shard).name != shard or len(shard) > 255:
            raise ValueError(f"{index}: {shard!r:.80} must be the name of a file here")
        if not (index.parent / shard).is_file():  # a directory, too, is no shard
            raise ValueError(f"{index.parent / shard}: missing; {index.name} names it")
    return [index.parent / shard for shard in shards]
