"""One command as several processes: how each finds the others, and how all leave."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import ctypes
import dataclasses
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from xling_jax.cli import common

if TYPE_CHECKING:
    from xling_jax.files.processes import Processes

logger = logging.getLogger(__name__)

# A process that is not heard of for so long is taken for dead, and the others end.
HEARTBEAT_TIMEOUT_S = 60
# How long the first of them waits for the last: machines are not ready at the same time.
JOIN_WITHIN_S = 300
# What a process may still do after an error: say what it was, write buffers.
_LEAVE_WITHIN_S = 10
# The first process ends the others by its end; they may be about to say what it has said.
_LINGER_S = 5
# At least those of `struct sigaction`, 152 on Linux.
_SIGACTION_BYTES = 1024
_WEEK_MS = 7 * 24 * 3600 * 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--distributed`, or `--coordinator`, `--num-processes` and `--process-id`."""
    group = parser.add_argument_group(
        "several processes", "the same command is started in each; launch/ has scripts that do it"
    )
    group.add_argument(
        "--distributed",
        action="store_true",
        help="find the others as a TPU pod, GKE, Slurm or Open MPI announces them",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0")
    group.add_argument("--num-processes", type=int, metavar="N")
    group.add_argument("--process-id", type=int, metavar="I", help="of this one, from 0 to N - 1")


@contextlib.contextmanager
def joined(args: argparse.Namespace, *, ends_by_sigterm: bool = False) -> Iterator[Processes]:
    """Joins the other processes of a command, if there are any, for the time of a block.

    All leave the block together, except after an error: the others wait for this process
    somewhere inside, and to wait for them would be for ever.

    Args:
        args: with the arguments of `add_arguments`; gets `process_index`. If it has `exchange`, the
            processes hand each other files there, see `remote_arguments`.
        ends_by_sigterm: the process dies of SIGTERM, as it would alone. Else JAX takes it for the
            notice of preemption, which training asks for.

    Yields:
        The processes, or this one alone.

    Raises:
        common.UsageError: if they do not fit each other, or there is no cluster to be found.
        OSError: if the others do not answer.
    """
    from xling_jax.files.processes import Processes

    arguments = _initialize_arguments(args)
    if arguments is None:
        yield Processes()
        return
    import jax

    # JAX ends the process if one does not come, with nothing but the state of its protocol.
    logger.info("waiting for all processes to start, at most %d s", JOIN_WITHIN_S)
    try:
        jax.distributed.initialize(
            initialization_timeout=JOIN_WITHIN_S,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
            **arguments,
        )
    except ValueError as error:
        raise common.UsageError(
            f"--distributed: no TPU pod, GKE, Slurm or Open MPI job found ({error}); give "
            "--coordinator, --num-processes and --process-id"
        ) from error
    except RuntimeError as error:
        raise OSError(f"the other processes do not answer: {str(error).splitlines()[0]}") from error
    if ends_by_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        logger.info(
            "process %d of %d, %d of %d devices",
            *(jax.process_index(), jax.process_count()),
            *(jax.local_device_count(), jax.device_count()),
        )
        count = jax.process_count()
        # As launch/local.sh starts them; elsewhere a machine has one, or the scheduler divides it.
        all_here = (args.coordinator or "").startswith(("127.0.0.1:", "localhost:"))
        args.process_index = jax.process_index()
        processes = Processes(args.process_index, count, meet, count if all_here else 1)
        exchange = getattr(args, "exchange", None)
        if exchange is None:
            yield processes
        else:
            with exchange.cleared(processes.index == 0):
                yield dataclasses.replace(processes, send=exchange.send, receive=exchange.receive)
    except BaseException as error:
        # JAX waits for all processes at exit. What is registered last is called first.
        atexit.register(_leave, _exit_status(error), _LINGER_S if jax.process_index() == 0 else 0)
        # Python waits for threads even before that, and those that write checkpoints wait for
        # other processes.
        timer = threading.Timer(_LEAVE_WITHIN_S, _leave, [_exit_status(error)])
        timer.daemon = True
        timer.start()
        if isinstance(error, (ValueError, RuntimeError)) and _tells_of_another(error):
            reason = str(error).splitlines()[0]
            raise OSError(f"another process has ended, see its log ({reason})") from error
        raise
    jax.distributed.shutdown()


@contextlib.contextmanager
def dying_of_sigterm() -> Iterator[None]:
    """SIGTERM ends this process during a block, as if JAX did not take it for a notice.

    For work that nobody asks, between its parts, whether there was one.
    """
    import jax

    if not jax.distributed.is_initialized():
        yield
        return
    # JAX's handler is none of Python's, so only the system can put it back.
    libc, handler = ctypes.CDLL(None), ctypes.create_string_buffer(_SIGACTION_BYTES)
    libc.sigaction(signal.SIGTERM, None, handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        libc.sigaction(signal.SIGTERM, handler, None)


def check_shared_paths(**paths: str | None) -> None:
    """Refuses pipes where several processes read and write together.

    Args:
        **paths: of arguments, by their names; None for those not given.

    Raises:
        common.UsageError: naming the argument.
    """
    for name, path in paths.items():
        option = f"--{name.replace('_', '-')}"
        if path == "-" or (path and os.path.exists(path) and not os.path.isfile(path)):
            raise common.UsageError(
                f"{option} {path}: with several processes must be a file, on a file system that "
                "all see"
            )


def meet(name: str) -> None:
    """Waits until all processes are here, for as long as all are alive.

    Not by a collective of the devices, which gives up when one process has much more to do.

    Args:
        name: of the place; no other meeting of a command has it.

    Raises:
        OSError: if another process has ended.
    """
    import jax
    import orbax.checkpoint as ocp

    try:
        # The function of JAX itself is not public.
        ocp.multihost.get_barrier_sync_fn()(key=f"xling: {name}", timeout_ms=_WEEK_MS)
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0]
        raise OSError(f"{name}: another process has ended, see its log ({reason})") from error


def _initialize_arguments(args: argparse.Namespace) -> dict | None:
    """Arguments of `jax.distributed.initialize`, None for a single process."""
    given = {
        "--coordinator": args.coordinator,
        "--num-processes": args.num_processes,
        "--process-id": args.process_id,
    }
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return {} if args.distributed else None
    if args.distributed:
        raise common.UsageError("--distributed finds what --coordinator and the like say; give one")
    if missing:
        raise common.UsageError(
            f"--coordinator, --num-processes and --process-id go together; {missing[0]} is missing"
        )
    host, _, port = args.coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise common.UsageError(
            f"--coordinator {args.coordinator}: must be HOST:PORT, e.g. 10.0.0.2:8476"
        )
    if not 0 <= args.process_id < args.num_processes:
        raise common.UsageError(
            f"--process-id {args.process_id} must be from 0 to --num-processes - 1 = "
            f"{args.num_processes - 1}"
        )
    return {
        "coordinator_address": args.coordinator,
        "num_processes": args.num_processes,
        "process_id": args.process_id,
        # In a Slurm allocation, say, JAX would else choose one device for this process.
        "cluster_detection_method": "deactivate",
    }


def _exit_status(error: BaseException) -> int:
    """The status with which `main` ends for an error."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, common.UsageError) else 1


def _tells_of_another(error: Exception) -> bool:
    """Whether an error is that of a collective in which another process is missing."""
    return any(sign in str(error) for sign in ("Gloo", "Connection reset by peer", "Socket closed"))


def _leave(status: int, linger_s: float = 0) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(linger_s)
    os._exit(status)
