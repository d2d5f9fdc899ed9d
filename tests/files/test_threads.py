"""Threads for tasks or for BLAS, also for several callers at once."""

import concurrent.futures
import threading
import time

import pytest
import threadpoolctl

from xling_jax.files import threads as threads_module
from xling_jax.files.threads import threads_for


def blas_threads():
    return {library["num_threads"] for library in threads_module._blas().info()}


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """Whatever the machine has, and whatever else runs."""
    monkeypatch.setattr(threads_module, "num_cores", lambda: 2)
    monkeypatch.setattr(threads_module, "num_free_cores", lambda own=0: 2)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


def test_blas_has_one_thread_inside_and_its_own_after():
    with threads_for(7) as threads:
        assert (threads, blas_threads()) == (2, {1})
    assert blas_threads() == {2}
    with threads_for(1) as threads:  # one task may use all of BLAS
        assert (threads, blas_threads()) == (1, {2})
    with pytest.raises(RuntimeError, match="inside"), threads_for(7):
        raise RuntimeError("inside")
    assert blas_threads() == {2}


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


def test_a_quota_below_the_threads_of_blas_limits_both(monkeypatch):
    monkeypatch.setattr(threads_module, "num_cores", lambda: 1)
    monkeypatch.setattr(threads_module, "num_free_cores", lambda own=0: 1)
    with threads_for(7) as threads:
        assert (threads, blas_threads()) == (1, {1})
    assert blas_threads() == {2}


def test_many_callers_at_once_leave_blas_as_it_was():
    def enter_and_leave(_):
        for _ in range(2000):
            with threads_for(7):
                pass

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(enter_and_leave, range(6)))
    assert blas_threads() == {2}


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
