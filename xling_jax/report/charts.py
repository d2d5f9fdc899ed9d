"""Training curves as pictures, with titles in words."""

import base64
import io
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from xling_jax.eval.matrices import metric_title
from xling_jax.eval.tasks import TASKS
from xling_jax.report.runs import Run

# Of the runs, in turn: seen on white and on black, and safe for the color-blind.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#b86396", "#a37800", "#7a63d6", "#808890")
_GRAY = "#808890"
_MAX_DOTS = 25
_LOG_RATIO = 50  # Positive values that spread further than this get a logarithmic axis.

# Ends of the names of metrics that are about speed.
_SPEED = ("per_second", "mfu", "mfu_without_padding", "padding_efficiency")
_TITLES = {
    "error": "error",
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
            group = "Development sets"
            title = f"{data} {_TITLES.get(metric) or metric_title(metric)}".strip()
            if all(0 <= value <= 1 for *_, values in lines for value in values):
                lines = [(*line, [100 * value for value in values]) for *line, values in lines]
                title += ", %"
        title += " (lower is better)" if metric in errors else ""
        groups[group].append(line_chart(title, lines))
    return {"groups": groups, "runs": {run.name: i for i, run in enumerate(runs) if run.curves}}


def line_chart(
    title: str, lines: Sequence[tuple[int, str, Sequence[float], Sequence[float]]]
) -> dict[str, str]:
    """Curves over steps as an SVG; of each line the number of its color, its name, steps, values.

    The ground is transparent, and the gray of the axes is read on white and on black.
    """
    figure = Figure(figsize=(4, 2.5), layout="constrained")
    axes = figure.add_subplot()
    for color, _, steps, values in lines:
        # Few points are marked, so that a single one is visible too.
        marker = "." if len(steps) < _MAX_DOTS else None
        axes.plot(steps, values, color=COLORS[color % len(COLORS)], lw=1.5, marker=marker)
    values = [value for *_, values in lines for value in values]
    if min(values) > 0 and max(values) / min(values) > _LOG_RATIO:
        axes.set_yscale("log")
    axes.tick_params(colors=_GRAY, labelsize=8, length=0, which="both")
    axes.grid(color=_GRAY, alpha=0.25, lw=0.5)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("step", color=_GRAY, fontsize=8)
    file = io.BytesIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    last = "; ".join(f"{name}: {short(values[-1])}" for _, name, _, values in lines)
    data = f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"title": title, "last": last, "data": data}


def short(value: float) -> str:
    """A number in few characters: 1.2k, 0.035, 3.1e-07."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * limit:  # 999.6 is rounded to 1k
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"
