"""Runs jobs on Apache Beam, which is imported in functions only: it is an extra."""

import contextlib
import dataclasses
import io
import logging
from typing import TYPE_CHECKING

from xling_jax.corpora.jobs import Job, raise_error_of_worker

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

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

    def run(self, job: Job) -> None:
        """Runs a job as a pipeline and waits for its end.

        Raises:
            ValueError: for wrong input that a worker met, with its message.
            OSError: if the pipeline failed otherwise, with the reason.
        """
        pipeline, result = self._make_pipeline(), None
        job.build(pipeline)
        _logger.info("%s on %s", job.name, self.name)
        try:
            result = pipeline.run()
            state = result.wait_until_finish()
        except Exception as error:
            raise_error_of_worker(job.scratch)
            raise self._failure(error) from error
        except BaseException:
            # Interrupted: a job on a cluster would go on without its driver.
            with contextlib.suppress(Exception):
                result.cancel()
            raise
        if state != "DONE":
            raise self._failure(RuntimeError(f"it ended as {state}"))

    def prepare_dataset(self, where: str) -> None:
        """Prepares a dataset of TFDS here, unless that is done; by Beam if it is made so.

        Args:
            where: see `readers.tfds.read_tfds`.

        Raises:
            ValueError, OSError, ImportError: as `readers.tfds.read_tfds`.
        """
        from xling_jax.corpora.readers.tfds import prepare_dataset

        try:
            prepare_dataset(where, self._make_options())
        except RuntimeError as error:
            raise self._failure(error) from error

    def finish(self) -> None:
        """Nothing: the workers end with each pipeline."""

    def _failure(self, error: Exception) -> OSError:
        """What to raise for an error of Beam, whose last line gives the reason."""
        lines = str(error).strip().splitlines()
        return ChildProcessError(
            f"--runner {self.name}: the pipeline failed: {lines[-1] if lines else repr(error)}; "
            "start the same command again: what is finished is kept"
        )

    def _make_options(self) -> "PipelineOptions":
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

            return beam.Pipeline(options=self._make_options())
        except ImportError as error:
            hint = "pip install 'xling_jax[beam]', for Dataflow also 'apache-beam[gcp]'"
            raise ImportError(f"--runner {self.name}: {error}; {hint}") from error
        except (ValueError, AttributeError) as error:
            raise ValueError(f"--runner {self.name}: {error}") from error
