"""Commands as several processes that find each other on this machine.

Processes are forked from a server that has imported everything but started no device, which saves
seconds of imports in each.
"""

import atexit
import logging
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cli.corpora_for_cli import ROOT

Process = multiprocessing.process.BaseProcess


def start(
    logs: Path, count: int, arguments: Sequence[object], setup: Callable[[int], None] | None = None
) -> list[Process]:
    """Starts a command in several processes.

    Args:
        logs: directory; what process i says is in `i.txt`.
        count: 1 starts the command without the options of several processes.
        arguments: of `xling`.
        setup: called in each with its number before the command; a function of a module.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["xling_jax.encode.encoder", "orbax.checkpoint"])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    logs.mkdir(parents=True, exist_ok=True)
    words = [*map(str, arguments)]
    if count > 1:
        words += ["--coordinator", free_address(), "--num-processes", str(count), "--process-id"]
    processes = []
    for number in range(count):
        own = [*words, str(number)] if count > 1 else words
        log = str(logs / f"{number}.txt")
        processes.append(context.Process(target=_run, args=(log, own, setup, number), daemon=True))
        processes[-1].start()
    return processes


def finish(processes: Sequence[Process], timeout_s: float) -> list[int | None]:
    """Waits for all; returns their exit statuses, None for those it had to kill."""
    deadline = time.monotonic() + timeout_s
    for process in processes:
        process.join(max(0, deadline - time.monotonic()))
    statuses = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return statuses


def run(
    logs: Path, count: int, arguments: Sequence[object], setup: Callable[[int], None] | None = None
) -> None:
    """Runs a command in several processes, which must succeed."""
    statuses = finish(start(logs, count, arguments, setup), 120)
    assert statuses == [0] * count, said(logs)


def said(logs: Path) -> str:
    """What the processes said, one after the other."""
    return "\n".join(path.read_text() for path in sorted(logs.iterdir()))


def free_address() -> str:
    """An address of this machine that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _run(log: str, words: list[str], setup: Callable[[int], None] | None, number: int) -> None:
    from xling_jax.cli.main import main

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    logging.getLogger().handlers.clear()  # of what the server has imported
    if setup is not None:
        setup(number)
    status = main(words)
    atexit._run_exitfuncs()  # which a process of multiprocessing leaves out
    sys.exit(status)
