"""Results on disk and as tables: what was measured, on what, with what.

`results.json` is for programs and repeats everything needed to trust a number: the model's
fingerprint, the data's hash, the settings and the versions. `results.md` is for people.
"""

import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.eval.retrieval import RetrievalMatrix
from xling_jax.files.whole import write_whole

_PACKAGES = ("xling_jax", "numpy", "scikit-learn", "jax", "jaxlib", "flax", "sentencepiece")
_PACKAGES += ("sentencex", "tokenizers")
# A matrix with fewer of its cells measured reads better as a list of pairs.
_MIN_FILLED = 0.5
# In this order, those there are; other P@k follow.
_RETRIEVAL_TITLES = {"p_at_1": "P@1", "error": "error, cosine", "xsim": "xSIM"}


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that a result can depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write_results(path: str | Path, results: Mapping[str, Any]) -> None:
    """Writes results as JSON, whole or not at all.

    Args:
        path: the file; its directory exists.
        results: plain values; no number is NaN or infinite.

    Raises:
        ValueError: if a value is NaN or infinite, which is not JSON.
        OSError: if writing fails.
    """
    write_text(path, json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    write_whole(path, text)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table, padded so that it also reads as plain text.

    Args:
        header: names of the columns; the first is left-aligned, the others right-aligned.
        rows: cells, as many in each row as in the header.

    Returns:
        Lines joined by line ends, without a last one.
    """
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        )
        return "| " + " | ".join([first, *others]) + " |"

    rule = "| " + " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    return "\n".join([line(cells[0]), rule + " |", *map(line, cells[1:])])


def retrieval_table(name: str, matrix: RetrievalMatrix, similarity: str) -> str:
    """Returns the Markdown section of one retrieval data set: means, then every direction."""
    means = [
        [_metric_title(metric), _percent(matrix.mean(metric))]
        for metric in _ordered(matrix.metrics)
    ]
    count = len(matrix.directions())
    lines = [
        f"## {name}: retrieval by {similarity}, %",
        "",
        markdown_table([f"mean of {count} directions", "%"], means),
        "",
    ]
    size = len(matrix.languages)
    if count < _MIN_FILLED * size * (size - 1):
        lines.append(_pair_table(matrix))
    else:
        first = _ordered(matrix.metrics)[0]
        rows = [
            [f"**{code}**", *map(_percent, values), _percent(float(np.nanmean(values)))]
            if np.isfinite(values).any()
            else [f"**{code}**", *[""] * size, ""]
            for code, values in zip(matrix.languages, matrix.metrics[first])
        ]
        header = [f"{_metric_title(first)}, from \\ to", *matrix.languages, "mean"]
        lines.append(markdown_table(header, rows))
    return "\n".join(lines) + "\n"


def _pair_table(matrix: RetrievalMatrix) -> str:
    """One row a pair, for data of many bilingual files."""
    first = _ordered(matrix.metrics)[0]
    metrics = [first, *(metric for metric in ("error", "xsim") if metric in matrix.metrics)]
    rows = []
    measured = matrix.directions()
    for source, target in measured:
        back = (target, source) in measured
        if back and matrix.languages.index(source) > matrix.languages.index(target):
            continue
        cells = []
        for metric in metrics:
            cells.append(_percent(matrix.value(metric, source, target)))
            cells.append(_percent(matrix.value(metric, target, source)) if back else "")
        queries = matrix.languages.index(source), matrix.languages.index(target)
        rows.append([f"{source}-{target}", *cells, f"{matrix.num_queries[queries]}"])
    titles = [f"{_metric_title(metric)} {arrow}" for metric in metrics for arrow in ("→", "←")]
    return markdown_table(["pair", *titles, "rows"], rows)


def _ordered(metrics: Mapping[str, Any]) -> list[str]:
    """P@k by k, then the others in the order of their titles."""
    ranks = sorted((m for m in metrics if m.startswith("p_at_")), key=lambda m: int(m[5:]))
    return ranks + [
        metric for metric in _RETRIEVAL_TITLES if metric in metrics and metric not in ranks
    ]


def _metric_title(metric: str) -> str:
    return _RETRIEVAL_TITLES.get(metric, metric.replace("p_at_", "P@"))


def _percent(value: float) -> str:
    return "" if np.isnan(value) else f"{100 * value:.1f}"
