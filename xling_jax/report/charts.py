"""Training curves as charts for the template, with titles in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import LogLocator, MaxNLocator

from xling_jax.eval.tasks import TASKS
from xling_jax.report.runs import Run

_WIDTH, _HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, _WIDTH - 12, 10, _HEIGHT - 26
_MAX_POINTS_PER_LINE = 300
_MAX_DOTS = 25
_STEPS = [1, 2, 2.5, 5, 10]  # of the ticks
_LOG_RATIO = 50  # Positive values that spread further than this get a logarithmic axis.

# Ends of the names of metrics that are about speed.
_SPEED = ("per_second", "mfu", "mfu_without_padding", "padding_efficiency")
_TITLES = {
    "error": "error",
    "xsim": "xSIM",
    "xsim_plus_plus": "xSIM++",
    "same": "accuracy within a language",
    "cross": "accuracy across languages",
}
# Of metrics, the primary ones first: P@1 and accuracy across languages, the loss itself.
_ORDER = ("p_at_1", "cross", "loss", "same", "gradient_norm")


def curves(runs: Sequence[Run]) -> dict[str, Any]:
    """The charts by group, primary metrics first; and the colors of the runs."""
    names = {name for run in runs for name in run.curves}
    if not names:
        return {}
    rank = {metric: place for place, metric in enumerate(_ORDER)}
    errors = {metric for task in TASKS for metric in TASKS[task].lower_is_better}
    groups: dict[str, list] = {"Development sets": [], "Losses": [], "Speed": []}
    for name in sorted(names, key=lambda n: (rank.get(n.rpartition("/")[2], len(rank)), n)):
        lines = [
            (i, run.name, *run.curves[name]) for i, run in enumerate(runs) if name in run.curves
        ]
        data, _, metric = name.rpartition("/")
        if data.partition("/")[0] in ("train", "validation"):
            group = "Speed" if metric.endswith(_SPEED) else "Losses"
            title = name.removeprefix("train/").replace("/", " ").replace("_", " ")
        else:
            group, title = "Development sets", f"{data} {metric_title(metric)}".strip()
            if all(0 <= value <= 1 for *_, values in lines for value in values):
                lines = [(*line, [100 * value for value in values]) for *line, values in lines]
                title += ", %"
        title += " (lower is better)" if metric in errors else ""
        groups[group].append(line_chart(title, lines))
    return {"groups": groups, "runs": {run.name: i for i, run in enumerate(runs) if run.curves}}


def metric_title(metric: str) -> str:
    """Title of a metric of a task, such as P@1."""
    return _TITLES.get(metric, metric.replace("p_at_", "P@").replace("_", " "))


def line_chart(
    title: str, lines: Sequence[tuple[int, str, Sequence[float], Sequence[float]]]
) -> dict[str, Any]:
    """Curves over steps; of each line the number of its color, its name, steps and values."""
    lines = [(color % 7, name, *_thin(steps, values)) for color, name, steps, values in lines]
    every_x = [x for _, _, steps, _ in lines for x in steps]
    every_y = [y for *_, values in lines for y in values]
    log = min(every_y) > 0 and max(every_y) / min(every_y) > _LOG_RATIO
    x_low, x_high = min(every_x), max(every_x)
    if x_low == x_high:
        x_low, x_high = x_low - 1, x_high + 1
    ticks_y, y_low, y_high = _ticks(min(every_y), max(every_y), log)
    scale_y = math.log10 if log else float

    def place_x(x: float) -> float:
        return round(_LEFT + (x - x_low) / (x_high - x_low) * (_RIGHT - _LEFT), 1)

    def place_y(y: float) -> float:
        share = (scale_y(y) - scale_y(y_low)) / (scale_y(y_high) - scale_y(y_low))
        return round(_BOTTOM - share * (_BOTTOM - _TOP), 1)

    drawn = []
    for color, _, steps, values in lines:
        spots = [(place_x(x), place_y(y)) for x, y in zip(steps, values)]
        # Few points are marked, so that a single one is visible too.
        dots = spots if len(spots) < _MAX_DOTS else []
        drawn.append((color, "M" + "L".join(f"{x} {y}" for x, y in spots), dots))
    ticks_x = MaxNLocator(4, steps=_STEPS, integer=True).tick_values(x_low, x_high)
    return {
        "title": title,
        "log": log,
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": _RIGHT,
        "top": _TOP,
        "bottom": _BOTTOM,
        "ticks_x": [(place_x(tick), short(tick)) for tick in ticks_x if x_low <= tick <= x_high],
        "ticks_y": [(place_y(tick), short(tick, 6)) for tick in ticks_y],
        "lines": drawn,
        "data": {"x": [x_low, x_high, _LEFT, _RIGHT], "lines": lines},
        "last": "; ".join(f"{name}: {short(values[-1])}" for _, name, _, values in lines),
    }


def short(value: float, digits: int = 3) -> str:
    """A number in few characters: 1.2k, 0.035, 3.1e-07."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.{digits}g}{suffix}"
    return f"{value:.{digits}g}"


def _thin(steps: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Every so many points, the last among them."""
    stride = math.ceil(len(steps) / _MAX_POINTS_PER_LINE)
    kept = range(len(steps) - 1, -1, -stride)[::-1]
    return [steps[i] for i in kept], [float(f"{values[i]:.6g}") for i in kept]


def _ticks(low: float, high: float, log: bool) -> tuple[list[float], float, float]:
    """Ticks of an axis and its ends."""
    if log:
        ticks = LogLocator(numticks=5).tick_values(low, high).tolist()
        return [tick for tick in ticks if low <= tick <= high], low, high
    if low == high:
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    ticks = MaxNLocator(4, steps=_STEPS).tick_values(low, high).tolist()
    return ticks, min(ticks[0], low), max(ticks[-1], high)
