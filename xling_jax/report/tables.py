"""Tables of a report: the runs, their scores side by side, and where these come from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xling_jax.eval.tasks import TASKS
from xling_jax.report.charts import short
from xling_jax.report.runs import Run


@dataclass(frozen=True)
class Row:
    """One system on one data set.

    Attributes:
        name: of the run.
        data: name of the data set.
        scores: heading of a column -> percentage.
        source: how it was measured.
        languages: those it is the mean of, sorted; () if unknown.
        best: headings of the columns whose best score it has.
    """

    name: str
    data: str
    scores: Mapping[str, float]
    source: str
    languages: tuple[str, ...] = ()
    best: frozenset[str] = frozenset()


def run_table(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """Name, encoder, objective, languages, steps and sentences per second of each run."""
    rows = []
    for run in runs:
        # The median: the first is slowed down by compiling.
        _, speeds = run.curves.get("train/sentences_per_second", ((), ()))
        cells = [_encoder(run.config), _objective(run.config)]
        cells.append(", ".join(run.config.get("languages", ())))
        cells.append(f"{run.num_steps:,}" if run.num_steps else "")
        cells.append(short(float(np.median(speeds))) if speeds else "")
        rows.append((run.name, *cells))
    return rows


def comparison(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A table for each task: the scores of the runs, by data set."""
    tables = []
    for name in TASKS:
        task = TASKS[name]
        ours = [row for run in runs for row in _measured(run, name)]
        if not ours:
            continue
        known = {heading for row in ours for heading in row.scores}
        errors = {task.columns[m] for m in task.lower_is_better if m in task.columns}
        columns = [(head, head in errors) for head in task.columns.values() if head in known]
        groups = [(data, _with_best(rows, errors)) for data, rows in _by_data(ours)]
        tables.append({"title": task.title, "columns": columns, "groups": groups})
    return tables


def other_results(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """All numbers of results whose matrices are not drawn, of each its metrics and values."""
    found = []
    for run in runs:
        for results in run.results:
            if results["task"] in TASKS and TASKS[results["task"]].axes:
                continue
            metrics = results["metrics"].items()
            rows = [(name, f"{v:.4g}") for name, v in metrics if isinstance(v, (int, float))]
            head = f"{run.measured_name(results)}: {results['task']}"
            found.append({"head": head, "rows": rows})
    return found


def origins(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """What was measured, on which text, with which encoder and seeds, and by which command."""
    rows = []
    for run in runs:
        for results in run.results:
            settings, data = results.get("settings") or {}, results.get("data") or ()
            seeds = settings.get("seeds", settings.get("seed"))
            texts = (f"{one['name']} {str(one.get('sha256', ''))[:12]}" for one in data)
            cells = (
                f"{run.measured_name(results)}: {results['task']}",
                str(results["model"].get("fingerprint", ""))[:12],
                ", ".join(texts),
                "" if seeds is None else str(seeds).strip("[]"),
                str(results.get("command") or ""),
            )
            rows.append(cells)
    return rows


def _by_data(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of each data set and of the same languages, as only these can be compared."""
    groups: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.data, row.languages), []).append(row)
    several = Counter(data for data, _ in groups)

    def title(data: str, languages: tuple[str, ...]) -> str:
        named = " ".join(languages[:8]) + (" …" if languages[8:] else "")
        return f"{data} ({named or 'languages unknown'})" if several[data] > 1 else data

    return [(title(*key), found) for key, found in groups.items()]


def _with_best(rows: Sequence[Row], errors: set[str]) -> list[Row]:
    best: dict[str, float] = {}
    for heading in {heading for row in rows for heading in row.scores}:
        values = [row.scores[heading] for row in rows if heading in row.scores]
        if len(values) > 1:
            best[heading] = min(values) if heading in errors else max(values)
    return [
        replace(row, best=frozenset(h for h, v in row.scores.items() if best.get(h) == v))
        for row in rows
    ]


def _measured(run: Run, task: str) -> list[Row]:
    """A run's scores on each data set of a task."""
    rows = [
        Row(run.measured_name(results), *summary, _languages(results, summary[0]))
        for results in run.results
        if results["task"] == task
        for summary in TASKS[task].summary(results)
    ]
    # What was measured twice, in the workdir and elsewhere, is one row.
    return [row for place, row in enumerate(rows) if row not in rows[:place]]


def _languages(results: Mapping[str, Any], data: str) -> tuple[str, ...]:
    """The languages that the scores of a data set are of."""
    matrix = (results.get("matrices") or {}).get(data) or {}
    return tuple(sorted(matrix.get("languages") or ()))


def _encoder(config: Mapping[str, Any]) -> str:
    encoder = config.get("encoder") or {}
    words = [str(encoder.get("family", ""))]
    if "layers" in encoder:
        words.append(f"{encoder['layers']} layer{'' if encoder['layers'] == 1 else 's'}")
    if "width" in encoder:
        words.append(f"width {encoder['width']}")
    return ", ".join(words)


def _objective(config: Mapping[str, Any]) -> str:
    terms = {
        name.replace("_", " "): settings["weight"]
        for name, settings in (config.get("objective") or {}).items()
        if isinstance(settings, Mapping) and settings.get("weight")
    }
    return " + ".join(
        name if weight == 1 else f"{weight:g} {name}" for name, weight in terms.items()
    )
