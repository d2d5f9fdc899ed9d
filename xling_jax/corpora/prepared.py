"""Prepared data of a workdir, and whether they are what a preparation would make."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xling_jax.corpora.options import Preparation
from xling_jax.corpora.stages import FORMAT_VERSION
from xling_jax.files.whole import read_json


@dataclasses.dataclass(frozen=True)
class PreparedData:
    """Where prepared data is, and what it is.

    `directory` holds `a-b/` for each of the `pairs`, codes in alphabetical order, as
    `shards.PairTokens` reads them; `vocab_path` is missing for a vocabulary that is not a
    SentencePiece model. Equal fingerprints mean the same rows in the same order.
    """

    directory: Path
    pairs: tuple[str, ...]
    vocab_path: Path
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
        vocab_path=Path(workdir) / "vocab" / "sentencepiece.model",
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
