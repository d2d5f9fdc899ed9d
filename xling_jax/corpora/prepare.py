"""From the corpora of a config to token shards: the stages, in order, each done once.

    DIR/vocab/sentencepiece.model   the vocabulary; or
    DIR/vocab/tokenizer/            the files of that of a published encoder
    DIR/vocab/vocab.json            what it was made from
    DIR/data/de-en/                 token shards of one pair (pair_tokens.py)
    DIR/data/validation/de-en/      likewise, of pairs held out for the validation loss
    DIR/data/teacher/               vectors of a teacher for these rows (row_vectors.py)
    DIR/data/text/                  cleaned text of each corpus (pair_text.py)
    DIR/data/counts.json            rows by corpus, pair and reason
    DIR/data/manifest.json          fingerprints of inputs and stages, options, versions

In `counts.json`, for each corpus and pair, `read` is `kept` plus the reasons of `cleaning.REASONS`,
and `kept` is `rows` (what can be trained on) plus `duplicate` plus `no_tokens`, plus
`validation` if rows are taken out for the validation loss; `invisible_characters` counts kept rows
that lost some. `held_out` has the rows by the file that they repeat a text of, and by pair.

A stage is done if its fingerprint is that of everything it depends on, the content of the input
files included. Started again, `prepare` does what is missing: after an interruption the rest, after
a change of the config what the change affects.
"""

import dataclasses
import functools
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from xling_jax.corpora.cleaning import REASONS, RowCleaner
from xling_jax.corpora.held_out import find_held_out
from xling_jax.corpora.options import Preparation
from xling_jax.corpora.pair_text import (
    ChunkCleaner,
    PairText,
    RowCounter,
    SelectedRows,
    write_pair_text,
)
from xling_jax.corpora.pair_tokens import (
    PairPlan,
    RowChoice,
    Shard,
    ShardWriter,
    write_pair_tokens,
)
from xling_jax.corpora.readers.base import Reader
from xling_jax.corpora.row_vectors import TEACHER, write_row_vectors
from xling_jax.corpora.shards import VALIDATION
from xling_jax.corpora.specs import local_name, names_below, open_corpus
from xling_jax.corpora.stages import (
    FORMAT_VERSION,
    PreparedData,
    Stage,
    changed_options,
    load_prepared,
    pair_key,
    plain_options,
    recorded_options,
    text_key,
    vocab_facts,
    vocab_key,
)
from xling_jax.corpora.vocabulary import check_unknown, given_vocab, make_vocab
from xling_jax.files.hashes import fingerprint, hash_file
from xling_jax.files.progress import track
from xling_jax.files.threads import num_cores
from xling_jax.files.whole import (
    lock_directory,
    read_json,
    remove_temporary,
    write_json,
    write_record,
)
from xling_jax.files.workers import map_in_order
from xling_jax.options import OptionError
from xling_jax.text.vocabularies import Vocabulary

# To find the principal axes of a teacher's vectors on.
_AXES_SENTENCES = 100_000

_logger = logging.getLogger(__name__)


class Engine:
    """Does the work of the stages in processes of this machine; `corpora.beam` has a cluster.

    A stage says what there is to do, as calls of a function on items, and what comes out depends on
    it alone. `place` says where the work finds a path or URL.
    """

    place = staticmethod(local_name)

    def __init__(self, num_workers: int):
        self._num_workers = num_workers

    def clean(
        self,
        corpora: Sequence[tuple[Reader, Stage]],
        languages: Sequence[str],
        cleaner: ChunkCleaner,
    ) -> None:
        """Makes the text stages of corpora."""
        # All are opened first: a wrong header in the last should not come to light after hours.
        opened = [(reader.name, reader.rows(languages), stage) for reader, stage in corpora]
        for name, rows, stage in opened:
            counter = RowCounter(name)
            chunks = counter.chunks(rows, cleaner.min_languages)
            chunks = track(chunks, f"clean {name}", unit="row", size=len)
            cleaned = map_in_order(cleaner, chunks, self._num_workers)
            stage.make(functools.partial(write_pair_text, cleaned, counter=counter))

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """Calls a function that mostly reads for each item, in order."""
        return map(function, items)

    def write_shards(self, writer: ShardWriter, shards: Sequence[Shard]) -> Iterable[Any]:
        """Writes shards; yields the counts of each, in order."""
        written = map_in_order(writer, shards, self._num_workers)
        return track(written, "tokenize", len(shards), unit="shard")


class _FileHashes:
    """SHA-256 of files, remembered in a JSON file by size and time of the last change.

    Attributes:
        used: path -> hash, of the files asked for.
    """

    def __init__(self, path: Path, engine: Engine):
        self._path, self._engine = path, engine
        self._known = read_json(path) or {}
        self.used: dict[str, str] = {}

    def of(self, paths: Sequence[str], here: bool = False) -> list[str]:
        """Returns the hash of each file's content in hex digits, read by the engine or `here`."""
        names = {path: os.path.abspath(path) for path in paths}
        states = {path: [s.st_size, s.st_mtime_ns] for path in paths for s in [os.stat(path)]}
        is_known = lambda path: self._known.get(names[path], [])[:2] == states[path]
        missing = [path for path in states if not is_known(path)]
        found = (map if here else self._engine.map)(hash_file, missing)
        for path, digest in zip(missing, found):
            self._known[names[path]] = [*states[path], digest]
            write_record(self._path, self._known)
        self.used |= {path: self._known[name][2] for path, name in names.items()}
        return [self.used[path] for path in paths]


def prepare(
    preparation: Preparation,
    *,
    workdir: str | os.PathLike[str],
    num_workers: int | None = None,
    open_teacher: Callable[[str, str], Any] | None = None,
    keep: bool = False,
    engine: Engine | None = None,
) -> PreparedData:
    """Reads, cleans, deduplicates and tokenizes parallel corpora; does only what is missing.

    The output does not depend on the number of processes, `num_workers`, by default one per core.
    `open_teacher` loads the teacher that the options name, from its `model` and `texts`. `keep`
    refuses to replace finished data of other text or options: a run has checkpoints that were
    trained on them. The `engine` does the work, by default in processes of this machine.
    """
    check_corpora(preparation)
    workdir = Path(workdir)
    data = workdir / "data"
    data.mkdir(parents=True, exist_ok=True)
    with lock_directory(data):
        remove_temporary(workdir, "vocab")
        for directory in (data, data / "text", data / TEACHER, data / VALIDATION / TEACHER):
            remove_temporary(directory)
        engine = engine or Engine(num_workers or num_cores())
        running = _Run(preparation, workdir, engine, open_teacher)
        if keep:
            running.check_kept()
        return running.prepare()


def check_corpora(preparation: Preparation) -> None:
    """Raises `OptionError` if there is nothing to prepare."""
    if not preparation.corpora:
        raise OptionError("data.corpora must be a list of at least one; found ()")


def _sides(languages: Sequence[str], drawn: tuple[str, SelectedRows]) -> list[str]:
    """The texts of drawn rows of a pair that are in some languages."""
    pair, rows = drawn
    sides = [side for side, code in enumerate(pair.split("-")) if code in languages]
    return [row[side] for row in rows.read() for side in sides]


class _Run:
    """One run of the stages in one workdir."""

    def __init__(
        self,
        preparation: Preparation,
        workdir: Path,
        engine: Engine,
        open_teacher: Callable[[str, str], Any] | None,
    ):
        self._preparation, self._workdir, self._engine = preparation, workdir, engine
        self._open_teacher = open_teacher
        self._data = workdir / "data"
        self._hashes = _FileHashes(self._data / "input_hashes.json", engine)
        # Named as in the config, read where they are on this machine or on those of the engine.
        self._readers = {spec: open_corpus(spec).at(engine.place) for spec in preparation.corpora}
        self._held_out = find_held_out(
            preparation, lambda path: self._hashes.of([path], here=True)[0]
        )
        self._files = {
            spec: [*map(os.path.abspath, reader.files(preparation.codes))]
            for spec, reader in self._readers.items()
        }
        self._hashes.of([path for paths in self._files.values() for path in paths])

    def prepare(self) -> PreparedData:
        """Runs the stages that are missing and writes the manifest last."""
        preparation, engine = self._preparation, self._engine
        texts = self._clean()
        for pair in preparation.pairs:
            if not any(text.num_rows.get(pair) for text in texts.values()):
                raise ValueError(
                    f"data.pairs: no corpus has rows of {pair} after cleaning; add a corpus, or "
                    "take the pair out"
                )
        # The vocabulary's sample and the shards need it; often neither is to be made.
        rows = RowChoice(preparation, list(texts.values()))
        sample, options = functools.partial(self._sample, rows), preparation.vocab
        vocab = make_vocab(
            preparation,
            self._workdir,
            [text.key for text in texts.values()],
            given_vocab(preparation),
            functools.partial(sample, options.sample_sentences, options.extend_languages),
        )
        plans, held = (self._plan(texts, vocab, rows, is_held) for is_held in (False, True))
        writer = ShardWriter(vocab, preparation.prompt)
        write_pair_tokens([*plans, *held], functools.partial(engine.write_shards, writer))
        if options.model:
            check_unknown(options, [plan.summary() for plan in plans])
        vectors = self._teach(plans, held, writer, functools.partial(sample, _AXES_SENTENCES))
        pairs = {plan.pair: plan.stage.key for plan in plans}
        manifest = {
            "format_version": FORMAT_VERSION,
            "fingerprint": fingerprint({**pairs, TEACHER: vectors} if vectors else pairs),
            "languages": preparation.languages,
            "pairs": pairs,
            "vocab": {"fingerprint": vocab.fingerprint, "size": vocab.size},
            "corpora": {spec: text.key for spec, text in texts.items()},
            "inputs": self._hashes.used,
            "held_out": {text.key: text.name for text in self._held_out},
            "settings": dataclasses.asdict(preparation),
            "versions": {"numpy": np.__version__, "sentencepiece": sentencepiece.__version__},
        }
        write_json(self._data / "counts.json", self._counts(texts, plans, held))
        write_record(self._data / "manifest.json", manifest)
        used = {self._data / "text" / text.key for text in texts.values()}
        self._remove_all_but(used | {plan.stage.directory for plan in (*plans, *held)})
        return load_prepared(self._workdir)

    def check_kept(self) -> None:
        """Refuses, before anything is written, to replace what checkpoints were made of."""
        manifest = read_json(self._data / "manifest.json") or {}
        if (before := recorded_options(manifest)) is None:
            return
        preparation = self._preparation
        keys = [self._text_stage(spec).key for spec in preparation.corpora]
        # In the order of the config; the manifest sorts them.
        made = [manifest.get("corpora", {}).get(spec) for spec in before["corpora"]]
        reasons = changed_options(before, plain_options(preparation))
        # The same text may be named by another path.
        decisive = ("cleaning.", "data.validation_pairs")
        if keys == made and not any(reason.startswith(decisive) for reason in reasons):
            key = vocab_key(vocab_facts(preparation, keys, given_vocab(preparation)))
            vocab = read_json(self._workdir / "vocab" / "vocab.json") or {}
            if vocab.get("stage", key) == key:
                return
        held_out = manifest.get("held_out", {})
        names = {text.key: text.name for text in self._held_out}
        if held_out.keys() != names.keys():
            reasons.append(
                f"the held-out text is now {sorted(names.values())}; to continue as it began, "
                "--config.data.hold_out_evaluation=False "
                f'--config.data.exclude="{tuple(sorted({*held_out.values()}))}"'
            )
        changed = [spec for spec, key in zip(preparation.corpora, keys) if key not in made]
        what = f"the text of {', '.join(changed)}" if changed else "the vocabulary"
        raise ValueError(
            f"{self._workdir}: its checkpoints were trained on other data: "
            f"{'; '.join(reasons) or f'{what} has changed'}; choose another --workdir or restore it"
        )

    def _clean(self) -> dict[str, PairText]:
        """Cleans each corpus that is not cleaned yet; spec -> text."""
        stages = {spec: self._text_stage(spec) for spec in self._preparation.corpora}
        missing = [spec for spec, stage in stages.items() if stage.read() is None]
        if missing:
            hashes = {number: text.key for text in self._held_out for number in text.read()}
            pairs = [tuple(pair.split("-")) for pair in self._preparation.pairs]
            cleaner = ChunkCleaner(RowCleaner(self._preparation.cleaning, pairs, hashes))
            work = [(self._readers[spec], stages[spec]) for spec in missing]
            self._engine.clean(work, self._preparation.codes, cleaner)
        texts = {spec: PairText(stage) for spec, stage in stages.items()}
        for spec, text in texts.items():
            text.check_broken(spec, self._preparation.max_broken_share)
        for spec in missing:
            for pair, counts in texts[spec].counts.items():
                reasons = ", ".join(f"{counts[r]} {r}" for r in REASONS if counts.get(r))
                _logger.info(
                    "%s: %s: kept %d of %d rows%s",
                    *(spec, pair, counts["kept"], counts["read"], reasons and f" ({reasons})"),
                )
        return texts

    def _text_stage(self, spec: str) -> Stage:
        paths = self._files[spec]
        files = list(zip(names_below(paths), self._hashes.of(paths)))
        key = text_key(self._preparation, spec, self._readers[spec], files, self._held_out)
        return Stage(self._data / "text" / key, key, "text.json")

    def _sample(
        self, rows: RowChoice, sentences: int, languages: Sequence[str] = ()
    ) -> Iterator[str]:
        """Yields the sides of rows drawn with the seed, about so many; of `languages`, if any."""
        languages = languages or self._preparation.codes
        drawn = rows.sample(sentences, languages)
        drawn = self._engine.map(functools.partial(_sides, languages), drawn)
        drawn = (text for chunk in drawn for text in chunk)
        return track(drawn, "sample text for the vocabulary", unit="sentence")

    def _plan(
        self, texts: Mapping[str, PairText], vocab: Vocabulary, rows: RowChoice, is_held: bool
    ) -> list[PairPlan]:
        """The tokens of the pairs, to train on or held out."""
        preparation, plans = self._preparation, []
        for pair in preparation.pairs if preparation.validation_pairs or not is_held else ():
            keys = [text.key for text in texts.values() if text.num_rows.get(pair)]
            key = pair_key(preparation, keys, vocab.fingerprint)
            directory = self._data / VALIDATION if is_held else self._data
            plans.append(PairPlan(Stage(directory / pair, key, "pair.json"), texts, rows, is_held))
        return plans

    def _teach(
        self,
        plans: Sequence[PairPlan],
        held: Sequence[PairPlan],
        writer: ShardWriter,
        sample: Callable[[], Iterable[str]],
    ) -> str:
        """Computes the vectors of a teacher for all rows; returns their fingerprint or ""."""
        options, groups = self._preparation.teacher, {self._data: plans}
        if held:
            groups[self._data / VALIDATION] = held
        if not options:
            for directory in (self._data, self._data / VALIDATION):
                shutil.rmtree(directory / TEACHER, ignore_errors=True)
            return ""
        teacher = self._open_teacher(*map(local_name, (options["model"], options["texts"])))
        languages, width = options["languages"], options["width"]
        return write_row_vectors(groups, languages, teacher, width, writer, sample)

    def _counts(
        self, texts: Mapping[str, PairText], plans: Sequence[PairPlan], held: Sequence[PairPlan]
    ) -> dict[str, Any]:
        """The content of `counts.json`."""
        summaries = {plan.pair: plan.summary() for plan in plans}
        sizes = lambda group: {
            plan.pair: {name: plan.summary()[name] for name in ("rows", "tokens")} for plan in group
        }
        none = {"duplicate": 0, "no_tokens": 0, "rows": 0}
        corpora = {
            spec: {
                pair: {**cleaned, **summaries[pair]["corpora"].get(spec, none)}
                for pair, cleaned in text.counts.items()
            }
            for spec, text in texts.items()
        }
        names = {text.key: text.name for text in self._held_out}
        held_out = {name: dict.fromkeys(self._preparation.pairs, 0) for name in names.values()}
        for text in texts.values():
            for pair, by in text.held_out_by.items():
                for key, count in by.items():
                    held_out[names[key]][pair] += count
        counts = {"corpora": corpora, "pairs": sizes(plans)}
        counts |= {"validation": sizes(held)} if held else {}
        return counts | ({"held_out": held_out} if held_out else {})

    def _remove_all_but(self, used: set[Path]) -> None:
        """Removes the stages that this config does not use."""
        made = [
            *(self._data / "text").iterdir(),
            *(path.parent for path in self._data.glob("*/pair.json")),
            *(path.parent for path in self._data.glob(f"{VALIDATION}/*/pair.json")),
        ]
        for path in (*self._data.rglob(".*.partial"), *made):
            if path not in used:
                shutil.rmtree(path, ignore_errors=True)
