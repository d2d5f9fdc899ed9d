"""A runner of Apache Beam: its options, and how a run of it ends."""

import contextlib
import dataclasses
import io
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions


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

    def run(self, add_steps: Callable[["beam.Pipeline"], None]) -> None:
        """Runs a pipeline to its end."""
        pipeline, result = self._make_pipeline(), None
        add_steps(pipeline)
        try:
            result = pipeline.run()
            state = result.wait_until_finish()
        except Exception as error:
            raise self._failure(error) from error
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
