"""The work of the stages as pipelines of Beam: one to hash files, clean, sample or tokenize each.

    WORKDIR/data/text/KEY/000000.de-en.tsv.gz   a chunk of cleaned text, from one worker
    WORKDIR/data/text/KEY/000000                its counts and hashes, once all pairs are written
    WORKDIR/data/.beam.partial/                 what there is to do, results, errors of workers

Rows of a corpus pass through Beam once, in compressed blocks, so that chunks end where they would
if one process had read it: the rest of the bytes follows from that.
"""

import array
import bisect
import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import math
import os
import posixpath
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from xling_jax.corpora.beam.runner import BeamRunner, keeping_error, raise_kept_error
from xling_jax.corpora.engine import Engine
from xling_jax.corpora.pair_text import (
    ChunkCleaner,
    ChunkSize,
    PairChunk,
    PairText,
    RowCounter,
    num_chars,
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

_BLOCK_BYTES = 1 << 20
# Enough for the first line of a compressed file.
_HEAD_BYTES = 1 << 22
_NO_CHUNK = -1
# Broken bytes of a text are marked, and yet: JSON and XML can name a lone surrogate.
_SURROGATES = "surrogatepass"

_logger = logging.getLogger(__name__)


class BeamEngine(Engine):
    """Does the work on a runner of Beam."""

    def __init__(self, runner: BeamRunner, workdir: str, here: Path):
        super().__init__(1, lambda items, *_, **__: items, everywhere)
        self._runner, self._workdir, self._here = runner, workdir, here
        self._scratch = posixpath.join(workdir, "data", ".beam.partial")
        self._errors = posixpath.join(self._scratch, "errors")

    def files(self, reader: Reader, languages: Sequence[str]) -> list[str]:
        """See `Engine.files`."""
        with copied(reader, 0 if reader.finds_by_name else None) as (copy, name_of):
            return [name_of(os.path.abspath(path)) for path in copy.files(languages)]

    def clean(
        self,
        corpora: Sequence[tuple[Reader, Stage]],
        languages: Sequence[str],
        cleaner: ChunkCleaner,
    ) -> None:
        """See `Engine.clean`: one worker reads a file that can be read alone, all clean it."""
        for reader, _ in corpora:
            try:  # a dataset of TFDS is made on Beam if it is one of Beam's
                reader.prepare(self._runner.make_options())
            except RuntimeError as error:
                raise self._runner.failure(error) from error
        readers, stages = zip(*corpora)
        targets = [self._place_of(stage.directory) for stage in stages]
        functions = self._store_functions(
            functools.partial(_split, readers, languages),
            functools.partial(_read, languages, cleaner.min_languages),
            _find_chunks,
            _cut,
            functools.partial(_clean, cleaner, targets),
            functools.partial(_finish, readers, targets, stages),
        )

        def add_steps(pipeline: "beam.Pipeline") -> None:
            import apache_beam as beam

            split, read, find_chunks, cut, clean, finish = _make_steps(functions, self._errors)
            rows = (
                pipeline
                | "Corpora" >> beam.Create(range(len(corpora)))
                | "Spread corpora" >> beam.Reshuffle()
                | "Split" >> beam.ParDo(split)
                | "Spread files" >> beam.Reshuffle()
                | "Read" >> beam.ParDo(read).with_outputs("rows", "file")
            )
            chunks = (
                rows.file
                | "Files by corpus" >> beam.GroupByKey()
                | "Find chunks" >> beam.ParDo(find_chunks)
            )
            cleaned = (
                rows.rows
                | "Cut" >> beam.ParDo(cut, beam.pvalue.AsDict(chunks))
                | "Rows by chunk" >> beam.GroupByKey()
                | "Clean" >> beam.ParDo(clean)
            )
            even_if_none = chunks | "Even if none" >> beam.MapTuple(
                lambda corpus, _: (corpus, (_NO_CHUNK, b""))
            )
            _ = (
                (cleaned, even_if_none)
                | "All chunks" >> beam.Flatten()
                | "Chunks by corpus" >> beam.GroupByKey()
                | "Finish" >> beam.ParDo(finish, beam.pvalue.AsDict(chunks))
            )

        self._run(add_steps)
        for stage, target in zip(stages, targets):
            self._require(posixpath.join(target, stage.record))
            if is_url(target):
                copy_file(posixpath.join(target, stage.record), stage.directory / stage.record)

    def text(self, stage: Stage) -> PairText:
        """See `Engine.text`."""
        return PairText(stage, self._place_of(stage.directory))

    def write_shards(self, writer: ShardWriter, shards: Sequence[Shard]) -> Iterator[Any]:
        """See `Engine.write_shards`."""
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
        functions = self._store_functions(
            functools.partial(_numbered, function), functools.partial(_gather, results)
        )
        stored = _store_items(posixpath.join(self._scratch, "items"), items)

        def add_steps(pipeline: "beam.Pipeline") -> None:
            import apache_beam as beam

            call, gather = _make_steps(functions, self._errors)
            _ = (
                pipeline
                | "Items" >> beam.Create(stored)
                | "Spread" >> beam.Reshuffle()
                | "Call" >> beam.ParDo(call)
                | "Results" >> beam.GroupByKey()
                | "Gather" >> beam.ParDo(gather)
            )

        self._run(add_steps)
        found = _read_packed(results) or []
        if len(found) < len(items):
            raise_kept_error(self._errors)
            self._require(results)
        urls.remove(self._scratch)
        return found

    def _store_functions(self, *functions: Callable) -> list[tuple[int, str, int, int]]:
        """Stores functions for `_make_steps`; their state may be too large for a graph."""
        return _store_items(posixpath.join(self._scratch, "functions"), functions)

    def _run(self, add_steps: Callable[["beam.Pipeline"], None]) -> None:
        _logger.info("working on %s", self._runner.name)
        if is_url(self._workdir):  # what it says will not be true for a while
            urls.remove(posixpath.join(self._workdir, "data", "manifest.json"))
        self._runner.run(add_steps, self._errors)

    def _require(self, path: str) -> None:
        """Raises what kept a pipeline from writing a file that is missing."""
        if not urls.exists(path):
            raise_kept_error(self._errors)
            raise FileNotFoundError(
                f"{path}: missing although the pipeline is done; give --workdir a URL, or mount it "
                "at the same path on all workers and on this machine"
            )


def everywhere(path: str) -> str:
    """A path as workers have to see it, who run in another directory."""
    urls.check(path)
    return path if is_url(path) else os.path.abspath(path)


@contextlib.contextmanager
def copied(
    reader: Reader, num_bytes: int | None = None
) -> Iterator[tuple[Reader, Callable[[str], str]]]:
    """Copies the files of a corpus at a URL to a temporary directory, or of each its first bytes.

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
                copy_file(url, below(url), num_bytes)
            return str(below(pattern)) if is_url(pattern) else pattern

        try:
            yield reader.at(copy), name_of
        except (ValueError, OSError) as error:
            if directory not in str(error):
                raise
            kind = ValueError if isinstance(error, ValueError) else type(error)
            raise kind(name_of(str(error))) from error


def _split(
    readers: Sequence[Reader], languages: Sequence[str], corpus: int
) -> Iterator[tuple[int, int, int, Reader]]:
    """Yields corpus, number of a part, number of all parts, and reader of the part."""
    with copied(readers[corpus], _HEAD_BYTES) as (reader, name_of):
        parts = reader.split(languages)
        for number, part in enumerate(parts):
            # What cannot be split is not read here.
            whole = readers[corpus] if part is reader else part.at(name_of)
            yield corpus, number, len(parts), whole


def _read(
    languages: Sequence[str], min_languages: int, part: tuple[int, int, int, Reader]
) -> Iterator[Any]:
    """Reads a part of a corpus.

    Yields:
        ("rows", (corpus, part, number of the first row, rows)), and at the end
        ("file", (corpus, (part, number of parts, what is known of its files, length of each row))).
    """
    from apache_beam.pvalue import TaggedOutput

    corpus, number, num_parts, reader = part
    with copied(reader) as (reader, name_of):
        named = lambda row: row._replace(
            file=name_of(row.file), broken_file=name_of(row.broken_file)
        )
        counter, lengths = RowCounter(name_of(reader.name)), array.array("I")
        for chunk in counter.chunks(map(named, reader.rows(languages)), min_languages):
            yield TaggedOutput("rows", (corpus, number, len(lengths), pack(chunk)))
            lengths.extend(num_chars(row) for row in chunk)
        known = (number, num_parts, counter.files, lengths.tobytes())
        yield TaggedOutput("file", (corpus, known))


def _find_chunks(
    corpus: tuple[int, Iterable[tuple[int, int, dict, bytes]]],
) -> Iterator[tuple[int, tuple[dict, list[tuple[int, list[int]]]]]]:
    """Finds where the chunks end that one process would have made of a corpus.

    Yields:
        The corpus, with what is known of its files, and of each part the chunk that its first row
        may continue and the rows at which others begin; nothing if a part met an error.
    """
    parts = sorted(corpus[1], key=lambda part: part[0])
    if len(parts) < parts[0][1]:
        return
    files, begins = {}, []
    chunk = ChunkSize()
    number = 0
    for _, _, known, packed in parts:
        files |= known
        begins.append((number, []))
        for row, length in enumerate(array.array("I", packed), 1):
            if chunk.is_full_with(length):
                number += 1
                begins[-1][1].append(row)
    yield corpus[0], (files, begins)


def _cut(
    rows: tuple[int, int, int, bytes], chunks: Mapping[int, tuple]
) -> Iterator[tuple[tuple[int, int], tuple[int, int, bytes]]]:
    """Yields ((corpus, chunk), (part, number of the first row, rows))."""
    corpus, part, start, packed = rows
    if corpus not in chunks:
        return
    first, begins = chunks[corpus][1][part]
    rows, place = unpack(packed), bisect.bisect(begins, start)
    while rows:
        end = begins[place] - start if place < len(begins) else len(rows)
        yield (corpus, first + place), (part, start, pack(rows[:end]))
        rows, start, place = rows[end:], start + end, place + 1


def _clean(
    cleaner: ChunkCleaner,
    targets: Sequence[str],
    chunk: tuple[tuple[int, int], Iterable[tuple[int, int, bytes]]],
) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Cleans a chunk and writes its text; yields (corpus, (number, what is known of it))."""
    corpus, number = chunk[0]
    path = posixpath.join(targets[corpus], f"{number:06d}")
    if (found := _read_packed(path)) is None:
        found = {}
        rows = [row for *_, packed in sorted(chunk[1]) for row in unpack(packed)]
        for pair, made in cleaner(rows).items():
            if made.hashes:
                urls.write(f"{path}.{pair}.tsv.gz", made.text)
            found[pair] = (made.hashes, dict(made.counts), (*made.entry, number))
        urls.write(path, pack(found))
    yield corpus, (number, pack(found))


def _finish(
    readers: Sequence[Reader],
    targets: Sequence[str],
    stages: Sequence[Stage],
    corpus: tuple[int, Iterable[tuple[int, bytes]]],
    chunks: Mapping[int, tuple],
) -> Iterator[None]:
    """Writes the hashes and the record of a corpus."""
    number, found = corpus[0], dict(corpus[1])
    del found[_NO_CHUNK]
    with tempfile.TemporaryDirectory() as directory:
        counter = RowCounter(readers[number].name, chunks[number][0])
        written = (
            {pair: PairChunk(b"", *known) for pair, known in unpack(found[chunk]).items()}
            for chunk in sorted(found)
        )
        record = write_pair_text(written, Path(directory), counter)
        write_record(Path(directory, stages[number].record), record)
        _upload(Path(directory), targets[number], last=stages[number].record)
    yield from ()


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


def _numbered(
    function: Callable[[Any], Any], item: tuple[int, str, int, int]
) -> Iterator[tuple[None, tuple[int, Any]]]:
    """Calls a function for a stored item."""
    number, *place = item
    yield None, (number, function(_load(*place)))


def _gather(path: str, results: tuple[None, Iterable[tuple[int, Any]]]) -> Iterator[None]:
    """Writes the results, if there is one of each item."""
    found = dict(results[1])
    urls.write(path, pack([found[number] for number in sorted(found)]))
    yield from ()


def _store_items(path: str, items: Sequence[Any]) -> list[tuple[int, str, int, int]]:
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


def _read_packed(path: str) -> Any:
    packed = urls.read(path)
    return None if packed is None else unpack(packed)


def copy_file(path: str, local: Path, num_bytes: int | None = None) -> None:
    """Copies a file, or its first bytes, to this machine."""
    local.parent.mkdir(parents=True, exist_ok=True)
    if num_bytes == 0:
        local.touch()
        return
    left = math.inf if num_bytes is None else num_bytes
    with urls.open_at(path) as source, open(local, "wb") as target:
        while left > 0 and (block := source.read(min(_BLOCK_BYTES, left))):
            target.write(block)
            left -= len(block)


def _upload(directory: Path, where: str, last: str) -> None:
    """Copies the files below a directory, the one that says that it is whole last."""
    files = {p.relative_to(directory).as_posix(): p for p in directory.rglob("*") if p.is_file()}
    for name in sorted(files, key=lambda name: (name == last, name)):
        urls.write(posixpath.join(where, name), files[name].read_bytes())


def _make_steps(functions: Sequence[tuple[int, str, int, int]], errors: str) -> "list[beam.DoFn]":
    """Makes steps that call stored functions, which a worker loads once; they keep their errors."""
    import apache_beam as beam

    class Step(beam.DoFn):
        """Calls a function that yields, for each element."""

        def __init__(self, place: Sequence[Any]):
            self._place = place

        def setup(self) -> None:
            self._function = _load(*self._place)

        def process(self, element: Any, *sides: Any) -> Iterable[Any]:
            with keeping_error(errors, _order(element)):
                yield from self._function(element, *sides)

    return [Step(place) for _, *place in functions]


def _order(element: Any) -> str:
    """A name for an element, in the order of the corpora and of what is in them."""
    numbers = element if isinstance(element, tuple) else (element,)
    while isinstance(numbers[0], tuple):
        numbers = numbers[0]
    numbers = itertools.takewhile(lambda number: isinstance(number, int), numbers)
    return "-".join(f"{number:06d}" for number in numbers)
