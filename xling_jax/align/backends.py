"""What computes blocks of products: NumPy's BLAS in threads of our own, devices of JAX, faiss."""

import logging
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from xling_jax.devices import has_accelerator
from xling_jax.registry import check_choice, import_extra

# Called with the amount of work done and the total.
Report = Callable[[int, int], None]
# Scores and rows of the neighbors of each row, best first.
Neighbors = tuple[np.ndarray, np.ndarray]


def choose_backend(backend: str, known: Collection[str]) -> str:
    """Resolves "auto": JAX where it has an accelerator, otherwise NumPy, the faster on CPUs.

    Args:
        backend: the name of a backend, or "auto".
        known: the possible values.

    Raises:
        ValueError: for an unknown backend.
    """
    check_choice("backend", backend, known)
    if backend != "auto":
        return backend
    return "jax" if has_accelerator() else "numpy"


def import_faiss(purpose: str) -> Any:
    """Returns faiss.

    Args:
        purpose: what needs it, for the error.

    Raises:
        ImportError: if it is not installed.
    """
    # It logs, at level INFO and with tracebacks, which builds of itself it does not find.
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)
    return import_extra("faiss", "faiss", purpose)
