"""Stages of preparation: a directory each, made once from what it is made from; and all of them.

A stage is done if its record, a JSON file in its directory that is written last, holds the stage's
key: the fingerprint of everything that its content depends on. Equal keys mean equal bytes. Options
that a version added count only where they are not as by default, so that what was made before keeps
its key. The manifest of a workdir, written when all stages are done, says what they were made with.
"""

import dataclasses
import glob
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_jax.corpora.held_out import HeldOutText
from xling_jax.corpora.options import Preparation
from xling_jax.corpora.readers.base import Reader
from xling_jax.files.hashes import fingerprint
from xling_jax.files.whole import (
    naming_errors,
    read_json,
    remove_temporary,
    rename_directory,
    whole_directory,
    write_record,
)
from xling_jax.text.vocabularies import Vocabulary

# Part of every key: raise it when files or rules change their meaning.
FORMAT_VERSION = 1
TEXT_FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Stage:
    """A directory that is whole or missing.

    Args:
        directory: where it is when it is done.
        key: fingerprint of what it is made from.
        record: name of the JSON file that says what it is, its key among the rest.
        key_name: of the key in the record; a directory that is named by its key needs none.
    """

    directory: Path
    key: str
    record: str
    key_name: str = "fingerprint"

    def read(self) -> dict[str, Any] | None:
        """The record; None if the stage is not done."""
        record = read_json(self.directory / self.record)
        is_done = record and self.key in (record.get(self.key_name), self.directory.name)
        return record if is_done else None

    def make(self, fill: Callable[[Path], Mapping[str, Any]]) -> None:
        """Makes the stage unless it is done: `fill` writes a directory and returns the record."""
        if self.read() is None:
            with whole_directory(self.directory) as temporary, naming_errors(self.directory):
                write_record(temporary / self.record, {self.key_name: self.key, **fill(temporary)})

    @property
    def unfinished(self) -> Path:
        """The hidden directory of a stage that is made in steps; an interruption leaves it."""
        return self.directory.with_name(f".{self.directory.name}.{self.key}.partial")

    def begin(self) -> Path:
        """Makes the hidden directory, and removes those of the same stage with other keys.

        What has been finished with this key is opened again.
        """
        siblings = f".{glob.escape(self.directory.name)}.*.partial"
        for path in self.directory.parent.glob(siblings):
            if path != self.unfinished:
                shutil.rmtree(path, ignore_errors=True)
        if self.read():
            rename_directory(self.directory, self.unfinished)
        self.unfinished.mkdir(parents=True, exist_ok=True)
        return self.unfinished

    def finish(self, record: Mapping[str, Any]) -> None:
        """Writes the record and gives the hidden directory its name."""
        write_record(self.unfinished / self.record, {self.key_name: self.key, **record})
        remove_temporary(self.unfinished)
        rename_directory(self.unfinished, self.directory)


def text_key(
    preparation: Preparation,
    spec: str,
    reader: Reader,
    files: Sequence[tuple[str, str]],
    held_out: Sequence[HeldOutText],
) -> str:
    """The key of the cleaned text of a corpus."""
    # With options that are gone: a text of a version before keeps its key.
    rules = {"min_words": 1, "alphabets": {}} | dataclasses.asdict(preparation.cleaning)
    del rules["drop_duplicates"]  # the text does not depend on it
    # Files of `data.exclude` count as often as they are named, others once and if not among them.
    excluded = [text.key for text in held_out if text.excluded]
    others = {text.key for text in held_out} - {*excluded}
    corpus = [reader.kind, spec.partition("?")[2], list(files)] if files else [spec]
    if files and reader.limit:
        corpus.append(reader.limit)
    return fingerprint(
        {
            "format": [FORMAT_VERSION, TEXT_FORMAT_VERSION],
            "pairs": preparation.pairs,
            "cleaning": rules,
            "exclude": sorted([*excluded, *others]),
            "corpus": corpus,
        }
    )


def vocab_facts(
    preparation: Preparation, text_keys: Sequence[str], given: Vocabulary | None
) -> dict[str, Any]:
    """Facts that a vocabulary depends on, given or trained on text; a part of `vocab.json`."""
    vocab = preparation.vocab
    moses = {"moses": True} if vocab.moses else {}
    facts = {"layout": preparation.layout, "lowercase": vocab.lowercase, **moses}
    if given:
        facts |= {"model": given.fingerprint}
        if not vocab.extend:
            return facts
    options = dataclasses.asdict(vocab)
    del options["moses"], options["max_unknown_share"]
    if given:
        del options["model"], options["size"], options["model_type"]
    else:
        del options["extend"], options["extend_languages"]
    facts |= {"settings": options, "text": list(text_keys), "seed": preparation.seed}
    return facts | _which_rows(preparation)


def vocab_key(facts: Mapping[str, Any]) -> str:
    """The key of a vocabulary made from `vocab_facts`."""
    return fingerprint({"format": FORMAT_VERSION, **facts})


def pair_key(preparation: Preparation, text_keys: Sequence[str], vocab: str) -> str:
    """The key of the tokens of a pair."""
    return fingerprint(
        {
            "format": FORMAT_VERSION,
            "text": list(text_keys),
            "vocab": vocab,
            "max_tokens": 0,  # a limit of 0.3
            **({"prompt": preparation.prompt} if preparation.prompt else {}),
            **_which_rows(preparation),
        }
    )


def _which_rows(preparation: Preparation) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if not preparation.cleaning.drop_duplicates:
        facts["duplicates"] = "kept"
    if preparation.validation_pairs:
        facts["validation_pairs"] = preparation.validation_pairs
    return facts


@dataclasses.dataclass(frozen=True)
class PreparedData:
    """Where prepared data is, and what it is.

    `directory` holds `a-b/` for each of the `pairs`, codes in alphabetical order, as
    `shards.PairTokens` reads them. Equal fingerprints mean the same rows in the same order.
    """

    directory: Path
    pairs: tuple[str, ...]
    fingerprint: str
    counts: dict


def load_prepared(
    workdir: str | os.PathLike[str], preparation: Preparation | None = None
) -> PreparedData:
    """Returns what `prepare` finished in a workdir."""
    directory = Path(workdir) / "data"
    manifest, counts = (read_json(directory / f"{n}.json") for n in ("manifest", "counts"))
    if manifest is None or counts is None:
        raise ValueError(f"{directory}: no finished data, or damaged; run `xling prepare`")
    pairs, fingerprint = manifest.get("pairs"), manifest.get("fingerprint")
    if not isinstance(pairs, dict) or not isinstance(fingerprint, str):
        raise ValueError(f"{directory / 'manifest.json'}: damaged; run `xling prepare` again")
    if preparation and not is_made_with(manifest, preparation):
        raise ValueError(
            f"{directory}: prepared with another config; start all processes with the same "
            "arguments"
        )
    return PreparedData(
        directory=directory,
        pairs=tuple(pairs),
        fingerprint=fingerprint,
        counts=counts,
    )


def is_made_with(manifest: Mapping[str, Any], preparation: Preparation) -> bool:
    """Returns whether a `manifest.json` is of data of this preparation and version."""
    return recorded_options(manifest) == plain_options(preparation)


def plain_options(preparation: Preparation) -> dict[str, Any]:
    """The options as JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(preparation)))


def recorded_options(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options in a `manifest.json`; None if another version wrote it.

    Options that a version did not have yet were as by default; those that are gone are left out.
    """
    made = manifest.get("settings")
    if manifest.get("format_version") != FORMAT_VERSION or not isinstance(made, dict):
        return None
    found = {}
    for field in dataclasses.fields(Preparation):
        default = {} if field.default is dataclasses.MISSING else field.default
        value = made.get(field.name, default)
        if dataclasses.is_dataclass(default):
            known = dataclasses.asdict(default)
            if not isinstance(value, dict):
                return None
            value = {name: value.get(name, known[name]) for name in known}
        found[field.name] = value
    return json.loads(json.dumps(found))


def changed_options(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What has changed of the options of text and vocabulary, by their names in a config."""
    named = lambda options: (
        {f"cleaning.{name}": value for name, value in options["cleaning"].items()}
        | {f"data.{name}": options[name] for name in ("corpora", "pairs", "validation_pairs")}
        | {f"vocab.{name}": value for name, value in options["vocab"].items()}
        | {"seed": options["seed"]}
    )
    old = named(before)
    return [f"{k} was {old[k]!r}, now {new!r}" for k, new in named(now).items() if old[k] != new]
