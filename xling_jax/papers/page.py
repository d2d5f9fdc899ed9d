"""Ours beside theirs as Markdown, JSON and one self-contained HTML page."""

import base64
import importlib.resources
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from xling_jax.files.whole import json_text, write_whole
from xling_jax.papers.tables import Cells, Key, Measured, Pair, Table, compare, published
from xling_jax.version import __version__

# Points at which the color of a difference saturates.
_FULL = 30.0
_BAR = r"\|"  # within a cell of Markdown
_BETTER, _WORSE = "0, 114, 178", "213, 94, 0"  # Okabe and Ito's blue and vermilion


class Cell(NamedTuple):
    """A cell of the page: where it stands, what of, both values, also as text, and CSS."""

    line: str
    column: str
    key: Key
    pair: Pair
    deviation: float | None
    ours: str
    theirs: str
    style: str


def _number(value: float | str | None, plain: bool) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    return f"{value:,.0f}" if plain and (value == int(value) or value >= 1000) else f"{value:.1f}"


def _cell(place: tuple[str, str], key: Key, pair: Pair, plain: bool, values: list[float]) -> Cell:
    """A cell; `values` are ours of each seed, whose deviation is shown if there are several."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    spread = f" ± {deviation:.1f}" if deviation is not None else ""
    style = ""
    if not plain and all(isinstance(value, float) for value in pair[:2]):
        share = min(abs(pair.ours - pair.theirs) / _FULL, 1) * 0.6
        style = f"background: rgba({_BETTER if pair.ours >= pair.theirs else _WORSE}, {share:.2f})"
    shown = f"{_number(pair.ours, plain)}{spread}", _number(pair.theirs, plain)
    return Cell(*place, key, pair, deviation, *shown, style)


@dataclass(frozen=True)
class Result:
    """A table such as "yu-2", measured at a scale.

    `measured` is row -> what was measured with each seed.
    """

    name: str
    table: Table
    scale: str
    measured: Mapping[str, Sequence[Measured]]

    def systems(self) -> Iterator[tuple[str, Sequence[Measured], Cells]]:
        """Label, our measurements and published cells: published systems first, then ours."""
        theirs = published(self.name)
        compared = {row.name: row.beside or row.name for row in self.table.rows}
        for system, cells in theirs.items():
            ours = [name for name, other in compared.items() if other == system]
            for name in ours or [None]:
                label = system if name in (None, system) else f"{name} / {system}"
                yield label, self.measured[name] if name else (), cells
        for name, other in compared.items():
            if other not in theirs:
                yield name, self.measured[name], {}

    def cells(self) -> Iterator[Cell]:
        """Every cell that the paper prints, means included; of a table without any, all of ours."""
        theirs = [key for cells in published(self.name).values() for key in cells]
        ours = [key for seeds in self.measured.values() for one in seeds for key in one.cells]
        own = [key for key in ours if not theirs or key.measure in self.table.plain]
        keys = [*filter(self._is_shown, dict.fromkeys([*theirs, *own, *self.table.means]))]
        for label, seeds, theirs in self.systems():
            for key in keys:
                found = [compare(one.cells, theirs, key) for one in seeds]
                values = [one.ours for one in found if isinstance(one.ours, (int, float))]
                pair = found[0] if found else compare({}, theirs, key)
                if values:
                    mean = statistics.fmean(values) if len(values) > 1 else values[0]
                    pair = pair._replace(ours=mean)
                if pair[:2] != (None, None):
                    plain = key.measure in self.table.plain
                    yield _cell(self._place(label, key), key, pair, plain, values)

    def _is_shown(self, key: Key) -> bool:
        """Of a table of means only, those; of one of directions, none within a language."""
        if self.table.means_only:
            return bool(key.mean) or key.measure in self.table.plain
        return self.table.matrix or bool(key.mean) or key.source != key.target or not key.source

    def _place(self, label: str, key: Key) -> tuple[str, str]:
        """Line and column."""
        over = key.mean if key.target in ("*", "") and key.mean else key.target
        if self.table.matrix:
            source = "mean" if key.source == "*" else key.source
            return f"{label} | {source}".removesuffix(" | "), over or key.measure
        direction = f"{key.source}→{over}" if key.source not in ("", "*") else over
        single = len({k.measure for cells in published(self.name).values() for k in cells}) == 1
        return label, direction if single and direction else f"{key.measure} {direction}".strip()

    def grid(self) -> tuple[list[str], dict[str, dict[str, Cell]]]:
        """Columns, and the cells of each line by column; turned if that is narrower."""
        cells = [*self.cells()]
        lines, columns = (dict.fromkeys(cell[at] for cell in cells) for at in (0, 1))
        if len(columns) > len(lines) and not self.table.matrix:
            cells = [c._replace(line=c.column, column=c.line) for c in cells]
            lines, columns = columns, lines
        rows: dict[str, dict[str, Cell]] = {line: {} for line in lines}
        for cell in cells:
            rows[cell.line][cell.column] = cell
        return [*columns], rows

    def pictures(self) -> list[tuple[str, str]]:
        """Names and contents, in Base64, of the pictures of the first seed."""
        files = (file for seeds in self.measured.values() for file in seeds[0].pictures)
        return [(f.stem, base64.b64encode(f.read_bytes()).decode()) for f in files if f.exists()]

    def notes(self) -> list[str]:
        """What the table says below: data, means over fewer cells than printed, and why dashes."""
        first = {name: seeds[0] for name, seeds in self.measured.items()}
        facts = dict.fromkeys(fact for measured in first.values() for fact in measured.facts)
        noted: dict[str, list[str]] = {"data": [*facts]} if facts else {}
        for name, measured in first.items():
            for file in measured.missing:
                noted.setdefault(f"not measured without {file}", []).append(name)
        for cell in self.cells():
            if cell.pair.note:
                note, *more = cell.pair.note.split(", ")
                place = f"{cell.line} {cell.column}{''.join(f' ({one})' for one in more)}"
                noted.setdefault(note, []).append(place)
        return [f"{n[0].upper()}{n[1:]}: {'; '.join(at)}." for n, at in noted.items()]


def markdown(result: Result) -> str:
    """The table as Markdown: each cell is ours / theirs."""
    columns, rows = result.grid()
    how = "Cells: ours / published." if columns else "Its pictures are in the HTML page."
    scale = "smoke: our measurements are meaningless" if result.scale == "smoke" else result.scale
    about = f"Scale {scale}. {result.table.selection.strip()} {how}"
    lines = [f"## {result.name}: {result.table.title}", "", about, ""]
    if columns:
        lines += [f"| | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for line, cells in rows.items():
        shown = [f"{cells[c].ours} / {cells[c].theirs}" if c in cells else "" for c in columns]
        lines.append(f"| {' | '.join(part.replace('|', _BAR) for part in (line, *shown))} |")
    return "\n".join([*lines, "", *result.notes()]) + "\n"


def as_json(result: Result) -> dict[str, Any]:
    """The table as plain values."""
    cells = [
        cell.key._asdict()
        | {"line": cell.line, "column": cell.column, "ours": cell.pair.ours}
        | {"published": cell.pair.theirs, "deviation": cell.deviation, "note": cell.pair.note}
        for cell in result.cells()
    ]
    about = {"table": result.name, "title": result.table.title, "scale": result.scale}
    about |= {"selection": result.table.selection, "notes": result.notes()}
    return about | {"version": __version__, "cells": cells}


def page(results: Sequence[Result], title: str) -> str:
    """The tables as one HTML page without references to other files."""
    style = importlib.resources.files("xling_jax.report").joinpath("report.css").read_text("utf-8")
    template = importlib.resources.files("xling_jax.papers").joinpath("page.html.jinja")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    render = environment.from_string(template.read_text("utf-8")).render
    return render(results=results, title=title, style=style, full=_FULL, version=__version__)


def write(directory: Path, name: str, results: Sequence[Result]) -> str:
    """Writes NAME.md, NAME.json and NAME.html; returns the Markdown."""
    directory.mkdir(parents=True, exist_ok=True)
    text = "\n".join(map(markdown, results))
    write_whole(directory / f"{name}.md", text)
    write_whole(directory / f"{name}.json", json_text([as_json(result) for result in results]))
    write_whole(directory / f"{name}.html", page(results, f"{name}: ours beside the published"))
    return text
