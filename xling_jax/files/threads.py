"""Threads of our own beside those of the matrix products."""

import contextlib
import functools
import threading
from collections.abc import Iterator

import threadpoolctl

# Reading the number of threads and changing it is one step, so that no caller takes the limit of
# another for what BLAS had before.
_lock = threading.Lock()


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
    limit = None
    with _lock:
        blas = _blas()
        threads = max((library["num_threads"] for library in blas.info()), default=1)
        threads = max(1, min(threads, num_tasks))
        if threads > 1:
            limit = blas.limit(limits=1)
            limit.__enter__()
    try:
        yield threads
    finally:
        if limit is not None:
            with _lock:
                limit.__exit__(None, None, None)


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
    # Cached, because it searches all loaded libraries.
    return threadpoolctl.ThreadpoolController().select(user_api="blas")
