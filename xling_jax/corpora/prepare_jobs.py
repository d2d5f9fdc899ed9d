"""Preparation by many: the cleaning of rows and the writing of shards as jobs.

Workers run what runs on one machine, `pair_text.ChunkCleaner` and `pair_tokens.MemberTokenizer`, on
the same chunks of rows, and the driver puts the results together in the order of the corpora. So
the bytes are those of the local path.

Beam itself carries rows on their way to the cleaner, and numbers; of several processes each reads
the corpora of which it cleans chunks. All else is in the workdir. There for one run only:

    DIR/data/.clean.partial/KEY/00000000     a cleaned chunk of a corpus
    DIR/data/.clean.partial/KEY/rows         its counted rows, and how many chunks there are
    DIR/data/.tokenise.partial/00000000      what a shard is made of
"""

import dataclasses
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.corpora import specs as corpora_lib
from xling_jax.corpora.cleaning import RowCleaner
from xling_jax.corpora.jobs import (
    Runner,
    check_is_there,
    forget_errors,
    keeping_error,
    load,
    load_function,
    save,
    save_function,
)
from xling_jax.corpora.pair_text import ChunkCleaner, RowCounter, join_chunks
from xling_jax.corpora.pair_tokens import MemberTokenizer, PairPlan, unfinished_shards, write_tokens
from xling_jax.files.hashes import hash_file
from xling_jax.files.processes import Processes
from xling_jax.text.vocab import Vocab

if TYPE_CHECKING:
    import apache_beam as beam

_ROWS = "rows"
_GOLDEN_RATIO = (5**0.5 - 1) / 2
# Of a dataset of TFDS, in bytes.
_UNKNOWN_SIZE = 1 << 28


def clean_corpora(
    runner: Runner,
    directory: Path,
    corpora: Mapping[str, tuple[Path, Sequence[tuple[str, str]]]],
    cleaner: RowCleaner,
    languages: Sequence[str],
    progress: Callable[..., Iterable],
) -> None:
    """Cleans corpora as `pair_text.write_pair_text` does, all in one job.

    Args:
        runner: where.
        directory: `WORKDIR/data`.
        corpora: spec -> where to write, and `corpora.hashed_files` as the driver sees them.
        cleaner: the rules.
        languages: the languages wanted.
        progress: wraps an iterable: `progress(items, desc, total)`.

    Raises:
        ValueError: for a broken corpus, or one of which nothing is left. The others are finished,
            or their chunks kept for the next run.
        OSError: from reading or writing, or if the job failed.
    """
    scratch = directory / ".clean.partial"
    forget_errors(scratch)
    function = save_function(scratch, ChunkCleaner(cleaner))
    todo = {
        spec: (scratch / text.name, tuple(files))
        for spec, (text, files) in corpora.items()
        if not _is_cleaned(scratch / text.name)
    }
    readings = tuple(
        (spec, _absolute(spec), tuple(languages), files, str(chunks), function)
        for spec, (chunks, files) in todo.items()
    )
    for spec in corpora:
        if spec.startswith("tfds:"):
            runner.prepare_dataset(spec.removeprefix("tfds:"))
    if readings:
        sizes = tuple(_size(spec, languages) for spec in todo)
        runner.run(_CleanCorpora(f"cleaning {len(readings)} corpora", scratch, readings, sizes))
    for spec, (text, _) in corpora.items():
        check_is_there(scratch / text.name / _ROWS, scratch)
        counter, num_chunks = load(scratch / text.name / _ROWS)
        paths = _numbered(scratch / text.name, num_chunks)
        for path in paths:
            check_is_there(path, scratch)
        join_chunks(map(load, progress(paths, f"join {spec}", num_chunks)), text, counter)
    shutil.rmtree(scratch)


def write_shards(
    runner: Runner, directory: Path, plans: Sequence[PairPlan], vocab: Vocab, *, max_tokens: int
) -> None:
    """Writes the shards that `pair_tokens.write_pair_tokens` would, for it to find them done.

    Args:
        runner: where.
        directory: `WORKDIR/data`.
        plans: the pairs.
        vocab: the vocabulary.
        max_tokens: most pieces of a side; longer rows are left out and counted; 0 for any.

    Raises:
        OSError: from reading or writing, or if the job failed.
    """
    shards = [s for pair in unfinished_shards(directory, plans).values() for s in pair]
    shards = [shard for shard in shards if shard.counts() is None]
    if not shards:
        return
    scratch = directory / ".tokenise.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    function = save_function(scratch, MemberTokenizer(vocab, max_tokens))
    tasks = _numbered(scratch, len(shards))
    for shard, task in zip(shards, tasks, strict=True):
        # Without its counts it may not be whole.
        shutil.rmtree(shard.directory / shard.name, ignore_errors=True)
        shard.directory.mkdir(exist_ok=True)
        save(task, shard)
    runner.run(
        _WriteShards(
            f"tokenising {len(shards)} shards",
            scratch,
            inputs=tuple({Path(member.path).parent for s in shards for member, _ in s.parts}),
            outputs=tuple({shard.directory for shard in shards}),
            num_shards=len(shards),
            function=function,
        )
    )
    for shard in shards:
        check_is_there(shard.directory / f"{shard.name}.json", scratch)
    shutil.rmtree(scratch)


@dataclasses.dataclass(frozen=True)
class _CleanCorpora:
    """A `jobs.Job`: cleans chunks of corpora into files.

    On Beam a corpus is read by one worker as a stream, and its chunks are cleaned by all of them.
    """

    name: str
    scratch: Path
    readings: tuple[tuple, ...]
    sizes: tuple[int, ...]
    reads_corpora: bool = True
    inputs: tuple[Path, ...] = ()
    outputs: tuple[Path, ...] = ()

    def build(self, pipeline: "beam.Pipeline") -> None:
        import apache_beam as beam

        (
            pipeline
            | "Corpora" >> beam.Create(self.readings)
            | "Spread corpora" >> beam.Reshuffle()
            | "Read" >> beam.FlatMapTuple(_read_chunks)
            | "Spread chunks" >> beam.Reshuffle()
            | "Clean" >> beam.MapTuple(_clean_chunk)
        )

    def share(self, processes: Processes) -> tuple[Callable[[Any], Any], Iterable[Any]]:
        shares = shares_of(self.sizes, processes.index, processes.count)
        return _call_clean_chunk, (
            chunk
            for reading, share in zip(self.readings, shares, strict=True)
            for chunk in _read_chunks(*reading, share=share)
        )


@dataclasses.dataclass(frozen=True)
class _WriteShards:
    """A `jobs.Job`: tokenises what shards are made of, and writes them."""

    name: str
    scratch: Path
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    num_shards: int
    function: str
    reads_corpora: bool = False

    def build(self, pipeline: "beam.Pipeline") -> None:
        import apache_beam as beam

        (
            pipeline
            | "Shards" >> beam.Create(range(self.num_shards))
            | "Spread shards" >> beam.Reshuffle()
            | "Tokenise" >> beam.Map(_write_shard, str(self.scratch), self.function)
        )

    def share(self, processes: Processes) -> tuple[Callable[[Any], Any], Iterable[Any]]:
        function = functools.partial(
            _write_shard, scratch=str(self.scratch), function=self.function
        )
        return function, range(processes.index, self.num_shards, processes.count)


def shares_of(sizes: Sequence[int], index: int, count: int) -> list[tuple[float, float]]:
    """The parts of corpora that one of several processes cleans.

    Laid end to end, the corpora are cut into pieces of one length, so that few processes read the
    same one: each reads it whole, and to read is a twelfth of the work of cleaning.

    Args:
        sizes: of the corpora, in bytes.
        index: of the process.
        count: of the processes.

    Returns:
        Where the part of each corpus begins and ends, between 0 and 1; equal for none.
    """
    total, start, shares = sum(sizes), 0, []
    for size in sizes:
        # In integers: what one process leaves out, its neighbour must take.
        cuts = [(edge * total - start * count) / (size * count) for edge in (index, index + 1)]
        shares.append(tuple(min(1.0, max(0.0, cut)) for cut in cuts))
        start += size
    return shares


def is_in(number: int, share: tuple[float, float]) -> bool:
    """Whether a chunk is of a part; neighbours in the corpus are spread over all parts."""
    return share[0] <= number * _GOLDEN_RATIO % 1.0 < share[1]


def _size(spec: str, languages: Sequence[str]) -> int:
    """About how much there is to clean in a corpus."""
    files = corpora_lib.corpus_files(spec, languages)
    return max(1, sum(map(os.path.getsize, files))) if files else _UNKNOWN_SIZE


def _read_chunks(
    spec: str,
    where: str,
    languages: Sequence[str],
    files: Sequence[tuple[str, str]],
    directory: str,
    function: str,
    *,
    share: tuple[float, float] = (0.0, 1.0),
) -> Iterator[tuple[str, str, list[Mapping[str, str]]]]:
    """Reads a corpus; yields the chunks of a share that are not cleaned yet. Runs on a worker."""
    if share[0] == share[1]:
        return
    counter, num_chunks = RowCounter(spec), 0
    # An error record for each reader: that one succeeds does not mean that another has.
    with keeping_error(Path(directory, f"{_ROWS}-{share[0]:.9f}")):
        if list(files) != corpora_lib.hashed_files(where, languages, hash_file):
            raise ValueError(
                f"{where}: has another content than where the work was begun; let all see the same "
                "files, which do not change meanwhile"
            )
        for chunk in counter.chunks(corpora_lib.read_corpus(where, languages)):
            path = _numbered_path(Path(directory), num_chunks)
            if is_in(num_chunks, share) and not path.exists():
                yield str(path), function, chunk
            num_chunks += 1
        if share[0] == 0:
            save(Path(directory, _ROWS), (counter, num_chunks))


def _clean_chunk(path: str, function: str, chunk: list[Mapping[str, str]]) -> None:
    """Cleans a chunk into a file. Runs on a worker."""
    with keeping_error(Path(path)):
        save(Path(path), load_function(function)(chunk))


def _call_clean_chunk(piece: tuple[str, str, list[Mapping[str, str]]]) -> None:
    _clean_chunk(*piece)


def _write_shard(number: int, scratch: str, function: str) -> None:
    """Tokenises and writes a shard. Runs on a worker."""
    task = _numbered_path(Path(scratch), number)
    with keeping_error(task):
        shard = load(task)
        tokenizer = load_function(function)
        if shard.counts() is not None:
            return
        with tempfile.TemporaryDirectory(dir=scratch, prefix=".") as own:
            write_tokens(Path(own), shard, [tokenizer(part) for part in shard.parts])
            # The directory comes before its counts.
            for path in sorted(Path(own).iterdir()):
                _publish(path, shard.directory / path.name)


def _publish(path: Path, final: Path) -> None:
    """Renames a file or directory, unless another worker was faster with the same."""
    try:
        os.rename(path, final)
    except OSError:
        if not final.exists():
            raise


def _is_cleaned(directory: Path) -> bool:
    """Whether all chunks of a corpus are there."""
    if not (directory / _ROWS).exists():
        return False
    _, num_chunks = load(directory / _ROWS)
    return all(path.exists() for path in _numbered(directory, num_chunks))


def _numbered(directory: Path, count: int) -> list[Path]:
    return [_numbered_path(directory, number) for number in range(count)]


def _numbered_path(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}"


def _absolute(spec: str) -> str:
    """Returns the name of a corpus for processes that run in another directory."""
    kind, colon, where = spec.partition(":")
    if not (colon and kind in corpora_lib.KINDS):
        kind, colon, where = "", "", spec
    if kind == "tfds" or "://" in where:
        return spec
    return kind + colon + os.path.abspath(os.path.expanduser(where))
