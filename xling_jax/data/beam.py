"""A runner of Apache Beam, and what its workers and the process that waits for them share.

The process that starts a pipeline, the driver, and the workers meet in a directory that all see
under one path: there lie the function that does the work, its results, and the errors it met.
A runner may give one piece of work to two workers, so files appear whole, whoever writes them.

Apache Beam is imported in functions only: it is an extra.
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import logging
import os
import pickle
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.data.atomic_files import naming_errors

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

_ERROR = ".error"

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class BeamRunner:
    """A runner of Apache Beam.

    Args:
        name: `direct`, `dataflow`, `flink`, `spark`, another of Beam's, or `module.Class`.
        options: Beam's pipeline options, `--name=value` each.

    Raises:
        ImportError: without Apache Beam, or what it needs for this runner.
        ValueError: if there is no such runner, or its options are wrong.
    """

    name: str
    options: tuple[str, ...] = ()

    def __post_init__(self):
        self._make_pipeline()

    @property
    def is_here(self) -> bool:
        """Whether its workers are on this machine."""
        return self.name.lower().removesuffix("runner") == "direct"

    def run(self, job: str, build: Callable[["beam.Pipeline"], Any], scratch: Path) -> None:
        """Runs a pipeline and waits for its end.

        Args:
            job: what it does, for the log.
            build: adds the steps.
            scratch: where its workers leave errors.

        Raises:
            ValueError: for wrong input that a worker met, with its message.
            OSError: if the pipeline failed otherwise, with the reason.
        """
        pipeline, result = self._make_pipeline(), None
        build(pipeline)
        _logger.info("%s on %s", job, self.name)
        try:
            result = pipeline.run()
            state = result.wait_until_finish()
        except Exception as error:
            _raise_error_of_worker(scratch)
            raise self.failure(error) from error
        except BaseException:
            # Interrupted: a job on a cluster would go on without its driver.
            with contextlib.suppress(Exception):
                result.cancel()
            raise
        if state != "DONE":
            raise self.failure(RuntimeError(f"it ended as {state}"))

    def failure(self, error: Exception) -> OSError:
        """What to raise for an error of Beam, whose last line gives the reason."""
        lines = str(error).strip().splitlines()
        return ChildProcessError(
            f"--runner {self.name}: the pipeline failed: {lines[-1] if lines else repr(error)}; "
            "start the same command again: what is finished is kept"
        )

    def make_options(self) -> "PipelineOptions":
        """The options as Beam reads them, the runner among them."""
        from apache_beam.options.pipeline_options import PipelineOptions

        # Beam's DirectRunner first tries to download another one, written in Go; this is the one
        # it falls back on.
        name = "FnApiRunner" if self.is_here else self.name
        messages = io.StringIO()
        try:
            with contextlib.redirect_stderr(messages):
                options = PipelineOptions([f"--runner={name}", *self.options])
                # Otherwise a wrong value comes to light when the pipeline starts.
                options.get_all_options()
        except SystemExit as error:
            reason = messages.getvalue().strip().splitlines()[-1].partition("error: ")[2]
            raise ValueError(reason) from error
        return options

    def _make_pipeline(self) -> "beam.Pipeline":
        try:
            import apache_beam as beam

            return beam.Pipeline(options=self.make_options())
        except ImportError as error:
            hint = "pip install 'xling_jax[beam]', for Dataflow also 'apache-beam[gcp]'"
            raise ImportError(f"--runner {self.name}: {error}; {hint}") from error
        except (ValueError, AttributeError) as error:
            raise ValueError(f"--runner {self.name}: {error}") from error


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
        record.unlink()


def _raise_error_of_worker(scratch: Path) -> None:
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
        _raise_error_of_worker(scratch)
        raise FileNotFoundError(
            f"{path}: the pipeline is done, but this is not here; workers must see --workdir under "
            "the path that this process sees, on a file system they share"
        )


def save(path: Path, value: object) -> None:
    """Pickles a value into a file."""
    _write_whole(path, pickle.dumps(value))


def load(path: Path) -> Any:
    """Returns what `save` saved."""
    return pickle.loads(path.read_bytes())


def save_function(directory: Path, function: object) -> str:
    """Saves the function of a pipeline, with its state, under a name of its content.

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
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with naming_errors(path), open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
