"""What an encoder must beat: the baselines that its results hold, as rows of the comparison."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xling_jax.eval.tasks import TASKS

# Parts of a classification matrix that need no encoder.
_WITHOUT_ENCODER = {"bag_of_words": "bag of words", "chance": "commonest label"}
_WHOLE_DOCUMENTS = {"document": "whole documents", "first512": "first 512 tokens"}
_SIMILARITIES = ("cosine", "margin")


class Baseline(NamedTuple):
    """Its name, that of the data, heading of a column -> percentage, and how it was measured."""

    name: str
    data: str
    scores: dict[str, float]
    how: str


def baselines(run: str, results: Mapping[str, Any]) -> Iterator[Baseline]:
    """The baselines in the content of a `results.json`; `run` names those that need its encoder."""
    if results["task"] == "classification":
        yield from _without_encoder(results)
    elif results["task"] == "alignment":
        yield from _whole_documents(run, results)


def _without_encoder(results: Mapping[str, Any]) -> Iterator[Baseline]:
    """A bag of words and the commonest label, trained and tested as the embeddings were."""
    for name, matrix in (results.get("matrices") or {}).items():
        means = matrix.get("mean") or {}
        for kind, title in _WITHOUT_ENCODER.items():
            if kind not in means:
                continue
            # What the task says of the baseline's accuracies as if they were an encoder's.
            part = matrix | {"mean": {"accuracy": means[kind]}, "accuracy": matrix.get(kind)}
            summary = TASKS["classification"].summary({**results, "matrices": {name: part}})
            for data, scores, how in summary:
                how = how.removeprefix(f"{matrix.get('classifier')}, ")
                yield Baseline(title, data, scores, f"baseline, {how}")


def _whole_documents(run: str, results: Mapping[str, Any]) -> Iterator[Baseline]:
    """Documents embedded at once, not by sentences."""
    metrics = results["metrics"]
    column = TASKS["alignment"].columns["recall"]
    for data in results.get("matrices") or {}:
        for kind, title in _WHOLE_DOCUMENTS.items():
            for similarity in _SIMILARITIES:
                value = metrics.get(f"{data}/recall_{kind}_{similarity}")
                if value is not None:
                    how = f"baseline, by {similarity}"
                    yield Baseline(f"{run}, {title}", data, {column: 100 * value}, how)
