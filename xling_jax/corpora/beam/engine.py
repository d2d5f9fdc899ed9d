"""The work of the stages as pipelines of Beam: one to hash files, clean, sample or tokenize each.

WORKDIR/data/text/KEY/000000.de-en.tsv.gz   a chunk of cleaned text, by the worker that cleaned it
WORKDIR/data/text/KEY/000000                its counts and hashes, once all its pairs are written
WORKDIR/data/.beam.partial/                 what there is to do, results, errors of workers
"""

import contextlib
import dataclasses
import functools
import hashlib
import logging
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from xling_jax.corpora.beam import store
from xling_jax.corpora.beam.runner import BeamRunner, keeping_error, raise_kept_error
from xling_jax.corpora.engine import Engine
from xling_jax.corpora.pair_text import (
    ChunkCleaner,
    PairChunk,
    PairText,
    RowCounter,
    write_pair_text,
)
from xling_jax.corpora.pair_tokens import Shard, ShardWriter
from xling_jax.corpora.readers.base import Reader, Row
from xling_jax.corpora.stages import Stage
from xling_jax.files.urls import is_url
from xling_jax.files.whole import write_json

if TYPE_CHECKING:
    import apache_beam as beam

# Of a shard directory at a URL, which is filled in place: the key of what is being made in it.
UNFINISHED = ".key"

_BLOCK_BYTES = 1 << 20
# The number of what the reader of a corpus knows when it is done, before all chunks.
_FILES = -1

_logger = logging.getLogger(__name__)


class BeamEngine(Engine):
    """Does the work on a runner of Beam.

    Args:
        runner: of Apache Beam.
        workdir: a directory, the same for all workers, or a URL.
        here: that directory, or one with a copy of the records at the URL.
    """

    def __init__(self, runner: BeamRunner, workdir: str, here: Path):
        super().__init__(1, lambda items, *_, **__: items, everywhere)
        self._runner, self._workdir, self._here = runner, workdir, here
        self._scratch = store.join(workdir, "data", ".beam.partial")
        self._errors = store.join(self._scratch, "errors")

    def files(self, reader: Reader, languages: Sequence[str]) -> list[str]:
        """See `Engine.files`."""
        with copied(reader, with_content=not reader.finds_by_name) as (copy, name_of):
            return [name_of(os.path.abspath(path)) for path in copy.files(languages)]

    def state(self, path: str) -> tuple[int, int]:
        """See `Engine.state`."""
        return store.state(path)

    def hash_files(self, paths: Sequence[str]) -> list[str]:
        """See `Engine.hash_files`."""
        return self._map(_hash_file, paths)

    def clean(
        self,
        corpora: Sequence[tuple[Reader, Stage]],
        languages: Sequence[str],
        cleaner: ChunkCleaner,
    ) -> None:
        """See `Engine.clean`: one worker reads a corpus, all clean it."""
        for reader, _ in corpora:
            try:  # a dataset of TFDS is made on Beam if it is one of Beam's
                reader.prepare(self._runner.make_options())
            except RuntimeError as error:
                raise self._runner.failure(error) from error
        places = [self._place_of(stage.directory) for _, stage in corpora]
        readers = [reader for reader, _ in corpora]
        read = functools.partial(
            _read, readers, languages, cleaner.min_languages, errors=self._errors
        )
        clean = functools.partial(_clean, cleaner, places, errors=self._errors)
        finish = functools.partial(
            _finish, readers, places, [stage for _, stage in corpora], errors=self._errors
        )
        functions = self._store_functions(read, clean, finish)

        def build(pipeline: "beam.Pipeline") -> None:
            import apache_beam as beam

            call = _make_step(functions, self._runner.options)
            _ = (
                pipeline
                | "Corpora" >> beam.Create(range(len(corpora)))
                | "Spread corpora" >> beam.Reshuffle()
                | "Read" >> beam.ParDo(call(0))
                | "Spread chunks" >> beam.Reshuffle()
                | "Clean" >> beam.ParDo(call(1))
                | "Chunks by corpus" >> beam.GroupByKey()
                | "Finish" >> beam.ParDo(call(2))
            )

        self._run(build)
        for (_, stage), place in zip(corpora, places):
            self._require(store.join(place, stage.record))
            if is_url(place):
                store.fetch(store.join(place, stage.record), stage.directory / stage.record)

    def text(self, stage: Stage) -> PairText:
        """See `Engine.text`."""
        return PairText(stage, self._place_of(stage.directory))

    def read(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """See `Engine.read`."""
        return self._map(function, list(items))

    def write_shards(self, writer: ShardWriter, shards: Sequence[Shard]) -> Iterator[Any]:
        """See `Engine.write_shards`."""
        places: dict[Path, str] = {}
        for shard in shards if is_url(self._workdir) else ():
            if shard.directory not in places:
                places[shard.directory] = self._begin(shard)
        found = self._map(functools.partial(_write_shard, writer, places), shards)
        for shard, counts in zip(shards, found):
            if places:
                write_json(shard.path.with_suffix(".json"), counts)
            yield counts

    def _begin(self, shard: Shard) -> str:
        """The directory of a pair at a URL, without shards of another key."""
        _, pair, key, _ = shard.directory.name.split(".")
        place = self._place_of(shard.directory.with_name(pair))
        marker = store.join(place, UNFINISHED)
        if not store.exists(marker) or store.read(marker).decode() != key:
            store.remove_below(place)
            store.write(marker, key.encode())
        return place

    def _place_of(self, directory: Path) -> str:
        """Where workers find a directory of the workdir."""
        return store.join(self._workdir, directory.relative_to(self._here).as_posix())

    def _map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Calls a function for each item; the results are small enough for one machine."""
        if not items:
            return []
        results = store.join(self._scratch, "results")
        numbered = functools.partial(_numbered, function, errors=self._errors)
        functions = self._store_functions(numbered, functools.partial(_gather, results))
        places = _store_items(store.join(self._scratch, "items"), items)

        def build(pipeline: "beam.Pipeline") -> None:
            import apache_beam as beam

            call = _make_step(functions, self._runner.options)
            _ = (
                pipeline
                | "Items" >> beam.Create(places)
                | "Spread" >> beam.Reshuffle()
                | "Call" >> beam.ParDo(call(0))
                | "Results" >> beam.GroupByKey()
                | "Gather" >> beam.ParDo(call(1))
            )

        self._run(build)
        found = store.read_packed(results) or []
        if len(found) < len(items):
            raise_kept_error(self._errors)
            self._require(results)
        store.remove_below(self._scratch)
        return found

    def _store_functions(self, *functions: Callable) -> list[tuple[str, int, int]]:
        """Stores functions for `_make_step`: with their state they may be too large for a graph."""
        return _store_items(store.join(self._scratch, "functions"), functions)

    def _run(self, build: Callable[["beam.Pipeline"], None]) -> None:
        _logger.info("working on %s", self._runner.name)
        if is_url(self._workdir):  # what it says will not be true for a while
            manifest = store.join(self._workdir, "data", "manifest.json")
            store.remove([manifest] if store.exists(manifest) else [])
        self._runner.run(build, self._errors)

    def _require(self, path: str) -> None:
        """Raises what kept a pipeline from writing a file that is missing."""
        if not store.exists(path):
            raise_kept_error(self._errors)
            raise FileNotFoundError(
                f"{path}: missing although the pipeline is done; give --workdir a URL, or mount it "
                "at the same path on all workers and on this machine"
            )


def everywhere(path: str) -> str:
    """A path as workers have to see it, who run in another directory."""
    store.check(path)
    return path if is_url(path) else os.path.abspath(path)


@contextlib.contextmanager
def copied(
    reader: Reader, with_content: bool = True
) -> Iterator[tuple[Reader, Callable[[str], str]]]:
    """Copies the files of a corpus at a URL to a temporary directory.

    Args:
        reader: of the corpus; one that is no URL is read where it is.
        with_content: False for empty files, where names are all that is looked at.

    Yields:
        The reader of the copies, and a function that puts the names of the files in place of those
        of their copies into a text, as this does in errors.
    """
    with tempfile.TemporaryDirectory() as directory:
        scheme = reader.where.partition("://")[0]
        name_of = lambda text: text.replace(f"{directory}/", f"{scheme}://")

        def copy(pattern: str) -> str:
            if not is_url(pattern):
                return pattern
            below = lambda url: Path(directory, url.partition("://")[2])
            for url in store.match(pattern):
                if with_content:
                    store.fetch(url, below(url))
                else:
                    below(url).parent.mkdir(parents=True, exist_ok=True)
                    below(url).touch()
            return str(below(pattern))

        try:
            yield reader.at(copy), name_of
        except (ValueError, OSError) as error:
            if directory not in str(error):
                raise
            kind = ValueError if isinstance(error, ValueError) else type(error)
            raise kind(name_of(str(error))) from error


def _hash_file(path: str) -> str:
    digest = hashlib.sha256()
    with store.open_at(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _read(
    readers: Sequence[Reader],
    languages: Sequence[str],
    min_languages: int,
    corpus: int,
    *,
    errors: str,
) -> Iterator[tuple[int, int, bytes]]:
    """Yields (corpus, number, chunk of rows), and at the end what is known of the files."""
    with keeping_error(errors, f"{corpus:05d}"), copied(readers[corpus]) as (reader, name_of):
        named = lambda row: row._replace(
            file=name_of(row.file), broken_file=name_of(row.broken_file)
        )
        counter = RowCounter(name_of(reader.name))
        rows: Iterator[Row] = map(named, reader.rows(languages))
        for number, chunk in enumerate(counter.chunks(rows, min_languages)):
            yield corpus, number, _pack(chunk)
        yield corpus, _FILES, _pack(counter.files)


def _clean(
    cleaner: ChunkCleaner,
    places: Sequence[str],
    chunk: tuple[int, int, bytes],
    *,
    errors: str,
) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Cleans a chunk and writes its text; yields (corpus, (number, what is known of it))."""
    corpus, number, packed = chunk
    if number == _FILES:
        yield corpus, (number, packed)
        return
    path = store.join(places[corpus], f"{number:06d}")
    with keeping_error(errors, f"{corpus:05d}-{number:06d}"):
        if (found := store.read_packed(path)) is None:
            found = {}
            for pair, made in cleaner(_unpack(packed)).items():
                if made.hashes:
                    store.write(f"{path}.{pair}.tsv.gz", made.text)
                found[pair] = (made.hashes, dict(made.counts), (*made.entry, number))
            store.write_packed(path, found)
        yield corpus, (number, _pack(found))


def _finish(
    readers: Sequence[Reader],
    places: Sequence[str],
    stages: Sequence[Stage],
    chunks: tuple[int, Iterable[tuple[int, bytes]]],
    *,
    errors: str,
) -> Iterator[None]:
    """Writes the hashes and the record of a corpus, unless its reader met an error."""
    corpus, found = chunks[0], dict(chunks[1])
    if (files := found.pop(_FILES, None)) is None:
        return
    with keeping_error(errors, f"{corpus:05d}"), tempfile.TemporaryDirectory() as directory:
        counter = RowCounter(readers[corpus].name, _unpack(files))
        unpacked = (_unpack(found[number]).items() for number in sorted(found))
        written = (
            {pair: PairChunk(b"", hashes, counts, entry)}
            for pairs in unpacked
            for pair, (hashes, counts, entry) in pairs
        )
        with store.naming_full_disk():
            record = write_pair_text(written, Path(directory), counter)
            write_json(Path(directory, stages[corpus].record), record)
        store.upload(Path(directory), places[corpus], last=stages[corpus].record)
    yield from ()


def _write_shard(writer: ShardWriter, places: dict[Path, str], shard: Shard) -> dict[str, Any]:
    """Writes a shard, unless that is done, to its directory at a URL if there is one."""
    if not places:
        return shard.counts() or writer(shard)
    place, name = places[shard.directory], f"{shard.path.name}.json"
    counts = store.join(place, name)
    if store.exists(counts):
        return store.read_json(counts)
    with tempfile.TemporaryDirectory() as directory:
        with store.naming_full_disk():
            found = writer(dataclasses.replace(shard, directory=Path(directory)))
        store.upload(Path(directory), place, last=name)
    return found


def _numbered(
    function: Callable[[Any], Any], item: tuple[str, int, int, int], *, errors: str
) -> Iterator[tuple[None, tuple[int, Any]]]:
    """Calls a function for a stored item."""
    *place, number = item
    with keeping_error(errors, f"{number:06d}"):
        yield None, (number, function(_load(*place)))


def _gather(path: str, results: tuple[None, Iterable[tuple[int, Any]]]) -> Iterator[None]:
    """Writes the results, if there is one of each item."""
    found = dict(results[1])
    store.write_packed(path, [found[number] for number in sorted(found)])
    yield from ()


def _store_items(path: str, items: Sequence[Any]) -> list[tuple[str, int, int, int]]:
    """Stores items in one file; returns path, start and size of each, and its number."""
    from apache_beam.internal import pickler

    content = [pickler.dumps(item) for item in items]
    store.write(path, b"".join(content))
    starts = [0]
    for one in content:
        starts.append(starts[-1] + len(one))
    return [(path, starts[n], len(one), n) for n, one in enumerate(content)]


def _load(path: str, start: int, size: int) -> Any:
    from apache_beam.internal import pickler

    with store.open_at(path, start) as file:
        return pickler.loads(file.read(size))


def _make_step(functions: list[tuple[str, int, int, int]], options: Sequence[str]) -> Callable:
    """Returns what makes the step that calls a stored function, which is loaded once a worker."""
    import apache_beam as beam

    class Step(beam.DoFn):
        """Calls a function that yields, for each element."""

        def __init__(self, place: tuple[str, int, int]):
            self._place = place

        def setup(self) -> None:
            store.use_options(options)
            self._function = _load(*self._place)

        def process(self, element: Any) -> Iterator[Any]:
            yield from self._function(element)

    return lambda number: Step(functions[number][:3])


# Text of files that are not UTF-8 throughout is marked as broken, and yet: JSON and XML can name
# a lone surrogate.
_SURROGATES = "surrogatepass"


def _pack(value: Any) -> bytes:
    return zlib.compress(msgpack.packb(value, unicode_errors=_SURROGATES), 1)


def _unpack(packed: bytes) -> Any:
    return msgpack.unpackb(
        zlib.decompress(packed), unicode_errors=_SURROGATES, strict_map_key=False
    )
