"""Threads of our own beside those of the matrix products."""

import contextlib
import functools
from collections.abc import Iterator

import threadpoolctl


@contextlib.contextmanager
def single_threaded_blas(num_tasks: int) -> Iterator[int]:
    """Limits BLAS to one thread within the block, so that the caller can start threads instead.

    While one thread is in such a block, others get a single thread, too.

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
