"""Running a command from a script that Ctrl-C and SIGTERM end no sooner than the command."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO


def run(command: Sequence[str], stdout: IO[str] | None = None) -> None:
    """Runs a command; ends the script with its status if that is not 0.

    A training saves before it ends, so the script only waits for it: Ctrl-C reaches the command
    from the terminal, and SIGTERM is passed on.

    Args:
        command: as for `subprocess.Popen`.
        stdout: of the command; None for that of the script.

    Raises:
        SystemExit: with the status of the command, or that of the signal if it ended with 0.
    """
    received, child = [], None

    def note(number: int, _: object) -> None:
        received.append(number)
        if number == signal.SIGTERM and child:
            child.terminate()

    # A handler, which a command does not inherit, and not SIG_IGN, which it does.
    noted = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # as of a shell's background jobs
        noted.append(signal.SIGINT)
    previous = {number: signal.signal(number, note) for number in noted}
    try:
        child = subprocess.Popen(command, stdout=stdout)
        if signal.SIGTERM in received:
            child.terminate()
        status = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if status < 0:
        status = 128 - status
    if status or received:  # the command has said why
        sys.exit(status or 128 + received[0])
