"""PyTorch files, read with weights-only loading, which builds plain data and runs nothing.

PyTorch trusts the sizes in a file: it reads past the end of a tensor's data where they are wrong,
and allocates what they ask for. Here they are checked first.
"""

import argparse
import os
import warnings
import zipfile
from typing import Any

import numpy as np

from xling_jax.files.untrusted import one_line

_ZIP_MAGIC = b"PK\x03\x04"


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


def check_tensors(tensors: Any) -> None:
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


def to_numpy(value: Any, where: str) -> np.ndarray:
    """Returns a tensor's values as float32; raises ValueError unless they are finite floats."""
    if not value.is_floating_point():
        raise ValueError(
            f"{where}: must be of floats; found {value.dtype}, as in a quantized model"
        )
    return finite(value.detach().float().numpy(), where)


def finite(values: np.ndarray, where: str) -> np.ndarray:
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
