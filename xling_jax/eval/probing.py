"""SentEval: what simple classifiers find in the embeddings of one language.

The protocol is that of SentEval's validation.py: nested cross-validation of a single set (MR, CR,
SUBJ, MPQA), cross-validation on the training text where there is a test set (TREC), selection on
the dev set where there is one. Rows are first sorted by their number of words, as the folds
depend on it.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.encode.texts import encode_unique
from xling_jax.eval.classification_data import LabeledText
from xling_jax.eval.probing_data import ProbingTask, load_tasks
from xling_jax.eval.results import markdown_table, percent
from xling_jax.eval.tasks import Task
from xling_jax.options import OptionError, option

_logger = logging.getLogger(__name__)

CLASSIFIERS = ("logreg", "mlp")
SEED = 1111

# Regularization: C of the logistic regression, with a dev set or nested folds and with folds of the
# training text; the weight decay of the MLP.
_STRENGTHS = {
    "logreg": (
        tuple(2.0**power for power in range(-2, 4)),
        tuple(2.0**power for power in range(-1, 6)),
    ),
    "mlp": (tuple(10.0**power for power in range(-5, -1)),) * 2,
}
_HELD_OUT_SHARE = 0.05  # of the training rows, for early stopping of the last MLP
_MAX_ITERATIONS = 1000

# Rows to train on, strength, dev rows (None: early stopping holds some out) -> rows to labels.
Fit = Callable[[np.ndarray, float, np.ndarray | None], Callable[[np.ndarray], np.ndarray]]


@dataclass(frozen=True)
class Probing(Task):
    """Measures what classifiers find in the embeddings, on SentEval's tasks and with its folds."""

    tasks: tuple[str, ...] | None = option(
        None, "tasks to measure (default: all)", metavar="NAME,NAME"
    )
    classifier: str = option(
        "logreg", "logistic regression, or one hidden layer with early stopping", CLASSIFIERS
    )
    # 128 is the size in Table 1 of Yu et al. (2018).
    hidden: int = option(128, "size of the hidden layer", positive=True)
    folds: int = option(10, "folds of the cross-validation", positive=True)
    seed: int = option(SEED, "random seed")

    title = "Probing"
    data_help = "SentEval's data, or a directory of .txt files of tr|va|te<TAB>label<TAB>text"
    several = False
    offers = frozenset()
    examples = """example:
  xling evaluate probing --model M --data SentEval/data --tasks MR,TREC --output O
"""
    columns = {"accuracy": "accuracy"}
    primary = "accuracy"
    cheap = {"folds": 3}

    def __post_init__(self):
        super().__post_init__()
        if self.folds < 2:
            raise OptionError(f"folds={self.folds} must be at least 2")

    def load(self, paths: Sequence[str], languages: Sequence[str] | None) -> list[ProbingTask]:
        """See `load_tasks`."""
        return load_tasks(paths[0], self.tasks)

    def measure(
        self, encoder: Any, data: ProbingTask, directory: Path | None = None
    ) -> dict[str, ProbingScores]:
        """Measures one of SentEval's tasks."""
        vectors, ids = encode_unique(encoder.encode, [part.texts for part in data.splits.values()])
        scores = self._measure_labels(data, lambda texts: np.float32(vectors[ids(texts)]))
        accuracy = percent(scores.metrics["accuracy"], decimals=2)
        _logger.info("%s: accuracy %s%%", data.name, accuracy)
        return {data.name: scores}

    def options(self, encoder: Any, outcomes: Mapping[str, ProbingScores]) -> dict[str, Any]:
        """The options, and how each task was measured."""
        selection = {name: one.protocol for name, one in outcomes.items()}
        return super().options(encoder, outcomes) | {"selection": selection}

    def tables(self, data: Sequence[Any], outcomes: Mapping[str, ProbingScores]) -> list[str]:
        """One row a task."""
        rows = [
            [
                name,
                one.protocol,
                *(percent(one.metrics[metric]) for metric in ("dev_accuracy", "accuracy")),
            ]
            for name, one in outcomes.items()
        ]
        table = markdown_table(["task", "protocol", "dev", "test"], rows)
        return [f"## SentEval with {self.classifier}, accuracy, %\n\n{table}\n"]

    def _measure_labels(self, task: ProbingTask, embed: Callable) -> ProbingScores:
        splits = {name: _sorted_by_length(split) for name, split in task.splits.items()}
        features = np.concatenate([embed(split.texts) for split in splits.values()])
        names = sorted(set(splits["all" if "all" in splits else "train"].labels))
        if len(names) < 2:
            raise ValueError(f"{task.name}: training needs two labels; found {len(names)}")
        index = {label: number for number, label in enumerate(names)}
        labels = np.array([index.get(y, -1) for part in splits.values() for y in part.labels])
        bounds = np.cumsum([0, *(len(split.labels) for split in splits.values())])
        rows = {name: np.arange(*bounds[i : i + 2]) for i, name in enumerate(splits)}
        if self.classifier == "mlp":
            fit = functools.partial(
                _fit_mlp, features, labels, self.seed, len(names), (self.hidden,)
            )
        else:
            fit = functools.partial(_fit_logistic, features, labels)
        strengths = _STRENGTHS[self.classifier]
        if "all" in splits:
            return self._nested(task, labels, fit, strengths[0])
        train, test, dev = rows["train"], rows["test"], rows.get("dev")
        if dev is not None:
            rule, (strengths, _), fits = "selected on dev", strengths, [(train, dev)]
        else:
            rule, (_, strengths) = f"{self.folds}-fold cross-validation on train", strengths
            folds = self._folds(task, labels[train], self.seed)
            fits = [(train[fitted], train[other]) for fitted, other in folds]
        strength, score = _choose(fit, fits, strengths, labels)
        predicted = fit(train, strength, dev)(test)
        metrics = {"accuracy": float(np.mean(predicted == labels[test])), "dev_accuracy": score}
        return ProbingScores(rule, metrics, len(train), len(test))

    def _nested(
        self, task: ProbingTask, labels: np.ndarray, fit: Fit, strengths: Sequence[float]
    ) -> ProbingScores:
        # As published, the seed of the folds is fixed, whatever that of the classifier.
        dev, test = [], []
        for outer, held in self._folds(task, labels, SEED):
            inner = [(outer[a], outer[b]) for a, b in self._folds(task, labels[outer], SEED)]
            strength, score = _choose(fit, inner, strengths, labels)
            dev.append(score)
            test.append(np.mean(fit(outer, strength, None)(held) == labels[held]))
        metrics = {"accuracy": float(np.mean(test)), "dev_accuracy": float(np.mean(dev))}
        rule = f"nested {self.folds}-fold cross-validation"
        return ProbingScores(rule, metrics, len(labels), len(labels))

    def _folds(self, task: ProbingTask, labels: np.ndarray, seed: int) -> list[tuple]:
        from sklearn.model_selection import StratifiedKFold

        rarest = np.unique(labels, return_counts=True)[1].min()
        if rarest < self.folds:
            rule = f"{self.folds} folds need as many rows of each label"
            raise ValueError(f"{task.name}: {rule}; the rarest has {rarest}; ask for fewer folds")
        folds = StratifiedKFold(self.folds, shuffle=True, random_state=seed)
        return list(folds.split(np.zeros(len(labels)), labels))


@dataclass(frozen=True)
class ProbingScores:
    """Scores of one task: how it was measured, accuracies, rows trained and tested on."""

    protocol: str
    metrics: dict[str, float]
    num_train: int
    num_test: int

    def scores(self) -> dict[str, float]:
        """`accuracy`, the one to report, and `dev_accuracy`."""
        return self.metrics

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"num_train": self.num_train, "num_test": self.num_test} | self.metrics


def _sorted_by_length(split: LabeledText) -> LabeledText:
    rows = sorted(zip(split.texts, split.labels), key=lambda row: (len(row[0].split()), row[1]))
    return LabeledText(*map(list, zip(*rows)))


def _choose(
    fit: Fit, fits: Sequence[tuple], strengths: Sequence[float], labels: np.ndarray
) -> tuple[float, float]:
    """The first best strength and its accuracy, to a hundredth of a percent, over (train, dev)."""
    accuracies = [
        np.mean([np.mean(fit(train, one, dev)(dev) == labels[dev]) for train, dev in fits])
        for one in strengths
    ]
    means = np.round(accuracies, 4)
    return strengths[int(means.argmax())], float(means.max())


def _fit_logistic(features, labels, train, strength, dev) -> Callable[[np.ndarray], np.ndarray]:
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # too small for threads
        model = LogisticRegression(C=strength, max_iter=_MAX_ITERATIONS)
        model.fit(features[train], labels[train])
    return lambda rows: model.predict(features[rows])


def _fit_mlp(
    features, labels, seed, num_labels, hidden, train, strength, dev
) -> Callable[[np.ndarray], np.ndarray]:
    from xling_jax.eval import mlp

    if dev is None:
        order = np.random.default_rng([seed, 3]).permutation(train)
        # Choice: at least one row; SentEval's tasks always have more than twenty.
        count = max(1, int(_HELD_OUT_SHARE * len(train)))
        train, dev = order[count:], order[:count]
    (kept,) = mlp.train(
        dataclasses.replace(mlp.SENTEVAL, hidden=hidden),
        features,
        labels,
        num_labels,
        [lambda network: np.mean(network(features[dev]).argmax(axis=1) == labels[dev])],
        seed=seed,
        rows=train,
        l2=strength,
    )
    return lambda rows: kept.network(features[rows]).argmax(axis=1)
