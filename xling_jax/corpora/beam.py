"""Cleans corpora and writes shards on Apache Beam, which is imported in functions only: an extra.

Workers run what processes of one machine run, `pair_text.ChunkCleaner` and
`pair_tokens.ShardWriter`, on the same chunks of rows and the same shards, so the bytes are the
same. They read the corpora and write into the workdir, both on a file system that is mounted at the
same path everywhere. Beam itself carries rows from the readers to the cleaners.

    SCRATCH/KEY/00000000     a cleaned chunk of a corpus
    SCRATCH/KEY/rows.json    the counted rows of a corpus, once all are read
    .../NAME.error           the error that a worker met, for this process to raise
"""

import contextlib
import dataclasses
import functools
import io
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xling_jax.corpora import specs
from xling_jax.corpora.pair_text import ChunkCleaner, PairChunk, RowCounter
from xling_jax.corpora.pair_tokens import Shard, ShardWriter
from xling_jax.files.hashes import hash_file
from xling_jax.files.whole import read_json, write_json, write_whole

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class BeamRunner:
    """A runner of Apache Beam.

    Args:
        name: `direct`, `dataflow`, `flink`, `spark`, another of Beam's runners, or `module.Class`.
        options: Beam's pipeline options, each `--name=value`.

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

    def clean(
        self,
        scratch: Path,
        corpora: Mapping[str, tuple[str, str, Sequence[tuple[str, str]]]],
        languages: Sequence[str],
        cleaner: ChunkCleaner,
    ) -> Iterator[tuple[str, RowCounter, Iterator[dict[str, PairChunk]]]]:
        """Cleans corpora, all in one pipeline; chunks that were cleaned before are kept.

        Args:
            scratch: directory for cleaned chunks.
            corpora: spec -> the corpus on this machine, a fingerprint of its text, and
                `specs.hashed_files` as this process sees them.
            languages: the languages wanted.
            cleaner: cleans a chunk.

        Yields:
            Spec, counted rows and cleaned chunks of each corpus.

        Raises:
            ValueError: for a broken corpus; the others are finished first.
            OSError: from reading or writing, or if the pipeline failed.
        """
        directories = {spec: scratch / key for spec, (_, key, _) in corpora.items()}
        readings = []
        for spec, (local, _, files) in corpora.items():
            try:  # a dataset of TFDS is made on Beam if it is one of Beam's
                specs.open_corpus(local).prepare(self._make_options())
            except RuntimeError as error:
                raise self._failure(error) from error
            directory = directories[spec]
            rows = read_json(directory / "rows.json")
            if not rows or not all(path.exists() for path in _chunks(directory, rows["chunks"])):
                directory.mkdir(parents=True, exist_ok=True)
                # Workers run in another directory.
                absolute = specs.moved_corpus(local, os.path.abspath)
                readings.append((absolute, list(files), directory))

        read = functools.partial(_read_chunks, tuple(languages), cleaner.min_languages)

        def build(pipeline: "beam.Pipeline") -> None:
            import apache_beam as beam

            (
                pipeline
                | "Corpora" >> beam.Create(readings)
                | "Spread corpora" >> beam.Reshuffle()
                | "Read" >> beam.FlatMapTuple(read)
                | "Spread chunks" >> beam.Reshuffle()
                | "Clean" >> beam.MapTuple(functools.partial(_clean_chunk, cleaner))
            )

        if readings:
            self._run(f"cleaning {len(readings)} corpora", build, scratch)
        for spec, directory in directories.items():
            rows = read_json(_checked(directory / "rows.json", scratch))
            chunks = (_load_chunk(_checked(p, scratch)) for p in _chunks(directory, rows["chunks"]))
            yield spec, RowCounter(spec, rows["files"]), chunks

    def write_shards(
        self, errors: Path, writer: ShardWriter, shards: Sequence[Shard]
    ) -> Iterable[Shard]:
        """Writes shards, all in one pipeline; `errors` is a directory for errors of the workers.

        Raises:
            OSError: from reading or writing, or if the pipeline failed.
        """

        def build(pipeline: "beam.Pipeline") -> None:
            import apache_beam as beam

            (
                pipeline
                | "Shards" >> beam.Create(shards)
                | "Spread shards" >> beam.Reshuffle()
                | "Tokenize" >> beam.Map(functools.partial(_write_shard, writer, errors))
            )

        if shards:
            errors.mkdir(exist_ok=True)
            self._run(f"tokenizing {len(shards)} shards", build, errors)
        for shard in shards:
            _checked(shard.path.with_suffix(".json"), errors)
        return shards

    def _run(self, what: str, build: Callable[["beam.Pipeline"], None], errors: Path) -> None:
        """Runs a pipeline to its end; raises what a worker met, or why it failed otherwise."""
        for record in errors.rglob("*.error"):  # of an earlier run
            record.unlink(missing_ok=True)
        pipeline, result = self._make_pipeline(), None
        build(pipeline)
        _logger.info("%s on %s", what, self.name)
        try:
            result = pipeline.run()
            state = result.wait_until_finish()
        except Exception as error:
            _raise_error_of_worker(errors)
            raise self._failure(error) from error
        except BaseException:
            # Interrupted: a job on a cluster would go on without its driver.
            with contextlib.suppress(Exception):
                result.cancel()
            raise
        if state != "DONE":
            raise self._failure(RuntimeError(f"it ended as {state}"))

    def _failure(self, error: Exception) -> OSError:
        """What to raise for an error of Beam, whose last line gives the reason."""
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
            with contextlib.redirect_stderr(messages):
                options = PipelineOptions([f"--runner={name}", *self.options])
                # Otherwise a wrong value shows only when the pipeline starts.
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


def _read_chunks(
    languages: Sequence[str],
    min_languages: int,
    corpus: str,
    files: Sequence[tuple[str, str]],
    directory: Path,
) -> Iterator[tuple[Path, list[Mapping[str, str]]]]:
    """Reads a corpus; yields the chunks that are not cleaned yet. Runs on a worker."""
    counter, number = RowCounter(corpus), 0
    with _keeping_error(directory / "rows.json"):
        if files != specs.hashed_files(corpus, languages, hash_file):
            raise ValueError(
                f"{corpus}: its content on a worker differs from that on this machine; give all "
                "workers the same files"
            )
        rows = specs.read_corpus(corpus, languages)
        for number, chunk in enumerate(counter.chunks(rows, min_languages), 1):
            path = directory / f"{number - 1:08d}"
            if not path.exists():
                yield path, chunk
        write_json(directory / "rows.json", {"chunks": number, "files": counter.files})


def _clean_chunk(cleaner: ChunkCleaner, path: Path, chunk: list[Mapping[str, str]]) -> None:
    """Cleans a chunk into a file. Runs on a worker."""
    import msgpack

    with _keeping_error(path):
        write_whole(path, msgpack.packb(cleaner(chunk)))


def _load_chunk(path: Path) -> dict[str, PairChunk]:
    import msgpack

    return {pair: PairChunk(*part) for pair, part in msgpack.unpackb(path.read_bytes()).items()}


def _write_shard(writer: ShardWriter, errors: Path, shard: Shard) -> None:
    """Writes a shard, unless another worker was faster. Runs on a worker."""
    with _keeping_error(errors / f"{shard.pair}-{shard.number:05d}"):
        if shard.counts() is None:
            writer(shard)


@contextlib.contextmanager
def _keeping_error(path: Path) -> Iterator[None]:
    """Keeps the error of a piece of work in `PATH.error`, for the driver to raise.

    Broken input is broken each time, so the pipeline goes on with the rest; after other errors,
    which are raised here, the runner tries again.
    """
    record = path.with_name(f"{path.name}.error")
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
            write_json(record, [is_input_wrong, text])
        if not is_input_wrong:
            raise


def _raise_error_of_worker(errors: Path) -> None:
    """Raises the first error that `_keeping_error` kept, if any."""
    for record in sorted(errors.rglob("*.error")):
        is_input_wrong, text = json.loads(record.read_bytes())
        raise (ValueError if is_input_wrong else OSError)(text)


def _checked(path: Path, errors: Path) -> Path:
    """Returns the path of a result, or raises the reason why it is missing."""
    if not path.exists():
        _raise_error_of_worker(errors)
        raise FileNotFoundError(
            f"{path}: missing although the pipeline is done; mount --workdir at the same path on "
            "all workers and on this machine"
        )
    return path


def _chunks(directory: Path, count: int) -> list[Path]:
    return [directory / f"{number:08d}" for number in range(count)]
