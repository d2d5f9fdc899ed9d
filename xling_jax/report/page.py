"""One self-contained HTML page from runs and results; the page itself is in page.html.jinja."""

import importlib.resources
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from xling_jax.eval.tasks import TASKS
from xling_jax.files.errors import one_line
from xling_jax.report import tables
from xling_jax.report.charts import Layer, color_scale, heatmap, line_chart, pair_list, scatter
from xling_jax.report.origins import result_origin, training_origin
from xling_jax.report.runs import Run
from xling_jax.report.vectors import VectorSection
from xling_jax.report.words import curve_title, metric_title

# A matrix with fewer of its cells measured, or more rows, reads better as a list of pairs.
_MIN_FILLED = 0.5
_MAX_ROWS = 30


def make_page(
    runs: Sequence[Run],
    vectors: Sequence[VectorSection] = (),
    *,
    title: str,
    note: str = "",
    command: str = "",
) -> str:
    """Returns the report as one HTML page.

    Args:
        runs: as `load_runs` returns them; their order gives their colors.
        vectors: for runs whose encoder was at hand.
        title: of the page.
        note: a line below the title, such as when it was made.
        command: the command line that made it, for the end of the page.

    Raises:
        ValueError: naming a run, if its config or results are not as this library writes them.
    """
    try:
        return _make_page(runs, vectors, title, note, command)
    except Exception as error:  # what a value of the wrong type does deep inside
        for run in runs:
            try:
                _make_page([run], (), title, note, command)
            except Exception:
                raise ValueError(
                    f"{run.path or run.name}: its config or results hold values of the wrong type "
                    f"({one_line(error, 200)}); evaluate again"
                ) from error
        raise


def _make_page(
    runs: Sequence[Run], vectors: Sequence[VectorSection], title: str, note: str, command: str
) -> str:
    # Identifier, heading, kind of content as the template draws it, and content.
    sections = [
        ("runs", "Runs", "runs", _run_table(runs)),
        ("compare", "Side by side", "comparisons", tables.comparison(runs)),
        ("curves", "Training curves", "curves", _curves(runs)),
        *((name, TASKS[name].title, "matrices", _matrices(runs, name)) for name in TASKS),
        ("other", "Other results", "numbers", tables.other_results(runs)),
        ("plane", "Vectors in the plane", "projections", _projections(vectors)),
        ("errors", "Worst retrieval errors", "errors", [one for one in vectors if one.errors]),
    ]
    files = importlib.resources.files("xling_jax.report")
    texts = {name: files.joinpath(f"report.{name}").read_text("utf-8") for name in ("css", "js")}
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False,
        "separators": (",", ":"),
        "allow_nan": False,
    }
    template = environment.from_string(files.joinpath("page.html.jinja").read_text("utf-8"))
    return template.render(
        sections=[section for section in sections if section[-1]],
        title=title,
        note=note,
        command=command,
        style=texts["css"],
        script=texts["js"],
    )


def _run_table(runs: Sequence[Run]) -> dict[str, Any]:
    trained = [training_origin(run) for run in runs if run.path is not None]
    return {"rows": tables.run_rows(runs), "origins": trained} if runs else {}


def _curves(runs: Sequence[Run]) -> dict[str, Any]:
    """The charts by group, primary metrics first; and the colors of the runs."""
    names = sorted({name for run in runs for name in run.curves}, key=_curve_order)
    if not names:
        return {}
    groups: dict[str, list] = {"Development sets": [], "Losses": [], "Speed": []}
    for name in names:
        group, chart = _chart(name, runs)
        groups[group].append(chart)
    return {"groups": groups, "runs": {run.name: i for i, run in enumerate(runs) if run.curves}}


def _curve_order(name: str) -> tuple[int, str]:
    """Primary metrics first: P@1 and accuracy across languages, the loss itself."""
    last = name.rpartition("/")[2]
    order = ("p_at_1", "cross", "loss", "same", "gradient_norm")
    return (order.index(last) if last in order else len(order), name)


def _chart(name: str, runs: Sequence[Run]) -> tuple[str, dict[str, Any]]:
    """Its group on the page, and the chart."""
    lines = [
        (color, run.name, *run.curves[name]) for color, run in enumerate(runs) if name in run.curves
    ]
    all_shares = all(_is_share(value) for *_, values in lines for value in values)
    group, title, is_share = curve_title(name, all_shares)
    if is_share:
        lines = [(*line, [100 * value for value in values]) for *line, values in lines]
    return group, line_chart(title, lines)


def _matrices(runs: Sequence[Run], name: str) -> list[dict[str, Any]]:
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
    """Whether the first of some layers is too large or too empty for a matrix."""
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


def _projections(vectors: Sequence[VectorSection]) -> list[dict[str, Any]]:
    numbers = itertools.count()
    return [
        {
            "run": section.run,
            "drawings": [scatter(one, next(numbers)) for one in section.projections],
            "origins": section.origins,
        }
        for section in vectors
        if section.projections
    ]
