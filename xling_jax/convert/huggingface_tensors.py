"""The tensors of a Hugging Face directory: safetensors, whole or sharded, or a PyTorch file."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from xling_jax.convert.huggingface_config import read_settings
from xling_jax.convert.torch_file import load_torch, to_numpy

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TORCH_FILE = "pytorch_model.bin"

_FLOATS = ("F64", "F32", "F16", "BF16")


class Tensors:
    """The tensors of a directory by name; read one at a time, as float32.

    Args:
        directory: with `WEIGHTS_FILE`, or `INDEX_FILE` and its shards, or `TORCH_FILE`.

    Attributes:
        path: the file that was read.
        prefix: put before all names that are read.

    Raises:
        ValueError: if there is none, or it is damaged.
        ImportError: for a PyTorch file without PyTorch.
    """

    def __init__(self, directory: Path):
        self.prefix = ""
        self._readers: dict[str, Callable[[], np.ndarray]] = {}
        if (directory / WEIGHTS_FILE).is_file():
            self.path = directory / WEIGHTS_FILE
            self._open(self.path)
        elif (directory / INDEX_FILE).is_file():
            self.path = directory / INDEX_FILE
            for shard in sorted(set(_weight_map(self.path).values())):
                if not shard or Path(shard).name != shard or len(shard) > 255:
                    raise ValueError(f"{self.path}: {shard!r:.80} must be the name of a file here")
                self._open(directory / shard)
        elif (directory / TORCH_FILE).is_file():
            self.path = directory / TORCH_FILE
            hint = f"; use the model's {WEIGHTS_FILE}"
            for name, value in load_torch(self.path, hint, tensors_only=True).items():
                self._readers[_modern(name)] = functools.partial(
                    to_numpy, value, f"{self.path}: tensor {name}"
                )
        else:
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
        return value

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
        if not path.is_file():  # a directory, too, is no shard
            raise ValueError(f"{path}: missing; {INDEX_FILE} names it")
        try:
            file = safetensors.safe_open(path, framework="numpy")
        except safetensors.SafetensorError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: is cut or damaged: {reason:.200}") from error
        for name in file.keys():  # noqa: SIM118, safe_open is no mapping
            self._readers[_modern(name)] = functools.partial(_read, path, file, name)


def _read(path: Path, file: Any, name: str) -> np.ndarray:
    dtype = file.get_slice(name).get_dtype()
    if dtype not in _FLOATS:
        raise ValueError(
            f"{path}: tensor {name} must be one of {', '.join(_FLOATS)}; found {dtype}, as in a "
            "quantized model; take the model it was made from"
        )
    return file.get_tensor(name).astype(np.float32)


def _modern(name: str) -> str:
    """Names of layer norms as they are since 2019."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _weight_map(path: Path) -> Mapping[str, str]:
    found = read_settings(path).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(file, str) for file in found.values()):
        raise ValueError(f"{path}: must hold a weight_map from tensors to files")
    return found
