"""The geometry of a report's drawings: curves, heatmaps and projections, for the template."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from xling_jax.report.vectors import Plane

_WIDTH, _HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, _WIDTH - 12, 10, _HEIGHT - 26
_PLANE = (400, 320)  # Width and height of a projection.
_MAX_POINTS_PER_LINE = 300
_MAX_DOTS = 25
_LOG_RATIO = 50  # Positive values that spread further than this get a logarithmic axis.

# Marks around (0, 0), one for each language, so that they differ in more than color.
_MARKS = (
    "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "M0-3.6L3.4 2.6H-3.4Z",
    "M-2.7-2.7H2.7V2.7H-2.7Z",
    "M0-3.9L3.9 0L0 3.9L-3.9 0Z",
    "M0 3.6L3.4-2.6H-3.4Z",
    "M-1.2-3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6V-1.2H-1.2Z",
    "M-3-1.5L-1.5-3L0-1.5L1.5-3L3-1.5L1.5 0L3 1.5L1.5 3L0 1.5L-1.5 3L-3 1.5L-1.5 0Z",
)

Layer = Mapping[str, Mapping[str, float]]  # row -> column -> share


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
    ticks_x = [tick for tick in _linear_ticks(x_low, x_high, 4) if x_low <= tick <= x_high]
    return {
        "title": title,
        "log": log,
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": _RIGHT,
        "top": _TOP,
        "bottom": _BOTTOM,
        "ticks_x": [(place_x(tick), short(tick)) for tick in ticks_x],
        "ticks_y": [
            (place_y(tick), short(tick) if log else _tick_label(tick, ticks_y)) for tick in ticks_y
        ],
        "lines": drawn,
        "data": {"x": [x_low, x_high, _LEFT, _RIGHT], "lines": lines},
        "last": "; ".join(f"{name}: {short(values[-1])}" for _, name, _, values in lines),
    }


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


def scatter(projection: Plane, number: int) -> dict[str, Any]:
    """Texts in the plane by language or by class; the drawings of a page are numbered."""
    languages = list(dict.fromkeys(projection.languages))
    labels = sorted(set(projection.labels or ()))
    columns = [projection.languages, *([projection.labels] if labels else [])]
    classes = [labels.index(label) for label in projection.labels or ()]
    points = {}
    for method, plane in projection.points.items():
        low, high = plane.min(axis=0), plane.max(axis=0)
        # Both axes have the same scale, so that distances mean something.
        scale = min(np.array(_PLANE) * 0.95 / np.maximum(high - low, 1e-9))
        spots = (np.array(_PLANE) / 2 + (plane - (low + high) / 2) * scale).round(1).tolist()
        points[method] = [
            (x, y, languages.index(code), classes[row] if classes else None)
            for row, ((x, y), code) in enumerate(zip(spots, projection.languages))
        ]
    return {
        "number": number,
        "name": projection.name,
        "width": _PLANE[0],
        "height": _PLANE[1],
        "marks": _MARKS,
        "languages": languages,
        "labels": labels,
        "points": points,
        "texts": [
            (text if len(text) <= 280 else text[:279] + "…", *described)
            for text, *described in zip(projection.texts, *columns)
        ],
    }


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


def short(value: float) -> str:
    """A number in few characters: 1.2k, 0.035, 3.1e-07."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


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


def _thin(steps: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Every so many points, the last among them."""
    stride = math.ceil(len(steps) / _MAX_POINTS_PER_LINE)
    kept = range(len(steps) - 1, -1, -stride)[::-1]
    return [steps[i] for i in kept], [float(f"{values[i]:.6g}") for i in kept]


def _ticks(low: float, high: float, log: bool) -> tuple[list[float], float, float]:
    """Ticks of an axis and its ends."""
    if log:
        ends = math.floor(math.log10(low)), math.ceil(math.log10(high))
        ticks = [10.0**power for power in range(ends[0], ends[1] + 1)]
        ticks = [tick for tick in ticks if low <= tick <= high]
        return ticks[:: math.ceil(len(ticks) / 5)], low, high
    if low == high:
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    ticks = _linear_ticks(low, high, 4)
    return ticks, min(ticks[0], low), max(ticks[-1], high)


def _linear_ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers around [low, high]."""
    rough = (high - low) / count
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _tick_label(tick: float, ticks: Sequence[float]) -> str:
    """With as many decimals as the ticks need to differ."""
    if max(map(abs, ticks)) >= 1000:
        return short(tick)
    gap = min(abs(b - a) for a, b in zip(ticks, ticks[1:]))
    # 2.5 needs one decimal more than 2 or 5 of the same size.
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9))
    decimals += abs(round(gap, decimals) - gap) > gap / 100
    return f"{tick:.{decimals}f}" if decimals <= 5 else short(tick)
