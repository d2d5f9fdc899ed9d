"""The cores of this process, shared out between threads of our own and those of matrix products."""

import contextlib
import functools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import threadpoolctl

# Of cgroups 2 and 1: the time on cores that a container may use, and the period that it is for.
_QUOTAS = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)
_LOAD = "/proc/loadavg"

# OpenBLAS's threads wait actively for so long after a product, and count as running meanwhile.
_SPINNING_S = 0.025

# Guards all below: what one block sets must not be what another takes for the limit before.
_lock = threading.Lock()
_limits: list[int] = []  # on the threads of BLAS, of the blocks that have been entered
_before: threadpoolctl.threadpool_limits | None = None  # restores what was before the first of them
_spinning: tuple[float, int] = 0.0, 0  # until when, and how many threads


def num_cores() -> int:
    """Cores this process may use, by its affinity and the quota of its container."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return min(cores, _quota() or cores)


@functools.cache
def _quota() -> int | None:
    """Cores that the quota is worth, at least 1; None without one."""
    for files in _QUOTAS:
        try:
            quota, period = " ".join(Path(file).read_text() for file in files).split()
        except (OSError, ValueError):
            continue
        if quota.isdecimal():  # not "max" or "-1", which set no limit
            return max(1, round(int(quota) / int(period)))
    return None


def num_free_cores(own: int = 0) -> int:
    """How many of them run nothing else at this moment, at least 1; all where that is unknown.

    `own` threads besides the caller may be running, and do not count.
    """
    try:
        # "0.42 0.33 0.10 3/512 4711": of 512 threads, 3 run or wait, the caller among them.
        running = int(Path(_LOAD).read_text().split()[3].split("/")[0])
    except (OSError, IndexError, ValueError):
        return num_cores()
    return max(1, min(num_cores(), (os.cpu_count() or 1) - running + 1 + own))


@contextlib.contextmanager
def threads_for(num_tasks: int) -> Iterator[int]:
    """Divides the cores between threads of the caller and those of BLAS, within the block.

    Either the caller starts threads, and BLAS has one in each; or BLAS has the cores that are free.
    Its threads wait for one another in every product, which takes a time slice of the kernel if one
    of them has to wait for a core. While one thread is in such a block, others get a single thread,
    too. Yields the number of threads to start for so many tasks, at most as many as BLAS may use
    (`OMP_NUM_THREADS` is respected) and as there are cores; 1 leaves the free cores to BLAS.
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
            with contextlib.suppress(ValueError):  # forgotten by a fork within the block
                _limits.remove(limit)
            if limit > 1:
                _spinning = time.monotonic() + _SPINNING_S, limit - 1
            if _limits:
                _limit_blas(min(_limits))
            else:
                _restore()


def _forget_blocks() -> None:
    """Frees a forked process of the limits and the lock of threads that it does not have."""
    if _limits:
        _limits.clear()
        _restore()
    _lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget_blocks
    )


def _restore() -> None:
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
