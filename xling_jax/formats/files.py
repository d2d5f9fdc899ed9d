"""The files of published encoders: settings in JSON, and tensors by name.

config.json, …                        settings; a wrong one is named
model.safetensors, pytorch_model.bin  tensors, whole or sharded
*.pt                                  what PyTorch has saved

PyTorch files are read with weights-only loading, which builds plain data and runs nothing. PyTorch
trusts the sizes in a file: it reads past the end of a tensor's data where they are wrong, and
allocates what they ask for. Here they are checked first.
"""

import argparse
import contextlib
import functools
import json
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from xling_jax.encode.model_card import LICENSE
from xling_jax.encode.model_directory import CARD_FILE
from xling_jax.files.untrusted import named, one_line, parse_json
from xling_jax.models.numpy_layers import ACTIVATIONS
from xling_jax.text.languages import is_code, to_iso639_1

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TORCH_FILE = "pytorch_model.bin"
TORCH_INDEX_FILE = "pytorch_model.bin.index.json"

_ACTIVATION_NAMES = {"gelu_python": "gelu", "silu": "swish"} | dict.fromkeys(
    ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"), "gelu_tanh"
)
_FLOATS = ("F64", "F32", "F16", "BF16")
_INTEGERS = ("I8", "I32", "I64")

# What torch.compile, DDP, FSDP and checkpointing put before the names inside of what they wrap.
_WRAPPED = re.compile(
    r"(?<![^.])(_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
_POINTER = b"version https://git-lfs"
_ZIP_MAGIC = b"PK\x03\x04"


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file; raises ValueError if it is missing or not JSON."""
    try:
        return parse_json(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise ValueError(
            f"{path}: missing; give a model directory as Hugging Face publishes it, whole"
        ) from None


class Settings(dict[str, Any]):
    """The JSON object in a file; a value that is not what it should be is a ValueError."""

    def __init__(self, path: Path, values: Mapping[str, Any]):
        super().__init__(values)
        self.path = path

    def error(self, key: str, rule: str) -> ValueError:
        """Says that a value must be something else."""
        value = self.get(key)
        found = "nothing" if value is None else f"{value!r:.60}"
        return ValueError(f"{self.path}: {key} must be {rule}; found {found}")

    def require(self, required: Mapping[str, Any]) -> None:
        """Checks that values are these, null or absent."""
        for key, value in required.items():
            if self.get(key, value) not in (value, None):
                raise self.error(key, repr(value))

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.get(key, default)
        if type(value) is not int or value < 1:
            raise self.error(key, "a whole number above 0")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number; null is the default, too."""
        value = default if self.get(key) is None else self[key]
        if type(value) not in (int, float) or not 0 < value < 1e12:
            raise self.error(key, "a number above 0")
        return float(value)

    def rate(self, key: str, default: float = 0.0) -> float:
        """The rate of a dropout; null is the default, too."""
        value = default if self.get(key) is None else self[key]
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise self.error(key, "at least 0 and below 1")
        return float(value)

    def flag(self, key: str) -> bool:
        """True or False, which is the default."""
        if not isinstance(self.get(key), bool | None):
            raise self.error(key, "true or false")
        return bool(self.get(key))

    def activation(self, key: str, default: str = "gelu") -> str:
        """The name of an activation, as a key of `models.numpy_layers.ACTIVATIONS`."""
        name = self.get(key, default)
        ours = _ACTIVATION_NAMES.get(name, name) if isinstance(name, str) else None
        if ours not in ACTIVATIONS:
            known = sorted({*ACTIVATIONS, *_ACTIVATION_NAMES} - {"gelu_tanh"})
            raise self.error(key, f"one of {', '.join(known)}")
        return ours


def read_settings(path: Path, *, optional: bool = False) -> Settings:
    """Reads a file that must hold a JSON object; an optional one may be absent."""
    if optional and not path.is_file():
        return Settings(path, {})
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: must hold a JSON object; found {type(settings).__name__}")
    return Settings(path, settings)


def published_name(directory: Path) -> str:
    """The name of a directory; of one in huggingface_hub's cache that of its repository."""
    path = directory.resolve()
    if path.parent.name == "snapshots":
        return path.parents[1].name.removeprefix("models--").replace("--", "/")
    return path.name


def read_origin(directory: Path) -> tuple[dict[str, str], list[str]]:
    """The name and license of a published model for its record, and its languages.

    The last two are in the YAML header of its card, if there is one.
    """
    import yaml

    name = published_name(directory)
    with contextlib.suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        card = (directory / CARD_FILE).read_text(encoding="utf-8")
        header = yaml.safe_load(card.split("---", 2)[1]) if card.startswith("---") else None
        if isinstance(header, dict):
            license = {k: v for k in LICENSE if isinstance(v := header.get(k), str)}
            codes = header.get("language")
            codes = codes if isinstance(codes, list) else [codes]
            found = [code for code in codes if isinstance(code, str) and is_code(code)]
            return {"source": name, **license}, [to_iso639_1(code) for code in found]
    return {"source": name}, []


def write_json(path: Path, value: Any) -> None:
    """Writes JSON indented as those of Hugging Face are, in the order of its keys."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class Tensors:
    """The tensors of a directory by name; read one at a time, as float32.

    They are in `WEIGHTS_FILE`, `TORCH_FILE`, or the shards of an index of either; or they are the
    `values` that PyTorch has read from a file. `prefix` is put before all names that are read.
    """

    def __init__(self, where: Path, values: Any = None):
        self.prefix = ""
        self._readers: dict[str, Callable[[Sequence[str]], np.ndarray]] = {}
        if values is not None:
            self.path = where
            self._add(where, values)
            return
        self.path = _weights_of(where)
        for file in _shards(self.path) if self.path.suffix == ".json" else [self.path]:
            if file.suffix == ".safetensors":
                self._open(file)
            else:
                self._add(file, load_torch(file, f"; use the model's {WEIGHTS_FILE}"))

    @property
    def names(self) -> set[str]:
        """Names of the tensors."""
        return set(self._readers)

    def begin_at(self, name: str) -> None:
        """Sets the prefix to what stands before a name, as of a model with a task's head."""
        found = {n.removesuffix(name) for n in self.names if f".{n}".endswith(f".{name}")}
        if len(found) > 1:
            raise ValueError(
                f"{self.path}: holds {len(found)} transformers, before whose names stand "
                f"{', '.join(sorted(found)):.80}; save the one that is wanted"
            )
        self.prefix = min(found, default="")

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Returns a tensor; ValueError if it is missing, has another shape or is not of floats."""
        name = self.prefix + name
        value = self.table(name, _FLOATS)
        if value.shape != shape:
            raise ValueError(
                f"{self.path}: tensor {name} must be {list(shape)}; found {list(value.shape)}"
            )
        return value

    def table(self, name: str, dtypes: Sequence[str] = (*_FLOATS, *_INTEGERS)) -> np.ndarray:
        """Returns a tensor of any shape: float32, or integers as stored; ValueError for others."""
        if name not in self._readers:
            raise ValueError(
                f"{self.path}: tensor {name} is missing; it holds {len(self.names)} tensors, such "
                f"as {', '.join(sorted(self.names)[:2]) or 'none'}"
            )
        return self._readers[name](dtypes)

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
            with open(path, "rb") as content:
                if content.read(len(_POINTER)) == _POINTER:
                    raise ValueError(f"{path}: is a git-lfs pointer; run git lfs pull") from error
            raise ValueError(f"{path}: is cut or damaged: {one_line(error, 200)}") from error
        for name in file.keys():  # noqa: SIM118, safe_open is no mapping
            self._readers[_modern(name)] = functools.partial(_read, path, file, name)

    def _add(self, path: Path, values: Any) -> None:
        with named(path):
            _check_tensors(values)
        for name, value in values.items():
            read = functools.partial(_to_numpy, value, f"{path}: tensor {name}")
            self._readers[_modern(name)] = lambda dtypes, read=read: read()  # of floats


def _read(path: Path, file: Any, name: str, dtypes: Sequence[str]) -> np.ndarray:
    dtype = file.get_slice(name).get_dtype()
    if dtype not in dtypes:
        raise ValueError(
            f"{path}: tensor {name} must be one of {', '.join(dtypes)}; found {dtype}, as in a "
            "quantized model; take the model it was made from"
        )
    if dtype == "BF16":
        import ml_dtypes  # noqa: F401, from which NumPy knows it
    value = file.get_tensor(name)
    return value if dtype in _INTEGERS else _finite(value.astype(np.float32), f"{path}: {name}")


def _modern(name: str) -> str:
    """Names without those of wrappers; layer norms as since 2019."""
    name = _WRAPPED.sub("", name)
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _weights_of(directory: Path) -> Path:
    """The file of the weights, or the index of their shards."""
    paths = [directory / n for n in (WEIGHTS_FILE, INDEX_FILE, TORCH_FILE, TORCH_INDEX_FILE)]
    if found := next(filter(Path.is_file, paths), None):
        return found
    raise ValueError(
        f"{directory}: must hold {WEIGHTS_FILE}, {INDEX_FILE} with its shards, or {TORCH_FILE}; "
        f"found {', '.join(sorted(p.name for p in directory.glob('*.*')))}"
    )


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


def import_torch(purpose: str, hint: str = "") -> Any:
    """Imports PyTorch; raises ImportError with what needs it, and a hint of what else to do."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{purpose} needs PyTorch: pip install torch{hint}") from error
    return torch


def load_torch(path: str | os.PathLike[str], hint: str = "") -> Any:
    """Loads a PyTorch file.

    Values of tensors are mapped from the file, except in the format before PyTorch 1.6. ImportError
    without PyTorch; ValueError if it is damaged or holds Python objects, with the `hint` what else
    to do.
    """
    torch = import_torch(f"{path}: reading a PyTorch file once", hint)
    with open(path, "rb") as file:
        is_zip = file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
    try:
        if is_zip:
            _check_members(path)
        # A namespace holds plain values by name.
        allowed = torch.serialization.safe_globals([argparse.Namespace])
        with allowed, warnings.catch_warnings(action="ignore"):
            # Mapped, a tensor cannot reach beyond the end of the file, and takes no memory.
            return torch.load(os.fspath(path), map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # both readers of PyTorch, for zip files and older ones, raise many
        reason = one_line(error)
        if "Unsupported global" in reason:
            found = reason[reason.index("Unsupported global") :].split(" was not")[0]
            reason = f"holds Python objects, which are not loaded ({found:.200})"
        else:
            reason = f"is not a PyTorch file of plain data, or is damaged: {reason:.80}"
        raise ValueError(f"{path}: {reason}{hint}") from error


def _check_tensors(tensors: Any) -> None:
    """Raises ValueError unless this is a dict of tensors whose elements are all in the file."""
    import torch

    if not isinstance(tensors, dict):
        raise ValueError(f"it must hold a dict of tensors; found {type(tensors).__name__}")
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise ValueError(f"{name!r:.60} must be a tensor; found {type(value).__name__}")
        if value.layout is not torch.strided or value.device.type != "cpu" or value.is_quantized:
            raise ValueError(f"{name:.60} must be a plain tensor; found {value.layout}")
        # A stride of 0 makes any number of elements of one, and a copy then fills the memory.
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise ValueError(f"{name:.60} has more elements than data: {list(value.shape)}")


def _to_numpy(value: Any, where: str) -> np.ndarray:
    """Returns a tensor's values as float32; raises ValueError unless they are finite floats."""
    if not value.is_floating_point():
        raise ValueError(
            f"{where}: must be of floats; found {value.dtype}, as in a quantized model"
        )
    return _finite(value.detach().float().numpy(), where)


def _finite(values: np.ndarray, where: str) -> np.ndarray:
    """Returns values; ValueError unless all are finite, as in a damaged file or failed training."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"{where}: holds values that are not finite (NaN or infinite); fetch the file again, "
            "or take an earlier checkpoint"
        )
    return values


def _check_members(path: str | os.PathLike[str]) -> None:
    """Raises an error if a member is damaged, or compressed, which PyTorch would not notice."""
    with zipfile.ZipFile(path) as archive:
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            raise ValueError("its members must not be compressed")
        if damaged := archive.testzip():
            raise ValueError(f"checksum of {damaged} does not match")
