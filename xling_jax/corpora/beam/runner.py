"""A runner of Apache Beam: its options, how a run of it ends, and errors of workers in one line."""

import contextlib
import dataclasses
import io
import logging
import posixpath
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from xling_jax.files import urls

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

# Ends the name of an error of broken input, and of any other.
BROKEN, OTHER = ".input", ".other"


@dataclasses.dataclass(frozen=True)
class BeamRunner:
    """A runner of Apache Beam: `direct`, `dataflow`, `flink`, `spark`, another, or `module.Class`.

    `options` are Beam's pipeline options, each `--name=value`. ImportError without Apache Beam, or
    what it needs for this runner.
    """

    name: str
    options: tuple[str, ...] = ()

    def __post_init__(self):
        self._make_pipeline()

    @property
    def is_here(self) -> bool:
        """True if its workers are on this machine."""
        return self.name.lower().removesuffix("runner") == "direct"

    def run(self, add_steps: Callable[["beam.Pipeline"], None], errors: str) -> None:
        """Runs a pipeline to its end; its steps keep `errors` there, see `keeping_error`."""
        urls.remove(errors)  # of an earlier run
        pipeline, result = self._make_pipeline(), None
        add_steps(pipeline)
        try:
            result = pipeline.run()
            state = result.wait_until_finish()
        except Exception as error:
            failure = self._failure(error)
            raise_kept_error(errors)
            raise failure from error
        except BaseException:
            # Interrupted: a job on a cluster would go on without its driver.
            with contextlib.suppress(Exception):
                result.cancel()
            raise
        if state != "DONE":
            raise self._failure(RuntimeError(f"it ended as {state}"))

    def _failure(self, error: Exception) -> OSError:
        """The exception to raise for an error of Beam, whose last line gives the reason."""
        if "KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from error
        lines = str(error).strip().splitlines()
        return ChildProcessError(
            f"--runner {self.name}: the pipeline failed: {lines[-1] if lines else repr(error)}; "
            "run the same command again: finished work is kept"
        )

    def _make_options(self) -> "PipelineOptions":
        """The options as Beam reads them, the runner among them."""
        from apache_beam.options.pipeline_options import PipelineOptions

        # Beam's DirectRunner first tries to download another one, written in Go; this is the one
        # it falls back on.
        name = "FnApiRunner" if self.is_here else self.name
        messages = io.StringIO()
        try:
            with contextlib.redirect_stderr(messages), contextlib.redirect_stdout(io.StringIO()):
                options = PipelineOptions([f"--runner={name}", *self.options])
                # Otherwise a wrong value shows only when the pipeline starts.
                options.get_all_options()
        except SystemExit as error:
            lines = messages.getvalue().strip().splitlines()
            if not lines:  # --help
                raise ValueError("its options are in Beam's documentation") from error
            raise ValueError(lines[-1].partition("error: ")[2]) from error
        return options

    def _make_pipeline(self) -> "beam.Pipeline":
        before = logging.root.manager.disable
        try:
            logging.disable(logging.WARNING)  # it tells what else could be installed
            import apache_beam as beam

            logging.disable(before)
            return beam.Pipeline(options=self._make_options())
        except ImportError as error:
            hint = "pip install 'xling_jax[beam]', for Dataflow also 'apache-beam[gcp]'"
            raise ImportError(f"--runner {self.name}: {error}; {hint}") from error
        except (ValueError, AttributeError) as error:
            raise ValueError(f"--runner {self.name}: {error}") from error
        finally:
            logging.disable(before)


@contextlib.contextmanager
def keeping_error(directory: str, name: str) -> Iterator[None]:
    """Keeps the error of a step in `DIRECTORY/NAME`, for the machine that started it to raise.

    Broken input is broken each time, so the pipeline goes on without this piece of work; after
    other errors, which are raised here, the runner tries again. Of all, the first name is raised.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            text = f"{error.filename}: {error.strerror}"
        elif not isinstance(error, ValueError | OSError | ImportError):
            text = f"{type(error).__name__}: {text}"
        is_input_wrong = isinstance(error, ValueError)
        name += BROKEN if is_input_wrong else OTHER
        with contextlib.suppress(OSError):
            urls.write(posixpath.join(directory, name), text.encode())
        if not is_input_wrong:
            raise


def raise_kept_error(directory: str) -> None:
    """Raises the first error that `keeping_error` kept, if any: one in the input if there is one.

    Others may have been overcome by a second try.
    """
    for path in sorted(urls.find(directory), key=lambda path: (not path.endswith(BROKEN), path)):
        text = urls.read(path).decode()
        raise (ValueError if path.endswith(BROKEN) else OSError)(text)
