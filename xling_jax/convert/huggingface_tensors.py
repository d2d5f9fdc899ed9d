"""The tensors of a Hugging Face directory: safetensors, whole or sharded, or a PyTorch file.

A PyTorch file is read with weights-only loading, which builds tensors and runs nothing; PyTorch is
imported for that alone.
"""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from xling_jax.convert.huggingface_config import read_settings

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TORCH_FILE = "pytorch_model.bin"

_FLOATS = ("F64", "F32", "F16", "BF16")


class Tensors:
    """The tensors of one directory by name; read one at a time, as float32.

    Args:
        directory: with one of `WEIGHTS_FILE`, `INDEX_FILE` and its shards, `TORCH_FILE`.

    Attributes:
        path: the file that was read.

    Raises:
        ValueError: if there is none, or it is damaged.
        ImportError: for a PyTorch file without PyTorch.
    """

    def __init__(self, directory: Path):
        self._readers: dict[str, Callable[[], np.ndarray]] = {}
        if (directory / WEIGHTS_FILE).is_file():
            self.path = directory / WEIGHTS_FILE
            self._open(self.path)
        elif (directory / INDEX_FILE).is_file():
            self.path = directory / INDEX_FILE
            for shard in sorted(set(_weight_map(self.path).values())):
                self._open(directory / shard)
        elif (directory / TORCH_FILE).is_file():
            self.path = directory / TORCH_FILE
            state = _load_torch(self.path)
            for name, value in state.items():
                self._readers[_modern(name)] = value.detach().float().numpy
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
        """Returns a tensor.

        Args:
            name: of the tensor.
            *shape: what it must have.

        Raises:
            ValueError: if it is missing or has another shape or no floats.
        """
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

    def _open(self, path: Path) -> None:
        try:
            file = safetensors.safe_open(path, framework="numpy")
        except FileNotFoundError:
            raise ValueError(f"{path}: missing; {INDEX_FILE} names it") from None
        except safetensors.SafetensorError as error:
            raise ValueError(f"{path}: is cut or damaged: {error}") from error
        for name in file.keys():  # noqa: SIM118, safe_open is no mapping
            self._readers[_modern(name)] = lambda file=file, name=name: _read(path, file, name)


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


def _load_torch(path: Path) -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"{path}: reading a PyTorch file needs PyTorch, once: pip install torch; or take the "
            f"model's {WEIGHTS_FILE}"
        ) from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not all(isinstance(value, torch.Tensor) for value in state.values()):
            raise ValueError("it holds more than tensors")
    # What a damaged file makes the two readers of PyTorch raise, one of zip files, one of 2018.
    except (
        *(pickle.UnpicklingError, RuntimeError, EOFError, KeyError),
        *(ValueError, AttributeError, OSError),
    ) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: is no PyTorch file of tensors alone, and nothing else is loaded: "
            f"{reason:.80}; take the model's {WEIGHTS_FILE}"
        ) from error
    return state
