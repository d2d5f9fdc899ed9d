"""The drawings of a report as HTML: curves, heatmaps, projections, each a string.

Colors are classes and variables of the style sheet, which has a light and a dark set, except in
heatmaps, whose cells keep one map and choose black or white ink by contrast.
"""

import html
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

from xling_jax.report.vectors import Projection

_WIDTH, _HEIGHT = 360, 210
_PLANE = (400, 320)  # Width and height of a projection.
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 26
_MAX_POINTS_A_LINE = 300
_MAX_DOTS = 25
_LOG_RATIO = 50  # Positive values that spread further than this are drawn on a logarithmic axis.

# Marks around (0, 0), one for each language, so that color is not all that tells them apart.
_MARKS = (
    "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "M0-3.6L3.4 2.6H-3.4Z",
    "M-2.7-2.7H2.7V2.7H-2.7Z",
    "M0-3.9L3.9 0L0 3.9L-3.9 0Z",
    "M0 3.6L3.4-2.6H-3.4Z",
    "M-1.2-3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6V-1.2H-1.2Z",
    "M-3-1.5L-1.5-3L0-1.5L1.5-3L3-1.5L1.5 0L3 1.5L1.5 3L0 1.5L-1.5 3L-3 1.5L-1.5 0Z",
)


def escape(text: object) -> str:
    """Text as HTML, also inside quoted attributes."""
    return html.escape(str(text), quote=True)


def script_json(value: object) -> str:
    """JSON that can stand inside a script element or, escaped, in an attribute."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def line_chart(
    title: str, lines: Sequence[tuple[int, str, Sequence[float], Sequence[float]]]
) -> str:
    """Curves over steps.

    Args:
        title: the metric.
        lines: of each line the number of its color, its name, steps and values, at least one.

    Returns:
        A figure; its numbers at the pointer are shown by the page's script.
    """
    lines = [(color, name, *_thin(steps, values)) for color, name, steps, values in lines]
    every_x = [x for _, _, steps, _ in lines for x in steps]
    every_y = [y for *_, values in lines for y in values]
    log = min(every_y) > 0 and max(every_y) / min(every_y) > _LOG_RATIO
    x_low, x_high = min(every_x), max(every_x)
    if x_low == x_high:
        x_low, x_high = x_low - 1, x_high + 1
    ticks_y, y_low, y_high = _ticks(min(every_y), max(every_y), log)
    scale_y = math.log10 if log else float

    def place_x(x: float) -> float:
        return _LEFT + (x - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)

    def place_y(y: float) -> float:
        share = (scale_y(y) - scale_y(y_low)) / (scale_y(y_high) - scale_y(y_low))
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for tick in ticks_y:
        y = place_y(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        shown = short(tick) if log else _tick_label(tick, ticks_y)
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 3.5:.1f}" class="end">{shown}</text>')
    for tick in _linear_ticks(x_low, x_high, 4):
        if x_low <= tick <= x_high:
            parts.append(
                f'<text x="{place_x(tick):.1f}" y="{_HEIGHT - 8}" class="mid">{short(tick)}</text>'
            )
    for color, _, steps, values in lines:
        spots = [f"{place_x(x):.1f} {place_y(y):.1f}" for x, y in zip(steps, values)]
        parts.append(_line(color % 7, spots))
    data = {
        "x": [x_low, x_high, _LEFT, _WIDTH - _RIGHT],
        "lines": [[color % 7, name, steps, values] for color, name, steps, values in lines],
    }
    last = "; ".join(f"{name}: {short(values[-1])}" for _, name, _, values in lines)
    scale = ' <span class="note">log</span>' if log else ""
    return (
        f'<figure class="chart"><figcaption>{escape(title)}{scale}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'data-chart="{escape(script_json(data))}" '
        f'aria-label="{escape(f"{title} by step; last {last}")}">{"".join(parts)}'
        f'<path class="cursor" d="M0 {_TOP}V{_HEIGHT - _BOTTOM}"/></svg></figure>'
    )


def heatmap(
    title: str,
    layers: Mapping[str, Mapping[str, Mapping[str, float]]],
    *,
    rows: str,
    columns: str,
    lower_is_better: Sequence[str] = (),
    extents: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """A matrix of shares as a table, one layer of which is shown at a time.

    Args:
        title: what is shown.
        layers: name of a layer to row to column to a share in [0, 1].
        rows: what the rows are.
        columns: what the columns are.
        lower_is_better: layers of errors.
        extents: least and largest value of a layer over all figures that share its colors.

    Returns:
        A figure; its buttons are the work of the page's script.
    """
    buttons = "".join(
        f'<button type="button" data-show="{number}" '
        f'aria-pressed="{"false" if number else "true"}">{escape(name)}</button>'
        for number, name in enumerate(layers)
    )
    bodies = "".join(
        _matrix(
            layer,
            (rows, columns),
            (extents or {}).get(name) or extent([layer]),
            inverted=name in lower_is_better,
            hidden=bool(number),
        )
        for number, (name, layer) in enumerate(layers.items())
    )
    choice = f'<div class="buttons" role="group">{buttons}</div>' if len(layers) > 1 else ""
    return f'<figure class="heat"><figcaption>{escape(title)}</figcaption>{choice}{bodies}</figure>'


def scatter(projection: Projection, number: int) -> str:
    """Texts in the plane: PCA or t-SNE, by language or by class, with the text at the pointer.

    Args:
        projection: what to draw.
        number: of this drawing on the page.

    Returns:
        A figure; its buttons and texts are the work of the page's script.
    """
    languages = list(dict.fromkeys(projection.languages))
    labels = sorted(set(projection.labels or ()))
    places_l = [languages.index(code) for code in projection.languages]
    places_c = [labels.index(label) for label in projection.labels or ()]
    groups = []
    for method, points in projection.points.items():
        low, high = points.min(axis=0), points.max(axis=0)
        # Both axes alike: distances mean something.
        scale = min(np.array(_PLANE) * 0.95 / np.maximum(high - low, 1e-9))
        spots = np.array(_PLANE) / 2 + (points - (low + high) / 2) * scale
        marks = "".join(
            f'<path d="{_MARKS[place % 7]}" transform="translate({x:.1f} {y:.1f})" '
            f'data-i="{index}" data-l="{place}"'
            + (f' data-c="{places_c[index]}"' if places_c else "")
            + "/>"
            for index, ((x, y), place) in enumerate(zip(spots, places_l))
        )
        groups.append(f'<g class="{method}">{marks}</g>')
    buttons = _choice("method", {"pca": "PCA", "tsne": "t-SNE"})
    if labels:
        buttons += _choice("by", {"language": "by language", "class": "by class"})
    legends = _legend("language", languages, marks=True) + _legend("class", labels, marks=False)
    texts = [
        [text if len(text) <= 280 else text[:279] + "…", *described]
        for text, *described in zip(
            projection.texts, projection.languages, *([projection.labels] if labels else [])
        )
    ]
    name = escape(projection.name)
    box = f"0 0 {_PLANE[0]} {_PLANE[1]}"
    return (
        f'<figure class="scatter" data-method="pca" data-by="language" data-texts="texts{number}">'
        f"<figcaption>{name}: {len(texts):,} texts</figcaption>{buttons}{legends}"
        f'<svg viewBox="{box}" role="img" aria-label="Vectors of {name} in the plane">'
        f"{''.join(groups)}</svg>"
        f'<script type="application/json" id="texts{number}">{script_json(texts)}</script></figure>'
    )


def _line(color: int, spots: Sequence[str]) -> str:
    """A line through places "x y"; few of them are marked, so that one alone is seen too."""
    dots = "".join(
        f'<circle class="f{color}" r="2.2" cx="{{}}" cy="{{}}"/>'.format(*spot.split())
        for spot in (spots if len(spots) < _MAX_DOTS else ())
    )
    return f'<path class="line s{color}" d="M{"L".join(spots)}"/>{dots}'


def _choice(attribute: str, names: Mapping[str, str]) -> str:
    buttons = "".join(
        f'<button type="button" data-set="{attribute}" data-to="{value}" '
        f'aria-pressed="{"false" if place else "true"}">{escape(name)}</button>'
        for place, (value, name) in enumerate(names.items())
    )
    return f'<div class="buttons" role="group">{buttons}</div>'


def _legend(kind: str, names: Sequence[str], marks: bool) -> str:
    if not names:
        return ""
    items = "".join(
        f'<button type="button" data-only="{kind[0]}{place}" aria-pressed="false">'
        f'<svg viewBox="-5 -5 10 10" aria-hidden="true"><path class="f{place % 7}" '
        f'd="{_MARKS[place % 7 if marks else 0]}"/></svg>{escape(name)}</button>'
        for place, name in enumerate(names)
    )
    return f'<div class="legend for-{kind}" role="group">{items}</div>'


def extent(layers: Sequence[Mapping[str, Mapping[str, float]]]) -> tuple[float, float]:
    """The least and the largest value of some layers."""
    known = [value for layer in layers for cells in layer.values() for value in cells.values()]
    return min(known), max(known)


def _matrix(
    layer: Mapping[str, Mapping[str, float]],
    titles: tuple[str, str],
    ends: tuple[float, float],
    *,
    inverted: bool,
    hidden: bool,
) -> str:
    rows, columns = titles
    names = list(dict.fromkeys(column for cells in layer.values() for column in cells))
    # The order of the rows where they are the same names, so that the diagonal is one.
    if set(names) <= set(layer):
        names = [name for name in layer if name in names]
    # Whole tens around the values: differences show, and the ramp tells the absolute.
    low = min(90, math.floor(10 * ends[0] + 1e-9) * 10)
    high = max(low + 10, math.ceil(10 * ends[1] - 1e-9) * 10)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    lines = []
    for row, cells in layer.items():
        shown = "".join(
            _cell(100 * cells[name], low, high, inverted)
            if name in cells
            else '<td class="gap"></td>'
            for name in names
        )
        mean = 100 * float(np.mean([*cells.values()]))
        lines.append(
            f'<tr><th scope="row">{escape(row)}</th>{shown}<td class="mean">{mean:.1f}</td></tr>'
        )
    corner = f'<th scope="col" class="corner">{escape(rows)} ↓<br>{escape(columns)} →</th>'
    return (
        f'<div class="layer"{" hidden" if hidden else ""}><div class="scroll" tabindex="0"><table>'
        f'<thead><tr>{corner}{head}<th scope="col" class="mean">mean</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        f'<p class="ramp"><span>{low}</span><i{_ramp(inverted)}></i><span>{high} %</span></p></div>'
    )


def _cell(percent: float, low: float, high: float, inverted: bool) -> str:
    share = min(1.0, max(0.0, (percent - low) / (high - low)))
    red, green, blue = _color(1 - share if inverted else share)
    ink = "#000" if _luminance(red, green, blue) > 0.179 else "#fff"
    shown = "100" if percent >= 99.95 else f"{percent:.1f}"
    return f'<td style="background:{_hex(red, green, blue)};color:{ink}">{shown}</td>'


def _color(share: float) -> tuple[int, int, int]:
    from matplotlib import colormaps

    return tuple(round(255 * part) for part in colormaps["cividis"](share)[:3])


def _ramp(inverted: bool) -> str:
    stops = [_color(place / 8) for place in range(9)]
    colors = ",".join(_hex(*stop) for stop in (stops[::-1] if inverted else stops))
    return f' style="background:linear-gradient(90deg,{colors})"'


def _hex(red: int, green: int, blue: int) -> str:
    return f"#{red:02x}{green:02x}{blue:02x}"


def _luminance(*channels: int) -> float:
    """Relative luminance as WCAG defines it; above 0.179 black has more contrast than white."""
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (channel / 255 for channel in channels)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _thin(steps: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Every so many points, the last among them."""
    stride = math.ceil(len(steps) / _MAX_POINTS_A_LINE)
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
    return [round(number * step, 12) for number in range(first, last + 1)]


def _tick_label(tick: float, ticks: Sequence[float]) -> str:
    """With as many decimals as the ticks need to differ."""
    if max(map(abs, ticks)) >= 1000:
        return short(tick)
    gap = min(abs(b - a) for a, b in zip(ticks, ticks[1:]))
    # 2.5 needs one decimal more than 2 or 5 of the same size.
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9))
    decimals += abs(round(gap, decimals) - gap) > gap / 100
    return f"{tick:.{decimals}f}" if decimals <= 5 else short(tick)


def short(value: float) -> str:
    """A number in few characters: 1.2k, 0.035, 3.1e-07."""
    size = abs(value)
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"
