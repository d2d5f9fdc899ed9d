"""Functions mapped over chunks by several processes."""

import os
import signal

import pytest

from xling_jax.files.workers import map_in_order


def _square(value: int) -> int:
    return value * value


def _fail_at_three(value: int) -> int:
    if value == 3:
        raise ValueError("three")
    return value


def _exit(value: int) -> int:
    os._exit(9)


class _InterruptedWhenSent:
    """Ctrl-C comes while a process is being started."""

    def __call__(self, value: int) -> int:
        return value

    def __getstate__(self) -> dict[str, int]:
        os.kill(os.getpid(), signal.SIGINT)
        return {"parent": os.getpid()}


class _InterruptedWhenReceived(_InterruptedWhenSent):
    """Ctrl-C comes while the new process starts up; it reaches both."""

    def __getstate__(self) -> dict[str, int]:
        return {"parent": os.getpid()}

    def __setstate__(self, state: dict[str, int]) -> None:
        for process in os.getpid(), state["parent"]:
            os.kill(process, signal.SIGINT)


@pytest.mark.parametrize("function", [_InterruptedWhenSent(), _InterruptedWhenReceived()])
def test_an_interrupt_while_processes_start_is_only_that(function, capfd):
    with pytest.raises(KeyboardInterrupt):
        list(map_in_order(function, range(20), 2))
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_map_in_order_keeps_order_and_errors_of_processes():
    assert list(map_in_order(_square, range(20), 2)) == [i * i for i in range(20)]
    with pytest.raises(ValueError, match="three"):
        list(map_in_order(_fail_at_three, range(20), 2))
    with pytest.raises(OSError, match="with one worker, num_workers=1"):
        list(map_in_order(_exit, range(20), 2))
