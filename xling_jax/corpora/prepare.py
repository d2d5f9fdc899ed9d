"""From the corpora of a config to token shards: the stages, in order, each done once.

    DIR/vocab/sentencepiece.model   the vocabulary
    DIR/vocab/vocab.json            what it was made from
    DIR/data/de-en/                 token shards of one pair (pair_tokens.py)
    DIR/data/text/                  cleaned text of each corpus (pair_text.py)
    DIR/data/counts.json            rows by corpus, pair and reason
    DIR/data/manifest.json          fingerprints of inputs and stages, settings, versions

In `counts.json`, for each corpus and pair, `read` is `kept` plus the reasons of `cleaning.REASONS`,
and `kept` is `rows` (what can be trained on) plus `duplicate` plus `too_many_tokens`;
`invisible_characters` counts kept rows that lost some.

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
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece

from xling_jax.corpora import held_out, pair_text, pair_tokens, specs
from xling_jax.corpora.cleaning import REASONS, RowCleaner
from xling_jax.corpora.pair_text import ChunkCleaner, PairText, RowCounter
from xling_jax.corpora.pair_tokens import PairPlan, Shard, ShardWriter
from xling_jax.corpora.settings import PrepareSettings
from xling_jax.files.hashes import FileHashes, fingerprint
from xling_jax.files.whole import lock_directory, read_json, remove_temporary, write_json
from xling_jax.files.workers import map_in_order, num_cores
from xling_jax.text.vocab import Vocab, check_layout, train_vocab

if TYPE_CHECKING:
    from xling_jax.corpora.beam import BeamRunner

FORMAT_VERSION = 1

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class PreparedData:
    """Where prepared data is, and what it is.

    Attributes:
        directory: holds `a-b/` for each pair, as `shards.PairTokens` reads them.
        pairs: unordered pairs, `a-b` in alphabetical order.
        vocab_path: the SentencePiece model.
        fingerprint: of all tokens; equal means the same rows in the same order.
        counts: content of `counts.json`.
    """

    directory: Path
    pairs: tuple[str, ...]
    vocab_path: Path
    fingerprint: str
    counts: dict


def prepare(
    *,
    workdir: str | os.PathLike[str],
    num_workers: int | None = None,
    progress: Callable[..., Iterable] = lambda items, *_, **__: items,
    runner: "BeamRunner | None" = None,
    local: Callable[[str], str] = lambda path: path,
    **settings: Any,
) -> PreparedData:
    """Reads, cleans, deduplicates and tokenizes parallel corpora; does only what is missing.

    Args:
        workdir: directory of the run, made if needed.
        num_workers: number of processes; None for one per core. The output does not depend on it.
        progress: wraps an iterable to show its progress; has the signature of
            `files.progress.track`.
        runner: cleans rows and writes shards in place of processes of this machine; the output
            does not depend on it.
        local: maps a path or pattern in the settings, which may be a URL, to one on this machine.
        **settings: arguments of `PrepareSettings`.

    Returns:
        Where the data is, with its counts.

    Raises:
        ValueError: for wrong settings, a corpus that is broken or of which nothing is left, or a
            pair that no corpus has.
        OSError: from reading or writing, with the path.
    """
    checked = PrepareSettings(**settings)
    # Workers of a runner have another working directory.
    workdir = Path(workdir).absolute() if runner else Path(workdir)
    data = workdir / "data"
    data.mkdir(parents=True, exist_ok=True)
    with lock_directory(data):
        for directory in (data, data / "text", workdir / "vocab"):
            remove_temporary(directory)
        workers = num_workers or num_cores()
        return _Preparation(workdir, checked, local, workers, runner, progress).run()


def load_prepared(
    workdir: str | os.PathLike[str], settings: PrepareSettings | None = None
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


def is_made_with(manifest: Mapping[str, Any], settings: PrepareSettings) -> bool:
    """Whether a `manifest.json` is of data prepared with these settings by this version."""
    wanted = json.loads(json.dumps(dataclasses.asdict(settings)))
    return (manifest.get("settings"), manifest.get("format_version")) == (wanted, FORMAT_VERSION)


@dataclasses.dataclass
class _Preparation:
    """One run of the stages in one workdir."""

    workdir: Path
    settings: PrepareSettings
    local: Callable[[str], str]
    num_workers: int
    runner: "BeamRunner | None"
    progress: Callable[..., Iterable]

    def __post_init__(self):
        self._data, self._vocab_directory = self.workdir / "data", self.workdir / "vocab"
        self._pair_codes = [tuple(pair.split("-")) for pair in self.settings.pairs]
        self._codes = tuple(sorted({code for pair in self._pair_codes for code in pair}))
        self._hashes = FileHashes(self._data / "input_hashes.json")
        # Named as in the config, read where they are on this machine.
        self._local = {spec: specs.moved_corpus(spec, self.local) for spec in self.settings.corpora}

    def run(self) -> PreparedData:
        """Runs the stages that are missing and writes the manifest last."""
        texts = self._clean_corpora()
        for pair in self.settings.pairs:
            if not any(text.num_rows.get(pair) for text in texts.values()):
                raise ValueError(
                    f"data.pairs: no corpus has rows of {pair} after cleaning; add a corpus, or "
                    "take the pair out"
                )
        # The vocabulary's sample and the shards need the masks; often neither is to be made.
        hashes = lambda pair: [text.hashes(pair) for text in texts.values()]
        masks = functools.cache(lambda pair: pair_tokens.first_occurrences(hashes(pair)))
        vocab = self._make_vocab(texts, masks)
        plans = [self._plan(pair, texts, masks, vocab) for pair in self.settings.pairs]
        writer = ShardWriter(vocab, self.settings.cleaning.max_tokens_per_sentence)
        pair_tokens.write_pair_tokens(
            self._data, plans, functools.partial(self._write_shards, writer)
        )
        return self._conclude(texts, vocab, plans)

    def _clean_corpora(self) -> dict[str, PairText]:
        """Cleans each corpus that is not cleaned yet; spec -> text."""
        excluded = held_out.held_out_files(map(self.local, self.settings.exclude))
        rules = dataclasses.asdict(self.settings.cleaning)
        # Applied to tokens: the text does not depend on it.
        del rules["max_tokens_per_sentence"]
        common = {
            "format": [FORMAT_VERSION, pair_text.FORMAT_VERSION],
            "pairs": self.settings.pairs,
            "cleaning": rules,
            "exclude": sorted(self._hashes.get(path) for path in excluded),
        }
        directories = {}
        for spec in self.settings.corpora:
            # What a corpus is: its kind, and the names and content of its files; or its name.
            files = self._hashed_files(spec)
            corpus = [spec.partition(":")[0], spec.partition("?")[2], files] if files else [spec]
            directories[spec] = self._data / "text" / fingerprint({**common, "corpus": corpus})
        # All are opened first: a wrong header in the last should not come to light after hours.
        missing = {
            spec: specs.read_corpus(self._local[spec], self._codes)
            for spec, directory in directories.items()
            if read_json(directory / "text.json") is None
        }
        if missing:
            hashes = held_out.held_out_hashes(excluded)
            cleaner = ChunkCleaner(RowCleaner(self.settings.cleaning, self._pair_codes, hashes))
            for spec, counter, chunks in self._clean(missing, cleaner, directories):
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

    def _clean(
        self, missing: Mapping[str, Iterable], cleaner: ChunkCleaner, made: Mapping[str, Path]
    ) -> Iterator[tuple[str, RowCounter, Iterable]]:
        """Yields spec, counter and cleaned chunks of each corpus that is given by its rows."""
        if self.runner:
            corpora = {
                spec: (self._local[spec], made[spec].name, self._hashed_files(spec))
                for spec in missing
            }
            scratch = self._data / ".clean.partial"
            yield from self.runner.clean(scratch, corpora, self._codes, cleaner)
            shutil.rmtree(scratch)
            return
        for spec, rows in missing.items():
            counter = RowCounter(spec)
            chunks = self.progress(counter.chunks(rows), f"clean {spec}", unit="row", size=len)
            yield spec, counter, map_in_order(cleaner, chunks, self.num_workers)

    def _write_shards(self, writer: ShardWriter, shards: Sequence[Shard]) -> Iterable[Any]:
        if self.runner:
            return self.runner.write_shards(self._data / ".errors.partial", writer, shards)
        written = map_in_order(writer, shards, self.num_workers)
        return self.progress(written, "tokenize", len(shards), unit="shard")

    def _hashed_files(self, spec: str) -> list[tuple[str, str]]:
        return specs.hashed_files(self._local[spec], self._codes, self._hashes.get)

    def _make_vocab(self, texts: Mapping, masks: Callable[[str], list[np.ndarray]]) -> Vocab:
        """Loads the finished vocabulary, or trains or copies it."""
        settings = self.settings.vocab
        identity = {"layout": self.settings.layout, "lowercase": settings.lowercase}
        given = None
        if settings.model:
            given = Vocab(self.local(settings.model), lowercase=settings.lowercase)
            check_layout(given, self.settings.layout, settings.model)
            identity["model"] = given.fingerprint
        else:
            identity["settings"] = dataclasses.asdict(settings)
            identity["text"] = [text.key for text in texts.values()]
            identity["seed"] = self.settings.seed
        stage = fingerprint({"format": FORMAT_VERSION, **identity})
        path = self._vocab_directory / "sentencepiece.model"
        record = read_json(self._vocab_directory / "vocab.json") or {}
        if record.get("stage") == stage:
            # A file that is missing or damaged is made again.
            with contextlib.suppress(ValueError, FileNotFoundError):
                vocab = Vocab(path, lowercase=settings.lowercase)
                if vocab.fingerprint == record.get("fingerprint"):
                    return vocab
        if record:
            _logger.warning("%s: made with other settings or damaged; replaced", path)
        sentences = _sample(self.settings, texts, masks)
        vocab = given or train_vocab(
            self.progress(sentences, "sample text for the vocabulary", unit="sentence"),
            size=settings.size,
            layout=self.settings.layout,
            model_type=settings.model_type,
            character_coverage=settings.character_coverage,
            lowercase=settings.lowercase,
            seed=self.settings.seed,
        )
        vocab.save(path)
        record = {"stage": stage, "fingerprint": vocab.fingerprint, "size": vocab.size, **identity}
        write_json(self._vocab_directory / "vocab.json", record)
        return vocab

    def _plan(self, pair: str, texts: Mapping, masks: Callable, vocab: Vocab) -> PairPlan:
        key = fingerprint(
            {
                "format": FORMAT_VERSION,
                "text": [text.key for text in texts.values() if text.num_rows.get(pair)],
                "vocab": vocab.fingerprint,
                "max_tokens": self.settings.cleaning.max_tokens_per_sentence,
            }
        )
        return PairPlan(pair, key, tuple(texts.items()), lambda: masks(pair))

    def _conclude(self, texts: Mapping, vocab: Vocab, plans: Sequence[PairPlan]) -> PreparedData:
        """Writes counts and manifest, and removes what no stage of this config uses."""
        summaries = {
            p.pair: pair_tokens.pair_summary(self._data / p.pair, p.fingerprint) for p in plans
        }
        counts = {"corpora": {}, "pairs": {}}
        for spec, text in texts.items():
            counts["corpora"][spec] = {
                pair: {**cleaned, **summaries[pair]["corpora"].get(spec, {})}
                for pair, cleaned in text.counts.items()
            }
        for pair, summary in summaries.items():
            counts["pairs"][pair] = {"rows": summary["rows"], "tokens": summary["tokens"]}
        manifest = {
            "format_version": FORMAT_VERSION,
            "fingerprint": fingerprint({p.pair: p.fingerprint for p in plans}),
            "languages": self.settings.languages,
            "pairs": {p.pair: p.fingerprint for p in plans},
            "vocab": {"fingerprint": vocab.fingerprint, "size": vocab.size},
            "corpora": {spec: text.key for spec, text in texts.items()},
            "inputs": self._hashes.used,
            "settings": dataclasses.asdict(self.settings),
            "versions": {"numpy": np.__version__, "sentencepiece": sentencepiece.__version__},
        }
        write_json(self._data / "counts.json", counts)
        write_json(self._data / "manifest.json", manifest)
        used = {text.key for text in texts.values()} | {*self.settings.pairs}
        made = [
            *(self._data / "text").iterdir(),
            *(p.parent for p in self._data.glob("*/pair.json")),
        ]
        for path in (*self._data.glob(".*.partial"), *made):
            if path.name not in used:
                shutil.rmtree(path, ignore_errors=True)
        return load_prepared(self.workdir)


def _sample(
    settings: PrepareSettings, texts: Mapping, masks: Callable[[str], list[np.ndarray]]
) -> Iterator[str]:
    """Yields both sides of rows drawn with the seed from all kept rows.

    A sentence that occurs in several pairs may be drawn several times, as for the published
    vocabularies, which were trained on the concatenation of all pair files.
    """
    totals = {pair: sum(int(m.sum()) for m in masks(pair)) for pair in settings.pairs}
    weights = {pair: n**settings.vocab.sampling_exponent for pair, n in totals.items() if n}
    rows = settings.vocab.sample_sentences / 2 / max(1, sum(weights.values()))
    for number, (pair, total) in enumerate(totals.items()):
        rng = np.random.default_rng([settings.seed, number])
        chosen = np.zeros(total, bool)
        wanted = min(total, round(rows * weights.get(pair, 0)))
        chosen[rng.choice(total, wanted, replace=False)] = True
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
