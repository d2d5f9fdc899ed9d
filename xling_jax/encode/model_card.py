"""The README of a model directory: the encoder, its training, and measured results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xling_jax.text.vocabularies import Vocabulary

if TYPE_CHECKING:
    from xling_jax.align.precision import Calibration

_LOWERCASE = {True: "yes", False: "no", None: "as its tokenizer does"}
# Margins in the card; `config.json` has all.
_SCORES = {"ratio": "margin", "absolute": "cosine"}


def model_card(
    config: Mapping[str, Any],
    *,
    num_params: int,
    vocab: Vocabulary,
    results: Mapping[str, float] | None = None,
) -> str:
    """Returns a model's README in Markdown.

    Args:
        config: the model's `config.json`.
        num_params: number of encoder parameters.
        vocab: its vocabulary.
        results: measured values, `eval_name/metric` to number.
    """
    languages = f" ({', '.join(config['languages'])})" if config["languages"] else ""
    lines = [
        f"# {config['family']} sentence encoder{languages}",
        "",
        f"Turns a sentence in any of its languages into a vector of {config['dim']} floats; "
        "translations get close vectors.",
        "",
        "    import xling_jax",
        '    encoder = xling_jax.load("PATH/OF/THIS/DIRECTORY")',
        '    vectors = encoder.encode(["A sentence.", "Another one."])',
        "",
        "| | |",
        "|---|---|",
        f"| parameters | {num_params:,} |",
        f"| vocabulary | {vocab.size:,} pieces |",
        f"| longest input | {config['max_length_tokens']} tokens, longer ones are cut |",
        f"| lower-cased input | {_LOWERCASE[vocab.lowercase]} |",
        f"| fingerprint | `{config['fingerprint'][:16]}` |",
        f"| made with | {', '.join(f'{k} {v}' for k, v in config['versions'].items())} |",
        "",
        "## Training",
        "",
    ]
    rows = [f"| {key} | {_cell(value)} |" for key, value in config["training"].items()]
    lines += ["| | |", "|---|---|", *rows] if rows else ["Not recorded."]
    lines += ["", "## Measured results", ""]
    rows = [f"| {name} | {value:.4g} |" for name, value in (results or {}).items()]
    lines += (
        ["| measure | value |", "|---|---:|", *rows]
        if rows
        else ["None recorded. `xling evaluate` measures this encoder."]
    )
    return "\n".join(lines) + "\n"


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
