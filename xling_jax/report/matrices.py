"""Scores between languages, as heatmaps or as lists of pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from xling_jax.eval.tasks import TASKS
from xling_jax.report.charts import metric_title
from xling_jax.report.runs import Run, result_origin

# A matrix with fewer of its cells measured, or more rows, reads better as a list of pairs.
_MIN_FILLED = 0.5
_MAX_ROWS = 30

Layer = Mapping[str, Mapping[str, float]]  # row -> column -> share


def matrices(runs: Sequence[Run], name: str) -> list[dict[str, Any]]:
    """Heatmaps of a task, or lists of pairs where a matrix would be empty or large."""
    task = TASKS[name]
    lower = [metric_title(metric) for metric in task.lower_is_better]
    found = []
    for run in runs:
        for results in run.results if task.axes else ():
            matrices = (results.get("matrices") or {}) if results["task"] == name else {}
            for data, matrix in matrices.items():
                layers = {metric_title(metric): layer for metric, layer in _layers(matrix).items()}
                if layers:
                    # The settings name all protocols and classifiers, a matrix its own.
                    how = _how((results.get("settings") or {}) | matrix)
                    measured = run.measured_name(results)
                    found.append((data, how, measured, layers, result_origin(measured, results)))
    # Runs on the same data side by side; all in the same colors.
    found.sort(key=lambda item: item[:2])
    mapped = [layers for *_, layers, _ in found if not _is_listed(layers)]
    shown = [(layer, title in lower) for layers in mapped for title, layer in layers.items()]
    scale = color_scale(shown) if shown else (0, 100)
    figures = []
    for data, how, run, layers, origin in found:
        head = f"{run}: {data}" + (f", {how}" if how else "")
        if _is_listed(layers):
            # Where errors are what is published, such as for Tatoeba, they alone are shown.
            errors = {title: layer for title, layer in layers.items() if title in lower}
            first = dict(itertools.islice(layers.items(), 1))
            figure = pair_list(head, errors or first, lower_is_better=lower)
        else:
            figure = heatmap(head, layers, axes=task.axes, lower_is_better=lower, scale=scale)
        figures.append(figure | {"origins": [origin]})
    return figures


def _is_listed(layers: Mapping[str, Layer]) -> bool:
    """True if the first layer is too large or too empty for a matrix."""
    layer = next(iter(layers.values()))
    names = {*layer, *(column for cells in layer.values() for column in cells)}
    filled = sum(map(len, layer.values())) / (len(layer) * len(names))
    return len(names) > _MAX_ROWS or filled < _MIN_FILLED


def _layers(matrix: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """The parts of a result that are row -> column -> share; cells not measured left out."""
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


def _how(settings: Mapping[str, Any]) -> str:
    words = [f"by {settings['similarity']}"] if "similarity" in settings else []
    words += [str(settings[key]) for key in ("classifier", "protocol") if settings.get(key)]
    words += [f"on {settings['test_split']}"] if settings.get("test_split") else []
    return ", ".join(words)


def heatmap(
    title: str,
    layers: Mapping[str, Layer],
    *,
    axes: tuple[str, str],
    lower_is_better: Sequence[str],
    scale: tuple[int, int],
) -> dict[str, Any]:
    """A matrix of shares in [0, 1] as a table, one of whose layers is shown at a time.

    Rows and columns are what `axes` says; `lower_is_better` are layers of errors; `scale` has the
    percentages at the ends of the colors, see `color_scale`.
    """
    drawn = [_layer(name, layer, scale, name in lower_is_better) for name, layer in layers.items()]
    return {"title": title, "axes": axes, "layers": drawn, "names": [*enumerate(layers)]}


def pair_list(
    title: str, layers: Mapping[str, Layer], *, lower_is_better: Sequence[str]
) -> dict[str, Any]:
    """Many bilingual scores as a list, those worst by the first of the layers first."""
    pairs: dict[tuple[str, str], dict[tuple[str, bool], float]] = {}
    for name, layer in layers.items():
        for source, cells in layer.items():
            for target, value in cells.items():
                back = (target, source) in pairs and (source, target) not in pairs
                pair = (target, source) if back else (source, target)
                pairs.setdefault(pair, {})[name, back] = value
    first = next(iter(layers))
    sign = -1 if first in lower_is_better else 1

    def rank(item: tuple[Any, Mapping[tuple[str, bool], float]]) -> float:
        values = [value for (name, _), value in item[1].items() if name == first]
        return sign * float(np.mean(values)) if values else math.inf

    columns = [(name, way) for name in layers for way in (False, True)]
    rows = [
        (" – ".join(pair), [f"{100 * cells[c]:.1f}" if c in cells else "" for c in columns])
        for pair, cells in sorted(pairs.items(), key=rank)
    ]
    heads = [(name, "←" if back else "→", name in lower_is_better) for name, back in columns]
    return {"title": title, "columns": heads, "pairs": rows}


def color_scale(layers: Iterable[tuple[Layer, bool]]) -> tuple[int, int]:
    """The percentages of the worst and the best color, for all layers that are to be comparable.

    Of a layer of errors, which its flag says, what is missing to 1 counts: an error of 0.1 has the
    color of an accuracy of 0.9. The ends are whole tens around all values: differences show, and
    the ramp gives the absolute.
    """
    known = [
        1 - value if is_error else value
        for layer, is_error in layers
        for cells in layer.values()
        for value in cells.values()
    ]
    low = min(90, math.floor(10 * min(known) + 1e-9) * 10)
    return low, max(low + 10, math.ceil(10 * max(known) - 1e-9) * 10)


def _layer(name: str, layer: Layer, scale: tuple[int, int], is_error: bool) -> dict[str, Any]:
    columns = list(dict.fromkeys(column for cells in layer.values() for column in cells))
    # In the order of the rows where these are the same names, so that there is one diagonal.
    if set(columns) <= set(layer):
        columns = [column for column in layer if column in columns]
    worst, best = scale

    def cell(share: float) -> dict[str, str]:
        goodness = 100 * (1 - share if is_error else share)
        ground = _color(min(1.0, max(0.0, (goodness - worst) / (best - worst))))
        ink = "#000" if luminance(ground) > 0.179 else "#fff"
        text = "100" if 100 * share >= 99.95 else f"{100 * share:.1f}"
        return {"ground": ground, "ink": ink, "text": text}

    rows = [
        (
            row,
            [cell(cells[column]) if column in cells else None for column in columns],
            f"{100 * float(np.mean([*cells.values()])):.1f}",
        )
        for row, cells in layer.items()
    ]
    return {
        "name": name,
        "columns": columns,
        "rows": rows,
        "is_error": is_error,
        # From the worst to the best: a ramp of errors descends.
        "ends": (100 - worst, 100 - best) if is_error else scale,
        "ramp": [_color(place / 8) for place in range(9)],
    }


def _color(share: float) -> str:
    return to_hex(colormaps["cividis"](share))


def luminance(color: str) -> float:
    """Relative luminance as WCAG defines it; above 0.179 black has more contrast than white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))
