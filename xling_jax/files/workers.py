"""Runs a function over many chunks in several processes, in order and in bounded memory.

Processes are spawned, never forked: the caller may hold JAX or TensorFlow threads. The results do
not depend on the number of processes, because the caller makes the chunks.
"""

import collections
import concurrent.futures
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

# Chunks handed out ahead of the one awaited, for each process: enough to keep it busy while the
# caller writes, few enough to bound the memory.
_CHUNKS_AHEAD = 2

# The function of this process, set once, so that its state (a vocabulary, the hashes of held-out
# text) is not sent again with every chunk.
_function: Callable[[Any], Any] | None = None


def map_in_order(
    function: Callable[[Any], Any], chunks: Iterable[Any], num_workers: int
) -> Iterator[Any]:
    """Yields `function(chunk)` for each chunk, in order.

    Args:
        function: picklable; an instance with `__call__` may carry state.
        chunks: read lazily, a few ahead.
        num_workers: processes; with 1, or when there is only one chunk, all is done here.

    Yields:
        The results.

    Raises:
        ChildProcessError: if a process died, most often for want of memory.
        Exception: whatever `function` raised.
    """
    chunks = iter(chunks)
    first = list(itertools.islice(chunks, 2))
    chunks = itertools.chain(first, chunks)
    if num_workers <= 1 or len(first) < 2:
        yield from map(function, chunks)
        return
    with concurrent.futures.ProcessPoolExecutor(
        num_workers, multiprocessing.get_context("spawn"), _start_worker, (function,)
    ) as pool:
        try:
            yield from _collect(pool, chunks, num_workers * (1 + _CHUNKS_AHEAD))
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process ended before its work (out of memory, killed, or a script that "
                "calls this outside `if __name__ == '__main__':`); start again with num_workers=1: "
                "what is finished is kept"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _collect(pool: concurrent.futures.Executor, chunks: Iterator[Any], limit: int) -> Iterator[Any]:
    waiting: collections.deque[concurrent.futures.Future] = collections.deque()
    for chunk in chunks:
        waiting.append(pool.submit(_call, chunk))
        if len(waiting) >= limit:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _start_worker(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    # An interrupt from the keyboard reaches every process; one of them should tell of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Ends this process when the parent is killed; a pool's queues would keep it waiting."""
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def _call(chunk: Any) -> Any:
    return _function(chunk)
