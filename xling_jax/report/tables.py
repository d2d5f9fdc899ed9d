"""Tables of a report: the runs, and their scores beside baselines."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xling_jax.eval.tasks import TASKS
from xling_jax.report.charts import short
from xling_jax.report.runs import Run, result_origin, training_origin

# Parts of a classification matrix that need no encoder.
_WITHOUT_ENCODER = {"bag_of_words": "bag of words", "chance": "commonest label"}


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
        is_baseline: it is what encoders must beat.
    """

    name: str
    data: str
    scores: Mapping[str, float]
    source: str
    languages: tuple[str, ...] = ()
    best: frozenset[str] = frozenset()
    is_baseline: bool = False


def run_table(runs: Sequence[Run]) -> dict[str, Any]:
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
    trained = [training_origin(run) for run in runs if run.path is not None]
    return {"rows": rows, "origins": trained} if runs else {}


def comparison(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A table for each task: the scores of the runs and of baselines, by data set."""
    tables = []
    for name in TASKS:
        task = TASKS[name]
        ours = [row for run in runs for row in _measured(run, name)]
        if not ours:
            continue
        ours += _baseline_rows(runs) if name == "classification" else []
        known = {heading for row in ours for heading in row.scores}
        errors = {task.columns[m] for m in task.lower_is_better if m in task.columns}
        columns = [(head, head in errors) for head in task.columns.values() if head in known]
        groups = [(data, _with_best(rows, errors)) for data, rows in _by_data(ours)]
        table = {"title": task.title, "columns": columns, "groups": groups}
        table["origins"] = [
            result_origin(run.measured_name(results), results)
            for run in runs
            for results in run.results
            if results["task"] == name
        ]
        tables.append(table)
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
            name = run.measured_name(results)
            origin = result_origin(name, results)
            found.append({"head": f"{name}: {results['task']}", "rows": rows, "origin": origin})
    return found


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


def _baseline_rows(runs: Sequence[Run]) -> list[Row]:
    """Scores without an encoder; they are the same in all runs, and stand once."""
    every = [results for run in runs for results in run.results]
    rows = [
        row for one in every if one["task"] == "classification" for row in _without_encoder(one)
    ]
    return [row for place, row in enumerate(rows) if row not in rows[:place]]


def _without_encoder(results: Mapping[str, Any]) -> Iterator[Row]:
    """A bag of words and the commonest label, trained and tested as the embeddings were."""
    for name, matrix in (results.get("matrices") or {}).items():
        means = matrix.get("mean") or {}
        for kind, title in _WITHOUT_ENCODER.items():
            if kind not in means:
                continue
            # The task's summary of the baseline's accuracies as if they were an encoder's.
            part = matrix | {"mean": {"accuracy": means[kind]}, "accuracy": matrix.get(kind)}
            summary = TASKS["classification"].summary({**results, "matrices": {name: part}})
            for data, scores, how in summary:
                how = how.removeprefix(f"{matrix.get('classifier')}, ")
                own = _languages(results, data)
                yield Row(title, data, scores, f"baseline, {how}", own, is_baseline=True)


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
