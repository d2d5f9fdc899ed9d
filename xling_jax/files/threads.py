"""Threads of our own beside those of the matrix products."""

import contextlib
import functools
import threading
import time
from collections.abc import Iterator

import threadpoolctl

from xling_jax.files.cores import num_cores, num_free_cores

# OpenBLAS's threads wait actively for so long after a product, and count as running meanwhile.
_SPINNING_S = 0.025

# Guards all below: what one block sets must not be what another takes for the limit before.
_lock = threading.Lock()
_limits: list[int] = []  # on the threads of BLAS, of the blocks that have been entered
_before: threadpoolctl.threadpool_limits | None = None  # restores what was before the first of them
_spinning: tuple[float, int] = 0.0, 0  # until when, and how many threads


@contextlib.contextmanager
def threads_for(num_tasks: int) -> Iterator[int]:
    """Divides the cores between threads of the caller and those of BLAS, within the block.

    Either the caller starts threads, and BLAS has one in each; or BLAS has the cores that are free.
    Its threads wait for one another in every product, which takes a time slice of the kernel if one
    of them has to wait for a core. While one thread is in such a block, others get a single thread,
    too.

    Args:
        num_tasks: pieces of work that can run at the same time.

    Yields:
        The number of threads to start, at most as many as BLAS may use (`OMP_NUM_THREADS` is
        respected) and as there are cores; 1 leaves the free cores to BLAS.
    """
    global _before, _spinning
    with _lock:
        most = max((library["num_threads"] for library in _blas().info()), default=1)
        threads = max(1, min(most, num_tasks, num_cores()))
        limit = 1
        if threads == 1 and most > 1:
            until, own = _spinning
            limit = min(most, num_free_cores(own if time.monotonic() < until else 0))
        limits = _limit_blas(min([limit, *_limits]))
        if not _limits:
            _before = limits
        _limits.append(limit)
    try:
        yield threads
    finally:
        with _lock:
            _limits.remove(limit)
            if limit > 1:
                _spinning = time.monotonic() + _SPINNING_S, limit - 1
            if _limits:
                _limit_blas(min(_limits))
            else:
                _release()
                _before.restore_original_limits()
                _release()


def _limit_blas(threads: int) -> threadpoolctl.threadpool_limits:
    _release()
    return _blas().limit(limits=threads)


def _release() -> None:
    """Since threadpoolctl 3.8, only the first thread that sets the limit may change it."""
    for library in _blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
    # Cached, because it searches all loaded libraries.
    return threadpoolctl.ThreadpoolController().select(user_api="blas")
