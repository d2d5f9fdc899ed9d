"""Training in several processes: how each finds the others, and how all of them end."""

import argparse
import atexit
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator

from xling_jax.files.leaving import leave, linger
from xling_jax.options import OptionError
from xling_jax.runs.workdir import Processes

_logger = logging.getLogger(__name__)

# A process that sends no heartbeat for this long is taken for dead, and the others end.
HEARTBEAT_TIMEOUT_S = 60
# How long the first process waits for the last: machines are not ready at the same time.
JOIN_WITHIN_S = 300
# For what a process still does after an error: report it, flush buffers.
_LEAVE_WITHIN_S = 10
# The end of the first process ends the others; they may be about to report the same error.
_LINGER_S = 5
_WEEK_MS = 7 * 24 * 3600 * 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--distributed`, or `--coordinator`, `--num-processes` and `--process-id`."""
    group = parser.add_argument_group(
        "several processes", "start the same command in each; launch/ has scripts for that"
    )
    group.add_argument(
        "--distributed",
        action="store_true",
        help="find the other processes through the TPU pod, GKE, Slurm or Open MPI",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0")
    group.add_argument("--num-processes", type=int, metavar="N")
    group.add_argument(
        "--process-id", type=int, metavar="I", help="number of this process, 0 to N - 1"
    )


@contextlib.contextmanager
def joined(args: argparse.Namespace) -> Iterator[Processes]:
    """Joins the other processes of a command, if there are any, for the time of a block.

    All leave the block together, except after an error: the others wait for this process somewhere
    inside, and waiting for them would never end.
    """
    arguments = _initialize_arguments(args)
    if arguments is None:
        yield Processes()
        return
    import jax

    if "coordinator_address" in arguments:
        _bypass_proxy(arguments["coordinator_address"])
    # If one does not come, JAX ends the process and reports only the state of its protocol.
    _logger.info("waiting up to %d s for all processes to start", JOIN_WITHIN_S)
    try:
        jax.distributed.initialize(
            initialization_timeout=JOIN_WITHIN_S,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
            **arguments,
        )
    except ValueError as error:
        raise OptionError(
            f"--distributed: no TPU pod, GKE, Slurm or Open MPI job found ({error}); give "
            "--coordinator, --num-processes and --process-id instead"
        ) from error
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise OSError(f"timed out joining the other processes: {reason}") from error
    if jax.process_count() == 1:  # a job of one task
        jax.distributed.shutdown()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which JAX keeps for several processes
        yield Processes()
        return
    try:
        _logger.info(
            "process %d of %d, %d of %d devices",
            *(jax.process_index(), jax.process_count()),
            *(jax.local_device_count(), jax.device_count()),
        )
        yield Processes(jax.process_index(), meet)
    except BaseException as error:
        # As `main` ends for an error.
        status = 2 if isinstance(error, OptionError) else 1
        status = 130 if isinstance(error, KeyboardInterrupt) else status
        # At exit JAX waits for all processes; what is registered last is called first.
        atexit.register(leave, status)
        if jax.process_index() == 0:
            linger(_LINGER_S)
        # Before that, Python waits for threads, and those that write checkpoints wait for the
        # other processes.
        timer = threading.Timer(_LEAVE_WITHIN_S, leave, [status])
        timer.daemon = True
        timer.start()
        # Of a collective from which another process is missing.
        signs = ("Gloo", "Connection reset by peer", "Socket closed")
        if isinstance(error, (ValueError, RuntimeError)) and any(s in str(error) for s in signs):
            reason = str(error).splitlines()[0]
            raise OSError(f"another process ended; see its log ({reason})") from error
        raise
    meet("all done")
    # After a SIGTERM that came since the last update, JAX asks the others for their next one, and
    # waits for a minute. All is written: leave, the first process last, as one that was stopped.
    within_s = _LEAVE_WITHIN_S * (2 if jax.process_index() == 0 else 1)
    timer = threading.Timer(within_s, leave, [128 + signal.SIGTERM])
    timer.daemon = True
    timer.start()
    jax.distributed.shutdown()
    timer.cancel()


def meet(name: str) -> None:
    """Waits until all processes call this, for as long as all are alive.

    It is not a collective of the devices, which times out if one process has much more to do. A
    name is used once in a command.
    """
    import jax
    import orbax.checkpoint as ocp

    try:
        # JAX's own function is not public.
        ocp.multihost.get_barrier_sync_fn()(key=f"xling: {name}", timeout_ms=_WEEK_MS)
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0]
        raise OSError(f"{name}: another process ended; see its log ({reason})") from error


def _bypass_proxy(coordinator: str) -> None:
    """Lets gRPC connect to HOST:PORT directly; it sends even 127.0.0.1 through an HTTP proxy."""
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        host = coordinator.rpartition(":")[0].strip("[]")
        excluded = "no_grpc_proxy"  # gRPC alone reads it, and no_proxy only without it
        others = os.environ.get(excluded, os.environ.get("no_proxy", ""))
        os.environ[excluded] = f"{host},{others}"


def _initialize_arguments(args: argparse.Namespace) -> dict | None:
    """Arguments of `jax.distributed.initialize`; None for a process that is to find no others."""
    given = args.coordinator, args.num_processes, args.process_id
    if given == (None, None, None):
        return {} if args.distributed else None
    if args.distributed:
        raise OptionError("--distributed and --coordinator exclude each other; give one")
    if None in given:
        raise OptionError("--coordinator, --num-processes and --process-id go together; give all")
    host, _, port = args.coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise OptionError(
            f"--coordinator {args.coordinator}: must be HOST:PORT, such as 10.0.0.2:8476"
        )
    if not 0 <= args.process_id < args.num_processes:
        raise OptionError(
            f"--process-id {args.process_id} must be from 0 to --num-processes - 1 = "
            f"{args.num_processes - 1}"
        )
    if args.num_processes == 1:
        return None
    return {
        "coordinator_address": args.coordinator,
        "num_processes": args.num_processes,
        "process_id": args.process_id,
        # Otherwise JAX would choose one device for this process, in a Slurm allocation say.
        "cluster_detection_method": "deactivate",
    }
