"""Evaluation while training: the data sets that a config names, task by task."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_jax.encode.encoder import Encoder
from xling_jax.eval.tasks import TASKS
from xling_jax.options import OptionError

Evaluator = Callable[[Any, int], Mapping[str, float]]
Measure = Callable[[Encoder], Mapping[str, float]]


def check_metric(
    evaluation: Mapping[str, Sequence[str]], metric: str, names: Mapping[str, str] | None = None
) -> None:
    """Refuses a `train.best_metric` that nothing measures.

    `names` of data sets -> tasks are None until known.
    """
    (data, _, last), option = metric.rpartition("/"), f"train.best_metric={metric!r}"
    if not any(evaluation.values()):
        tasks = ", ".join(f"evaluation.{task}" for task in TASKS)
        raise OptionError(f"{option} needs data in one of {tasks}")
    measuring = _tasks_with(evaluation, last)
    if not measuring:
        known = ", ".join(
            f"{task} measures {', '.join(filter(TASKS[task]().is_logged, TASKS[task].columns))}"
            for task, paths in evaluation.items()
            if paths
        )
        raise OptionError(f"{option}: no evaluation measures {last!r}; {known}")
    # A task may measure several things on a data set; their names begin with that of the data.
    if names is not None and not any(
        task in measuring and data.startswith(name) for name, task in names.items()
    ):
        known = ", ".join(names)
        raise OptionError(
            f"{option}: no data set in evaluation is called {data!r}; there is {known}"
        )


def goal_of(evaluation: Mapping[str, Sequence[str]], metric: str) -> str:
    """`max` or `min`, whichever is better for a metric."""
    last = metric.rpartition("/")[2]
    is_error = any(last in TASKS[task].lower_is_better for task in _tasks_with(evaluation, last))
    return "min" if is_error else "max"


def _tasks_with(evaluation: Mapping[str, Sequence[str]], metric: str) -> list[str]:
    return [task for task, paths in evaluation.items() if paths and TASKS[task]().is_logged(metric)]


def read_evaluation(
    evaluation: Mapping[str, Sequence[str]], languages: Sequence[str], metric: str = ""
) -> dict[str, Measure]:
    """Reads the data to measure while training, task -> paths.

    Returns the name of each data set -> function from an encoder to its metrics. OptionError if a
    path is missing, two data sets have the same name, or none has the metric, if one is named.
    """
    for task, paths in evaluation.items():
        for path in paths:
            if not Path(path).exists():
                raise OptionError(f"evaluation.{task}: {path}: no such file or directory")
    if metric:
        check_metric(evaluation, metric)
    named: dict[str, Measure] = {}
    task_of: dict[str, str] = {}
    for task, paths in evaluation.items():
        for path in paths:
            try:
                measures = TASKS[task]().while_training(path, languages)
            except ValueError as error:  # names the file, but not the setting that does
                kind = OptionError if isinstance(error, OptionError) else ValueError
                raise kind(f"evaluation.{task}: {error}") from error
            for name, measure in measures.items():
                if name in named:
                    twice = f"{path} and another data set would both be called {name}"
                    raise OptionError(f"evaluation.{task}: {twice} in the metrics; rename one")
                named[name], task_of[name] = measure, task
    if metric:
        check_metric(evaluation, metric, task_of)
    return named


def make_evaluators(measures: Mapping[str, Measure], encoder: Encoder) -> list[Evaluator]:
    """For each data set of `read_evaluation` a function of encoder parameters and step.

    It returns the metrics; `encoder` is without parameters.
    """
    return [
        lambda params, step, measure=measure: measure(encoder.with_params(params))
        for measure in measures.values()
    ]
