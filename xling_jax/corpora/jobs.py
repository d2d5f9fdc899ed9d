"""Work that several processes share: what they have in common, whoever runs them.

The process that starts a job, the driver, and the workers meet in a directory that all see under
one path: there lie the function that does the work, its results, and the errors it met. One piece
of work may be given to two workers, so files appear whole, whoever writes them.
"""

import contextlib
import functools
import hashlib
import json
import pickle
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from xling_jax.files.processes import Processes
from xling_jax.files.whole import write_whole

if TYPE_CHECKING:
    import apache_beam as beam

_ERROR = ".error"
# A network file system may remember for so long that a file was not there.
_SEEN_WITHIN_S = 60


class Job(Protocol):
    """Work in pieces. Each piece leaves its result in a file.

    Attributes:
        name: what it does, for the log.
        scratch: directory of what only this job needs, the errors of its workers among it.
        inputs: directories that it reads.
        outputs: directories that it writes; all but `scratch` may exist before.
        reads_corpora: whether it needs the corpora, too.
    """

    name: str
    scratch: Path
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    reads_corpora: bool

    def build(self, pipeline: "beam.Pipeline") -> None:
        """Adds the steps that do all pieces to a pipeline of Apache Beam."""

    def share(self, processes: Processes) -> tuple[Callable[[Any], Any], Iterable[Any]]:
        """The pieces of one of several processes, and the function that does one."""


class Runner(Protocol):
    """Where jobs are run."""

    def run(self, job: Job) -> None:
        """Does a job.

        Raises:
            ValueError: for wrong input that a worker met, with its message.
            OSError: if it failed otherwise, with the reason.
        """

    def prepare_dataset(self, where: str) -> None:
        """Prepares a dataset of TFDS, unless that is done, before workers read it."""

    def finish(self) -> None:
        """Lets the workers go."""


@contextlib.contextmanager
def keeping_error(path: Path) -> Iterator[None]:
    """Keeps the error of a piece of work beside its result, for the driver to raise.

    What is wrong with the input is wrong each time, so the pipeline goes on with the rest; other
    errors are raised, and the runner tries again.
    """
    record = path.with_name(path.name + _ERROR)
    try:
        yield
        record.unlink(missing_ok=True)
    except Exception as error:
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            text = f"{error.filename}: {error.strerror}"
        elif not isinstance(error, ValueError | OSError | ImportError):
            text = f"{type(error).__name__}: {text}"
        is_input_wrong = isinstance(error, ValueError)
        with contextlib.suppress(OSError):
            _write_whole(record, json.dumps([is_input_wrong, text]).encode())
        if not is_input_wrong:
            raise


def forget_errors(scratch: Path) -> None:
    """Removes what `keeping_error` kept in an earlier run."""
    for record in scratch.rglob(f"*{_ERROR}"):
        record.unlink(missing_ok=True)


def raise_error_of_worker(scratch: Path) -> None:
    """Raises what the first piece of work that failed for good has kept, if any."""
    for record in sorted(scratch.rglob(f"*{_ERROR}")):
        is_input_wrong, text = json.loads(record.read_bytes())
        raise (ValueError if is_input_wrong else OSError)(text)


def check_is_there(path: Path, scratch: Path) -> None:
    """Raises the reason why a result is missing although the pipeline is done.

    Args:
        path: of the result.
        scratch: where the workers left errors.

    Raises:
        ValueError, OSError: if it is missing.
    """
    if not path.exists():
        raise_error_of_worker(scratch)
    if not appears(path):
        raise FileNotFoundError(
            f"{path}: the work is done, but this is not here; workers must see --workdir under "
            "the path that this process sees, on a file system they share"
        )


def appears(path: Path) -> bool:
    """Whether there is a file that another machine has written, however late that is seen here."""
    deadline = time.monotonic() + _SEEN_WITHIN_S
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def save(path: Path, value: object) -> None:
    """Pickles a value into a file."""
    _write_whole(path, pickle.dumps(value))


def load(path: Path) -> Any:
    """Returns what `save` saved."""
    return pickle.loads(path.read_bytes())


def save_function(directory: Path, function: object) -> str:
    """Saves the function of a job, with its state, under a name of its content.

    A vocabulary and the hashes of held-out text are more than some runners take in a pipeline.

    Args:
        directory: where.
        function: picklable; an instance with `__call__` may carry state.

    Returns:
        The path, for `load_function`.
    """
    content = pickle.dumps(function)
    path = directory / f"function-{hashlib.sha256(content).hexdigest()[:16]}"
    _write_whole(path, content)
    return str(path)


@functools.lru_cache(maxsize=1)
def load_function(path: str) -> Callable[[Any], Any]:
    """Loads a function once for all the work of a process."""
    return load(Path(path))


def _write_whole(path: Path, content: bytes) -> None:
    """Writes a file that appears whole; several processes may write the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content, writer=uuid.uuid4().hex)
