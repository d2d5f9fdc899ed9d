"""Steps of the pipeline that turn corpora into pieces of cleaned text.

A piece is what a worker cleans at a time, about as many rows as a chunk of `pair_text`, and has a
key (corpus, part, number). It is written below SCRATCH/text/KEY/, where KEY says what the text is
made from, and is kept if the pipeline fails:

    PART-NUMBER            places and hashes of its rows, counts: see `Piece`
    PART-NUMBER.de-en      rows of a pair, as a gzip member
    raw/PART-NUMBER        rows of a corpus that only one worker can read, for others to clean
    raw/PART               their number, once all are written
"""

import dataclasses
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np

from xling_jax.corpora import identity, pair_text, specs
from xling_jax.corpora.beam import parts, store
from xling_jax.corpora.beam.runner import keeping_error
from xling_jax.corpora.cleaning import RowCleaner
from xling_jax.corpora.held_out import HeldOutText
from xling_jax.corpora.options import Preparation
from xling_jax.corpora.pair_text import ChunkCleaner, PairChunk, RowCounter
from xling_jax.files.hashes import fingerprint

Key = tuple[int, int, int]

# Hashes are grouped by their first bits: at a billion rows a pair, a group has 16 million.
_BUCKET_BITS = 6


@dataclasses.dataclass(frozen=True)
class Job:
    """What all steps know.

    Attributes:
        settings: of preparation.
        corpora: those to train on, then those of the validation loss, with absolute paths.
        workdir: of the run.
        held_out: what no training row may repeat; `read` is not used.
        vocab: `identity.vocab_identity` of a vocabulary that is in the workdir, or None.
        inputs: path -> hash of the files that were read before.
        options: of the runner.
    """

    settings: Preparation
    corpora: tuple[str, ...]
    workdir: str
    held_out: tuple[HeldOutText, ...] = ()
    vocab: dict[str, Any] | None = None
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: tuple[str, ...] = ()

    @property
    def scratch(self) -> str:
        """Directory for what passes between workers."""
        return store.join(self.workdir, "data", ".beam.partial")

    @property
    def errors(self) -> str:
        """Directory for errors of workers."""
        return store.join(self.scratch, "errors")

    @property
    def hashes(self) -> str:
        """File with the hashes of held-out text."""
        return store.join(self.scratch, "held_out")

    @property
    def named(self) -> tuple[str, ...]:
        """The corpora as the config names them."""
        return (*self.settings.corpora, *self.settings.validation_corpora)

    @property
    def codes(self) -> tuple[str, ...]:
        """The languages of the pairs."""
        return tuple(sorted({code for pair in self.settings.pairs for code in pair.split("-")}))

    def is_training(self, corpus: int) -> bool:
        """Whether a corpus is to train on."""
        return corpus < len(self.settings.corpora)

    def text(self, key: str, *name: int) -> str:
        """Path of what a worker made of a text with this fingerprint."""
        return store.join(self.scratch, "text", _cut(key), _name(*name))

    def raw(self, key: str, *name: int) -> str:
        """Path of rows that have to be cleaned."""
        return store.join(self.scratch, "text", _cut(key), "raw", _name(*name))


@dataclasses.dataclass(frozen=True)
class Text:
    """A corpus that is to be cleaned.

    Attributes:
        key: fingerprint of its cleaned text.
        files: path, size, time of the last change and hash of each file.
        parts: of the corpus.
    """

    key: str
    files: tuple[tuple[str, int, int, str], ...]
    parts: tuple[parts.Part, ...]


@dataclasses.dataclass(frozen=True)
class Piece:
    """One pair of a piece.

    Attributes:
        path: of its text.
        hashes: of its rows.
        places: of its rows among those given to the cleaner.
    """

    path: str
    hashes: np.ndarray
    places: np.ndarray


def list_corpus(job: Job, corpus: int) -> Iterator[tuple[int, tuple[int, str] | None]]:
    """Yields (corpus, (number, path)) for each file of a corpus, (corpus, None) for a dataset."""
    with keeping_error(job.errors, f"1-{corpus:05d}"):
        paths = parts.list_files(job.corpora[corpus], job.codes)
        yield from ((corpus, found) for found in (list(enumerate(paths)) or [None]))


def index(
    job: Job, corpus: int, file: tuple[int, str] | None
) -> Iterator[tuple[int, tuple[int, parts.FileIndex] | None]]:
    """Reads a file once, see `parts.index_file`."""
    if file is None:
        yield corpus, None
        return
    number, path = file
    with keeping_error(job.errors, f"1-{corpus:05d}-{number:05d}"):
        yield corpus, (number, parts.index_file(job.corpora[corpus], path, job.codes))


def split(
    job: Job, corpus: int, indexed: Iterable[tuple[int, parts.FileIndex] | None]
) -> Iterator[tuple[int, Text]]:
    """Yields a corpus with its parts."""
    spec = job.corpora[corpus]
    with keeping_error(job.errors, f"1-{corpus:05d}"):
        indexes = [index for _, index in sorted(found for found in indexed if found)]
        files = tuple((index.path, *index.state, index.sha256) for index in indexes)
        names = specs.names_below([index.path for index in indexes])
        hashed = list(zip(names, (index.sha256 for index in indexes)))
        held_out = job.held_out if job.is_training(corpus) else ()
        key = identity.text_key(job.settings, job.named[corpus], hashed, held_out)
        yield corpus, Text(key, files, tuple(parts.split(spec, indexes, job.codes)))


def unpack(
    job: Job, min_languages: int, corpus: int, key: str, part: parts.Part
) -> Iterator[tuple[str, Any]]:
    """Reads a part that no other worker can split, and writes pieces for others to clean.

    Yields:
        ("piece", (corpus, key, part, piece number or None to read it all)), and then
        ("count", (corpus, (files, {}))) for what was read here.
    """
    if part.sections:
        yield "piece", (corpus, key, part, None)
        return
    done = job.raw(key, part.number)
    with keeping_error(job.errors, f"2-{corpus:05d}-{part.number:05d}"):
        if (found := store.read_packed(done)) is None:
            counter, count = RowCounter(part.spec), 0
            rows = parts.read_part(part, job.codes)
            for chunk in counter.chunks(rows, min_languages):
                if not store.exists(job.text(key, part.number, count)):
                    packed = zlib.compress(msgpack.packb(chunk, unicode_errors=_SURROGATES), 1)
                    store.write(job.raw(key, part.number, count), packed)
                count += 1
            found = {"pieces": count, "files": counter.files}
            store.write_packed(done, found)
        yield "count", (corpus, (found["files"], {}))
        bare = dataclasses.replace(part, paths=())
        for number in range(found["pieces"]):
            yield "piece", (corpus, key, bare, number)


class Cleaner:
    """Cleans what `unpack` yields; made on a worker."""

    def __init__(self, job: Job):
        self._job, pairs = job, [tuple(pair.split("-")) for pair in job.settings.pairs]
        held_out = read_held_out(job)
        # Text for the validation loss may repeat what is held out: it is what is held out.
        self._cleaners = {
            is_training: ChunkCleaner(
                RowCleaner(job.settings.cleaning, pairs, held_out if is_training else None)
            )
            for is_training in (False, True)
        }

    def __call__(
        self, corpus: int, key: str, part: parts.Part, number: int | None
    ) -> Iterator[tuple[str, Any]]:
        """Cleans one piece, or all of a part.

        Yields:
            ("piece", (piece key, key)) for each;
            ("lengths", (corpus, (part, number, characters of each row)));
            ("hashes", ((is training, pair, bucket), (piece key, hashes, rows)));
            ("count", (corpus, (files, counts by pair))).
        """
        job = self._job
        clean = self._cleaners[job.is_training(corpus)]
        with keeping_error(job.errors, f"2-{corpus:05d}-{part.number:05d}"):
            if number is not None:
                yield from self._clean(clean, (corpus, part.number, number), key, None)
                return
            counter = RowCounter(part.spec)
            rows = parts.read_part(part, job.codes)
            for piece, chunk in enumerate(counter.chunks(rows, clean.min_languages)):
                yield from self._clean(clean, (corpus, part.number, piece), key, chunk)
            yield "count", (corpus, (counter.files, {}))

    def _clean(
        self, clean: ChunkCleaner, piece: Key, key: str, chunk: Sequence[Mapping] | None
    ) -> Iterator[tuple[str, Any]]:
        path = self._job.text(key, *piece[1:])
        if (found := store.read_packed(path)) is None:
            if chunk is None:
                packed = zlib.decompress(store.read(self._job.raw(key, *piece[1:])))
                chunk = msgpack.unpackb(packed, unicode_errors=_SURROGATES)
            found = _packed(chunk, clean(chunk), path)
            store.write_packed(path, found)
        corpus = piece[0]
        yield "piece", (piece, key)
        yield "lengths", (corpus, (*piece[1:], found["lengths"]))
        counts = {pair: pair_found["counts"] for pair, pair_found in found["pairs"].items()}
        yield "count", (corpus, ({}, counts))
        for pair, pair_found in found["pairs"].items():
            hashes = np.frombuffer(pair_found["hashes"], "<u8")
            buckets = hashes >> np.uint64(64 - _BUCKET_BITS)
            for bucket in np.unique(buckets):
                rows = np.flatnonzero(buckets == bucket).astype("<u4")
                group = (self._job.is_training(corpus), pair, int(bucket))
                yield "hashes", (group, (piece, hashes[rows].tobytes(), rows.tobytes()))


def read_piece(job: Job, key: str, piece: Key) -> dict[str, Piece]:
    """Reads what is known of the pairs of a piece that have rows."""
    path = job.text(key, *piece[1:])
    found = store.read_packed(path)
    if found is None:
        raise FileNotFoundError(f"{path}: vanished while the pipeline was running")
    return {
        pair: Piece(
            _text_of(path, pair),
            np.frombuffer(one["hashes"], "<u8"),
            np.frombuffer(one["places"], "<u4"),
        )
        for pair, one in found["pairs"].items()
        if one["hashes"]
    }


def add_counts(counts: Iterable[tuple[Mapping, Mapping]]) -> tuple[dict, dict]:
    """Adds counts of rows: those of files, see `RowCounter.files`, and those of pairs."""
    files: dict[str, dict[str, Any]] = {}
    pairs: dict[str, dict[str, int]] = {}
    for more_files, more_pairs in counts:
        for name, more in more_files.items():
            file = files.setdefault(name, {"rows": 0, "languages": {}, "problems": {}})
            file["rows"] += more["rows"]
            file["languages"] |= more["languages"]
            _add(file["problems"], more["problems"])
        for pair, more in more_pairs.items():
            _add(pairs.setdefault(pair, {}), more)
    return files, pairs


def write_held_out(job: Job, texts: Iterable[HeldOutText]) -> None:
    """Writes the hashes of held-out text, for `read_held_out`."""
    hashes = {text.key: np.asarray(sorted(text.read()), "<u8").tobytes() for text in texts}
    store.write_packed(job.hashes, list(hashes.items()))


def read_held_out(job: Job) -> dict[int, str]:
    """The hashes of held-out text, as `RowCleaner` takes them."""
    found = store.read_packed(job.hashes)
    return {int(number): key for key, one in found for number in np.frombuffer(one, "<u8")}


# Text of files that are not UTF-8 throughout is marked as broken, and yet: JSON and XML can name
# a lone surrogate.
_SURROGATES = "surrogatepass"


def _packed(chunk: Sequence[Mapping], cleaned: Mapping[str, PairChunk], path: str) -> dict:
    """Writes the text of a piece; returns the rest."""
    for pair, one in cleaned.items():
        if one.num_rows:
            store.write(_text_of(path, pair), one.text)
    lengths = np.fromiter((sum(map(len, row.values())) for row in chunk), "<u4", len(chunk))
    return {
        "lengths": lengths.tobytes(),
        "pairs": {
            pair: {
                "hashes": one.hashes,
                "places": np.asarray(one.places, "<u4").tobytes(),
                "counts": dict(one.counts),
            }
            for pair, one in cleaned.items()
        },
    }


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def _cut(key: str) -> str:
    """The name of a text that is cut into parts and pieces as it is now."""
    sizes = (parts.PART_BYTES, pair_text.CHUNK_ROWS, pair_text.CHUNK_CHARS)
    return f"{key}-{fingerprint(sizes)}"


def _text_of(path: str, pair: str) -> str:
    return f"{path}.{pair}"


def _name(*numbers: int) -> str:
    return "-".join(f"{number:06d}" for number in numbers)
