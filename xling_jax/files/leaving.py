"""How a process leaves: at once with all it has written, or after a signal once it is ready."""

import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

_logger = logging.getLogger(__name__)

# At least the size of `struct sigaction`, 152 on Linux.
_SIGACTION_BYTES = 1024

_linger_s = 0.0


def linger(seconds: float) -> None:
    """Makes `leave` wait: the end of the first of several processes ends the others."""
    global _linger_s
    _linger_s = seconds


def leave(status: int) -> NoReturn:
    """Ends this process without taking the interpreter down."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # closed, or its reader is gone
            stream.flush()
    time.sleep(_linger_s)
    os._exit(status)


@contextlib.contextmanager
def noting_signals(
    *, pass_on: bool, has_begun: Callable[[], bool] = lambda: True
) -> Iterator[Callable[[], int]]:
    """SIGTERM and Ctrl-C only ask to stop during a block; a second Ctrl-C leaves at once.

    So does the first one until the work `has_begun`, when there is nothing to save.

    A thread takes the signals, because Python's handlers wait for the end of a compilation.
    `pass_on` sends this process a SIGTERM for the first Ctrl-C, and leaves SIGTERM to JAX, which
    tells the other processes of it. Yields a function that returns the signal that has come, 0 if
    none.
    """
    noted = () if pass_on else (signal.SIGTERM,)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # as of a script's background jobs
        noted += (signal.SIGINT,)
    received: list[int] = []
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def watch() -> None:
        while number := reader.recv(1):  # empty once the writer is closed
            if number[0] not in noted:
                continue
            idle = not (has_begun() or pass_on)
            if idle or (received and number[0] == signal.SIGINT):
                print("exited immediately; run the same command to resume", file=sys.stderr)
                leave(128 + number[0])
            received.append(number[0])
            if number[0] == signal.SIGINT:
                _logger.info("interrupted: saving after this step; Ctrl-C again exits immediately")
                if pass_on:
                    os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    previous = {number: signal.signal(number, lambda *_: None) for number in noted}
    previous_descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield lambda: received[0] if received else 0
    finally:
        signal.set_wakeup_fd(previous_descriptor)
        for number, handler in previous.items():
            signal.signal(number, handler)
        writer.close()
        thread.join()
        reader.close()


@contextlib.contextmanager
def dying_of_sigterm() -> Iterator[None]:
    """SIGTERM ends this process during a block, as it would a single one.

    JAX takes the signal for a notice of preemption, which only the training loop looks for.
    """
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        yield
        return
    # The handler is not one of Python's, so only the system can restore it.
    libc, handler = ctypes.CDLL(None), ctypes.create_string_buffer(_SIGACTION_BYTES)
    libc.sigaction(signal.SIGTERM, None, handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        libc.sigaction(signal.SIGTERM, handler, None)
