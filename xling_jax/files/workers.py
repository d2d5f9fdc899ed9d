"""Calls a function on many items in several processes, in order and in bounded memory.

Processes are spawned, never forked: the caller may hold JAX or TensorFlow threads.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

# Items handed out per process ahead of the one awaited: enough to keep it busy while the caller
# writes, few enough to bound the memory.
_ITEMS_AHEAD = 2

# The function of this process, set once, so that its state (a vocabulary, the hashes of held-out
# text) is not sent with every item.
_function: Callable[[Any], Any] | None = None


def ahead(
    submit: Callable[[Any], concurrent.futures.Future], items: Iterable[Any], most: int
) -> Iterator[Any]:
    """Submits items, at most so many before the one awaited, and yields their results in order."""
    waiting: collections.deque[concurrent.futures.Future] = collections.deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) > most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def map_in_order(
    function: Callable[[Any], Any], items: Iterable[Any], num_workers: int
) -> Iterator[Any]:
    """Yields `function(item)` for each item, in order, whatever the number of processes.

    The function is picklable; an instance with `__call__` may carry state. Items are read lazily, a
    few ahead; with one worker, or a single item, all is done in this process. ChildProcessError if
    a process died, usually for lack of memory; or whatever `function` raised.
    """
    items = iter(items)
    first = list(itertools.islice(items, 2))
    items = itertools.chain(first, items)
    if num_workers <= 1 or len(first) < 2:
        yield from map(function, items)
        return
    with concurrent.futures.ProcessPoolExecutor(
        num_workers, multiprocessing.get_context("spawn"), _start_worker, (function,)
    ) as pool:

        def submit(item: Any) -> concurrent.futures.Future:
            with _interrupted_later():
                return pool.submit(_call, item)

        try:
            yield from ahead(submit, items, num_workers * (1 + _ITEMS_AHEAD) - 1)
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process died (out of memory, killed, or started by a script that calls "
                "this outside `if __name__ == '__main__':`); prepare with one worker, "
                "num_workers=1 or xling prepare --num-workers 1: finished work is kept"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Puts a Ctrl-C off until the end; a process that is started meanwhile never gets any.

    Ctrl-C reaches every process, and one that is starting would die of it with a traceback.
    """
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()  # others may set no handler
    if is_main:
        handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a child inherits it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_main:
            signal.signal(signal.SIGINT, handler)
    if received:
        signal.raise_signal(received[0])


def _start_worker(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Ends this process when the parent is killed; a pool's queues would keep it waiting."""
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def _call(item: Any) -> Any:
    return _function(item)
