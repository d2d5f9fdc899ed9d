"""One damaged input after another: what the library makes of it, and what it costs."""

import contextlib
import io
import logging
import random
import re
import shutil
import signal
import tempfile
import time
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.hostile.damage import damage
from tests.hostile.text_files import Target
from xling_jax.cli.main import main

MAX_MEMORY_MB = 500
MAX_SECONDS = 5.0
_MAX_MESSAGE = 1500


class Outcome(NamedTuple):
    """What became of an input.

    Attributes:
        kind: "read", "refused" in one line, or what is wrong.
        detail: the message, or the trace.
    """

    kind: str
    detail: str


GOOD = ("read", "refused")


def write_case(target: Target, number: int, directory: Path) -> None:
    """Writes damaged file set `number` of a target; the same number gives the same bytes."""
    rng = random.Random(zlib.crc32(target.name.encode()) + 1_000_003 * number)
    files = damage(rng, target.files(rng.randrange(600)), target.compressible)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def run_case(target: Target, number: int) -> Outcome:
    """Writes a damaged file set and reads it."""
    directory = Path(tempfile.mkdtemp(prefix="hostile-"))
    try:
        write_case(target, number, directory)
        return observe(target, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def observe(target: Target, directory: Path, *, again: bool = False) -> Outcome:
    """Reads a directory; judges result, error, time and memory."""
    measured = _reset_peak()
    before, start = _memory_mb("VmRSS"), time.process_time()
    try:
        with _time_limit(20):
            result = target.read(directory)
        outcome = Outcome("read", "")
    except (ValueError, OSError) as error:
        outcome = _judge_error(error, directory)
    except BaseException as error:  # noqa: BLE001, whatever it is, it is a finding
        if isinstance(error, KeyboardInterrupt):
            raise
        return Outcome("trace", "".join(traceback.format_exception(error))[-3000:])
    seconds = time.process_time() - start
    memory = _memory_mb("VmHWM") - before if measured else 0.0
    if seconds > MAX_SECONDS:
        return Outcome("slow", f"{seconds:.1f} s")
    if memory > MAX_MEMORY_MB and not again:
        # Libraries that are imported at the first use are not the input's memory.
        return observe(target, directory, again=True)
    if memory > MAX_MEMORY_MB:
        return Outcome("memory", f"{memory:.0f} MB")
    if outcome.kind == "read":
        try:
            wrong = target.check(directory, result)
        except Exception as error:  # the plain reading finds it broken
            wrong = "".join(traceback.format_exception(error))[-1500:]
        if wrong:
            return Outcome("wrong row", wrong)
    return outcome


def _judge_error(error: Exception, directory: Path) -> Outcome:
    """An error must be one line that names a file, as the command line prints it."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    names = [str(directory), "tfds:", *(path.name for path in directory.rglob("*"))]
    trace = "".join(traceback.format_exception(error))[-1800:]
    if "\n" in text or len(text) > _MAX_MESSAGE:
        return Outcome("message", f"not one short line: {text!r:.400}\n{trace}")
    if not any(name in text for name in names):
        return Outcome("message", f"names no file: {text!r:.400}\n{trace}")
    return Outcome("refused", text.replace(f"{directory}/", ""))


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(*_):
        raise TimeoutError(f"took more than {seconds} s")  # an OSError that names no file

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def _reset_peak() -> bool:
    """Whether it could: not outside Linux, and not in every container."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _memory_mb(field: str) -> float:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0.0
    return int(status.partition(f"{field}:")[2].split()[0]) / 1024


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
