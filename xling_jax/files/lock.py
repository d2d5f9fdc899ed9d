"""One run at a time in a directory, also in one that several machines share.

The system's lock (`flock`) ends with its process, however that ends, so a run killed on this
machine never blocks the next. Machines that share a file system may not see each other's locks, or
still see that of a machine that is gone. Between machines a heartbeat decides: the modification
time of the lock file, of which only changes count, not what clocks say.
"""

import contextlib
import json
import logging
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from xling_jax.files.leaving import leave
from xling_jax.files.whole import naming_errors, try_lock

_logger = logging.getLogger(__name__)

LOCK_FILE = "run.lock"
HEARTBEAT_S = 5.0
# Network file systems and busy machines delay heartbeats.
STALE_S = 45.0


@contextlib.contextmanager
def only_run(directory: Path, argument: str = "--workdir") -> Iterator[None]:
    """Holds a directory for the time of a block; it is made if needed.

    The lock of a run on another machine is watched until its heart beats, then it counts, or until
    it has not for `STALE_S`. OSError if another run holds the directory, in one line that names it
    and the `argument` that chooses another; or if the lock file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOCK_FILE
    this_run = json.dumps(
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        }
    )
    with _open_locked(path, argument) as file:
        with naming_errors(path):
            file.truncate(0)
            file.write(this_run)
            file.flush()
        stopped = threading.Event()
        heart = threading.Thread(target=_beat, args=(path, this_run, stopped), daemon=True)
        heart.start()
        try:
            yield
        finally:
            stopped.set()
            heart.join()
            with contextlib.suppress(OSError):
                if path.read_text(encoding="utf-8") == this_run:
                    path.unlink()


def _open_locked(path: Path, argument: str) -> IO[str]:
    """Opens the lock file once no other run holds it."""
    watched_since_s = beat = None
    while True:
        with contextlib.ExitStack() as stack:
            # Opened anew each time: network file systems then ask the server what is new.
            file = stack.enter_context(open(path, "a+", encoding="utf-8"))
            is_locked = try_lock(file)
            status = os.fstat(file.fileno())
            if not os.path.exists(path) or not os.path.samestat(status, os.stat(path)):
                continue  # removed by a run that ended in the meantime
            file.seek(0)
            holder = _parse(file.read())
            is_here = holder.get("host") == socket.gethostname()
            if is_locked and (is_here or not holder) or is_locked is None and not holder:
                stack.pop_all()
                return file
            if is_locked is False and is_here or beat not in (None, status.st_mtime_ns):
                raise OSError(
                    f"{_description(path.parent, holder)}; wait for it, or choose another "
                    f"{argument}"
                )
            if watched_since_s is None:
                watched_since_s, beat = time.monotonic(), status.st_mtime_ns
                if holder:
                    _logger.info(
                        "%s; waiting up to %.0f s for its heartbeat",
                        *(_description(path.parent, holder), STALE_S),
                    )
            if time.monotonic() - watched_since_s > STALE_S:
                stack.pop_all()
                return file
        time.sleep(min(1.0, HEARTBEAT_S / 5))


def _beat(path: Path, this_run: str, stopped: threading.Event) -> None:
    """Shows that this run lives; ends it if another one took it for dead while it was suspended."""
    while not stopped.wait(HEARTBEAT_S):
        with contextlib.suppress(OSError):  # the network may be back at the next beat
            if (holder := path.read_text(encoding="utf-8")) not in ("", this_run):
                now = _description(path.parent, _parse(holder))
                _logger.error("this run was suspended for %.0f s or more; %s", STALE_S, now)
                leave(1)
            os.utime(path)


def _parse(text: str) -> Mapping[str, Any]:
    """Reads a lock file's description of its run; empty if it is being written."""
    with contextlib.suppress(ValueError):
        if isinstance(holder := json.loads(text), dict):
            return holder
    return {}


def _description(directory: Path, holder: Mapping[str, Any]) -> str:
    known = {"command": "a command", "pid": "?", "host": "?", "since": "?"} | dict(holder)
    return (
        f"{directory}: in use since {known['since']} by process {known['pid']} on "
        f"{known['host']}: {known['command'][:200]}"
    )
