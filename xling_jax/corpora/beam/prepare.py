"""The pipeline that prepares corpora, and its launch."""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.corpora import identity, specs, summaries
from xling_jax.corpora.beam import cleaning, parts, rows, store, tokens
from xling_jax.corpora.beam.cleaning import Cleaner, Job
from xling_jax.corpora.beam.runner import BeamRunner, raise_kept_error
from xling_jax.corpora.cleaning import RowCleaner
from xling_jax.corpora.held_out import HeldOutText, find_held_out
from xling_jax.corpora.options import Preparation
from xling_jax.corpora.prepare import (
    check_corpora,
    check_kept,
    given_vocab,
    is_made_with,
    save_vocab,
)
from xling_jax.files.hashes import hash_file
from xling_jax.files.urls import is_url
from xling_jax.files.whole import lock_directory
from xling_jax.text.vocabularies import Vocabulary

if TYPE_CHECKING:
    import apache_beam as beam

_logger = logging.getLogger(__name__)


def prepare(
    runner: BeamRunner,
    preparation: Preparation,
    *,
    workdir: str | os.PathLike[str],
    local: Callable[[str], str] = lambda path: path,
    keep: bool = False,
) -> dict[str, Any]:
    """As `corpora.prepare.prepare`, by the workers of a runner: the same tokens, byte for byte.

    This machine starts the pipeline and waits for it. It reads only what is held out of training,
    a vocabulary that the settings name, and with `keep` files that have changed since.

    Args:
        runner: of Apache Beam.
        preparation: what to make and how.
        workdir: a directory, the same for all workers, or a URL of a file system of Beam's.
        local: as for `corpora.prepare.prepare`, for the files that this machine reads.
        keep: as for `corpora.prepare.prepare`.

    Returns:
        The content of `counts.json`.

    Raises:
        ValueError: as `corpora.prepare.prepare`, or for what needs text on one machine.
        OSError: from reading or writing, or if the pipeline failed.
    """
    checked = preparation
    check_corpora(checked)
    if checked.teacher:
        raise ValueError(
            "objective.distillation with a teacher needs the rows on one machine; prepare without "
            f"--runner {runner.name}"
        )
    workdir = _everywhere(os.fspath(workdir).rstrip("/"))
    named = (*checked.corpora, *checked.validation_corpora)
    corpora = tuple(specs.moved_corpus(spec, _everywhere) for spec in named)
    specs.check_downloaded(corpora)
    for spec in corpora:
        try:  # a dataset of TFDS is made on Beam if it is one of Beam's
            specs.open_corpus(spec).prepare(runner.make_options())
        except RuntimeError as error:
            raise runner.failure(error) from error
    with _locked(workdir):
        job = Job(checked, corpora, workdir, options=runner.options)
        hashes: dict[str, str] = {}
        held_out = find_held_out(checked, functools.partial(_hashed, hashes), local)
        vocab = given_vocab(checked, local)
        if (counts := _finished(job, held_out, vocab, hashes)) is not None:
            return counts
        if keep:
            _check_kept(job, held_out, vocab)
        job = _start(job, held_out, vocab, hashes)
        _logger.info("preparing on %s", runner.name)
        runner.run(functools.partial(_build, job), job.errors)
        path = store.join(workdir, "data", "manifest.json")
        if not store.exists(path):
            raise_kept_error(job.errors)
            raise FileNotFoundError(
                f"{path}: missing although the pipeline is done; give --workdir a URL, or mount it "
                "at the same path on all workers and on this machine"
            )
        return json.loads(store.read(store.join(workdir, "data", "counts.json")))


def _hashed(hashes: dict[str, str], path: str) -> str:
    hashes[path] = hashes.get(path) or hash_file(path)
    return hashes[path]


def _finished(
    job: Job, held_out: Sequence[HeldOutText], vocab: Vocabulary | None, hashes: Mapping[str, str]
) -> dict[str, Any] | None:
    """The counts of what is in the workdir, if it is whole and made of these files and settings."""
    data = store.join(job.workdir, "data")
    try:
        names = ("manifest", "input_hashes", "counts")
        manifest, known, counts = (_read_json(f"{data}/{name}.json") for name in names)
        files = {path for spec in job.corpora for path in parts.list_files(spec, job.codes)}
        used = manifest["vocab"]["fingerprint"]
        same = (
            is_made_with(manifest, job.settings)
            and {*manifest["held_out"]} == {text.key for text in held_out}
            and {*manifest["inputs"]} == {*files, *hashes}
            and all(known[path][:2] == list(store.state(path)) for path in files)
            and (vocab is None or used == vocab.fingerprint)
            and used == tokens.read_vocab(job.workdir, job.settings.vocab).fingerprint
            and all(
                tokens.read_summary(job, (rows.TRAINING, pair)).get("fingerprint") == made
                for pair, made in manifest["pairs"].items()
            )
            and all(
                summaries.size_of(tokens.read_summary(job, (rows.VALIDATION, pair))) == size
                for pair, size in counts.get("validation", {}).items()
            )
        )
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged
        return None
    return counts if same else None


def _check_kept(job: Job, held_out: Sequence[HeldOutText], vocab: Vocabulary | None) -> None:
    """Raises ValueError if the data of a run with checkpoints would be replaced."""
    data, corpora = store.join(job.workdir, "data"), dict(zip(job.named, job.corpora))
    known = _read_if_whole(f"{data}/input_hashes.json")

    def digest(spec: str, path: str) -> str:
        *state, found = known.get(path, [None])
        same = state == list(store.state(path))
        return found if same else parts.index_file(spec, path, job.codes).sha256

    def text_key(spec: str) -> str:
        paths = parts.list_files(corpora[spec], job.codes)
        hashes = (digest(corpora[spec], path) for path in paths)
        files = list(zip(specs.names_below(paths), hashes))
        return identity.text_key(job.settings, spec, files, held_out)

    check_kept(
        job.workdir,
        job.settings,
        manifest=_read_if_whole(f"{data}/manifest.json"),
        vocab=_read_if_whole(store.join(job.workdir, "vocab", "vocab.json")),
        text_key=text_key,
        given=lambda: vocab,
    )


def _read_json(path: str) -> dict[str, Any]:
    """Reads a JSON object; raises OSError or ValueError if it is missing or damaged."""
    if not isinstance(value := json.loads(store.read(path)), dict):
        raise ValueError(f"{path}: must be a JSON object")
    return value


def _read_if_whole(path: str) -> dict[str, Any]:
    """Reads a JSON object; empty if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        return _read_json(path)
    return {}


def _start(
    job: Job, held_out: Sequence[HeldOutText], vocab: Vocabulary | None, hashes: Mapping[str, str]
) -> Job:
    """Writes what the workers need from this machine, and takes away the manifest."""
    cleaning.write_held_out(job, held_out)
    made_from = None
    if vocab:
        made_from = identity.vocab_identity(job.settings, [], vocab)
        with tempfile.TemporaryDirectory() as directory:
            stage = {"stage": identity.vocab_stage(made_from)}
            save_vocab(vocab, Path(directory), stage | made_from)
            tokens.upload(Path(directory), job.workdir, last=("vocab/vocab.json",))
    manifest = store.join(job.workdir, "data", "manifest.json")
    if store.exists(manifest):
        store.remove([manifest])
    without_text = tuple(dataclasses.replace(text, read=set) for text in held_out)
    return dataclasses.replace(job, held_out=without_text, vocab=made_from, inputs=hashes)


def _build(job: Job, pipeline: "beam.Pipeline") -> None:
    """Adds the steps."""
    import apache_beam as beam
    from apache_beam.pvalue import AsDict, AsSingleton

    class Clean(beam.DoFn):
        """Cleans with one `Cleaner` a worker."""

        def setup(self) -> None:
            store.use_options(job.options)
            self._cleaner = Cleaner(job)

        def process(self, element: tuple) -> Iterator[Any]:
            for tag, found in self._cleaner(*element):
                yield beam.pvalue.TaggedOutput(tag, found)

    def unpack(min_languages: int, element: tuple) -> Iterator[Any]:
        corpus, key, part = element
        for tag, found in cleaning.unpack(job, min_languages, corpus, key, part):
            yield beam.pvalue.TaggedOutput(tag, found)

    def parts_of(element: tuple) -> Iterator[tuple[int, str, parts.Part]]:
        corpus, text = element
        yield from ((corpus, text.key, part) for part in text.parts)

    # Functions made here, since Beam gives no side inputs to `functools.partial`.
    def call(function: Callable, *first: Any) -> Callable:
        """Calls a function with an element, and side inputs after it."""

        def called(element: Any, *sides: Any) -> Any:
            store.use_options(job.options)
            return function(*first, element, *sides)

        return called

    def each(function: Callable, *first: Any) -> Callable:
        """Likewise, with the members of an element."""
        return call(lambda element, *sides: function(*first, *element, *sides))

    pairs = [tuple(pair.split("-")) for pair in job.settings.pairs]
    min_languages = RowCleaner(job.settings.cleaning, pairs).min_languages
    texts = (
        pipeline
        | "Corpora" >> beam.Create(range(len(job.corpora)))
        | "Spread corpora" >> beam.Reshuffle()
        | "List files" >> beam.FlatMap(call(cleaning.list_corpus, job))
        | "Spread files" >> beam.Reshuffle()
        | "Index" >> beam.FlatMap(each(cleaning.index, job))
        | "Files by corpus" >> beam.GroupByKey()
        | "Split" >> beam.FlatMap(each(cleaning.split, job))
    )
    read = (
        texts
        | "Parts" >> beam.FlatMap(parts_of)
        | "Spread parts" >> beam.Reshuffle()
        | "Unpack" >> beam.FlatMap(call(unpack, min_languages)).with_outputs("piece", "count")
    )
    clean = (
        read.piece
        | "Spread pieces" >> beam.Reshuffle()
        | "Clean" >> beam.ParDo(Clean()).with_outputs("piece", "lengths", "hashes", "count")
    )
    counts = (
        (read.count, clean.count)
        | "All counts" >> beam.Flatten()
        | "Add counts" >> beam.CombinePerKey(cleaning.add_counts)
    )
    groups = clean.hashes | "Rows by hash" >> beam.GroupByKey()
    duplicates = groups | "Duplicates" >> beam.FlatMap(each(rows.find_duplicates))
    limits: Any = {}
    if count := job.settings.validation_pairs:
        limits = AsDict(
            groups
            | "Smallest hashes" >> beam.FlatMap(each(rows.smallest_hashes, count))
            | "Rows for validation" >> beam.CombinePerKey(call(rows.merge_smallest, count))
        )
    chunks = (
        clean.lengths
        | "Pieces by corpus" >> beam.GroupByKey()
        | "Chunks" >> beam.FlatMap(each(rows.mark_chunks))
    )
    kept = (
        {"pieces": clean.piece, "duplicates": duplicates, "chunks": chunks}
        | "Known of pieces" >> beam.CoGroupByKey()
        | "Keep rows" >> beam.FlatMap(each(rows.keep_rows, job), limits)
        | "Pieces by pair" >> beam.GroupByKey()
    )
    once = pipeline | "Once" >> beam.Create([None])
    all_texts = AsDict(texts)
    checked = AsSingleton(
        once | "Check" >> beam.FlatMap(call(tokens.check, job), all_texts, AsDict(counts), limits),
        default_value=None,
    )
    all_rows = AsDict(
        kept | "Count rows" >> beam.MapTuple(lambda target, found: (target, rows.count_rows(found)))
    )
    vocab = AsSingleton(
        (
            kept
            | "Draw" >> beam.FlatMap(each(tokens.draw, job), all_rows, checked)
            | "Spread drawn" >> beam.Reshuffle()
            | "Read drawn" >> beam.Map(each(tokens.read_drawn, job)),
            once | "Even if none" >> beam.Map(lambda _: (None, ((), None))),
        )
        | "All drawn" >> beam.Flatten()
        | "Drawn together" >> beam.GroupByKey()
        | "Vocabulary" >> beam.FlatMap(each(tokens.make_vocab, job), checked, all_texts),
        default_value=None,
    )
    shards = (
        kept
        | "Plan" >> beam.FlatMap(each(tokens.plan, job), all_rows, checked, all_texts, vocab)
        | "Spread shards" >> beam.Reshuffle()
        | "Tokenize" >> beam.Map(each(tokens.write_shard, job), vocab)
        | "Shards by pair" >> beam.GroupByKey()
        | "Lists" >> beam.MapTuple(lambda target, made: (target, list(made)))
    )
    _ = once | "Conclude" >> beam.FlatMap(
        call(tokens.conclude, job), checked, all_texts, all_rows, AsDict(shards), vocab
    )


def _everywhere(path: str) -> str:
    """A path as workers have to see it, who run in another directory."""
    store.check(path)
    return path if is_url(path) else os.path.abspath(path)


@contextlib.contextmanager
def _locked(workdir: str) -> Iterator[None]:
    """Keeps other preparations out of a directory."""
    if is_url(workdir):
        yield
        return
    data = Path(workdir, "data")
    data.mkdir(parents=True, exist_ok=True)
    with lock_directory(data):
        yield
