"""The command line on damaged files: a status, one line on stderr, and no trace."""

import contextlib
import io
import logging
import re
import shutil
import tempfile
from pathlib import Path

from tests.hostile.run import Outcome, write_case
from tests.hostile.text_files import Target
from xling_jax.cli.main import main


def run_command(target: Target, number: int) -> Outcome:
    """Runs a target's command on damaged file set `number`, in this process."""
    directory = Path(tempfile.mkdtemp(prefix="hostile-"))
    errors = io.StringIO()
    handlers = logging.getLogger().handlers[:]
    try:
        write_case(target, number, directory)
        argv = target.argv(directory)
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            status = main(argv)
    except BaseException as error:  # noqa: BLE001, argparse leaves by SystemExit
        return Outcome("trace", f"{type(error).__name__}: {error}")
    finally:
        logging.getLogger().handlers[:] = handlers
        shutil.rmtree(directory, ignore_errors=True)
    text = errors.getvalue()
    lines = [line for line in text.splitlines() if line.startswith(f"xling {argv[0]}: error: ")]
    if "Traceback" in text or (status == 0) != (not lines) or len(lines) > 1:
        return Outcome("trace", f"status {status}\n{text[-1500:]}")
    if status not in (0, 1, 2):
        return Outcome("trace", f"status {status}")
    # Whatever else there is are lines of the log and of warnings, before the error.
    if lines and not re.search(r"xling \w+: error: [^\n]+\n$", text):
        return Outcome("message", text[-1500:])
    return Outcome("refused" if lines else "read", "".join(lines))
