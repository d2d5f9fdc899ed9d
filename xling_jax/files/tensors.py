"""Writing arrays as a safetensors file."""

import errno
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors.numpy


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
