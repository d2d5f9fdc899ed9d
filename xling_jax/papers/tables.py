"""What a table of a paper is, its published cells, and means over cells, theirs and ours alike."""

import csv
import functools
import importlib.resources
import re
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

SCALES = ("smoke", "small", "base", "paper")


class Key(NamedTuple):
    """Names a cell of a system.

    Attributes:
        measure: what was measured, such as "accuracy".
        source: language of the labels or queries, "" if there is none; "*" in means for all.
        target: the language tested or searched, or the task or setting measured; "*" likewise.
        mean: "same" (one language), "cross" (two) or "all" for the mean of such cells; else "".
    """

    measure: str
    source: str = ""
    target: str = ""
    mean: str = ""


Cells = dict[Key, float | str]


@dataclass(frozen=True)
class Run:
    """A training: a packaged config `NAME[:ARGUMENT]`, without the size, and keys that it changes.

    Attributes:
        settings: config key -> value, at any scale, or a dict of those by scale; those of `paper`
            at `paper`.
        text: patterns of the training files in `parallel/`, at scales below `paper`; all files if
            none fits.
        share: of the rows of these files.
    """

    config: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    text: tuple[str, ...] = ("europarl*", "multi30k*", "news*", "tatoeba*")
    share: float = 1.0

    def changed(self, **settings: Any) -> "Run":
        """The run with other settings; "__" in names is "."."""
        named = {name.replace("__", "."): value for name, value in settings.items()}
        return replace(self, settings={**self.settings, **named})


@dataclass(frozen=True)
class Published:
    """A published encoder: its directory in `--encoders`, and options of `xling convert`.

    `stand_in` is trained in its place below the `paper` scale; None for nothing.
    """

    name: str
    convert: tuple[str, ...] = ()
    stand_in: Run | None = None


@dataclass(frozen=True)
class Part:
    """Measures some cells of a row, by a task of `cli.reproduce_tasks.TASKS`.

    Attributes:
        options: of `xling evaluate`, True where one takes no value; of the task "size", the names
            of what is measured.
        checkpoint: "" for the exported encoder; or of those that the run kept "dev" (best by
            `cross` on the dev split), "best" (on the test split), or "half" (half-way); or "oracle"
            for the exported encoder with classifiers selected on the tested language.
    """

    encoder: Run | Published
    task: str
    measure: str = "accuracy"
    languages: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str = ""


@dataclass(frozen=True)
class Row:
    """A system of ours; cells of later parts replace those of earlier ones.

    `beside` is the published system that it is compared with; None for that of its name.
    """

    name: str
    parts: tuple[Part, ...]
    beside: str | None = None


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Attributes:
        selection: how checkpoints and classifiers are chosen, and what else the cells depend on.
        matrix: there is a line for each source language.
        means_only: of the cells only means are shown, as the paper prints no others.
        plain: measures that are not percentages.
        means: shown beside those that the paper prints.
    """

    title: str
    rows: tuple[Row, ...]
    selection: str
    matrix: bool = False
    means_only: bool = False
    plain: tuple[str, ...] = ()
    means: tuple[Key, ...] = ()


@dataclass
class Measured:
    """Cells, pictures, facts about the data, and what data is missing."""

    cells: Cells = field(default_factory=dict)
    pictures: list[Path] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def update(self, other: "Measured") -> None:
        """Adds what another part has."""
        self.cells |= other.cells
        self.pictures += other.pictures
        self.facts += [fact for fact in other.facts if fact not in self.facts]
        self.missing += [name for name in other.missing if name not in self.missing]

    def add_matrix(self, measure: str, matrix: Mapping[str, Mapping[str, float | None]]) -> None:
        """Adds the shares of a matrix of results.json, source -> target, in percent."""
        for source, row in matrix.items():
            known = {target: 100 * value for target, value in row.items() if value is not None}
            self.cells |= {Key(measure, source, target): v for target, v in known.items()}


@functools.cache
def published(table: str) -> dict[str, Cells]:
    """The cells that the paper prints in a table, such as "yu-2", by system.

    A row of the file is of all tables that print it; "" is a cell left out that its means count.
    """
    text = importlib.resources.files("xling_jax.papers").joinpath("published.csv")
    found: dict[str, Cells] = {}
    for row in csv.DictReader(text.read_text("utf-8").splitlines()):
        if table in row.pop("table").split():
            system, value = row.pop("system"), row.pop("value")
            number = re.fullmatch(r"-?[\d.]+", value)
            found.setdefault(system, {})[Key(**row)] = float(value) if number else value
    return found


def cells_of(cells: Cells, mean: Key) -> Cells:
    """The cells that a mean is over: of its measure and its languages."""
    wanted = {"same": (True,), "cross": (False,), "all": (True, False)}[mean.mean]
    return {
        key: value
        for key, value in cells.items()
        if key.measure == mean.measure
        and not key.mean
        and mean.source in ("*", key.source)
        and mean.target in ("*", key.target)
        and (key.source == key.target) in wanted
    }


def mean_of(cells: Cells, keys: Collection[Key]) -> float | None:
    """The mean of some of the cells; None if there are none."""
    return statistics.fmean(cells[key] for key in keys) if keys else None


class Pair(NamedTuple):
    """Our value and theirs, None where there is none; `note` says what differs."""

    ours: float | str | None
    theirs: float | str | None
    note: str = ""


def compare(ours: Cells, theirs: Cells, key: Key) -> Pair:
    """A cell or mean of ours beside theirs; a mean is over the cells that both have, if any."""
    if not key.mean:
        return Pair(ours.get(key), theirs.get(key) or None)
    own, other, printed = cells_of(ours, key), cells_of(theirs, key), theirs.get(key)
    if not own:
        return Pair(None, printed)
    known = {cell for cell, value in other.items() if value != ""}
    if printed is not None and known < other.keys() <= own.keys():
        return Pair(mean_of(own, other), printed)
    common = own.keys() & known
    # What is printed as a mean counts only where none of its cells is known.
    own_mean = mean_of(own, common if known else own)
    pair = Pair(own_mean, mean_of(other, common) if other else printed)
    notes = []
    if known and (printed is None or len(common) < len(other)):
        notes.append(f"mean of the {len(common)} cells in common")
    if printed is not None and pair.theirs is not None:
        if abs(printed - pair.theirs) > 0.1 + 1e-6:
            notes.append(f"the paper prints {printed:g}")
        elif not notes:  # the same mean, of cells that are not rounded
            pair = pair._replace(theirs=printed)
    return pair._replace(note=", ".join(notes))
