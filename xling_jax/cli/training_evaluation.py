"""What a run measures while it trains, as `config.evaluation` names it.

Cheap enough for every few minutes: each text is embedded once, a classifier is fitted once for
each set, with one regularization and without baselines. `xling evaluate` measures thoroughly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from xling_jax.cli.common import UsageError, require_file

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

Evaluator = Callable[[Any, int], Mapping[str, float]]

KINDS = ("retrieval", "classification")

_C = 1.0


def check_evaluation(config: ConfigDict) -> None:
    """Refuses what can be refused before anything is read.

    Raises:
        UsageError: if a path is missing, or a metric is to choose and none is measured.
    """
    for kind in KINDS:
        for path in config.evaluation.get(kind, ()):
            require_file(path, f"--config.evaluation.{kind}")
    if config.train.best_metric and not any(config.evaluation.get(kind) for kind in KINDS):
        raise UsageError(
            f"train.best_metric={config.train.best_metric!r} needs files in evaluation.retrieval "
            "or evaluation.classification"
        )


def make_evaluators(config: ConfigDict, encoder: Encoder) -> Sequence[Evaluator]:
    """Reads the data of `config.evaluation`.

    Args:
        config: of the run. `evaluation.retrieval` names parallel text as for `xling evaluate
            retrieval`: files, or directories such as Tatoeba's; `evaluation.classification`
            names directories of labelled text.
        encoder: without parameters.

    Returns:
        For each set a callable of (encoder parameters, step) to its metrics: of retrieval the
        means over directions, `NAME/p_at_1` and so on; of classification `NAME/same`,
        `NAME/cross` and `NAME/accuracy_TRAIN_TEST`, trained on English or else on the first of
        the config's languages that has training text.

    Raises:
        UsageError: if two sets have one name.
        ValueError, OSError: if the data is broken or has none of the languages.
    """
    from xling_jax.eval.retrieval_data import load_retrieval_data

    named: dict[str, Evaluator] = {}
    for kind in KINDS:
        for path in config.evaluation.get(kind, ()):
            if kind == "retrieval":
                data = load_retrieval_data(path, languages=config.languages)
                evaluator = _retrieval(encoder, data)
            else:
                data, evaluator = _classification(encoder, path, config.languages)
            if data.name in named:
                raise UsageError(
                    f"--config.evaluation.{kind}: {path} and another set are both called "
                    f"{data.name} in the metrics; rename one"
                )
            named[data.name] = evaluator
    return list(named.values())


def _retrieval(encoder: Encoder, data: Any) -> Evaluator:
    from xling_jax.eval.retrieval import measure_retrieval

    def evaluate(params: Any, step: int) -> Mapping[str, float]:
        del step
        matrix = measure_retrieval(encoder.with_params(params).encode, data)
        return {f"{data.name}/{metric}": matrix.mean(metric) for metric in matrix.metrics}

    return evaluate


def _classification(encoder: Encoder, path: str, languages: Sequence[str]) -> tuple[Any, Evaluator]:
    from xling_jax.eval.classification import evaluate_classification
    from xling_jax.eval.classification_data import list_languages, load_classification_data

    known = list_languages(path)
    shared = [code for code in languages if code in known]
    if not shared:
        raise ValueError(
            f"{path}: must hold text in one of the config's languages {', '.join(languages)}; "
            f"found {', '.join(known) or 'none'}"
        )
    data = load_classification_data(path, shared)
    labelled = list(data.splits["train"])
    train = "en" if "en" in labelled else labelled[0]

    def evaluate(params: Any, step: int) -> Mapping[str, float]:
        del step
        scores = evaluate_classification(
            encoder.with_params(params).encode,
            data,
            train_languages=[train],
            c_values=(_C,),
            baselines=False,
        )
        kept = ("same", "cross", f"accuracy_{train}_")
        return {
            name: score
            for name, score in scores.items()
            if name.removeprefix(f"{data.name}/").startswith(kept)
        }

    return data, evaluate
