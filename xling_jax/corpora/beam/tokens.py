"""Steps of the pipeline that train the vocabulary, write token shards, and conclude.

DIR/vocab/, DIR/data/          what `corpora.prepare` writes there, but for the cleaned text
SCRATCH/shards/PURPOSE-PAIR.KEY/00000  that a shard made of what KEY says is in DIR/data
"""

import contextlib
import functools
import gzip
import json
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.corpora import identity, summaries
from xling_jax.corpora.beam import parts, store
from xling_jax.corpora.beam.cleaning import Job, Text
from xling_jax.corpora.beam.rows import TRAINING, VALIDATION, Kept, Stretch, plan_shards
from xling_jax.corpora.beam.runner import BROKEN, keeping_error
from xling_jax.corpora.options import VocabOptions
from xling_jax.corpora.pair_text import Member, RowCounter, TextCounts
from xling_jax.corpora.pair_tokens import Shard, ShardWriter
from xling_jax.corpora.prepare import draw_rows, prepared_vocab, save_vocab, trained_vocab
from xling_jax.corpora.shards import VALIDATION as VALIDATION_DIRECTORY
from xling_jax.corpora.summaries import CorpusRows
from xling_jax.files.whole import json_text
from xling_jax.text.vocabularies import Vocabulary

# What for, and the pair.
Target = tuple[str, str]


def check(
    job: Job,
    _: None,
    texts: Mapping[int, Text],
    counts: Mapping[int, tuple[Mapping, Mapping]],
    limits: Mapping[str, tuple[int, bytes]],
) -> Iterator[dict[int, dict[str, dict[str, int]]]]:
    """Looks at all corpora as a whole.

    Args:
        job: what all steps know.
        texts: by corpus.
        counts: by corpus, see `cleaning.add_counts`.
        limits: pair -> `rows.merge_smallest`.

    Yields:
        Corpus -> pair -> counts, if there is no reason to stop.
    """
    if len(texts) < len(job.corpora) or _has_errors(job):
        return
    totals = {}
    with keeping_error(job.errors, "3"):
        for corpus, text in sorted(texts.items()):
            files, pairs = counts.get(corpus, ({}, {}))
            parts.check_text(text.parts, files, job.codes)
            totals[corpus] = RowCounter(job.named[corpus], files).totals(pairs)
        training = (total for corpus, total in totals.items() if job.is_training(corpus))
        kept = [{pair: one["kept"] for pair, one in total.items()} for total in training]
        summaries.check_pairs(job.settings, kept)
        for pair, (number, _) in limits.items():
            if number <= job.settings.validation_pairs:
                raise summaries.too_few_rows(job.settings, pair, number)
        yield totals


def draw(
    job: Job,
    target: Target,
    kept: Iterable[tuple],
    rows: Mapping[Target, Mapping[int, CorpusRows]],
    checked: Any,
) -> Iterator[tuple[tuple, str, bytes]]:
    """Draws rows of a pair for the vocabulary; yields their place, path of the text, and bits."""
    purpose, pair = target
    if purpose != TRAINING or not checked or job.vocab:
        return
    totals = {
        pair: sum(CorpusRows(*one).num_kept for one in rows.get((TRAINING, pair), {}).values())
        for pair in job.settings.pairs
    }
    chosen = draw_rows(job.settings, totals, job.settings.vocab.sample_sentences, pair)
    start = 0
    for one in sorted(map(Kept._make, kept)):
        mask = one.mask()
        size = int(mask.sum())
        mask[mask] = chosen[start : start + size]
        start += size
        if mask.any():
            place = (job.settings.pairs.index(pair), *one.piece)
            yield place, one.path, np.packbits(mask).tobytes()


def read_drawn(job: Job, place: tuple, path: str, bits: bytes) -> tuple[None, tuple[tuple, bytes]]:
    """Reads the sentences of drawn rows; returns their place and packed texts."""
    with keeping_error(job.errors, "4"):
        lines = gzip.decompress(store.read(path)).decode("utf-8").split("\n")[:-1]
        chosen = np.unpackbits(np.frombuffer(bits, np.uint8), count=len(lines))
        texts = "\n".join(lines[row].replace("\t", "\n") for row in np.flatnonzero(chosen))
        return None, (place, zlib.compress(texts.encode("utf-8"), 1))


def make_vocab(
    job: Job,
    _: None,
    drawn: Iterable[tuple[tuple, bytes]],
    checked: Any,
    texts: Mapping[int, Text],
) -> Iterator[str]:
    """Trains the vocabulary, if there is none yet; yields its fingerprint."""
    if not checked:
        return
    with keeping_error(job.errors, "4"):
        made_from = job.vocab
        if not made_from:
            keys = [text.key for corpus, text in sorted(texts.items()) if job.is_training(corpus)]
            made_from = identity.vocab_identity(job.settings, keys, None)
        stage = identity.vocab_stage(made_from)
        if (made := _made_vocab(job, stage)) is not None:
            yield made
            return
        sentences = (
            text
            for _, packed in sorted(one for one in drawn if one[0])
            for text in zlib.decompress(packed).decode("utf-8").split("\n")
        )
        vocab = trained_vocab(job.settings, sentences)
        with tempfile.TemporaryDirectory() as directory:
            save_vocab(vocab, Path(directory), {"stage": stage} | made_from)
            upload(Path(directory), job.workdir, last=("vocab/vocab.json",))
        yield vocab.fingerprint


def plan(
    job: Job,
    target: Target,
    kept: Iterable[tuple],
    rows: Mapping[Target, Mapping[int, CorpusRows]],
    checked: Any,
    texts: Mapping[int, Text],
    vocab: str | None,
) -> Iterator[tuple[Target, str, int, int, list[tuple]]]:
    """Yields target, fingerprint, number, corpus and rows of each shard."""
    purpose, pair = target
    if not checked or not vocab:
        return
    with keeping_error(job.errors, f"5-{purpose}-{pair}"):
        key = _pair_key(job, rows[target], texts, vocab)
        shards = list(plan_shards(kept))
        _clear(job, target, key, len(shards))
        for number, (corpus, stretches) in enumerate(shards):
            yield target, key, number, corpus, [tuple(stretch) for stretch in stretches]


def write_shard(
    job: Job,
    target: Target,
    key: str,
    number: int,
    corpus: int,
    stretches: Sequence[tuple],
    vocab: str,
) -> tuple[Target, tuple[int, int, dict[str, Any]]]:
    """Writes a shard, unless it is there; returns (target, (number, corpus, counts))."""
    pair = target[1]
    marker = store.join(_markers(job, target, key), f"{number:05d}")
    with keeping_error(job.errors, f"6-{target[0]}-{pair}-{number:05d}"):
        if (counts := store.read_packed(marker)) is None:
            writer = ShardWriter(_vocab(job, vocab), job.settings.cleaning.max_tokens_per_sentence)
            with tempfile.TemporaryDirectory() as name:
                directory = Path(name)
                members, masks, start = [], [np.zeros(0, bool)], 0
                for one, stretch in enumerate(map(Stretch._make, stretches)):
                    text = directory / f"{one}.text"
                    store.fetch(stretch.path, text)
                    size = text.stat().st_size
                    members.append(Member(str(text), 0, size, start, stretch.num_rows))
                    masks.append(stretch.mask())
                    start += stretch.num_rows
                with store.naming_full_disk():
                    np.save(directory / "keep.npy", np.concatenate(masks))
                made = Shard(
                    directory / "made", pair, number, "", tuple(members), directory / "keep.npy"
                )
                (directory / "made").mkdir()
                writer(made)
                counts = made.counts()
                upload(directory / "made", _directory(job, target), last=(f"{number:05d}.json",))
            store.write_packed(marker, counts)
        return target, (number, corpus, counts)


def conclude(
    job: Job,
    _: None,
    checked: Mapping[int, Mapping[str, Mapping[str, int]]] | None,
    texts: Mapping[int, Text],
    rows: Mapping[Target, Mapping[int, CorpusRows]],
    shards: Mapping[Target, Sequence[tuple[int, int, Mapping[str, Any]]]],
    vocab: str | None,
) -> Iterator[str]:
    """Writes what `corpora.prepare` writes last, and removes what is not needed any more."""
    if not checked or not vocab or _has_errors(job):
        return
    with keeping_error(job.errors, "7"):
        # In the order of the settings, as `corpora.prepare` has them.
        found: dict[str, dict[str, dict]] = {TRAINING: {}, VALIDATION: {}}
        keys = {}
        for pair in job.settings.pairs:
            for purpose in (target[0] for target in rows if target[1] == pair):
                target = (purpose, pair)
                corpora = _corpus_rows(job, target, rows[target])
                made = [
                    (job.named[c], one) for _, c, one in sorted(shards.get(target, ()), key=_number)
                ]
                summary = summaries.pair_summary(pair, corpora, made)
                key = _pair_key(job, rows[target], texts, vocab)
                if purpose == TRAINING:
                    keys[pair] = key
                found[purpose][pair] = summary
                _write_json(f"{_directory(job, target)}/pair.json", {"fingerprint": key, **summary})
        training = {c: text for c, text in sorted(texts.items()) if job.is_training(c)}
        counts = summaries.all_counts(
            job.settings,
            job.held_out,
            {job.named[corpus]: TextCounts(checked[corpus]) for corpus in training},
            found[TRAINING],
            found[VALIDATION],
        )
        files = [file for text in texts.values() for file in text.files]
        used = _vocab(job, vocab)
        manifest = summaries.manifest(
            job.settings,
            job.held_out,
            pairs=keys,
            more={},
            vocab={"fingerprint": used.fingerprint, "size": used.size},
            corpora={job.named[corpus]: text.key for corpus, text in training.items()},
            inputs={**job.inputs, **{path: digest for path, _, _, digest in files}},
        )
        data = store.join(job.workdir, "data")
        # As `FileHashes` remembers them: what comes next need not read the files again.
        _write_json(f"{data}/input_hashes.json", {path: known for path, *known in files})
        _write_json(f"{data}/counts.json", counts)
        _write_json(f"{data}/manifest.json", manifest)
        _remove_unused(data, [_directory(job, target) for target in rows])
        yield manifest["fingerprint"]


def read_vocab(workdir: str, options: VocabOptions) -> Vocabulary:
    """Reads the vocabulary of a workdir; raises as `prepared_vocab`."""
    top = store.join(workdir, "vocab")
    with tempfile.TemporaryDirectory() as directory:
        for path in store.below(top):
            store.fetch(path, Path(directory, "vocab", path.removeprefix(f"{top}/")))
        return prepared_vocab(directory, lowercase=options.lowercase, moses=options.moses)


def read_summary(job: Job, target: Target) -> dict[str, Any]:
    """Reads the counts of a pair; empty if they, or those of one of its shards, are missing."""
    directory = _directory(job, target)
    names = {path.removeprefix(f"{directory}/") for path in store.below(directory)}
    stems = {name.partition("/")[0].removesuffix(".json") for name in names}
    numbers = range(sum(map(str.isdigit, stems)))
    if not names.issuperset(["pair.json", *(f"{number:05d}.json" for number in numbers)]):
        return {}
    return json.loads(store.read(f"{directory}/pair.json"))


def upload(directory: Path, where: str, last: Sequence[str] = ()) -> None:
    """Copies the files below a directory to a store, those that say that it is whole last."""
    files = {p.relative_to(directory).as_posix(): p for p in directory.rglob("*") if p.is_file()}
    for name in sorted(files, key=lambda name: (name in last, name)):
        store.write(store.join(where, name), files[name].read_bytes())


def _made_vocab(job: Job, stage: str) -> str | None:
    """The fingerprint of the vocabulary in the workdir, if it is whole and of this stage."""
    path = store.join(job.workdir, "vocab", "vocab.json")
    with contextlib.suppress(ValueError, OSError):
        found = json.loads(store.read(path))
        if found.get("stage") == stage:
            made = read_vocab(job.workdir, job.settings.vocab).fingerprint
            return made if made == found.get("fingerprint") else None
    return None


def _number(shard: tuple[int, int, Any]) -> int:
    return shard[0]


def _has_errors(job: Job) -> bool:
    """Whether a step met broken input; other errors are gone if a step went on."""
    return any(path.endswith(BROKEN) for path in store.below(job.errors))


def _corpus_rows(job: Job, target: Target, rows: Mapping[int, CorpusRows]) -> dict[str, CorpusRows]:
    """The rows of all corpora in a pair, those that do not have it included."""
    purpose = target[0]
    # Rows taken out of the corpora come from those to train on.
    of_training = purpose == TRAINING or bool(job.settings.validation_pairs)
    aside = 0 if purpose == TRAINING and job.settings.validation_pairs else None
    none = CorpusRows(0, 0, aside)
    corpora = [c for c in range(len(job.corpora)) if job.is_training(c) == of_training]
    return {job.named[c]: CorpusRows(*rows.get(c, none)) for c in corpora}


def _pair_key(
    job: Job, rows: Mapping[int, CorpusRows], texts: Mapping[int, Text], vocab: str
) -> str:
    keys = [texts[c].key for c, one in sorted(rows.items()) if CorpusRows(*one).num_rows]
    return identity.pair_key(job.settings, keys, vocab)


def _directory(job: Job, target: Target) -> str:
    """Where the shards of a pair are."""
    purpose, pair = target
    below = () if purpose == TRAINING else (VALIDATION_DIRECTORY,)
    return store.join(job.workdir, "data", *below, pair)


def _markers(job: Job, target: Target, key: str) -> str:
    return store.join(job.scratch, "shards", f"{target[0]}-{target[1]}.{key}")


def _clear(job: Job, target: Target, key: str, num_shards: int) -> None:
    """Removes shards that were made of something else."""
    mine = _markers(job, target, key)
    written = {path.rpartition("/")[2] for path in store.below(mine)}
    top, name = store.join(job.scratch, "shards"), f"{target[0]}-{target[1]}."
    store.remove(
        path for path in store.below(top) if f"/{name}" in path and not path.startswith(f"{mine}/")
    )
    directory = _directory(job, target)
    keep = {f"{directory}/{number}" for number in written if int(number) < num_shards}
    store.remove(
        path
        for path in store.below(directory)
        if path.removesuffix(".json") not in keep and path.rpartition("/")[0] not in keep
    )


def _remove_unused(data: str, used: Sequence[str]) -> None:
    """Removes the shards of other pairs, and what passed between workers."""
    kept = {f"{data}/{name}" for name in ("counts.json", "manifest.json", "input_hashes.json")}
    scratch = f"{data}/.beam.partial"
    tops = tuple(f"{directory}/" for directory in (*used, f"{data}/text", scratch))
    store.remove(
        path
        for path in store.below(data)
        if path not in kept and not path.startswith(tops) and not path.endswith("/.lock")
    )
    store.remove_below(scratch)


def _write_json(path: str, value: object) -> None:
    store.write(path, json_text(value).encode())


@functools.lru_cache(1)
def _cached_vocab(workdir: str, options: VocabOptions, fingerprint: str) -> Vocabulary:
    vocab = read_vocab(workdir, options)
    if vocab.fingerprint != fingerprint:
        raise OSError(
            f"{workdir}/vocab: changed while the pipeline was running; run the command again"
        )
    return vocab


def _vocab(job: Job, fingerprint: str) -> Vocabulary:
    return _cached_vocab(job.workdir, job.settings.vocab, fingerprint)
