"""What a run measures while it trains: the data sets that its config names, task by task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.eval.tasks import TASKS
from xling_jax.options import OptionError

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

Evaluator = Callable[[Any, int], Mapping[str, float]]


def check_evaluation(evaluation: Mapping[str, Sequence[str]], best_metric: str = "") -> None:
    """Refuses what can be refused before anything is read.

    Args:
        evaluation: task -> paths of its data.
        best_metric: of `train.best_metric`.

    Raises:
        OptionError: if a path is missing, or nothing measures the best metric.
    """
    for task, paths in evaluation.items():
        for path in paths:
            if not Path(path).exists():
                raise OptionError(f"evaluation.{task}: {path}: no such file or directory")
    if best_metric and not any(evaluation.values()):
        tasks = ", ".join(f"evaluation.{task}" for task in TASKS)
        raise OptionError(f"train.best_metric={best_metric!r} needs data in one of {tasks}")


def make_evaluators(
    evaluation: Mapping[str, Sequence[str]], languages: Sequence[str], encoder: Encoder
) -> list[Evaluator]:
    """Reads the data to measure while training.

    Args:
        evaluation: task -> paths of its data, as for `xling evaluate TASK`.
        languages: those of the config.
        encoder: without parameters.

    Returns:
        For each data set a callable of (encoder parameters, step) to its metrics.

    Raises:
        OptionError: if two data sets have the same name.
        ValueError, OSError: if the data is broken or has none of the languages.
    """
    named: dict[str, Evaluator] = {}
    for task, paths in evaluation.items():
        for path in paths:
            for name, evaluate in TASKS[task]().while_training(path, languages).items():
                if name in named:
                    twice = f"{path} and another data set would both be called {name}"
                    raise OptionError(f"evaluation.{task}: {twice} in the metrics; rename one")
                named[name] = lambda params, step, evaluate=evaluate: evaluate(
                    encoder.with_params(params)
                )
    return list(named.values())
