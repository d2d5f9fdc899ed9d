"""PyTorch files, read with weights-only loading, which builds plain data and runs nothing."""

import os
import pickle
from typing import Any


def load_torch(path: str | os.PathLike[str], hint: str = "", tensors_only: bool = False) -> Any:
    """Loads a PyTorch file; the only place that imports PyTorch.

    Args:
        path: the file.
        hint: what else the user can do, for errors.
        tensors_only: whether it must be a dict of tensors.

    Raises:
        ImportError: without PyTorch.
        OSError: if the file cannot be opened.
        ValueError: if it is damaged or holds Python objects.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"{path}: reading a PyTorch file once needs PyTorch: pip install torch{hint}"
        ) from error
    with open(path, "rb") as file:
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            if tensors_only and not all(isinstance(v, torch.Tensor) for v in state.values()):
                raise ValueError("it holds more than tensors")
            return state
        # Raised for damaged files by the two readers of PyTorch, for zip files and for older ones.
        except (
            *(pickle.UnpicklingError, RuntimeError, EOFError, KeyError),
            *(ValueError, AttributeError, OSError),
        ) as error:
            reason = " ".join(str(error).split())
            if "Unsupported global" in reason:
                found = reason[reason.index("Unsupported global") :].split(" was not")[0]
                reason = f"holds Python objects, which are not loaded ({found})"
            else:
                reason = f"is not a PyTorch file of plain data, or is damaged: {reason:.80}"
            raise ValueError(f"{path}: {reason}{hint}") from error
