"""Scores between languages, as heatmaps or as lists of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from xling_jax.eval.tasks import TASKS
from xling_jax.report.charts import metric_title
from xling_jax.report.runs import Run

# A matrix with fewer of its cells measured, or more rows, reads better as a list of pairs.
_MIN_FILLED = 0.5
_MAX_ROWS = 30
# Below this place of cividis white has more contrast than black, of at least 4.5 either way.
_DARK = 0.47

Layer = Mapping[str, Mapping[str, float]]  # row -> column -> share


def matrices(runs: Sequence[Run], name: str) -> list[dict[str, Any]]:
    """Heatmaps of a task, or lists of pairs where a matrix would be empty or large."""
    task = TASKS[name]
    lower = [metric_title(metric) for metric in task.lower_is_better]
    found = []
    for run in runs if task.axes else ():
        for results in run.results:
            matrices = (results.get("matrices") or {}) if results["task"] == name else {}
            for data, matrix in matrices.items():
                # The settings name all protocols and classifiers, a matrix its own.
                how = _how((results.get("settings") or {}) | matrix)
                if layers := _layers(matrix):
                    found.append((data, how, run.measured_name(results), layers))
    # Runs on the same data side by side; all in the same colors.
    found.sort(key=lambda item: item[:2])
    mapped = [layers for *_, layers in found if not _is_listed(layers)]
    scale = color_scale(
        [(layer, title in lower) for layers in mapped for title, layer in layers.items()]
    )
    figures = []
    for data, how, run, layers in found:
        title = f"{run}: {data}" + (f", {how}" if how else "")
        if _is_listed(layers):
            names = ("Direction", "Value")
            figures.append({"head": title, "names": names, "rows": _listed(layers, lower)})
            continue
        drawn = [_layer(layer, scale, name in lower) for name, layer in layers.items()]
        figures.append(
            {"title": title, "axes": task.axes, "layers": drawn, "names": [*enumerate(layers)]}
        )
    return figures


def _is_listed(layers: Mapping[str, Layer]) -> bool:
    """True if the first layer is too large or too empty for a matrix."""
    layer = next(iter(layers.values()))
    names = {*layer, *(column for cells in layer.values() for column in cells)}
    filled = sum(map(len, layer.values())) / (len(layer) * len(names))
    return len(names) > _MAX_ROWS or filled < _MIN_FILLED


def _layers(matrix: Mapping[str, Any]) -> dict[str, Layer]:
    """The parts of a result that are row -> column -> share, by title; without empty cells."""
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
            layers[metric_title(name)] = {row: values for row, values in cells.items() if values}
    return layers


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= 1


def _how(settings: Mapping[str, Any]) -> str:
    words = [f"by {settings['similarity']}"] if "similarity" in settings else []
    words += [str(settings[key]) for key in ("classifier", "protocol") if settings.get(key)]
    words += [f"on {settings['test_split']}"] if settings.get("test_split") else []
    return ", ".join(words)


def _listed(layers: Mapping[str, Layer], lower_is_better: Sequence[str]) -> list[tuple[str, str]]:
    """The cells of the errors, or else of the first layer, the worst first."""
    title = next((title for title in layers if title in lower_is_better), next(iter(layers)))
    sign = -1 if title in lower_is_better else 1
    cells = [
        (sign * value, f"{row} → {column}", f"{100 * value:.1f}")
        for row, values in layers[title].items()
        for column, value in values.items()
    ]
    return [(f"{pair}, {title}, %", text) for _, pair, text in sorted(cells)]


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
    low = min(90, math.floor(10 * min(known, default=0) + 1e-9) * 10)
    return low, max(low + 10, math.ceil(10 * max(known, default=1) - 1e-9) * 10)


def _layer(layer: Layer, scale: tuple[int, int], is_error: bool) -> dict[str, Any]:
    """A matrix of shares in [0, 1] for the template, its colors from `scale`."""
    columns = list(dict.fromkeys(column for cells in layer.values() for column in cells))
    # In the order of the rows where these are the same names, so that there is one diagonal.
    if set(columns) <= set(layer):
        columns = [column for column in layer if column in columns]
    worst, best = scale

    def cell(share: float) -> dict[str, str]:
        goodness = 100 * (1 - share if is_error else share)
        place = min(1.0, max(0.0, (goodness - worst) / (best - worst)))
        ink = "#fff" if place < _DARK else "#000"
        text = "100" if 100 * share >= 99.95 else f"{100 * share:.1f}"
        return {"ground": _color(place), "ink": ink, "text": text}

    rows = [
        (
            row,
            [cell(cells[column]) if column in cells else None for column in columns],
            f"{100 * float(np.mean([*cells.values()])):.1f}",
        )
        for row, cells in layer.items()
    ]
    # From the worst to the best: a ramp of errors descends.
    ends = (100 - worst, 100 - best) if is_error else scale
    ramp = [_color(place / 8) for place in range(9)]
    return {"columns": columns, "rows": rows, "is_error": is_error, "ends": ends, "ramp": ramp}


def _color(share: float) -> str:
    return to_hex(colormaps["cividis"](share))
