"""The README of a model directory: the encoder, its training, and measured results."""

import json
from collections.abc import Mapping
from typing import Any

from xling_jax.text.vocabularies import Vocabulary

_LOWERCASE = {True: "yes", False: "no", None: "as its tokenizer does"}


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


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
