"""From the corpora a config names to token shards: the stages, in order, each done once.

    DIR/vocab/sentencepiece.model   the vocabulary
    DIR/vocab/vocab.json            what it was made from
    DIR/data/de-en/                 token shards of one pair (pair_tokens.py)
    DIR/data/text/                  cleaned text of each corpus (pair_text.py)
    DIR/data/counts.json            rows by corpus, pair and reason
    DIR/data/manifest.json          fingerprints of inputs and stages, settings, versions

In `counts.json`, for each corpus and pair, `read` is `kept` plus the reasons of `cleaning.REASONS`,
and `kept` is `rows` (what can be trained on) plus `duplicate` plus `too_many_tokens`;
`invisible_characters` counts kept rows that lost some.

A stage is recognised as done by a fingerprint of everything it depends on, the content of the input
files included. Started again, `prepare` does what is missing: after an interruption the rest, after
a change of the config what the change touches.
"""

import contextlib
import dataclasses
import functools
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import sentencepiece

from xling_jax.corpora import held_out, pair_text, pair_tokens
from xling_jax.corpora import specs as corpora_lib
from xling_jax.corpora.cleaning import REASONS, RowCleaner
from xling_jax.corpora.jobs import Runner
from xling_jax.corpora.pair_text import PairText
from xling_jax.corpora.pair_tokens import PairPlan
from xling_jax.corpora.prepare_jobs import clean_corpora, write_shards
from xling_jax.corpora.settings import PrepareSettings
from xling_jax.files.hashes import FileHashes
from xling_jax.files.whole import fingerprint, lock_directory, read_json, write_json
from xling_jax.text.vocab import Vocab, check_layout, train_vocab

FORMAT_VERSION = 1

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class PreparedData:
    """Where prepared data is, and what it is.

    Attributes:
        directory: holds `a-b/` for each pair, as `shards.PairTokens` reads them.
        languages: as the config lists them.
        pairs: unordered pairs, `a-b` in alphabetical order.
        vocab_path: the SentencePiece model.
        vocab_fingerprint: `Vocab.fingerprint` of it.
        fingerprint: of all tokens; equal means the same rows in the same order.
        counts: content of `counts.json`.
    """

    directory: Path
    languages: tuple[str, ...]
    pairs: tuple[str, ...]
    vocab_path: Path
    vocab_fingerprint: str
    fingerprint: str
    counts: dict


def prepare(
    *,
    workdir: str | os.PathLike[str],
    num_workers: int | None = None,
    progress: Callable[..., Iterable] | None = None,
    runner: Runner | None = None,
    **settings,
) -> PreparedData:
    """Reads, cleans, deduplicates and tokenises parallel corpora; does only what is missing.

    Args:
        workdir: directory of the run, made if needed.
        num_workers: processes; None for one a core. The output does not depend on it.
        progress: wraps an iterable for display, called as `progress(items, desc, total)`.
        runner: where rows are cleaned and shards written instead of in processes of this machine,
            a `BeamRunner` or `ProcessRunner`; the output does not depend on it.
        **settings: keyword arguments of `PrepareSettings.make`: `languages`, `corpora` (each
            `KIND:WHERE`, see `corpora.py`), `pairs` (`source-target`), `exclude` (evaluation files
            whose texts no training row may hold), the sections `cleaning` and `vocab`, `layout`
            (key of `vocab.SPECIALS`) and `seed`.

    Returns:
        Where the data is, with its counts.

    Raises:
        ValueError: for wrong settings, a corpus that is broken or of which nothing is left, or a
            pair that no corpus has.
        OSError: from reading or writing, with the path.
    """
    checked = PrepareSettings.make(**settings)
    # Workers of a runner have another working directory.
    workdir = Path(workdir).absolute() if runner else Path(workdir)
    (workdir / "data").mkdir(parents=True, exist_ok=True)
    with lock_directory(workdir / "data"):
        workers = num_workers or num_cores()
        prepared = _Preparation(workdir, checked, workers, progress, runner).run()
        if runner:
            runner.finish()
        return prepared


def load_prepared(workdir: str | os.PathLike[str]) -> PreparedData:
    """Returns what `prepare` finished in a workdir.

    Raises:
        ValueError: if there is no finished data.
    """
    directory = Path(workdir) / "data"
    manifest, counts = (read_json(directory / f"{n}.json") for n in ("manifest", "counts"))
    if manifest is None or counts is None:
        raise ValueError(f"{directory}: no finished data; run `xling prepare` first")
    return PreparedData(
        directory=directory,
        languages=tuple(manifest["languages"]),
        pairs=tuple(manifest["pairs"]),
        vocab_path=Path(workdir) / "vocab" / "sentencepiece.model",
        vocab_fingerprint=manifest["vocab"]["fingerprint"],
        fingerprint=manifest["fingerprint"],
        counts=counts,
    )


def num_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Preparation:
    """One run of the stages over one workdir."""

    def __init__(
        self,
        workdir: Path,
        settings: PrepareSettings,
        num_workers: int,
        progress: Callable[..., Iterable] | None,
        runner: Runner | None,
    ):
        self._settings, self._num_workers, self._runner = settings, num_workers, runner
        self._progress = progress or (lambda items, desc, total=None: items)
        self._data, self._vocab_directory = workdir / "data", workdir / "vocab"
        self._pair_codes = [tuple(pair.split("-")) for pair in settings.pairs]
        self._codes = tuple(sorted({code for pair in self._pair_codes for code in pair}))
        self._hashes = FileHashes(self._data / "input_hashes.json")

    def run(self) -> PreparedData:
        """Runs the stages that are missing and writes the manifest last."""
        texts = self._clean_corpora()
        for pair in self._settings.pairs:
            if not any(text.num_rows.get(pair) for _, text in texts.values()):
                raise ValueError(
                    f"data.pairs: no corpus has rows of {pair} after cleaning; add a corpus, or "
                    "take the pair out"
                )
        # Both the vocabulary's sample and the shards need the masks, and often neither does.
        masks = functools.cache(
            lambda pair: pair_tokens.first_occurrences(
                [text.hashes(pair) for _, text in texts.values()]
            )
        )
        vocab = self._make_vocab(texts, masks)
        plans = [self._plan(pair, texts, masks, vocab) for pair in self._settings.pairs]
        max_tokens = self._settings.cleaning.max_tokens_per_sentence
        if self._runner:
            write_shards(self._runner, self._data, plans, vocab, max_tokens=max_tokens)
        pair_tokens.write_pair_tokens(
            self._data,
            plans,
            vocab,
            max_tokens=max_tokens,
            num_workers=self._num_workers,
            progress=self._progress,
        )
        return self._conclude(texts, vocab, plans)

    def _clean_corpora(self) -> dict[str, tuple[str, PairText]]:
        """Cleans each corpus that is not cleaned yet; spec -> (fingerprint, text)."""
        excluded_files = held_out.held_out_files(self._settings.exclude)
        rules = dataclasses.asdict(self._settings.cleaning)
        # Applied to tokens, so a change of it must not clean anew.
        del rules["max_tokens_per_sentence"]
        common = {
            "format": [FORMAT_VERSION, pair_text.FORMAT_VERSION],
            "pairs": self._settings.pairs,
            "cleaning": rules,
            "exclude": sorted(self._hashes.get(path) for path in excluded_files),
        }
        cleaner = functools.cache(
            lambda: RowCleaner(
                self._settings.cleaning,
                self._pair_codes,
                held_out.held_out_hashes(excluded_files),
            )
        )
        keys = {
            spec: fingerprint({**common, "corpus": self._corpus_identity(spec)})
            for spec in self._settings.corpora
        }
        directories = {spec: self._data / "text" / key for spec, key in keys.items()}
        # All are opened first: a wrong header in the last should not come to light after hours.
        missing = {
            spec: corpora_lib.read_corpus(spec, self._codes)
            for spec, directory in directories.items()
            if not pair_text.is_finished(directory)
        }
        self._write_texts(missing, directories, cleaner)
        texts = {spec: (keys[spec], PairText(path)) for spec, path in directories.items()}
        for spec in missing:
            self._log_counts(spec, texts[spec][1])
        return texts

    def _write_texts(
        self,
        corpora: Mapping[str, Iterable[corpora_lib.Row]],
        directories: Mapping[str, Path],
        cleaner: Callable[[], RowCleaner],
    ) -> None:
        """Cleans corpora, given by their rows."""
        if corpora and self._runner:
            targets = {spec: (directories[spec], self._hashed_files(spec)) for spec in corpora}
            clean_corpora(self._runner, self._data, targets, cleaner(), self._codes, self._progress)
            return
        for spec, rows in corpora.items():
            pair_text.write_pair_text(
                self._progress(rows, f"clean {spec}", None),
                directories[spec],
                cleaner(),
                where=spec,
                num_workers=self._num_workers,
            )

    def _corpus_identity(self, spec: str) -> list:
        """What a corpus is: its kind, and names and content of its files or its name."""
        files = self._hashed_files(spec)
        return [spec.partition(":")[0], spec.partition("?")[2], files] if files else [spec]

    def _hashed_files(self, spec: str) -> list[tuple[str, str]]:
        return corpora_lib.hashed_files(spec, self._codes, self._hashes.get)

    def _make_vocab(self, texts: Mapping, masks: Callable[[str], list[np.ndarray]]) -> Vocab:
        """Loads the finished vocabulary, or trains or copies it."""
        settings = self._settings
        identity = {"layout": settings.layout, "lowercase": settings.vocab.lowercase}
        given = None
        if settings.vocab.model:
            given = Vocab(settings.vocab.model, lowercase=settings.vocab.lowercase)
            check_layout(given, settings.layout, settings.vocab.model)
            identity["model"] = given.fingerprint
        else:
            identity["settings"] = dataclasses.asdict(settings.vocab)
            identity["text"] = [key for key, _ in texts.values()]
            identity["seed"] = settings.seed
        stage = fingerprint({"format": FORMAT_VERSION, **identity})
        path = self._vocab_directory / "sentencepiece.model"
        record = read_json(self._vocab_directory / "vocab.json") or {}
        if record.get("stage") == stage:
            # A file that is missing or damaged is made again.
            with contextlib.suppress(ValueError, FileNotFoundError):
                vocab = Vocab(path, lowercase=settings.vocab.lowercase)
                if vocab.fingerprint == record.get("fingerprint"):
                    return vocab
        if record:
            _logger.warning("%s: made with other settings or damaged; replaced", path)
        if given is None:
            sentences = _sample(settings, texts, masks)
            vocab = train_vocab(
                self._progress(sentences, "read sentences for the vocabulary", None),
                size=settings.vocab.size,
                layout=settings.layout,
                model_type=settings.vocab.model_type,
                character_coverage=settings.vocab.character_coverage,
                lowercase=settings.vocab.lowercase,
                seed=settings.seed,
            )
        else:
            vocab = given
        vocab.save(path)
        record = {"stage": stage, "fingerprint": vocab.fingerprint, "size": vocab.size, **identity}
        write_json(self._vocab_directory / "vocab.json", record)
        return vocab

    def _plan(self, pair: str, texts: Mapping, masks: Callable, vocab: Vocab) -> PairPlan:
        key = fingerprint(
            {
                "format": FORMAT_VERSION,
                "text": [key for key, text in texts.values() if text.num_rows.get(pair)],
                "vocab": vocab.fingerprint,
                "max_tokens": self._settings.cleaning.max_tokens_per_sentence,
            }
        )
        corpora = tuple((spec, text) for spec, (_, text) in texts.items())
        return PairPlan(pair, key, corpora, lambda: masks(pair))

    def _conclude(self, texts: Mapping, vocab: Vocab, plans: Sequence[PairPlan]) -> PreparedData:
        """Writes counts and manifest, and removes what no stage of this config uses."""
        summaries = {
            p.pair: pair_tokens.pair_summary(self._data / p.pair, p.fingerprint) for p in plans
        }
        counts = {"corpora": {}, "pairs": {}}
        for spec, (_, text) in texts.items():
            counts["corpora"][spec] = {
                pair: {**cleaned, **summaries[pair]["corpora"].get(spec, {})}
                for pair, cleaned in text.counts.items()
            }
        for pair, summary in summaries.items():
            counts["pairs"][pair] = {"rows": summary["rows"], "tokens": summary["tokens"]}
        manifest = {
            "format_version": FORMAT_VERSION,
            "fingerprint": fingerprint({p.pair: p.fingerprint for p in plans}),
            "languages": self._settings.languages,
            "pairs": {p.pair: p.fingerprint for p in plans},
            "vocab": {"fingerprint": vocab.fingerprint, "size": vocab.size},
            "corpora": {spec: key for spec, (key, _) in texts.items()},
            "inputs": self._hashes.used,
            "settings": dataclasses.asdict(self._settings),
            "versions": {"numpy": np.__version__, "sentencepiece": sentencepiece.__version__},
        }
        write_json(self._data / "counts.json", counts)
        write_json(self._data / "manifest.json", manifest)
        self._remove_unused({key for key, _ in texts.values()})
        return load_prepared(self._data.parent)

    def _remove_unused(self, text_keys: set[str]) -> None:
        """Removes text and tokens that earlier settings or interrupted runs left."""
        unused = [path for path in (self._data / "text").iterdir() if path.name not in text_keys]
        for path in self._data.iterdir():
            is_partial = path.name.startswith(".") and path.name.endswith(".partial")
            if is_partial or (
                path.name not in self._settings.pairs and (path / "pair.json").exists()
            ):
                unused.append(path)
        for path in unused:
            shutil.rmtree(path, ignore_errors=True)

    def _log_counts(self, spec: str, text: PairText) -> None:
        for pair, counts in text.counts.items():
            dropped = ", ".join(f"{counts[r]} {r}" for r in REASONS if counts.get(r))
            _logger.info(
                "%s: %s: kept %d of %d rows%s",
                *(spec, pair, counts["kept"], counts["read"]),
                f" ({dropped})" if dropped else "",
            )


def _sample(
    settings: PrepareSettings, texts: Mapping, masks: Callable[[str], list[np.ndarray]]
) -> Iterator[str]:
    """Yields both sides of rows drawn with the seed from all kept rows.

    A sentence that stands in several pairs may come several times, as for the published ones,
    which were learnt from the concatenation of all pair files.
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
        for (_, text), mask in zip(texts.values(), masks(pair), strict=True):
            selected = np.flatnonzero(mask)
            selected = selected[chosen[start : start + len(selected)]]
            start += int(mask.sum())
            for member in text.members(pair):
                begin, end = np.searchsorted(
                    selected, [member.first_row, member.first_row + member.num_rows]
                )
                if begin < end:
                    texts_of_member = member.read()
                    for row in selected[begin:end]:
                        yield from texts_of_member[row - member.first_row]
