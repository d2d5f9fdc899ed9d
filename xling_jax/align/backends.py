"""What computes blocks of products: NumPy's BLAS in threads of our own, devices of JAX, faiss."""

import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Iterator
from typing import Any

import threadpoolctl

from xling_jax.registry import check_choice, import_extra

# Called with the amount of work done and the total.
Report = Callable[[int, int], None]


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
    import jax

    return "numpy" if jax.default_backend() == "cpu" else "jax"


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


@contextlib.contextmanager
def single_threaded_blas(num_tasks: int) -> Iterator[int]:
    """Limits BLAS to one thread within the block, so that the caller can start threads instead.

    Args:
        num_tasks: pieces of work that can run at the same time.

    Yields:
        The number of threads to start, at most as many as BLAS may use (`OMP_NUM_THREADS` is
        respected). 1 leaves BLAS as it is.
    """
    blas = _blas()
    threads = max((library["num_threads"] for library in blas.info()), default=1)
    threads = max(1, min(threads, num_tasks))
    with blas.limit(limits=1) if threads > 1 else contextlib.nullcontext():
        yield threads


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
    # Cached, because it searches all loaded libraries.
    return threadpoolctl.ThreadpoolController().select(user_api="blas")
