"""Apache Beam as the engine of preparation, for corpora beyond one machine; an extra.

The stages and their bytes are those of one machine: this one runs `corpora.prepare`, and workers
read and clean the corpora and write the token shards. All see the workdir and the corpora at the
same paths, where these appear for the time of the work:

    WORKDIR/data/.rows.partial/KEY/000000         a chunk of rows of a corpus
    WORKDIR/data/.rows.partial/KEY/000000.clean   what cleaning made of it
    WORKDIR/data/.beam.partial/                   calls of a function, and their results
"""

import contextlib
import dataclasses
import functools
import io
import json
import logging
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.corpora.pair_text import ChunkCleaner, RowCounter, write_pair_text
from xling_jax.corpora.pair_tokens import Shard, ShardWriter
from xling_jax.corpora.prepare import Engine
from xling_jax.corpora.readers.base import Reader
from xling_jax.corpora.stages import Stage
from xling_jax.files.urls import is_url
from xling_jax.files.whole import write_whole
from xling_jax.options import OptionError

if TYPE_CHECKING:
    import apache_beam as beam

_logger = logging.getLogger(__name__)


class BeamEngine(Engine):
    """Does the work of a workdir on a runner of Beam."""

    def __init__(self, runner: "BeamRunner", workdir: str | os.PathLike[str]):
        self._runner, self._data = runner, Path(self.place(os.fspath(workdir)), "data")

    @staticmethod
    def place(path: str) -> str:
        """A path as workers see it, who run in another directory."""
        if is_url(path):
            raise OptionError(
                f"{path}: workers of --runner read no URLs; mount its store at the same path on "
                "all of them, or prepare without --runner"
            )
        return os.path.abspath(path)

    def clean(
        self,
        corpora: Sequence[tuple[Reader, Stage]],
        languages: Sequence[str],
        cleaner: ChunkCleaner,
    ) -> None:
        """See `Engine.clean`: one worker reads a corpus and joins what all have cleaned."""
        top = self._data / ".rows.partial"
        places = [top / stage.key for _, stage in corpora]
        read = functools.partial(_read, languages, cleaner.min_languages)
        known = self.map(read, [(reader, rows) for (reader, _), rows in zip(corpora, places)])
        chunks = [
            rows / f"{number:06d}"
            for rows, (_, num_chunks) in zip(places, known)
            for number in range(num_chunks)
        ]
        self.map(functools.partial(_clean, cleaner), chunks)
        self.map(_join, [(*one, *rest) for one, *rest in zip(corpora, places, known)])
        shutil.rmtree(top)

    def write_shards(self, writer: ShardWriter, shards: Sequence[Shard]) -> list[Any]:
        """See `Engine.write_shards`."""
        return self.map(writer, shards)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """See `Engine.map`; the results are small enough for one machine."""
        if not (items := list(items)):
            return []
        # In files: what a function knows and its items may be too large for a graph.
        scratch = self._data / ".beam.partial" / secrets.token_hex(4)
        _store(scratch / "calls", (function, items))

        def add_steps(pipeline: "beam.Pipeline") -> None:
            import apache_beam as beam

            numbers = pipeline | beam.Create(range(len(items))) | beam.Reshuffle()
            _ = numbers | "Call" >> beam.Map(functools.partial(_call, scratch))

        _logger.info("working on %s", self._runner.name)
        self._runner.run(add_steps)
        found = []
        for number in range(len(items)):
            if not (path := scratch / str(number)).exists():
                raise FileNotFoundError(
                    f"{path}: missing although the pipeline is done; mount --workdir at the same "
                    "path on all workers and on this machine"
                )
            result, problem = _load(path)
            if problem:
                raise ValueError(problem)
            found.append(result)
        shutil.rmtree(scratch.parent)
        return found


def _call(scratch: Path, number: int) -> None:
    """Calls the function for an item, and stores the result and what is wrong with the item.

    Broken input is broken each time; after other errors the runner tries again.
    """
    function, items = _calls(scratch / "calls")
    try:
        result = function(items[number]), ""
    except ValueError as error:
        result = None, str(error)
    _store(scratch / str(number), result)


def _read(
    languages: Sequence[str], min_languages: int, work: tuple[Reader, Path]
) -> tuple[dict[str, Any], int]:
    """Stores the rows of a corpus by chunk, once; returns what is known of its files, and how many.

    The chunks end where they would on one machine.
    """
    reader, directory = work
    if not (done := directory / "files").exists():
        counter, number = RowCounter(reader.name), 0
        for chunk in counter.chunks(reader.rows(languages), min_languages):
            content = zlib.compress(json.dumps(chunk).encode(), 1)
            _write(directory / f"{number:06d}", content)
            number += 1
        _store(done, (counter.files, number))
    return _load(done)


def _clean(cleaner: ChunkCleaner, rows: Path) -> None:
    """Cleans a chunk, unless that is done."""
    if not (cleaned := rows.with_suffix(".clean")).exists():
        _store(cleaned, cleaner(json.loads(zlib.decompress(rows.read_bytes()))))


def _join(corpus: tuple[Reader, Stage, Path, tuple[dict[str, Any], int]]) -> None:
    """Makes the text stage of a corpus from its clean chunks."""
    reader, stage, directory, (files, num_chunks) = corpus
    chunks = (_load(directory / f"{number:06d}.clean") for number in range(num_chunks))
    counter = RowCounter(reader.name, files)
    stage.make(functools.partial(write_pair_text, chunks, counter=counter))


def _store(path: Path, value: Any) -> None:
    from apache_beam.internal import pickler

    _write(path, pickler.dumps(value, use_zlib=True))


def _load(path: Path) -> Any:
    from apache_beam.internal import pickler

    return pickler.loads(path.read_bytes(), use_zlib=True)


# A worker calls the same function for many items.
_calls = functools.lru_cache(1)(_load)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


@dataclasses.dataclass(frozen=True)
class BeamRunner:
    """A runner of Apache Beam: `direct`, `flink`, `spark`, another, or `module.Class`.

    `options` are Beam's pipeline options, each `--name=value`. ImportError without Apache Beam, or
    what it needs for this runner.
    """

    name: str
    options: tuple[str, ...] = ()

    def __post_init__(self):
        self._make_pipeline()

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

    def _make_pipeline(self) -> "beam.Pipeline":
        before = logging.root.manager.disable
        messages = io.StringIO()
        # Beam's DirectRunner first tries to download another one, written in Go; this is the one
        # it falls back on.
        is_here = self.name.lower().removesuffix("runner") == "direct"
        try:
            logging.disable(logging.WARNING)  # it tells what else could be installed
            import apache_beam as beam
            from apache_beam.options.pipeline_options import PipelineOptions

            logging.disable(before)
            with contextlib.redirect_stderr(messages), contextlib.redirect_stdout(io.StringIO()):
                name = "FnApiRunner" if is_here else self.name
                options = PipelineOptions([f"--runner={name}", *self.options])
                # Otherwise a wrong value shows only when the pipeline starts.
                options.get_all_options()
            return beam.Pipeline(options=options)
        except ImportError as error:
            hint = "pip install 'xling_jax[beam]'"
            raise ImportError(f"--runner {self.name}: {error}; {hint}") from error
        except SystemExit as error:  # without a message for --help
            lines = messages.getvalue().strip().splitlines() or ["its options are in Beam's pages"]
            raise ValueError(f"--runner {self.name}: {lines[-1].split('error: ')[-1]}") from error
        except (ValueError, AttributeError) as error:
            raise ValueError(f"--runner {self.name}: {error}") from error
        finally:
            logging.disable(before)
