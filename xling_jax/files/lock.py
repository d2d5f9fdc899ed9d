"""One run at a time in a directory, also in one that several machines share.

The system's lock (`flock`) ends with its process, however that ends, so a run killed on this
machine never blocks the next. A file server keeps the lock of a machine that is gone for a while.
"""

import contextlib
import json
import logging
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from xling_jax.files.whole import naming_errors, try_lock

_logger = logging.getLogger(__name__)

LOCK_FILE = "run.lock"
# Servers of NFS forget the locks of a machine that does not answer after 90 seconds.
STALE_S = 120.0


@contextlib.contextmanager
def only_run(directory: Path, argument: str = "--workdir") -> Iterator[None]:
    """Holds a directory for the time of a block; it is made if needed.

    The lock of a run on another machine is waited for, `STALE_S` at most, as that may be gone.
    OSError if another run holds the directory, in one line that names it and the `argument` that
    chooses another; or if the lock file cannot be written.
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
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()


def _open_locked(path: Path, argument: str) -> IO[str]:
    """Opens the lock file once no other run holds it."""
    began_s = None
    while True:
        with contextlib.ExitStack() as stack:
            # Opened anew each time: network file systems then ask the server what is new.
            file = stack.enter_context(open(path, "a+", encoding="utf-8"))
            is_locked = try_lock(file)
            if not path.exists() or not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                continue  # removed by a run that ended in the meantime
            if is_locked is None:
                _logger.info(
                    "%s: its file system has no locks; start one run at a time", path.parent
                )
            if is_locked is not False:
                stack.pop_all()
                return file
            file.seek(0)
            holder = _holder(file.read())
        described = (
            f"{path.parent}: in use since {holder['since']} by process {holder['pid']} on "
            f"{holder['host']}: {holder['command'][:200]}"
        )
        now_s = time.monotonic()
        if holder["host"] == socket.gethostname() or now_s - (began_s or now_s) > STALE_S:
            raise OSError(f"{described}; wait for it, or choose another {argument}")
        if began_s is None:
            began_s = now_s
            _logger.info("%s; waiting up to %.0f s for its lock", described, STALE_S)
        time.sleep(min(1.0, STALE_S / 5))


def _holder(text: str) -> dict[str, Any]:
    """What a lock file says of its run; unknown while that is being written."""
    holder = {"command": "a command", "pid": "?", "host": "?", "since": "?"}
    with contextlib.suppress(ValueError, TypeError):
        holder |= json.loads(text)
    return holder
