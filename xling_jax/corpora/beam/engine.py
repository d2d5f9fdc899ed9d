"""The work of the stages as calls of functions on a cluster, each kind of work a pipeline of Beam.

    WORKDIR/data/text/KEY/000000.de-en.tsv.gz   a chunk of cleaned text
    WORKDIR/data/text/KEY/000000                its counts and hashes, once all pairs are written
    WORKDIR/data/.rows.partial/KEY/000000       its rows before, until all corpora are clean
    WORKDIR/data/.beam.partial/                 what there is to do, and the results

One worker reads a corpus into chunks, which end where they would on one machine: the rest of the
bytes follows from that.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import posixpath
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from xling_jax.corpora.beam.runner import BeamRunner
from xling_jax.corpora.engine import Engine
from xling_jax.corpora.pair_text import (
    ChunkCleaner,
    PairChunk,
    PairText,
    RowCounter,
    write_pair_text,
)
from xling_jax.corpora.pair_tokens import Shard, ShardWriter
from xling_jax.corpora.readers.base import Reader
from xling_jax.corpora.stages import Stage
from xling_jax.files import urls
from xling_jax.files.urls import is_url
from xling_jax.files.whole import unsealed, write_record

if TYPE_CHECKING:
    import apache_beam as beam

# Of a shard directory at a URL, which is filled in place: the key of what is being made in it.
UNFINISHED = ".key"

# Broken bytes of a text are marked, and yet: JSON and XML can name a lone surrogate.
_SURROGATES = "surrogatepass"

_logger = logging.getLogger(__name__)


class BeamEngine(Engine):
    """Does the work on a runner of Beam."""

    def __init__(self, runner: BeamRunner, workdir: str, here: Path):
        self._runner, self._workdir, self._here = runner, workdir, here
        self._scratch = posixpath.join(workdir, "data", ".beam.partial")

    @staticmethod
    def place(path: str) -> str:
        """A path as workers have to see it, who run in another directory."""
        urls.check(path)
        return path if is_url(path) else os.path.abspath(path)

    def files(self, reader: Reader, languages: Sequence[str]) -> list[str]:
        with copied(reader, names_only=reader.finds_by_name) as (copy, name_of):
            return [name_of(os.path.abspath(path)) for path in copy.files(languages)]

    def clean(
        self,
        corpora: Sequence[tuple[Reader, Stage]],
        languages: Sequence[str],
        cleaner: ChunkCleaner,
    ) -> None:
        """See `Engine.clean`: one worker reads a corpus and joins what all have cleaned."""
        top = posixpath.join(self._workdir, "data", ".rows.partial")
        places = [(self._place_of(stage.directory), f"{top}/{stage.key}") for _, stage in corpora]
        read = functools.partial(_read, languages, cleaner.min_languages)
        work = [(reader, rows) for (reader, _), (_, rows) in zip(corpora, places)]
        cleaned, chunks = [], []
        for (reader, stage), (target, rows), known in zip(corpora, places, self.map(read, work)):
            cleaned.append((reader.name, stage.record, target, *known))
            chunks += [(f"{rows}/{n:06d}", f"{target}/{n:06d}") for n in range(known[1])]
        self.map(functools.partial(_clean, cleaner), chunks)
        self.map(_finish, cleaned)
        urls.remove(top)
        for (_, stage), (target, _) in zip(corpora, places):
            if is_url(target):
                urls.get(posixpath.join(target, stage.record), stage.directory / stage.record)

    def text(self, stage: Stage) -> PairText:
        return PairText(stage, self._place_of(stage.directory))

    def write_shards(self, writer: ShardWriter, shards: Sequence[Shard]) -> Iterator[Any]:
        targets: dict[Path, str] = {}
        for shard in shards if is_url(self._workdir) else ():
            if shard.directory not in targets:
                targets[shard.directory] = self._begin(shard)
        found = self.map(functools.partial(_write_shard, writer, targets), shards)
        for shard, counts in zip(shards, found):
            if targets:
                write_record(shard.path.with_suffix(".json"), counts)
            yield counts

    def _begin(self, shard: Shard) -> str:
        """The directory of a pair at a URL, without shards of another key."""
        _, pair, key, _ = shard.directory.name.split(".")
        place = self._place_of(shard.directory.with_name(pair))
        marker = posixpath.join(place, UNFINISHED)
        if urls.read(marker) != key.encode():
            urls.remove(place)
            urls.write(marker, key.encode())
        return place

    def _place_of(self, directory: Path) -> str:
        """Where workers find a directory of the workdir."""
        return posixpath.join(self._workdir, directory.relative_to(self._here).as_posix())

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """See `Engine.map`; the results are small enough for one machine."""
        if not (items := list(items)):
            return []
        results = posixpath.join(self._scratch, "results")
        # In files: what a function knows and its items may be too large for a graph.
        ((_, *place),) = _store(posixpath.join(self._scratch, "function"), [function])
        stored = _store(posixpath.join(self._scratch, "items"), items)

        def add_steps(pipeline: "beam.Pipeline") -> None:
            import apache_beam as beam

            _ = (
                pipeline
                | "Items" >> beam.Create(stored)
                | "Spread" >> beam.Reshuffle()
                | "Call" >> beam.ParDo(_make_step(place))
                | "Results" >> beam.GroupByKey()
                | "Gather" >> beam.FlatMap(functools.partial(_gather, results))
            )

        _logger.info("working on %s", self._runner.name)
        if is_url(self._workdir):  # what it says will not be true for a while
            urls.remove(posixpath.join(self._workdir, "data", "manifest.json"))
        self._runner.run(add_steps)
        packed = urls.read(results)
        found = unpack(packed) if packed else []
        if len(found) < len(items):
            raise FileNotFoundError(
                f"{results}: missing although the pipeline is done; give --workdir a URL, or mount "
                "it at the same path on all workers and on this machine"
            )
        for _, problem in found:
            if problem:
                raise ValueError(problem)
        urls.remove(self._scratch)
        return [result for result, _ in found]


@contextlib.contextmanager
def copied(
    reader: Reader, names_only: bool = False
) -> Iterator[tuple[Reader, Callable[[str], str]]]:
    """Copies the files of a corpus at a URL to a temporary directory, or makes empty ones.

    Yields:
        The reader of the copies (of a corpus that is no URL, itself), and a function that puts the
        names of the files in place of those of their copies into a text, as this does in errors.
    """
    with tempfile.TemporaryDirectory() as directory:
        scheme = reader.where.partition("://")[0]
        name_of = lambda text: text.replace(f"{directory}/", f"{scheme}://")

        def copy(pattern: str) -> str:
            below = lambda url: Path(directory, url.partition("://")[2])
            for url in urls.find(pattern) if is_url(pattern) else ():
                below(url).parent.mkdir(parents=True, exist_ok=True)
                below(url).touch() if names_only else urls.get(url, below(url))
            return str(below(pattern)) if is_url(pattern) else pattern

        try:
            yield reader.at(copy), name_of
        except (ValueError, OSError) as error:
            if directory not in str(error):
                raise
            kind = ValueError if isinstance(error, ValueError) else type(error)
            raise kind(name_of(str(error))) from error


def _read(
    languages: Sequence[str], min_languages: int, corpus: tuple[Reader, str]
) -> tuple[dict[str, Any], int]:
    """Writes the rows of a corpus by chunk; returns what is known of its files, and their number.

    A corpus that has been read is not read again.
    """
    given, target = corpus
    done = posixpath.join(target, "files")
    if (known := urls.read(done)) is None:
        with copied(given) as (reader, name_of):
            named = lambda row: row._replace(
                file=name_of(row.file), broken_file=name_of(row.broken_file)
            )
            counter, number = RowCounter(name_of(reader.name)), 0
            for chunk in counter.chunks(map(named, reader.rows(languages)), min_languages):
                urls.write(f"{target}/{number:06d}", pack(chunk))
                number += 1
        known = pack([counter.files, number])
        urls.write(done, known)
    return unpack(known)


def _clean(cleaner: ChunkCleaner, places: tuple[str, str]) -> None:
    """Cleans the rows of a chunk, and writes its text and what is known of it, unless it has."""
    rows, target = places
    if not urls.exists(target):
        found = {}
        for pair, made in cleaner(unpack(urls.read(rows))).items():
            if made.hashes:
                urls.write(f"{target}.{pair}.tsv.gz", made.text)
            number = int(posixpath.basename(target))
            found[pair] = (made.hashes, dict(made.counts), (*made.entry, number))
        urls.write(target, pack(found))


def _finish(corpus: tuple[str, str, str, dict[str, Any], int]) -> None:
    """Writes the hashes and the record of a corpus from what is known of its chunks."""
    name, record_name, target, files, num_chunks = corpus
    known = (unpack(urls.read(f"{target}/{number:06d}")) for number in range(num_chunks))
    chunks = ({pair: PairChunk(b"", *of_pair) for pair, of_pair in one.items()} for one in known)
    with tempfile.TemporaryDirectory() as directory:
        record = write_pair_text(chunks, Path(directory), RowCounter(name, files))
        write_record(Path(directory, record_name), record)
        _upload(Path(directory), target, last=record_name)


def _write_shard(writer: ShardWriter, targets: dict[Path, str], shard: Shard) -> dict[str, Any]:
    """Writes a shard, unless that is done, to its directory at a URL if there is one."""
    if not targets:
        return shard.counts() or writer(shard)
    target, name = targets[shard.directory], f"{shard.path.name}.json"
    if (counts := urls.read(posixpath.join(target, name))) is not None:
        return unsealed(json.loads(counts))
    with tempfile.TemporaryDirectory() as directory:
        found = writer(dataclasses.replace(shard, directory=Path(directory)))
        _upload(Path(directory), target, last=name)
    return found


def _gather(path: str, results: tuple[None, Iterable[tuple[int, Any]]]) -> list:
    """Writes the results, if there is one of each item."""
    found = dict(results[1])
    urls.write(path, pack([found[number] for number in sorted(found)]))
    return []


def _store(path: str, items: Sequence[Any]) -> list[tuple[int, str, int, int]]:
    """Stores items in one file; returns the number of each, path, start and size."""
    from apache_beam.internal import pickler

    content = [pickler.dumps(item) for item in items]
    urls.write(path, b"".join(content))
    starts = [0]
    for one in content:
        starts.append(starts[-1] + len(one))
    return [(n, path, starts[n], len(one)) for n, one in enumerate(content)]


def _load(path: str, start: int, size: int) -> Any:
    from apache_beam.internal import pickler

    with urls.open_at(path, start) as file:
        content = file.read(size)
    return pickler.loads(content)


def pack(value: Any) -> bytes:
    """Packs numbers, strings, bytes, lists and dicts."""
    return zlib.compress(msgpack.packb(value, unicode_errors=_SURROGATES), 1)


def unpack(packed: bytes) -> Any:
    """Returns what `pack` packed; tuples are lists."""
    content = zlib.decompress(packed)
    return msgpack.unpackb(content, unicode_errors=_SURROGATES, strict_map_key=False)


def _upload(directory: Path, where: str, last: str) -> None:
    """Copies the files below a directory, the one that says that it is whole last."""
    files = {p.relative_to(directory).as_posix(): p for p in directory.rglob("*") if p.is_file()}
    for name in sorted(files, key=lambda name: (name == last, name)):
        urls.write(posixpath.join(where, name), files[name].read_bytes())


def _make_step(place: Sequence[Any]) -> "beam.DoFn":
    """Makes a step that calls a stored function, which a worker loads once, for stored items."""
    import apache_beam as beam

    class Step(beam.DoFn):
        """Yields the number of an item, its result, and what is wrong with it.

        Broken input is broken each time; after other errors the runner tries again.
        """

        def __init__(self):
            self._place = place

        def setup(self) -> None:
            self._function = _load(*self._place)

        def process(self, item: tuple[int, str, int, int]) -> Iterable[Any]:
            number, *where = item
            try:
                found = self._function(_load(*where)), ""
            except ValueError as error:
                found = None, str(error)
            yield None, (number, found)

    return Step()
