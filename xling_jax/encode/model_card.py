"""The README of a model directory: the encoder, its training, and measured results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xling_jax.text.vocabularies import Vocabulary

if TYPE_CHECKING:
    from xling_jax.align.precision import Calibration

_LOWERCASE = {True: "yes", False: "no", None: "as its tokenizer does"}
_TAGS = ("sentence-similarity", "feature-extraction")
_CROSS_LINGUAL_TAGS = ("cross-lingual", "bitext-mining")
# Margins in the card; `config.json` has all.
_SCORES = {"ratio": "margin", "absolute": "cosine"}
# Keys of a card's header, and of the record of a model that came from elsewhere.
LICENSE = ("license", "license_name", "license_link")

_CARD = """\
{header}
# {name}

{promise}

```python
import xling_jax

encoder = xling_jax.load("PATH/OF/THIS/DIRECTORY")
vectors = encoder.encode(["A sentence.", "Another one."])
```

## Model

| | |
|---|---|
| parameters | {params} |
| dimensions | {dim} |
| vocabulary | {pieces} pieces |
| longest input | {tokens} tokens, longer ones are truncated |
| lower-cased input | {lowercase} |
| fingerprint | `{fingerprint}` |
| made with | {versions} |

## Training data and objective

{training}

## Measured results

{results}

## Elsewhere

`xling export --to FORMAT` writes this model for onnxruntime, sentence-transformers and others.
"""


def encoder_name(config: Mapping[str, Any]) -> str:
    """The name of an encoder, such as "static sentence encoder (de, en)"."""
    languages = f" ({', '.join(config['languages'])})" if config["languages"] else ""
    return f"{config['family']} sentence encoder{languages}"


def _is_cross_lingual(config: Mapping[str, Any]) -> bool:
    return len(config["languages"]) > 1


def promise(config: Mapping[str, Any], dim: int) -> str:
    """What an encoder does, in a sentence."""
    if _is_cross_lingual(config):
        return (
            f"Turns a sentence in any of its languages into a vector of {dim} floats; "
            "translations get close vectors."
        )
    return f"Turns a sentence into a vector of {dim} floats; similar sentences get close vectors."


def model_card(
    config: Mapping[str, Any],
    num_params: int,
    size_mb: float,
    vocab: Vocabulary,
    results: Mapping[str, float] | None,
) -> str:
    """Returns a model's README in Markdown, with a YAML header for the Hugging Face hub.

    `size_mb` is in 10**6 bytes; `results` map `eval_name/metric` to numbers.
    """
    name = encoder_name(config)
    training = [f"| {key} | {_cell(value)} |" for key, value in _training(config["training"])]
    measured = [f"| {key} | {value:.4g} |" for key, value in (results or {}).items()]
    return _CARD.format(
        header=card_header(config, library="xling_jax"),
        name=name,
        promise=promise(config, config.get("truncate_dim", config["dim"])),
        dim=config.get("truncate_dim", config["dim"]),
        params=f"{num_params:,}, {size_mb:,.1f} MB",
        pieces=f"{vocab.size:,}",
        tokens=config["max_length_tokens"],
        lowercase=_LOWERCASE[vocab.lowercase],
        fingerprint=config["fingerprint"][:16],
        versions=", ".join(f"{key} {value}" for key, value in config["versions"].items()),
        training="\n".join(["| | |", "|---|---|", *training] if training else ["Not recorded."]),
        results="\n".join(
            ["| measure | value |", "|---|---:|", *measured]
            if measured
            else ["None recorded. `xling evaluate` measures this encoder."]
        ),
    )


def export_card(
    config: Mapping[str, Any], library: str, script: str, rows: Mapping[str, Any] = {}
) -> str:
    """Returns the README of an export, which runs as a script of Python shows; `rows` are facts."""
    header = card_header(config, library=library, tags=[library])
    rows = {
        **rows,
        "longest input": f"{config['max_length_tokens']} tokens, longer ones are truncated",
        "exported from": f"fingerprint `{config['fingerprint'][:16]}`",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    parts = [
        f"{header}\n# {encoder_name(config)}, for {library}",
        promise(config, config.get("truncate_dim", config["dim"])),
        f"```python\n{script}```",
        f"| | |\n|---|---|\n{table}\n",
    ]
    return "\n\n".join(parts)


def card_header(config: Mapping[str, Any], *, library: str, tags: Sequence[str] = ()) -> str:
    """Returns the YAML header of a model card, as the Hugging Face hub reads it.

    The license is that of the published model that this one came from, if its card said one;
    others are for whoever publishes the model to say.
    """
    cross_lingual = _CROSS_LINGUAL_TAGS if _is_cross_lingual(config) else ()
    header: dict[str, Any] = {
        "library_name": library,
        "pipeline_tag": "sentence-similarity",
        "tags": [*_TAGS, *cross_lingual, config["family"], *tags],
    }
    training = config.get("training") or {}
    header |= {key: training[key] for key in LICENSE if key in training}
    if "/" in str(training.get("source", "")):  # of the hub
        header["base_model"] = training["source"]
    # Codes of two or three letters; the hub refuses others.
    if languages := [code for code in config["languages"] if re.fullmatch("[a-z]{2,3}", code)]:
        header["language"] = languages
    import yaml

    return f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---\n"


def _training(training: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Rows of the card; `config.json` has all settings of the objective."""
    for key, value in training.items():
        if key == "objective" and isinstance(value, Mapping):
            terms = {name: part for name, part in value.items() if isinstance(part, Mapping)}
            weights = {name: part.get("weight", 1) for name, part in terms.items()}
            yield key, ", ".join(f"{name} (weight {weight:g})" for name, weight in weights.items())
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield key, ", ".join(map(str, value))
        else:
            yield key, value


def with_scores_section(card: str, calibration: Calibration) -> str:
    """Returns a model card with `scores_section` at its end, in place of an earlier one."""
    card = re.sub(r"^## What scores mean\n.*?(?=^## |\Z)", "", card, flags=re.DOTALL | re.MULTILINE)
    return f"{card.rstrip()}\n\n{scores_section(calibration)}\n".lstrip()


def scores_section(calibration: Calibration) -> str:
    """Returns in Markdown what the scores of mined pairs mean."""
    texts = [f"{one['name']} ({one['num_rows']:,} rows)" for one in calibration.data]
    lines = [
        "## What scores mean",
        "",
        f"Measured on {', '.join(texts)}, languages {', '.join(calibration.languages)}: each pair "
        "of languages as two shuffled texts, in which half of the sentences (last column: a tenth) "
        "have their translation on the other side, mined one to one with neighborhoods of "
        f"{calibration.k}.",
    ]
    for margin, name in _SCORES.items():
        lines += [
            "",
            f"| {name} above | translations among the pairs | translations found | "
            "translations among the pairs, if a tenth have one |",
            "|---:|---:|---:|---:|",
        ]
        for row in calibration.thresholds.get(margin, ()):
            shares = (row.precision, row.recall, row.precision_at_tenth)
            lines.append(f"| {row.score:.2f} | {' | '.join(f'{s:.1%}' for s in shares)} |")
    lines += [
        "",
        "Other texts need other thresholds: higher ones where few sentences have a translation or "
        "many resemble each other. `xling mine --precision 0.95` finds the threshold for two texts "
        "from their own scores, and `encoder.calibration.precisions(pairs)` says how precise mined "
        "pairs are.",
    ]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
