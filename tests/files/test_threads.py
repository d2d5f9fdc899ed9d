"""The limit of one thread for BLAS, also for several callers at once."""

import concurrent.futures
import threading
import time

import pytest
import threadpoolctl

from xling_jax.files import threads as threads_module
from xling_jax.files.threads import single_threaded_blas


def blas_threads():
    return {library["num_threads"] for library in threads_module._blas().info()}


@pytest.fixture(autouse=True)
def two_threads():
    """Whatever the machine has."""
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


def test_blas_has_one_thread_inside_and_its_own_after():
    with single_threaded_blas(7) as threads:
        assert (threads, blas_threads()) == (2, {1})
    assert blas_threads() == {2}
    with single_threaded_blas(1) as threads:  # one task may use all of BLAS
        assert (threads, blas_threads()) == (1, {2})
    with pytest.raises(RuntimeError, match="inside"), single_threaded_blas(7):
        raise RuntimeError("inside")
    assert blas_threads() == {2}


def test_many_callers_at_once_leave_blas_as_it_was():
    def enter_and_leave(_):
        for _ in range(2000):
            with single_threaded_blas(7):
                pass

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(enter_and_leave, range(6)))
    assert blas_threads() == {2}


def test_callers_at_once_leave_blas_as_it_was():
    first_is_in, first_is_out = threading.Event(), threading.Event()
    seen = []

    def second():
        first_is_in.wait(60)
        with single_threaded_blas(7) as threads:
            seen.append((threads, blas_threads()))
            first_is_in.clear()
            first_is_out.wait(60)

    thread = threading.Thread(target=second)
    thread.start()
    with single_threaded_blas(7) as threads:
        first_is_in.set()
        while first_is_in.is_set():
            time.sleep(0.001)
        assert threads == 2
    assert blas_threads() == {2}
    first_is_out.set()
    thread.join()
    assert seen == [(1, {1})]
    assert blas_threads() == {2}
