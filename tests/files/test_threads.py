"""Threads for tasks or for BLAS, also for several callers; cores by affinity, quota and load."""

import os
import threading
import time

import pytest
import threadpoolctl

from xling_jax.files import threads as threads_module
from xling_jax.files.threads import num_cores, num_free_cores, threads_for


def blas_threads():
    return {library["num_threads"] for library in threads_module._blas().info()}


@pytest.fixture
def two_threads(monkeypatch):
    """Whatever the machine has, and whatever else runs."""
    monkeypatch.setattr(threads_module, "num_cores", lambda: 2)
    monkeypatch.setattr(threads_module, "num_free_cores", lambda own=0: 2)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


@pytest.mark.usefixtures("two_threads")
def test_blas_has_one_thread_inside_and_its_own_after():
    with threads_for(7) as threads:
        assert (threads, blas_threads()) == (2, {1})
    assert blas_threads() == {2}
    with threads_for(1) as threads:  # one task may use all of BLAS
        assert (threads, blas_threads()) == (1, {2})
    with pytest.raises(RuntimeError, match="inside"), threads_for(7):
        raise RuntimeError("inside")
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_blas_gets_the_cores_that_are_free(monkeypatch):
    asked = []
    monkeypatch.setattr(threads_module, "num_free_cores", lambda own=0: asked.append(own) or 1)
    monkeypatch.setattr(threads_module, "_spinning", (0.0, 0))
    with threads_for(1) as threads:
        assert (threads, blas_threads()) == (1, {1})
    monkeypatch.setattr(threads_module, "num_free_cores", lambda own=0: asked.append(own) or 2)
    for _ in range(2):
        with threads_for(1) as threads:
            assert (threads, blas_threads()) == (1, {2})
    # The second thread of BLAS waits actively for the next product: it is not another's.
    assert asked == [0, 0, 1]
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_callers_at_once_leave_blas_as_it_was():
    first_is_in, first_is_out = threading.Event(), threading.Event()
    seen = []

    def second():
        first_is_in.wait(60)
        with threads_for(7) as threads:
            seen.append((threads, blas_threads()))
            first_is_in.clear()
            first_is_out.wait(60)

    thread = threading.Thread(target=second)
    thread.start()
    with threads_for(7) as threads:
        first_is_in.set()
        while first_is_in.is_set():
            time.sleep(0.001)
        assert threads == 2
    assert blas_threads() == {1}  # the other block is still entered
    first_is_out.set()
    thread.join()
    assert seen == [(1, {1})]
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_waits_for_no_thread_that_it_does_not_have():
    over, is_in = threading.Event(), threading.Event()

    def enter_and_leave():
        while not over.is_set():
            with threads_for(7):
                is_in.set()

    def can_work():
        with threads_for(7):
            pass
        with threads_for(1):  # no block of the thread limits it
            return blas_threads() == {2}

    thread = threading.Thread(target=enter_and_leave)
    thread.start()
    is_in.wait(60)
    children = []
    for _ in range(40):
        if not (pid := os.fork()):
            threading.Timer(20, os._exit, (2,)).start()  # where it hangs
            os._exit(0 if can_work() else 1)
        children.append(pid)
    over.set()
    thread.join()
    assert {os.waitpid(pid, 0)[1] for pid in children} == {0}
    assert can_work() and blas_threads() == {2}


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with 8 cores, 6 of them for this process; the files are read from a directory."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    quotas = [
        [str(tmp_path / file.rsplit("/")[-1]) for file in files] for files in threads_module._QUOTAS
    ]
    monkeypatch.setattr(threads_module, "_QUOTAS", quotas)
    monkeypatch.setattr(threads_module, "_LOAD", str(tmp_path / "loadavg"))
    threads_module._quota.cache_clear()
    yield tmp_path
    threads_module._quota.cache_clear()


@pytest.mark.parametrize(
    "files, expected",
    [
        ({}, 6),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu.max": "9900000 100000\n"}, 6),
        ({"cpu.cfs_quota_us": "300000\n", "cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, 6),
        ({"cpu.max": "what?\n"}, 6),
    ],
)
def test_the_quota_of_a_container_counts(files, expected, machine):
    for name, text in files.items():
        (machine / name).write_text(text)
    assert num_cores() == expected


@pytest.mark.parametrize(
    "running, own, expected",
    [(1, 0, 6), (4, 0, 5), (40, 0, 1), (8, 3, 4)],
)
def test_cores_that_run_other_threads_are_not_free(running, own, expected, machine):
    (machine / "loadavg").write_text(f"2.42 0.33 0.10 {running}/512 4711\n")
    assert num_free_cores(own) == expected
    for text in ("", "0.00 0.00 0.00 0/0 0\n", "unknown\n"):  # the system does not tell
        (machine / "loadavg").write_text(text)
        assert num_free_cores() == 6
