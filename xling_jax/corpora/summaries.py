"""What preparation reports: `pair.json`, `counts.json` and `manifest.json`."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sentencepiece

from xling_jax.corpora.held_out import HeldOutText
from xling_jax.corpora.identity import FORMAT_VERSION
from xling_jax.corpora.options import Preparation
from xling_jax.corpora.pair_text import TextCounts
from xling_jax.files.hashes import fingerprint


class CorpusRows(NamedTuple):
    """The cleaned rows of a corpus in one pair.

    Attributes:
        num_rows: all.
        num_kept: those that go into shards.
        num_aside: those taken out for the validation loss; None if that is not done.
    """

    num_rows: int
    num_kept: int
    num_aside: int | None


def pair_summary(
    pair: str, corpora: Mapping[str, CorpusRows], shards: Iterable[tuple[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    """The counts of a pair, from those of its shards.

    Args:
        pair: its name.
        corpora: spec -> its rows, in the order of the config.
        shards: corpus and counts of each shard.

    Raises:
        ValueError: if nothing is left.
    """
    tokens = dict.fromkeys(pair.split("-"), 0)
    counts = {}
    for name, (num_rows, num_kept, num_aside) in corpora.items():
        duplicates = num_rows - num_kept - (num_aside or 0)
        counts[name] = {"duplicate": duplicates, "too_many_tokens": 0, "rows": 0}
        if num_aside is not None:
            counts[name]["validation"] = num_aside
    for corpus, found in shards:
        for language, number in found["tokens"].items():
            tokens[language] += number
        for key in ("too_many_tokens", "rows"):
            counts[corpus][key] += found[key]
    num_rows = sum(found["rows"] for found in counts.values())
    if not num_rows:
        raise ValueError(
            f"data.pairs: nothing is left of {pair} after cleaning; relax the cleaning "
            "section, add a corpus that has the pair, or take it out of data.pairs"
        )
    names = [name for name, rows in corpora.items() if rows.num_rows]
    return {"rows": num_rows, "tokens": tokens, "corpora": counts, "names": names}


def renamed(summary: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A summary of the same text, whose corpora the config may have named otherwise.

    Args:
        summary: of `pair_summary`.
        names: of the corpora that have rows of the pair, in the order of the config.
    """
    old = summary.get("names", names)
    counts = {new: summary["corpora"][name] for name, new in zip(old, names, strict=True)}
    return {**summary, "corpora": counts}


def size_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What `counts.json` holds of a summary of `pair_summary`."""
    return {"rows": summary.get("rows"), "tokens": summary.get("tokens")}


def check_pairs(settings: Preparation, texts: Iterable[Mapping[str, int]]) -> None:
    """Raises ValueError for a pair that no corpus has; `texts` are pair -> rows."""
    texts = list(texts)
    for pair in settings.pairs:
        if not any(rows.get(pair) for rows in texts):
            raise ValueError(
                f"data.pairs: no corpus has rows of {pair} after cleaning; add a corpus, or "
                "take the pair out"
            )


def too_few_rows(settings: Preparation, pair: str, number: int) -> ValueError:
    """The error for a pair whose different rows would all be taken out for the validation loss."""
    return ValueError(
        f"data.validation_pairs={settings.validation_pairs} would leave none of the {number} "
        f"different rows of {pair} for training; set it lower, or name other text in "
        "data.validation_corpora"
    )


def num_held_out(
    settings: Preparation, held_out: Sequence[HeldOutText], texts: Iterable[TextCounts]
) -> dict[str, dict[str, int]]:
    """Rows left out of training by the file that they repeat a text of, and by pair."""
    names = {text.key: text.name for text in held_out}
    found = {name: dict.fromkeys(settings.pairs, 0) for name in names.values()}
    for text in texts:
        for pair, counts in text.held_out_by.items():
            for key, count in counts.items():
                found[names[key]][pair] += count
    return found


def all_counts(
    settings: Preparation,
    held_out: Sequence[HeldOutText],
    texts: Mapping[str, TextCounts],
    summaries: Mapping[str, Mapping[str, Any]],
    validation: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The content of `counts.json`.

    Args:
        settings: of preparation.
        held_out: what no training row may repeat.
        texts: spec -> counts of its cleaned text.
        summaries: pair -> `pair_summary`.
        validation: likewise, of pairs held out for the validation loss.
    """
    counts: dict[str, Any] = {"corpora": {}, "pairs": {}}
    none = {"duplicate": 0, "too_many_tokens": 0, "rows": 0}
    for spec, text in texts.items():
        counts["corpora"][spec] = {
            pair: {**cleaned, **summaries[pair]["corpora"].get(spec, none)}
            for pair, cleaned in text.counts.items()
        }
    counts["pairs"] = {pair: size_of(summary) for pair, summary in summaries.items()}
    if validation:
        counts["validation"] = {pair: size_of(summary) for pair, summary in validation.items()}
    if found := num_held_out(settings, held_out, texts.values()):
        counts["held_out"] = found
    return counts


def manifest(
    settings: Preparation,
    held_out: Sequence[HeldOutText],
    *,
    pairs: Mapping[str, str],
    more: Mapping[str, str],
    vocab: Mapping[str, Any],
    corpora: Mapping[str, str],
    inputs: Mapping[str, str],
) -> dict[str, Any]:
    """The content of `manifest.json`.

    Args:
        settings: of preparation.
        held_out: what no training row may repeat.
        pairs: pair -> fingerprint of its tokens.
        more: what was made besides tokens, with its fingerprint or "".
        vocab: `fingerprint` and `size`.
        corpora: spec -> fingerprint of its cleaned text.
        inputs: path -> hash of each file that was read.
    """
    content = {**pairs, **{name: made for name, made in more.items() if made}}
    return {
        "format_version": FORMAT_VERSION,
        "fingerprint": fingerprint(content),
        "languages": settings.languages,
        "pairs": dict(pairs),
        "vocab": {name: vocab[name] for name in ("fingerprint", "size")},
        "corpora": dict(corpora),
        "inputs": dict(inputs),
        "held_out": {text.key: text.name for text in held_out},
        "settings": dataclasses.asdict(settings),
        "versions": {"numpy": np.__version__, "sentencepiece": sentencepiece.__version__},
    }
