"""Zero-shot classification: labels in one language, documents in the others.

A logistic regression is trained on embeddings of one language and tested on all: rows are the
language of training, columns that of testing, as in MLDoc's tables. Beside it stand what chance
and a bag of words of the training language reach. Writes and prints nothing.
"""

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from xling_jax.eval.classification_data import (
    ClassificationData,
    LabelledText,
    load_classification_data,
)
from xling_jax.eval.retrieval import Encode, encode_unique

__all__ = [
    "C_VALUES",
    "ClassificationMatrix",
    "evaluate_classification",
    "load_classification_data",
    "measure_classification",
    "named_scores",
]

_logger = logging.getLogger(__name__)

# Choice: Yu et al. (2018) use logistic regression without naming the grid.
C_VALUES = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
_NUM_FOLDS = 5
_MAX_ITERATIONS = 2000


@dataclass(frozen=True)
class ClassificationMatrix:
    """Accuracies of every training language on every test language.

    Attributes:
        train_languages: names of the rows.
        test_languages: names of the columns.
        accuracies: "accuracy" (on embeddings), and with baselines "bag_of_words" and "chance"
            (always the most frequent training label), to [train, test] float64 in [0, 1].
        labels: what is told apart.
        test_split: the split that measured.
        selection: the rule that chose the regularization.
        chosen_c: inverse regularization strength chosen for each training language.
        num_train: training texts of each training language.
        num_test: test texts of each test language.
    """

    train_languages: tuple[str, ...]
    test_languages: tuple[str, ...]
    accuracies: dict[str, np.ndarray]
    labels: tuple[str, ...]
    test_split: str
    selection: str
    chosen_c: dict[str, float]
    num_train: dict[str, int]
    num_test: dict[str, int]

    def mean(self, which: str, kind: str = "accuracy") -> float:
        """Mean over the cells `same` (one language), `cross` (two) or `all`; NaN if none."""
        same = np.array(
            [[row == column for column in self.test_languages] for row in self.train_languages]
        )
        chosen = {"same": same, "cross": ~same, "all": np.ones_like(same)}[which]
        values = self.accuracies[kind][chosen]
        return float(values.mean()) if values.size else float("nan")

    def x_cross(self, train_language: str, kind: str = "accuracy") -> float:
        """Mean over the other languages of one row, X_cross in Li and Mak (2020), Table 3."""
        row = self.train_languages.index(train_language)
        others = [code != train_language for code in self.test_languages]
        values = self.accuracies[kind][row][others]
        return float(values.mean()) if values.size else float("nan")

    def to_dict(self) -> dict:
        """As plain numbers for JSON; means without a cell are left out."""
        tables = {
            kind: {
                row: dict(zip(self.test_languages, values[index].tolist()))
                for index, row in enumerate(self.train_languages)
            }
            for kind, values in self.accuracies.items()
        }
        means = {
            kind: {which: self.mean(which, kind) for which in ("same", "cross", "all")}
            for kind in self.accuracies
        }
        return {
            "train_languages": list(self.train_languages),
            "test_languages": list(self.test_languages),
            "labels": list(self.labels),
            "test_split": self.test_split,
            "selection": self.selection,
            "chosen_c": self.chosen_c,
            "num_train": self.num_train,
            "num_test": self.num_test,
            "mean": {kind: _without_nan(values) for kind, values in means.items()},
            "x_cross": _without_nan({code: self.x_cross(code) for code in self.train_languages}),
            **tables,
        }


def measure_classification(
    encode: Encode,
    data: ClassificationData,
    *,
    train_languages: Sequence[str] | None = None,
    c_values: Sequence[float] = C_VALUES,
    baselines: bool = True,
    seed: int = 0,
) -> ClassificationMatrix:
    """Embeds labelled text and measures zero-shot classification.

    Args:
        encode: texts to [n, dim] embeddings; called once, with each text once.
        data: labelled text. Where it has both dev and test, the regularization is chosen on the
            dev split of the training language; where only one of them, which then measures, by
            cross-validation on the training text. Test languages choose nothing.
        train_languages: rows of the matrix; None: every language with training text.
        c_values: inverse regularization strengths to choose from; a single one saves the search.
        baselines: whether to measure chance and a bag of words too.
        seed: shuffles the cross-validation.

    Returns:
        The accuracies.

    Raises:
        ValueError: if a training language has no training text or only one label, or `c_values`
            is empty or not positive.
    """
    train, test = data.splits["train"], data.splits[data.test_split]
    rows = tuple(train if train_languages is None else train_languages)
    for code in rows:
        if code not in train:
            raise ValueError(f"no training text in {code}; there is some in {', '.join(train)}")
        if len(set(train[code].labels)) < 2:
            raise ValueError(f"training needs two labels; the text in {code} has one")
    if not c_values or min(c_values) <= 0:
        raise ValueError(f"c_values must be positive, at least one; got {list(c_values)}")
    dev = data.splits["dev"] if data.test_split == "test" and "dev" in data.splits else {}

    parts = [*(train[code] for code in rows), *test.values(), *dev.values()]
    vectors, ids = encode_unique(encode, [part.texts for part in parts])
    kinds = ("accuracy", "bag_of_words", "chance") if baselines else ("accuracy",)
    accuracies = {kind: np.zeros((len(rows), len(test))) for kind in kinds}
    chosen_c = {}
    for index, code in enumerate(rows):
        task = (train[code], dev.get(code), test.values(), c_values, seed)
        embed = _conditioned(vectors, ids, train[code].texts)
        accuracies["accuracy"][index], chosen_c[code] = _train_and_test(embed, *task)
        if baselines:
            embed = _bag_of_words(train[code].texts)
            accuracies["bag_of_words"][index], _ = _train_and_test(embed, *task)
            names, counts = np.unique(train[code].labels, return_counts=True)
            commonest = names[counts.argmax()]
            accuracies["chance"][index] = [
                np.mean(np.array(part.labels) == commonest) for part in test.values()
            ]
    return ClassificationMatrix(
        train_languages=rows,
        test_languages=tuple(test),
        accuracies=accuracies,
        labels=data.labels,
        test_split=data.test_split,
        selection=_selection_rule(c_values, dev, rows),
        chosen_c=chosen_c,
        num_train={code: len(train[code].texts) for code in rows},
        num_test={code: len(part.texts) for code, part in test.items()},
    )


def evaluate_classification(
    encode: Encode, data: ClassificationData, **settings
) -> dict[str, float]:
    """Measures zero-shot classification as named numbers, for training loops and tables.

    Args:
        encode: texts to [n, dim] embeddings.
        data: labelled text.
        **settings: see `measure_classification`; `c_values=(1.0,)` and `baselines=False` make it
            cheap.

    Returns:
        `NAME/same`, `NAME/cross`, `NAME/all`, `NAME/x_cross_TRAIN`, `NAME/accuracy_TRAIN_TEST`
        and with baselines `NAME/bag_of_words_cross` and so on, in [0, 1]. The primary one is
        `NAME/cross`.

    Raises:
        ValueError: as `measure_classification`.
    """
    return named_scores(data.name, measure_classification(encode, data, **settings))


def named_scores(name: str, matrix: ClassificationMatrix) -> dict[str, float]:
    """Returns a matrix as the named numbers of `evaluate_classification`."""
    scores = {}
    for kind, values in matrix.accuracies.items():
        prefix = "" if kind == "accuracy" else f"{kind}_"
        for which in ("same", "cross", "all"):
            scores[prefix + which] = matrix.mean(which, kind)
        if kind == "accuracy":
            for row, train in enumerate(matrix.train_languages):
                scores[f"x_cross_{train}"] = matrix.x_cross(train)
                for column, test in enumerate(matrix.test_languages):
                    scores[f"accuracy_{train}_{test}"] = float(values[row, column])
    return {f"{name}/{metric}": value for metric, value in _without_nan(scores).items()}


def _train_and_test(
    embed: Callable[[list[str]], np.ndarray],
    train: LabelledText,
    dev: LabelledText | None,
    tests: Iterable[LabelledText],
    c_values: Sequence[float],
    seed: int,
) -> tuple[list[float], float]:
    """Returns the accuracy on each test text and the regularization chosen."""
    from threadpoolctl import threadpool_limits

    # These problems are too small for threads: on two busy cores they made a fit 50 times slower.
    with threadpool_limits(1):
        features, labels = embed(train.texts), np.array(train.labels)
        held_out = (embed(dev.texts), dev.labels) if dev else None
        c = _choose_c(features, labels, held_out, c_values, seed)
        classifier = _fit(features, labels, c)
        return [float(np.mean(classifier.predict(embed(t.texts)) == t.labels)) for t in tests], c


def _conditioned(
    vectors: np.ndarray, ids: Callable[[Sequence[str]], np.ndarray], train_texts: Sequence[str]
) -> Callable[[list[str]], np.ndarray]:
    """The function from texts to embeddings that a solver converges on.

    One shift and one scale for all features, from the training text: this changes what a value of
    C means and the time the solver takes, not which functions are learnable.
    """
    train = vectors[ids(train_texts)].astype(np.float32)
    mean = train.mean(axis=0)
    scale = float(np.sqrt(np.mean(np.square(train - mean)))) or 1.0
    return lambda texts: (vectors[ids(texts)] - mean) / scale


def _bag_of_words(train_texts: Sequence[str]) -> Callable[[list[str]], np.ndarray]:
    """The function from texts to tf-idf weights of the training text's words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # One-letter words count too: some languages have them, and single characters of Chinese.
    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    vectorizer.fit([*train_texts, "word"])  # "word": a vocabulary even for texts without any.
    return vectorizer.transform


def _choose_c(features, labels, held_out, c_values: Sequence[float], seed: int) -> float:
    """The value with the best accuracy in the training language; of equals the smallest."""
    candidates = sorted(c_values)
    if len(candidates) == 1:
        return candidates[0]
    if held_out is not None:
        dev_features, dev_labels = held_out
        correct = [
            np.sum(_fit(features, labels, c).predict(dev_features) == dev_labels)
            for c in candidates
        ]
    else:
        from sklearn.model_selection import StratifiedKFold

        folds = StratifiedKFold(_num_folds(labels), shuffle=True, random_state=seed)
        correct = np.zeros(len(candidates), np.int64)
        with warnings.catch_warnings():
            # A label rarer than the number of folds is in some folds only; that is fine here.
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            splits = list(folds.split(np.zeros(len(labels)), labels))
        for fit_rows, held_rows in splits:
            for place, c in enumerate(candidates):
                predicted = _fit(features[fit_rows], labels[fit_rows], c).predict(
                    features[held_rows]
                )
                correct[place] += np.sum(predicted == labels[held_rows])
    return candidates[int(np.argmax(correct))]


def _num_folds(labels: np.ndarray) -> int:
    return int(max(2, min(_NUM_FOLDS, np.unique(labels, return_counts=True)[1].max())))


def _fit(features, labels: np.ndarray, c: float):
    """A multinomial logistic regression with L2 regularization."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        classifier = LogisticRegression(C=c, max_iter=_MAX_ITERATIONS).fit(features, labels)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        _logger.info("logistic regression with C=%g stopped at %d iterations", c, _MAX_ITERATIONS)
    return classifier


def _selection_rule(c_values: Sequence[float], dev: dict, rows: Sequence[str]) -> str:
    if len(c_values) == 1:
        return "fixed C"
    if all(code in dev for code in rows):
        return "C by accuracy on the dev split of the training language"
    folds = f"C by {_NUM_FOLDS}-fold cross-validation on the training text"
    return f"{folds}, by the dev split where a language has one" if dev else folds


def _without_nan(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not np.isnan(value)}
