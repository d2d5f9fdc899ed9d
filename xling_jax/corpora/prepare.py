"""From the corpora of a config to token shards: the stages, in order, each done once.

    DIR/vocab/sentencepiece.model   the vocabulary; or
    DIR/vocab/tokenizer/            the files of that of a published encoder
    DIR/vocab/vocab.json            what it was made from
    DIR/data/de-en/                 token shards of one pair (pair_tokens.py)
    DIR/data/validation/de-en/      likewise, of pairs held out for the validation loss
    DIR/data/teacher/               vectors of a teacher for these rows (row_vectors.py)
    DIR/data/text/                  cleaned text of each corpus (pair_text.py)
    DIR/data/counts.json            rows by corpus, pair and reason
    DIR/data/manifest.json          fingerprints of inputs and stages, settings, versions

In `counts.json`, for each corpus and pair, `read` is `kept` plus the reasons of `cleaning.REASONS`,
and `kept` is `rows` (what can be trained on) plus `duplicate` plus `too_many_tokens`, plus
`validation` if rows are taken out for the validation loss; `invisible_characters` counts kept rows
that lost some. `held_out` has the rows by the file that they repeat a text of, and by pair.

A stage is done if its fingerprint is that of everything it depends on, the content of the input
files included. Started again, `prepare` does what is missing: after an interruption the rest, after
a change of the config what the change affects.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.corpora import identity, pair_text, pair_tokens, specs, summaries
from xling_jax.corpora.cleaning import REASONS, RowCleaner
from xling_jax.corpora.held_out import HeldOutText, find_held_out
from xling_jax.corpora.identity import FORMAT_VERSION
from xling_jax.corpora.options import Preparation
from xling_jax.corpora.pair_text import ChunkCleaner, PairText, RowCounter
from xling_jax.corpora.pair_tokens import PairPlan, Shard, ShardWriter
from xling_jax.corpora.row_vectors import (
    TEACHER,
    RowEncoder,
    remove_row_vectors,
    write_row_vectors,
)
from xling_jax.corpora.shards import VALIDATION
from xling_jax.files.cores import num_cores
from xling_jax.files.hashes import FileHashes
from xling_jax.files.whole import (
    lock_directory,
    read_json,
    remove_temporary,
    whole_directory,
    write_json,
)
from xling_jax.files.workers import map_in_order
from xling_jax.options import OptionError
from xling_jax.text.vocab import Vocab, check_layout, train_vocab
from xling_jax.text.vocabularies import (
    Vocabulary,
    read_model_vocab,
    read_vocab,
    record,
    write_vocab,
)

# To find the principal axes of a teacher's vectors on.
_AXES_SENTENCES = 100_000

# In DIR/vocab, of a vocabulary that is no SentencePiece model: one of its files is a `vocab.json`.
_OTHER_VOCAB = "tokenizer"

# What `prepare` took until version 0.3, by default such.
_REMOVED = {"negatives": ""}

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class PreparedData:
    """Where prepared data is, and what it is.

    Attributes:
        directory: holds `a-b/` for each pair, as `shards.PairTokens` reads them.
        pairs: unordered pairs, `a-b` in alphabetical order.
        vocab_path: the SentencePiece model; for a vocabulary of another kind there is no such file.
        fingerprint: of all tokens; equal means the same rows in the same order.
        counts: content of `counts.json`.
    """

    directory: Path
    pairs: tuple[str, ...]
    vocab_path: Path
    fingerprint: str
    counts: dict


def prepare(
    preparation: Preparation,
    *,
    workdir: str | os.PathLike[str],
    num_workers: int | None = None,
    progress: Callable[..., Iterable] = lambda items, *_, **__: items,
    local: Callable[[str], str] = lambda path: path,
    open_teacher: Callable[[str, str], RowEncoder] | None = None,
    keep: bool = False,
) -> PreparedData:
    """Reads, cleans, deduplicates and tokenizes parallel corpora; does only what is missing.

    Args:
        preparation: what to make and how.
        workdir: directory of the run, made if needed.
        num_workers: number of processes; None for one per core. The output does not depend on it.
        progress: wraps an iterable to show its progress; has the signature of
            `files.progress.track`.
        local: maps a path or pattern in the settings, which may be a URL, to one on this machine.
        open_teacher: loads the teacher that the settings name, from its `model` and `texts`.
        keep: refuse to replace finished data of other text or settings: a run has checkpoints that
            were trained on them.

    Returns:
        Where the data is, with its counts.

    Raises:
        ValueError: without a corpus, for one that is broken or of which nothing is left, for a
            pair that no corpus has, or data to keep.
        OSError: from reading or writing, with the path.
    """
    check_corpora(preparation)
    workdir = Path(workdir)
    data = workdir / "data"
    data.mkdir(parents=True, exist_ok=True)
    with lock_directory(data):
        teachers = (data / TEACHER, data / VALIDATION / TEACHER)
        for directory in (data, data / "text", workdir / "vocab", *teachers):
            remove_temporary(directory)
        workers = num_workers or num_cores()
        running = _Preparation(workdir, preparation, local, workers, progress, open_teacher)
        if keep:
            running.check_kept()
        return running.run()


def check_corpora(preparation: Preparation) -> None:
    """Raises `OptionError` if there is nothing to prepare."""
    if not preparation.corpora:
        raise OptionError("data.corpora must be a list with at least one; found ()")


def load_prepared(
    workdir: str | os.PathLike[str], settings: Preparation | None = None
) -> PreparedData:
    """Returns what `prepare` finished in a workdir.

    Args:
        workdir: directory of the run.
        settings: what it should have been prepared with, if that is to be checked.

    Raises:
        ValueError: if there is no finished data, or it was prepared with other settings.
    """
    directory = Path(workdir) / "data"
    manifest, counts = (read_json(directory / f"{n}.json") for n in ("manifest", "counts"))
    if manifest is None or counts is None:
        raise ValueError(f"{directory}: no finished data; run `xling prepare` first")
    pairs, fingerprint = manifest.get("pairs"), manifest.get("fingerprint")
    if not isinstance(pairs, dict) or not isinstance(fingerprint, str):
        raise ValueError(f"{directory / 'manifest.json'}: damaged; run `xling prepare` again")
    if settings and not is_made_with(manifest, settings):
        raise ValueError(
            f"{directory}: prepared with another config; start all processes with the same "
            "arguments"
        )
    return PreparedData(
        directory=directory,
        pairs=tuple(pairs),
        vocab_path=Path(workdir) / "vocab" / "sentencepiece.model",
        fingerprint=fingerprint,
        counts=counts,
    )


def prepared_vocab(workdir: str | os.PathLike[str], *, lowercase: bool, moses: bool) -> Vocabulary:
    """Returns the vocabulary of a workdir.

    Args:
        workdir: directory of the run.
        lowercase: of its config, for a SentencePiece model; others have settings of their own.
        moses: likewise.

    Raises:
        ValueError: if a file is missing or broken.
        OSError: if one cannot be read.
    """
    directory = Path(workdir) / "vocab"
    if own := (read_json(directory / "vocab.json") or {}).get("preprocessing"):
        return read_vocab(directory / _OTHER_VOCAB, own)
    return Vocab(directory / "sentencepiece.model", lowercase=lowercase, moses=moses)


def given_vocab(settings: Preparation, local: Callable[[str], str]) -> Vocabulary | None:
    """Reads the vocabulary that settings name, if they do; raises as `prepare`."""
    if not settings.vocab.model:
        return None
    path = Path(local(settings.vocab.model))
    if path.is_dir():
        return read_model_vocab(path)
    vocab = Vocab(path, lowercase=settings.vocab.lowercase, moses=settings.vocab.moses)
    check_layout(vocab, settings.layout, settings.vocab.model)
    return vocab


def trained_vocab(settings: Preparation, sentences: Iterable[str]) -> Vocab:
    """Trains a vocabulary as settings ask for; raises as `train_vocab`."""
    vocab = settings.vocab
    _logger.info(
        "training a vocabulary of %d pieces; a minute or two for a million sentences", vocab.size
    )
    return train_vocab(
        sentences,
        size=vocab.size,
        layout=settings.layout,
        model_type=vocab.model_type,
        character_coverage=vocab.character_coverage,
        lowercase=vocab.lowercase,
        moses=vocab.moses,
        seed=settings.seed,
    )


def save_vocab(vocab: Vocabulary, workdir: Path, made_from: Mapping[str, Any]) -> None:
    """Writes a vocabulary where `prepared_vocab` reads it; `vocab.json` last."""
    directory = workdir / "vocab"
    facts = {"fingerprint": vocab.fingerprint, "size": vocab.size}
    if isinstance(vocab, Vocab):
        vocab.save(directory / "sentencepiece.model")
    else:
        facts["preprocessing"] = record(vocab)
        with whole_directory(directory / _OTHER_VOCAB) as fresh:
            write_vocab(vocab, fresh)
    write_json(directory / "vocab.json", facts | made_from)


def is_made_with(manifest: Mapping[str, Any], settings: Preparation) -> bool:
    """Whether a `manifest.json` is of data prepared with these settings by this version."""
    return _made_with(manifest, settings) == json.loads(json.dumps(dataclasses.asdict(settings)))


def _made_with(manifest: Mapping[str, Any], settings: Preparation) -> dict[str, Any] | None:
    """The settings in a `manifest.json`, completed; None if another version wrote it."""
    # Settings that a version did not have yet were as by default.
    fields = (f for f in dataclasses.fields(settings) if f.default is not dataclasses.MISSING)
    before = {field.name: field.default for field in fields} | {"teacher": {}}
    made = manifest.get("settings")
    if manifest.get("format_version") != FORMAT_VERSION or not isinstance(made, dict):
        return None
    if any(made.get(name, value) != value for name, value in _REMOVED.items()):
        return None
    made = before | {name: value for name, value in made.items() if name not in _REMOVED}
    for name in ("cleaning", "vocab"):
        if not isinstance(made.get(name), dict):
            return None
        made[name] = dataclasses.asdict(type(getattr(settings, name))()) | made[name]
    return json.loads(json.dumps(made))


def check_kept(
    workdir: str | os.PathLike[str],
    settings: Preparation,
    *,
    manifest: Mapping[str, Any],
    vocab: Mapping[str, Any],
    text_key: Callable[[str], str],
    given: Callable[[], Vocabulary | None],
) -> None:
    """Refuses to replace the data that the checkpoints in a workdir were trained on.

    Args:
        workdir: of the run.
        settings: of the preparation that is about to start.
        manifest: content of `manifest.json`; empty if no data are finished.
        vocab: content of `vocab.json`; empty if there is none.
        text_key: gives the fingerprint that the cleaned text of a corpus will have.
        given: reads the vocabulary that the settings name, if they do.

    Raises:
        ValueError: if other data would be made.
    """
    before = _made_with(manifest, settings)
    if before is None:
        return
    now = json.loads(json.dumps(dataclasses.asdict(settings)))
    named = [(f"cleaning.{k}", before["cleaning"][k], v) for k, v in now["cleaning"].items()]
    named.append(("data.validation_pairs", before["validation_pairs"], now["validation_pairs"]))
    changed = [f"{name} was {old!r}, now {new!r}" for name, old, new in named if old != new]
    keys = {spec: text_key(spec) for spec in now["corpora"]}
    # In the order of the config; the manifest sorts them.
    made = [manifest.get("corpora", {}).get(spec) for spec in before["corpora"]]
    changed += [f"the text of {spec} has changed" for spec in keys if keys[spec] not in made]
    if not changed and [*keys.values()] != made:
        changed.append("data.corpora has fewer, or another order")
    if not changed:
        facts = identity.vocab_identity(settings, [*keys.values()], given())
        stage = identity.vocab_stage(facts)
        if vocab.get("stage", stage) != stage:
            named = [(f"vocab.{k}", before["vocab"][k], v) for k, v in now["vocab"].items()]
            named.append(("seed", before["seed"], now["seed"]))
            changed = [f"{name} was {old!r}, now {new!r}" for name, old, new in named if old != new]
            changed = changed or ["the vocabulary would be another one"]
    if changed:
        raise ValueError(
            f"{workdir}: its checkpoints were trained on other data: {changed[0]}; choose "
            "another --workdir or restore it"
        )


@dataclasses.dataclass
class _Preparation:
    """One run of the stages in one workdir."""

    workdir: Path
    settings: Preparation
    local: Callable[[str], str]
    num_workers: int
    progress: Callable[..., Iterable]
    open_teacher: Callable[[str, str], RowEncoder] | None

    def __post_init__(self):
        self._data, self._vocab_directory = self.workdir / "data", self.workdir / "vocab"
        self._pair_codes = [tuple(pair.split("-")) for pair in self.settings.pairs]
        self._codes = tuple(sorted({code for pair in self._pair_codes for code in pair}))
        self._drops_duplicates = self.settings.cleaning.drop_duplicates
        self._hashes = FileHashes(self._data / "input_hashes.json")
        # Named as in the config, read where they are on this machine.
        named = (*self.settings.corpora, *self.settings.validation_corpora)
        self._local = {spec: specs.moved_corpus(spec, self.local) for spec in named}
        self._held_out = find_held_out(self.settings, self._hashes.get, self.local)

    def check_kept(self) -> None:
        """Raises ValueError, before anything is written, if finished data would be replaced."""
        check_kept(
            self.workdir,
            self.settings,
            manifest=read_json(self._data / "manifest.json") or {},
            vocab=read_json(self._vocab_directory / "vocab.json") or {},
            text_key=lambda spec: self._text_directory(spec, self._held_out).name,
            given=lambda: given_vocab(self.settings, self.local),
        )

    def run(self) -> PreparedData:
        """Runs the stages that are missing and writes the manifest last."""
        if self._is_complete_without_text():
            return load_prepared(self.workdir)
        texts = self._clean_corpora(self.settings.corpora, self._held_out)
        held_out = summaries.num_held_out(self.settings, self._held_out, texts.values())
        for name, counts in held_out.items():
            dropped = ", ".join(f"{count} rows of {pair}" for pair, count in counts.items())
            _logger.info("%s is held out of training: %s dropped", name, dropped)
        validation = self._clean_corpora(self.settings.validation_corpora, [])
        summaries.check_pairs(self.settings, (text.num_rows for text in texts.values()))
        # The vocabulary's sample and the shards need the masks; often neither is to be made.
        parts = functools.cache(lambda pair: self._split(pair, texts))
        masks = lambda pair: parts(pair)[0]
        vocab = self._make_vocab(texts, masks)
        plans = [self._plan(pair, texts, masks, vocab) for pair in self.settings.pairs]
        held_out_plans = []
        if self.settings.validation_pairs:
            aside = lambda pair: [int(rows.sum()) for rows in parts(pair)[1]]
            plans = [
                dataclasses.replace(plan, num_aside=functools.partial(aside, plan.pair))
                for plan in plans
            ]
            drawn = lambda pair: [a & b for a, b in zip(*parts(pair)[1:])]
            held_out_plans = [self._plan(pair, texts, drawn, vocab) for pair in self.settings.pairs]
        elif validation:
            hashes = lambda pair: [text.hashes(pair) for text in validation.values()]
            in_order = lambda pair: pair_tokens.first_occurrences(hashes(pair))
            held_out_plans = [
                self._plan(pair, validation, in_order, vocab)
                for pair in self.settings.pairs
                if any(text.num_rows.get(pair) for text in validation.values())
            ]
        writer = ShardWriter(vocab, self.settings.cleaning.max_tokens_per_sentence)
        write = functools.partial(self._write_shards, writer)
        pair_tokens.write_pair_tokens(self._data, plans, write)
        if held_out_plans:
            pair_tokens.write_pair_tokens(self._data / VALIDATION, held_out_plans, write)
        taught = self._teach(texts, masks, writer, plans, held_out_plans)
        more = {TEACHER: taught}
        return self._conclude(texts, validation, vocab, plans, held_out_plans, more)

    def _is_complete_without_text(self) -> bool:
        """Whether all is done but for the cleaned text, which Beam does not keep."""
        settings, made = self.settings, read_json(self._data / "manifest.json")
        if settings.teacher or not made or not is_made_with(made, settings):
            return False
        if settings.validation_corpora and not settings.hold_out_validation:
            return False  # the manifest does not say what these were
        directories = {s: self._text_directory(s, self._held_out) for s in settings.corpora}
        if all((path / "text.json").exists() for path in directories.values()):
            return False
        keys = [path.name for path in directories.values()]
        given = given_vocab(settings, self.local)
        stage = identity.vocab_stage(identity.vocab_identity(settings, keys, given))
        vocab = self._made_vocab(stage)
        counts = read_json(self._data / "counts.json") or {}
        read = lambda pair: pair_tokens.read_summary(self._data / pair, made["pairs"][pair])
        held = lambda pair: read_json(self._data / VALIDATION / pair / "pair.json") or {}
        return (
            dict(zip(settings.corpora, keys)) == made.get("corpora")
            and {text.key for text in self._held_out} == {*made.get("held_out", {})}
            and vocab is not None
            and vocab.fingerprint == made.get("vocab", {}).get("fingerprint")
            and all(pair in made["pairs"] and read(pair) for pair in settings.pairs)
            and "pairs" in counts
            and all(
                summaries.size_of(held(pair)) == size
                for pair, size in counts.get("validation", {}).items()
            )
        )

    def _teach(
        self,
        texts: Mapping[str, PairText],
        masks: Callable[[str], list[np.ndarray]],
        writer: ShardWriter,
        plans: Sequence[PairPlan],
        held_out_plans: Sequence[PairPlan],
    ) -> str:
        """Computes the vectors of a teacher for all rows; returns their fingerprint or ""."""
        settings, directories = self.settings.teacher, {self._data: plans}
        if held_out_plans:
            directories[self._data / VALIDATION] = held_out_plans
        if not settings:
            remove_row_vectors(self._data)
            remove_row_vectors(self._data / VALIDATION)
            return ""
        teacher = self.open_teacher(self.local(settings["model"]), self.local(settings["texts"]))
        return write_row_vectors(
            directories,
            settings["languages"],
            teacher,
            settings["width"],
            writer,
            lambda: _sample(self.settings, texts, masks, _AXES_SENTENCES),
            self.progress,
        )

    def _split(
        self, pair: str, texts: Mapping[str, PairText]
    ) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Rows of each corpus to train on, rows held out for validation, and first occurrences.

        Held out are the pairs of texts with the smallest hashes, in all their copies: which they
        are does not depend on the order of rows and corpora, and little on what is added.
        """
        columns = [text.hashes(pair) for text in texts.values()]
        first = pair_tokens.first_occurrences(columns)
        rows = first if self._drops_duplicates else pair_tokens.all_rows(columns)
        count = self.settings.validation_pairs
        if not count:
            return rows, [np.zeros_like(mask) for mask in first], first
        hashes = np.concatenate([column[mask] for column, mask in zip(columns, first)])
        if len(hashes) <= count:
            raise summaries.too_few_rows(self.settings, pair, len(hashes))
        limit = np.partition(hashes, count - 1)[count - 1]
        held = [np.asarray(column) <= limit for column in columns]
        return [mask & ~aside for mask, aside in zip(rows, held)], held, first

    def _clean_corpora(
        self,
        corpora: Sequence[str],
        held_out_texts: Sequence[HeldOutText],
    ) -> dict[str, PairText]:
        """Cleans each corpus that is not cleaned yet; spec -> text."""
        directories = {spec: self._text_directory(spec, held_out_texts) for spec in corpora}
        missing = [s for s, path in directories.items() if read_json(path / "text.json") is None]
        specs.check_downloaded([self._local[spec] for spec in missing])
        # All are opened first: a wrong header in the last should not come to light after hours.
        missing = {spec: specs.read_corpus(self._local[spec], self._codes) for spec in missing}
        if missing:
            hashes = {number: text.key for text in held_out_texts for number in text.read()}
            cleaner = ChunkCleaner(RowCleaner(self.settings.cleaning, self._pair_codes, hashes))
            for spec, counter, chunks in self._clean(missing, cleaner):
                pair_text.write_pair_text(chunks, directories[spec], counter)
        texts = {spec: PairText(path) for spec, path in directories.items()}
        for spec in missing:
            for pair, counts in texts[spec].counts.items():
                reasons = ", ".join(f"{counts[r]} {r}" for r in REASONS if counts.get(r))
                _logger.info(
                    "%s: %s: kept %d of %d rows%s",
                    *(spec, pair, counts["kept"], counts["read"], reasons and f" ({reasons})"),
                )
        return texts

    def _text_directory(self, spec: str, held_out: Sequence[HeldOutText]) -> Path:
        files = self._hashed_files(spec)
        return self._data / "text" / identity.text_key(self.settings, spec, files, held_out)

    def _clean(
        self, missing: Mapping[str, Iterable], cleaner: ChunkCleaner
    ) -> Iterator[tuple[str, RowCounter, Iterable]]:
        """Yields spec, counter and cleaned chunks of each corpus that is given by its rows."""
        for spec, rows in missing.items():
            counter = RowCounter(spec)
            chunks = counter.chunks(rows, cleaner.min_languages)
            chunks = self.progress(chunks, f"clean {spec}", unit="row", size=len)
            yield spec, counter, map_in_order(cleaner, chunks, self.num_workers)

    def _write_shards(self, writer: ShardWriter, shards: Sequence[Shard]) -> Iterable[Any]:
        written = map_in_order(writer, shards, self.num_workers)
        return self.progress(written, "tokenize", len(shards), unit="shard")

    def _hashed_files(self, spec: str) -> list[tuple[str, str]]:
        return specs.hashed_files(self._local[spec], self._codes, self._hashes.get)

    def _made_vocab(self, stage: str) -> Vocabulary | None:
        """The vocabulary in the workdir, if it is whole and of this stage."""
        options, made = self.settings.vocab, read_json(self._vocab_directory / "vocab.json") or {}
        if made.get("stage") == stage:
            # A file that is missing or damaged is made again.
            with contextlib.suppress(ValueError, FileNotFoundError):
                vocab = prepared_vocab(
                    self.workdir, lowercase=options.lowercase, moses=options.moses
                )
                if vocab.fingerprint == made.get("fingerprint"):
                    return vocab
        return None

    def _make_vocab(self, texts: Mapping, masks: Callable[[str], list[np.ndarray]]) -> Vocabulary:
        """Loads the finished vocabulary, or trains or copies it."""
        given = given_vocab(self.settings, self.local)
        made_from = identity.vocab_identity(self.settings, [t.key for t in texts.values()], given)
        stage = identity.vocab_stage(made_from)
        if (vocab := self._made_vocab(stage)) is not None:
            return vocab
        path = self._vocab_directory / "sentencepiece.model"
        if read_json(self._vocab_directory / "vocab.json"):
            _logger.warning("%s: made with other settings or damaged; replaced", path)
        num_sentences = self.settings.vocab.sample_sentences
        sentences = _sample(self.settings, texts, masks, num_sentences)
        sentences = self.progress(sentences, "sample text for the vocabulary", unit="sentence")
        vocab = given or trained_vocab(self.settings, sentences)
        save_vocab(vocab, self.workdir, {"stage": stage} | made_from)
        return vocab

    def _plan(self, pair: str, texts: Mapping, masks: Callable, vocab: Vocabulary) -> PairPlan:
        keys = [text.key for text in texts.values() if text.num_rows.get(pair)]
        key = identity.pair_key(self.settings, keys, vocab.fingerprint)
        return PairPlan(pair, key, tuple(texts.items()), lambda: masks(pair))

    def _conclude(
        self,
        texts: Mapping,
        validation: Mapping,
        vocab: Vocabulary,
        plans: Sequence[PairPlan],
        held_out_plans: Sequence[PairPlan],
        more: Mapping[str, str],
    ) -> PreparedData:
        """Writes counts and manifest, and removes what no stage of this config uses.

        `more` names what was made besides tokens, with its fingerprint or "".
        """
        read = pair_tokens.summary_of
        held_out_at = self._data / VALIDATION
        counts = summaries.all_counts(
            self.settings,
            self._held_out,
            texts,
            {plan.pair: read(self._data, plan) for plan in plans},
            {plan.pair: read(held_out_at, plan) for plan in held_out_plans},
        )
        manifest = summaries.manifest(
            self.settings,
            self._held_out,
            pairs={plan.pair: plan.fingerprint for plan in plans},
            more=more,
            vocab={"fingerprint": vocab.fingerprint, "size": vocab.size},
            corpora={spec: text.key for spec, text in texts.items()},
            inputs=self._hashes.used,
        )
        write_json(self._data / "counts.json", counts)
        write_json(self._data / "manifest.json", manifest)
        used = {self._data / "text" / text.key for text in (*texts.values(), *validation.values())}
        used |= {self._data / plan.pair for plan in plans}
        used |= {self._data / VALIDATION / plan.pair for plan in held_out_plans}
        made = [
            *(self._data / "text").iterdir(),
            *(p.parent for p in self._data.glob("*/pair.json")),
            *(p.parent for p in self._data.glob(f"{VALIDATION}/*/pair.json")),
        ]
        for path in (*self._data.rglob(".*.partial"), *made):
            if path not in used:
                shutil.rmtree(path, ignore_errors=True)
        return load_prepared(self.workdir)


def draw_rows(
    settings: Preparation, totals: Mapping[str, int], sentences: int, pair: str
) -> np.ndarray:
    """Draws rows of a pair for about so many sentences of all pairs, with the seed.

    Args:
        settings: of preparation.
        totals: pair -> kept rows.
        sentences: twice the number of rows of all pairs.
        pair: one of `totals`.

    Returns:
        [rows] bool.
    """
    weights = {name: n**settings.vocab.sampling_exponent for name, n in totals.items() if n}
    rows = sentences / 2 / max(1, sum(weights.values()))
    rng = np.random.default_rng([settings.seed, settings.pairs.index(pair)])
    chosen = np.zeros(totals[pair], bool)
    wanted = min(totals[pair], round(rows * weights.get(pair, 0)))
    chosen[rng.choice(totals[pair], wanted, replace=False)] = True
    return chosen


def _sample(
    settings: Preparation,
    texts: Mapping,
    masks: Callable[[str], list[np.ndarray]],
    sentences: int,
) -> Iterator[str]:
    """Yields both sides of rows drawn with the seed from all kept rows, about so many sentences.

    A sentence that occurs in several pairs may be drawn several times, as for the published
    vocabularies, which were trained on the concatenation of all pair files.
    """
    totals = {pair: sum(int(m.sum()) for m in masks(pair)) for pair in settings.pairs}
    for pair in totals:
        chosen = draw_rows(settings, totals, sentences, pair)
        start = 0
        for text, mask in zip(texts.values(), masks(pair), strict=True):
            selected = np.flatnonzero(mask)
            selected = selected[chosen[start : start + len(selected)]]
            start += int(mask.sum())
            for member in text.members(pair):
                begin, end = np.searchsorted(selected, [member.rows.start, member.rows.stop])
                if begin < end:
                    texts_of_member = member.read()
                    for row in selected[begin:end]:
                        yield from texts_of_member[row - member.first_row]
