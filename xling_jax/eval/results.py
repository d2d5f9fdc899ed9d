"""Results of a task as files: `results.json` for programs, `results.md` for people."""

import contextlib
import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.files.whole import write_whole
from xling_jax.version import __version__

_PACKAGES = ("numpy", "scikit-learn", "jax", "jaxlib", "flax", "sentencepiece", "tokenizers")


@dataclass(frozen=True)
class Heatmap:
    """A matrix of shares to draw: `values` [rows, columns] in [0, 1], NaN cells empty.

    The name is that of the file, without suffix; `axes` says what the rows and columns are.
    """

    name: str
    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    title: str
    axes: tuple[str, str] = ("from", "to")


@dataclass(frozen=True)
class Projection:
    """Embeddings of translations to draw in the plane, [n, dim] by language, row i one meaning.

    The name begins those of the files.
    """

    name: str
    embeddings: Mapping[str, np.ndarray]
    title: str


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that a result can depend on."""
    found = {"python": platform.python_version(), "xling_jax": __version__}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def write_results(directory: Path, tables: Sequence[str], results: Mapping[str, Any]) -> str:
    """Writes results.md, whose text it returns, and last results.json; ValueError for NaN.

    Results hold everything needed to trust a number and to measure it again: the model's
    fingerprint, data hashes, seeds, settings, versions, and the command.
    """
    text = "\n".join(tables)
    content = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(directory / "results.md", text.encode())
    write_whole(directory / "results.json", content.encode())
    return text


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table, padded so that it also reads as plain text.

    The first column is left-aligned, the others right-aligned.
    """
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells)]

    def line(row: Sequence[str]) -> str:
        others = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
        return f"| {' | '.join([row[0].ljust(widths[0]), *others])} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(cells[0]), line(rule), *map(line, cells[1:])])


def percent(value: float, spread: float = math.nan, *, decimals: int = 1) -> str:
    """A share as a percentage, with its standard deviation if that is known; empty for NaN."""
    if np.isnan(value):
        return ""
    text = f"{100 * value:.{decimals}f}"
    return text if np.isnan(spread) else f"{text} ± {100 * spread:.{decimals}f}"


def known(values: Mapping[str, float]) -> dict[str, float]:
    """Those that are not NaN."""
    return {name: value for name, value in values.items() if not np.isnan(value)}
