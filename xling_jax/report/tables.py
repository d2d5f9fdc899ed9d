"""The tables of a report: what the runs are, and their scores beside published ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xling_jax.report.charts import escape, short
from xling_jax.report.published import PUBLISHED
from xling_jax.report.runs import Run

_HEADS = {
    "classification": ("Classification", ("same", "cross", "all", "en ↔ others")),
    "retrieval": ("Retrieval", ("P@1", "P@5", "error", "xSIM")),
    "mining": ("Bitext mining", ("F1", "precision", "recall")),
    "alignment": ("Document alignment", ("WMT16 recall", "WMT19 recall", "recall")),
    "probing": ("Probing", ("accuracy", "F1", "pearson", "spearman", "mean")),
}
_RETRIEVAL = {"p_at_1": "P@1", "p_at_5": "P@5", "error": "error", "xsim": "xSIM"}
_LOWER_IS_BETTER = ("error", "xSIM")
_IN_MATRICES = ("accuracy_", "x_cross_")  # Beginnings of what heatmaps show already.

Row = tuple[str, str, dict[str, float], str]


def run_legend(runs: Sequence[Run]) -> str:
    """The colors of the runs that have curves."""
    items = "".join(
        f'<li><span class="swatch b{color % 7}"></span>{escape(run.name)}</li>'
        for color, run in enumerate(runs)
        if run.curves
    )
    return f'<ul class="runs">{items}</ul>'


def run_table(runs: Sequence[Run]) -> str:
    """What each run trained, on what and how far."""
    rows = []
    for color, run in enumerate(runs):
        speed = run.curves.get("train/sentences_per_second")
        cells = [
            _encoder(run.config),
            _objective(run.config),
            ", ".join(run.config.get("languages", ())),
            f"{run.num_steps:,}" if run.num_steps else "",
            # The middle one: the first is slowed down by compiling.
            short(float(np.median(speed[1]))) if speed else "",
        ]
        swatch = f'<span class="swatch b{color % 7}"></span>'
        rows.append(
            f'<tr><th scope="row" class="name">{swatch}{escape(run.name)}</th>'
            + "".join(
                f'<td class="{"number" if place > 2 else ""}">{escape(cell) or "–"}</td>'
                for place, cell in enumerate(cells)
            )
            + "</tr>"
        )
    heads = ("Encoder", "Trained by", "Languages", "Steps", "Sentences / s")
    head = "".join(
        f'<th scope="col" class="{"number" if place > 2 else ""}">{name}</th>'
        for place, name in enumerate(heads)
    )
    return _card(f'<tr><th scope="col">Run</th>{head}</tr>', "".join(rows))


def comparison(runs: Sequence[Run]) -> str:
    """A table for each task: the scores of the runs, then those that were published."""
    tables = []
    for task, (head, columns) in _HEADS.items():
        ours = [row for run in runs for row in _rows(run, task, columns)]
        if not ours:
            continue
        published = [
            (row.system, row.data, row.scores, row.source) for row in PUBLISHED.get(task, ())
        ]
        columns = [name for name in columns if any(name in row[2] for row in [*ours, *published])]
        names = "".join(f'<th scope="col" class="number">{name}</th>' for name in columns)
        header = f'<tr><th scope="col">System</th>{names}<th scope="col"></th></tr>'
        body = _by_data(ours, columns, "", compete=True)
        body += _by_data(published, columns, ", as published", compete=False)
        tables.append(f"<h3>{head}, %</h3>{_card(header, body)}")
    return "".join(tables)


def _by_data(rows: Sequence[Row], columns: Sequence[str], remark: str, compete: bool) -> str:
    """Rows under a heading for each data set, as only those of one can be compared."""
    body = ""
    for data in dict.fromkeys(row[1] for row in rows):
        group = [row for row in rows if row[1] == data]
        best = {}
        if compete and len(group) > 1:
            for name in columns:
                values = [scores[name] for _, _, scores, _ in group if name in scores]
                choose = min if name in _LOWER_IS_BETTER else max
                best |= {name: choose(values)} if len(values) > 1 else {}
        body += (
            f'<tr class="part"><th colspan="{len(columns) + 2}" scope="rowgroup">'
            f"{escape(data)}{remark}</th></tr>"
        )
        body += "".join(_line(row, columns, best) for row in group)
    return body


def other_results(runs: Sequence[Run]) -> str:
    """All numbers of tasks that have no heatmap."""
    rows = [
        (run.name, results["task"], name, value)
        for run in runs
        for results in run.results
        if results["task"] not in ("retrieval", "classification")
        for name, value in results["metrics"].items()
        if isinstance(value, (int, float))
    ]
    if not rows:
        return ""
    body = "".join(
        f'<tr><th scope="row" class="name">{escape(run)}</th><td>{escape(task)}</td>'
        f'<td>{escape(name)}</td><td class="number">{value:.4g}</td></tr>'
        for run, task, name, value in rows
    )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("Run", "Task", "Metric"))
    return _card(f'<tr>{heads}<th scope="col" class="number">Value</th></tr>', body, tall=True)


def pair_list(head: str, layers: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Many bilingual scores as a list, the worst first."""
    name, layer = next(iter(layers.items()))
    pairs: dict[tuple[str, str], dict[int, float]] = {}
    for source, cells in layer.items():
        for target, value in cells.items():
            back = (target, source) in pairs
            pairs.setdefault((target, source) if back else (source, target), {})[back] = value
    lower = name in _LOWER_IS_BETTER
    order = sorted(pairs.items(), key=lambda item: np.mean([*item[1].values()]), reverse=lower)
    body = "".join(
        f'<tr><th scope="row" class="name">{escape(source)} – {escape(target)}</th>'
        + "".join(
            f'<td class="number">{f"{100 * values[way]:.1f}" if way in values else ""}</td>'
            for way in (False, True)
        )
        + "</tr>"
        for (source, target), values in order
    )
    heads = "".join(f'<th scope="col" class="number">{name} {way}, %</th>' for way in "→←")
    return (
        f"<figure><figcaption>{escape(head)}</figcaption>"
        + _card(f'<tr><th scope="col">Pair</th>{heads}</tr>', body, tall=True)
        + "</figure>"
    )


def _rows(run: Run, task: str, columns: Sequence[str]) -> list[Row]:
    """A run's scores on each data set of a task; those logged in training where there are none."""
    rows: list[Row] = []
    for results in run.results:
        if results["task"] != task:
            continue
        matrices = results.get("matrices") or {}
        settings = results.get("settings") or {}
        if task in ("retrieval", "classification"):
            for data, matrix in matrices.items():
                if scores := _matrix_scores(task, matrix):
                    how = _how(settings, matrix)
                    rows.append((run.name, _data_name(data, matrix), scores, how))
        else:
            how = str(settings.get("similarity") or "")
            rows += _flat_rows(run.name, results["metrics"], columns, how)
    # What was measured twice, in the workdir and elsewhere, is one row.
    rows = [row for place, row in enumerate(rows) if row not in rows[:place]]
    measured = {data for _, data, _, _ in rows}
    logged: dict[str, dict[str, float]] = {}
    step = 0
    names = _RETRIEVAL if task == "retrieval" else {"same": "same", "cross": "cross"}
    if task in ("retrieval", "classification"):
        for name, (steps, values) in run.curves.items():
            data, _, metric = name.rpartition("/")
            if metric in names and data not in ("train", *measured):
                logged.setdefault(data, {})[names[metric]] = 100 * values[-1]
                step = max(step, steps[-1])
    return rows + [
        (run.name, data, scores, f"while training, step {step:,}")
        for data, scores in logged.items()
    ]


def _how(settings: Mapping[str, Any], matrix: Mapping[str, Any]) -> str:
    """The settings that a score depends on, in words."""
    languages = matrix.get("test_languages") or matrix.get("languages") or ()
    documents = settings.get("documents")
    words = [
        settings.get("similarity"),
        matrix.get("classifier"),
        matrix.get("protocol"),
        documents if documents != "sequence" else None,
        f"{len(languages)} languages" if languages else None,
        "distractors" if settings.get("distractors") else None,
        "XSR" if settings.get("xsr") else None,
    ]
    return ", ".join(filter(None, words))


def _data_name(name: str, matrix: Mapping[str, Any]) -> str:
    """The data set of a measurement that is named by its protocol and classifier as well."""
    for part in (matrix.get("classifier"), matrix.get("protocol")):
        name = name.removesuffix(f"_{str(part).replace('-', '_')}")
    return name


def _matrix_scores(task: str, matrix: Mapping[str, Any]) -> dict[str, float]:
    """Percentages by column of the table."""
    means = matrix.get("mean") or {}
    if task == "retrieval":
        return {_RETRIEVAL[k]: 100 * v for k, v in means.items() if k in _RETRIEVAL}
    kind = "accuracy" if "accuracy" in means else next(iter(means), None)
    if not isinstance(means.get(kind), Mapping):
        return {}
    scores = {name: 100 * value for name, value in means[kind].items()}
    cells = matrix.get(kind) or {}
    out = [value for code, value in (cells.get("en") or {}).items() if code != "en"]
    back = [row.get("en") for code, row in cells.items() if code != "en"]
    if out and back and None not in (*out, *back):
        scores["en ↔ others"] = 100 * float(np.mean([*out, *back]))
    return scores


def _flat_rows(
    name: str, metrics: Mapping[str, float], columns: Sequence[str], how: str
) -> list[Row]:
    """Named scores of the other tasks, by data set, where a column of the table has their name."""
    by_data: dict[str, dict[str, float]] = {}
    wanted = {column.lower(): column for column in columns}
    for metric, value in metrics.items():
        data, _, last = metric.rpartition("/")
        if last.lower() in wanted and not last.startswith(_IN_MATRICES):
            by_data.setdefault(data or "all", {})[wanted[last.lower()]] = 100 * value
    return [(name, data, scores, how) for data, scores in by_data.items()]


def _line(row: Row, columns: Sequence[str], best: Mapping[str, float]) -> str:
    name, _, scores, source = row
    cells = ""
    for column in columns:
        value = scores.get(column)
        mark = " best" if value is not None and best.get(column) == value else ""
        shown = "" if value is None else f"{value:.1f}"
        cells += f'<td class="number{mark}">{shown}</td>'
    return (
        f'<tr><th scope="row" class="name">{escape(name)}</th>{cells}'
        f'<td class="note">{escape(source)}</td></tr>'
    )


def _card(head: str, body: str, tall: bool = False) -> str:
    kind = "scroll tall" if tall else "scroll"
    return (
        f'<div class="card"><div class="{kind}" tabindex="0"><table><thead>{head}</thead>'
        f"<tbody>{body}</tbody></table></div></div>"
    )


def _encoder(config: Mapping[str, Any]) -> str:
    encoder = config.get("encoder") or {}
    if not encoder:
        return ""
    words = [str(encoder.get("family", ""))]
    if "layers" in encoder:
        count = encoder["layers"]
        words.append(f"{count} layer{'' if count == 1 else 's'}")
    if "width" in encoder:
        words.append(f"width {encoder['width']}")
    return ", ".join(words)


def _objective(config: Mapping[str, Any]) -> str:
    terms = {
        name: settings["weight"]
        for name, settings in (config.get("objective") or {}).items()
        if isinstance(settings, Mapping) and settings.get("weight")
    }
    return " + ".join(
        name.replace("_", " ") if weight == 1 else f"{weight:g} {name.replace('_', ' ')}"
        for name, weight in terms.items()
    )
