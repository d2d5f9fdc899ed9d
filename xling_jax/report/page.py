"""One self-contained HTML page from runs and results; needs no network and loads nothing.

This room puts the sections together. `report_data` reads what lies on disk, `report_vectors`
computes what needs embeddings, `report_charts` draws, `report_tables` compares.
"""

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xling_jax.report import tables as report_tables
from xling_jax.report.charts import escape, extent, heatmap, line_chart, scatter
from xling_jax.report.runs import Run
from xling_jax.report.vectors import Candidate, Projection, RetrievalError

__all__ = ["ErrorList", "VectorSection", "make_page"]

_TITLES = {
    "p_at_1": "P@1",
    "error": "error",
    "xsim": "xSIM",
    "accuracy": "embeddings",
    "bag_of_words": "bag of words",
    "chance": "commonest label",
}
_ERRORS = ("error", "xsim")
# A matrix with fewer of its cells measured, or more rows, reads better as a list of pairs.
_MIN_FILLED = 0.5
_MAX_ROWS = 30
_ERRORS_FIRST = 6  # Shown at first; the others are a click away.

# Ends of the names of metrics that are about speed.
_SPEED = ("per_second", "mfu", "padding_efficiency")


@dataclass(frozen=True)
class ErrorList:
    """Retrieval errors of one data set.

    Attributes:
        data: its name.
        errors: worst first.
        num_errors: how many there are in all.
        num_queries: of how many queries.
    """

    data: str
    errors: Sequence[RetrievalError]
    num_errors: int
    num_queries: int


@dataclass
class VectorSection:
    """What the vectors of one run show.

    Attributes:
        run: its name.
        projections: texts in the plane.
        errors: one list for each retrieval data set.
    """

    run: str
    projections: list[Projection] = field(default_factory=list)
    errors: list[ErrorList] = field(default_factory=list)


def make_page(
    runs: Sequence[Run], vectors: Sequence[VectorSection] = (), *, title: str, note: str = ""
) -> str:
    """Returns the report as one HTML page.

    Args:
        runs: as `report_data.load_runs` gives them; their order gives their colors.
        vectors: for runs whose encoder was at hand.
        title: of the page.
        note: a line below the title, such as when it was made.
    """
    sections = [
        ("runs", "Runs", report_tables.run_table(runs)),
        ("compare", "Side by side", report_tables.comparison(runs)),
        ("curves", "Training curves", _curves(runs)),
        ("retrieval", "Retrieval", _heatmaps(runs, "retrieval")),
        ("classes", "Classification", _heatmaps(runs, "classification")),
        ("other", "Other results", report_tables.other_results(runs)),
        ("plane", "Vectors in the plane", _projections(vectors)),
        ("errors", "Worst retrieval errors", _errors(vectors)),
    ]
    sections = [section for section in sections if section[2]]
    links = "".join(f'<a href="#{name}">{escape(head)}</a>' for name, head, _ in sections)
    body = "".join(
        f'<section><h2 id="{name}">{escape(head)}</h2>{content}</section>'
        for name, head, content in sections
    )
    style, script = (
        importlib.resources.files("xling_jax.report").joinpath(name).read_text(encoding="utf-8")
        for name in ("report.css", "report.js")
    )
    # The policy has the browser refuse anything that would be fetched.
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    )
    return (
        '<!doctype html><html lang="en" class="noscript"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>'
        f"<style>{style}</style></head>"
        f'<body><header><h1>{escape(title)}</h1><p class="lead">{escape(note)}</p>'
        f'<nav aria-label="Sections">{links}</nav></header><main>{body}</main>'
        '<footer>Made by xling report.</footer><div id="tip" role="status" hidden></div>'
        f"<script>{script}</script></body></html>\n"
    )


def _curves(runs: Sequence[Run]) -> str:
    names = dict.fromkeys(name for run in runs for name in run.curves)
    if not names:
        return ""
    groups: dict[str, list[str]] = {"Development sets": [], "Losses": [], "Speed": []}
    for name in names:
        if not name.startswith("train/"):
            groups["Development sets"].append(name)
        elif name.endswith(_SPEED):
            groups["Speed"].append(name)
        else:
            groups["Losses"].append(name)
    for members in groups.values():
        members.sort(key=_curve_order)
    drawn = []
    for head, members in groups.items():
        charts = [_chart(name, runs) for name in members]
        # The first few say most; the rest is a click away.
        first, rest = "".join(charts[:6]), "".join(charts[6:])
        if rest:
            more = f"{len(charts) - 6} more"
            rest = f'<details><summary>{more}</summary><div class="grid">{rest}</div></details>'
        if charts:
            drawn.append(f'<h3>{head}</h3><div class="grid">{first}</div>{rest}')
    return report_tables.run_legend(runs) + "".join(drawn)


def _chart(name: str, runs: Sequence[Run]) -> str:
    lines = [
        (color, run.name, *run.curves[name]) for color, run in enumerate(runs) if name in run.curves
    ]
    head = name.removeprefix("train/")
    if head == name and all(map(_is_share, (value for *_, values in lines for value in values))):
        data, _, metric = name.rpartition("/")
        head = f"{data} {_title(metric)}, %".strip()
        lines = [(*line, [100 * value for value in values]) for *line, values in lines]
    return line_chart(head, lines)


def _curve_order(name: str) -> tuple[int, str]:
    """Primary metrics first: P@1 and accuracy across languages, the loss itself."""
    last = name.rpartition("/")[2]
    order = ("p_at_1", "cross", "loss", "same", "gradient_norm")
    return (order.index(last) if last in order else len(order), name)


def _heatmaps(runs: Sequence[Run], task: str) -> str:
    found = []
    for run in runs:
        for results in run.results:
            matrices = (results.get("matrices") or {}) if results["task"] == task else {}
            for data, matrix in matrices.items():
                # Of several protocols and classifiers the settings name all, a matrix its own.
                how = _how((results.get("settings") or {}) | matrix, task)
                layers = {_title(name): layer for name, layer in _layers(matrix).items()}
                if layers:
                    found.append((data, how, run.name, layers))
    # Runs on the same data side by side and in the same colors.
    found.sort(key=lambda item: item[:2])
    figures = []
    for data, how, name, layers in found:
        alike = [other for *key, _, other in found if key == [data, how]]
        extents = {
            layer: extent([other[layer] for other in alike if layer in other]) for layer in layers
        }
        head = f"{name}: {data}" + (f", {how}" if how else "")
        figures.append(_one_heatmap(head, layers, extents, task))
    return f'<div class="wide">{"".join(figures)}</div>' if figures else ""


def _one_heatmap(
    head: str,
    layers: Mapping[str, Mapping[str, Mapping[str, float]]],
    extents: Mapping[str, tuple[float, float]],
    task: str,
) -> str:
    first = next(iter(layers.values()))
    names = list(dict.fromkeys([*first, *(name for cells in first.values() for name in cells)]))
    filled = sum(len(cells) for cells in first.values()) / (len(first) * len(names))
    if len(names) > _MAX_ROWS or filled < _MIN_FILLED:
        return report_tables.pair_list(head, layers)
    rows, columns = ("from", "to") if task == "retrieval" else ("train", "test")
    return heatmap(
        head,
        layers,
        rows=rows,
        columns=columns,
        lower_is_better=[_title(name) for name in _ERRORS],
        extents=extents,
    )


def _layers(matrix: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """The parts of a result that are row to column to a share; cells not measured left out."""
    layers = {}
    for name, rows in matrix.items():
        if name in ("mean", "spread") or name.endswith("_sd") or not isinstance(rows, Mapping):
            continue
        cells = {
            row: {column: value for column, value in values.items() if value is not None}
            for row, values in rows.items()
            if isinstance(values, Mapping)
        }
        values = [value for row in cells.values() for value in row.values()]
        if len(cells) == len(rows) and values and all(map(_is_share, values)):
            layers[name] = {row: values for row, values in cells.items() if values}
    return layers


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= 1


def _how(settings: Mapping[str, Any], task: str) -> str:
    if task == "retrieval":
        return f"by {settings['similarity']}" if "similarity" in settings else ""
    return ", ".join(str(settings[key]) for key in ("classifier", "protocol") if settings.get(key))


def _title(metric: str) -> str:
    return _TITLES.get(metric, metric.replace("p_at_", "P@").replace("_", " "))


def _projections(vectors: Sequence[VectorSection]) -> str:
    figures, number = [], 0
    for section in vectors:
        drawn = []
        for projection in section.projections:
            drawn.append(scatter(projection, number))
            number += 1
        if drawn:
            figures.append(
                f'<h3>{escape(section.run)}</h3><div class="wide">{"".join(drawn)}</div>'
            )
    explained = (
        '<p class="note">Each mark is a text; those of one meaning should lie together whatever '
        "their language. PCA keeps large distances, t-SNE neighborhoods. A name in the legend "
        "shows its marks alone.</p>"
    )
    return explained + "".join(figures) if figures else ""


def _errors(vectors: Sequence[VectorSection]) -> str:
    parts = []
    for section in vectors:
        for found in section.errors:
            share = 100 * found.num_errors / max(1, found.num_queries)
            directions = list(dict.fromkeys(_direction(error) for error in found.errors))
            options = "".join(f"<option>{escape(name)}</option>" for name in sorted(directions))
            picker = (
                '<p class="picker"><label>Direction <select><option value="">all</option>'
                f"{options}</select></label></p>"
            )
            cards = [
                _error(error, place >= _ERRORS_FIRST) for place, error in enumerate(found.errors)
            ]
            more = f'<button type="button" class="all">Show all {len(cards)}</button>'
            more = more if len(cards) > _ERRORS_FIRST else ""
            parts.append(
                f"<section><h3>{escape(section.run)}: {escape(found.data)}</h3>"
                f'<p class="note">{found.num_errors:,} of {found.num_queries:,} queries '
                f"({share:.1f} %) have another text nearer than their translation; these are the "
                "ones whose translation ranks lowest.</p>"
                f"{picker if len(directions) > 1 else ''}"
                f'<div class="errors">{"".join(cards)}</div>{more}</section>'
            )
    return "".join(parts)


def _error(error: RetrievalError, later: bool) -> str:
    direction = escape(_direction(error))

    def line(candidate: Candidate, right: bool) -> str:
        kind, note = "", ""
        if right:
            kind, note = ' class="right"', ' <span class="note">(the translation)</span>'
        return (
            f"<li{kind}><span>{candidate.rank:,}. {candidate.cosine:.3f}</span>"
            f"<span>{escape(candidate.text)}{note}</span></li>"
        )

    return (
        f'<article class="error{" more" if later else ""}" data-direction="{direction}">'
        f'<span class="direction">{direction}</span><p class="query">{escape(error.query)}</p>'
        f"<ol>{''.join(line(candidate, False) for candidate in error.retrieved)}"
        f"{line(error.right, True)}</ol></article>"
    )


def _direction(error: RetrievalError) -> str:
    return f"{error.source} → {error.target}"
