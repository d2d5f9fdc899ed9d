"""Cores that this process may use, and how many of them are free."""

import functools
import os
from pathlib import Path

# Of cgroups 2 and 1: the time on cores that a container may use, and the period that it is for.
_QUOTAS = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)
_LOAD = "/proc/loadavg"


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
    """How many of them run nothing else at this moment, at least 1.

    Args:
        own: threads that may be running, besides the caller, and do not count.

    Returns:
        All, where the system does not tell what runs.
    """
    try:
        # "0.42 0.33 0.10 3/512 4711": of 512 threads, 3 run or wait, the caller among them.
        running = int(Path(_LOAD).read_text().split()[3].split("/")[0])
    except (OSError, IndexError, ValueError):
        return num_cores()
    return max(1, min(num_cores(), (os.cpu_count() or 1) - running + 1 + own))
