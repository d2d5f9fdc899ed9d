"""Classifiers by name, and how each is selected on development text.

Of `logreg` (Yu et al. 2018) and `svm` the regularization strength is selected, of `mlp` (LASER) and
`linear` (the lightweight model, with LASER's schedule) the epoch, as of `finetune`, which trains
the encoder, too. Oracles select on development text of the test language, which no real classifier
could.
"""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

NEURAL = ("mlp", "linear", "finetune")
CLASSIFIERS = ("logreg", "svm", *NEURAL)

# Choice: Yu et al. (2018) do not give the grid of their logistic regression. The SVM sees vectors
# of length near sqrt(dim); with larger values it separates everything and takes long.
C_VALUES = {
    "logreg": (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3),
    "svm": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
}
_NUM_FOLDS = 5
# Choice: without development text the epoch is selected on this share of the training text, which
# is then not trained on. MLDoc has development text.
_HELD_OUT_SHARE = 0.1


@dataclass(frozen=True)
class Examples:
    """Features [n, dim], dense or sparse, and the label of each row."""

    features: np.ndarray
    labels: Sequence[str]


@dataclass(frozen=True)
class Selected:
    """A trained classifier: features [n, dim] -> labels; the C or epoch (from 1) chosen."""

    predict: Callable[[np.ndarray], np.ndarray]
    chosen: float

    def accuracy(self, examples: Examples) -> float:
        """Share of right answers."""
        return float(np.mean(self.predict(examples.features) == np.array(examples.labels)))


def train_classifier(
    name: str,
    train: Examples,
    dev: Examples | None,
    oracles: Mapping[str, Examples],
    *,
    c_values: Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    fine_tune: Callable | None = None,
) -> tuple[list[Selected], list[dict[str, Selected]]]:
    """Trains a classifier and selects it on development text, and again on that of each oracle.

    Without `dev`, `logreg` and `svm` cross-validate on the training text, and the neural ones hold
    out a tenth of it. A single one of the `c_values`, inverse regularization strengths, saves the
    search; None are those of `C_VALUES`. Seeds are of first weights, order and dropout, or
    of the folds. `finetune` needs `fine_tune`, see `fine_tuning.tuner`, and its examples.

    Returns the classifier selected for each seed, and for each seed those of the oracles.
    """
    if name in NEURAL:
        return _train_neural(name, train, dev, oracles, seeds, fine_tune)
    from threadpoolctl import threadpool_limits

    # The problems are too small for threads, which made a fit 50 times slower on two busy cores.
    with threadpool_limits(1):
        return _train_by_c(name, train, dev, oracles, sorted(c_values or C_VALUES[name]), seeds)


def selection_rule(name: str, c_values: Sequence[float] | None, num_dev: int, num_rows: int) -> str:
    """How a classifier is selected where `num_dev` of `num_rows` trainings have dev text."""
    if name in NEURAL:
        epoch = "first" if name == "finetune" else "last"
        where, otherwise = (
            f"{epoch} epoch of best accuracy",
            f"{_HELD_OUT_SHARE:.0%} held out of it",
        )
    elif c_values is not None and len(c_values) == 1:
        return "fixed C"
    else:
        where, otherwise = "C by accuracy", f"{_NUM_FOLDS}-fold cross-validation on it"
    if num_dev == num_rows:
        return f"{where} on the dev split of the training language"
    rule = f"{where} on the training text, {otherwise}"
    return f"{rule}, or on the dev split where a language has one" if num_dev else rule


def _train_by_c(name, train, dev, oracles, c_values, seeds):
    """`logreg` and `svm`."""
    from sklearn.exceptions import ConvergenceWarning

    condition = _conditioning(train.features)
    features, labels = condition(train.features), np.array(train.labels)
    fitted: dict[float, Selected] = {}

    def fit(c: float) -> Selected:
        if c not in fitted:
            with warnings.catch_warnings():  # after so many iterations, nearly enough
                warnings.simplefilter("ignore", ConvergenceWarning)
                model = _classifier(name, c).fit(features, labels)
            fitted[c] = Selected(lambda rows: model.predict(condition(rows)), c)
        return fitted[c]

    def select(examples: Examples) -> Selected:
        scores = [fit(c).accuracy(examples) for c in c_values]
        return fit(c_values[int(np.argmax(scores))])  # the smallest of the best

    if len(c_values) == 1:
        selected = [fit(c_values[0])] * len(seeds)
        oracles = {}  # Nothing to choose.
    elif dev is not None:
        selected = [select(dev)] * len(seeds)
    else:
        selected = [fit(_cross_validate(name, features, labels, c_values, seed)) for seed in seeds]
    known = {code: select(examples) for code, examples in oracles.items()}
    return selected, [known] * len(seeds)


def _train_neural(name, train, dev, oracles, seeds, fine_tune):
    """`mlp`, `linear` and `finetune`."""
    from xling_jax.eval import mlp

    names, labels = np.unique(np.array(train.labels), return_inverse=True)
    features = train.features
    if name != "finetune":
        features = np.asarray(features, np.float32)
        fine_tune = functools.partial(mlp.train, {"mlp": mlp.LASER, "linear": mlp.LINEAR}[name])

    def classifier(network: Callable, epoch: int = 0) -> Selected:
        return Selected(lambda rows: names[network(rows).argmax(axis=1)], epoch)

    # Labels that training does not know are always wrong.
    look = lambda examples: lambda network: classifier(network).accuracy(examples)
    selected, by_oracle = [], []
    for seed in seeds:
        rows, own = np.arange(len(labels)), dev
        if dev is None:
            held = _held_out(labels, seed)
            rows, own = rows[~held], Examples(features[held], names[labels[held]])
        one, *others = fine_tune(
            features,
            labels,
            len(names),
            [*map(look, (own, *oracles.values()))],
            seed=seed,
            rows=rows,
        )
        selected.append(classifier(one.network, one.epoch))
        kept = zip(oracles, others)
        by_oracle.append({code: classifier(best.network, best.epoch) for code, best in kept})
    return selected, by_oracle


def _held_out(labels: np.ndarray, seed: int) -> np.ndarray:
    """[n] bool, a random tenth of each label's rows; every label is still trained on."""
    rng = np.random.default_rng([seed, 2])
    held = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        held[rows[: round(_HELD_OUT_SHARE * len(rows))]] = True
    if not held.any():  # tiny data: one row of the most common label
        held[np.flatnonzero(labels == np.bincount(labels).argmax())[-1]] = True
    return held


def _conditioning(train) -> Callable:
    """The function from features to those that a solver converges on; sparse ones stay.

    All are shifted and scaled alike, by the training text: this changes the meaning of C and the
    time the solver takes, not which functions can be learned.
    """
    from scipy.sparse import issparse

    if issparse(train):
        return lambda features: features
    train = np.asarray(train, np.float32)
    mean = train.mean(axis=0)
    scale = float(np.sqrt(np.mean(np.square(train - mean)))) or 1.0
    return lambda features: (np.asarray(features, np.float32) - mean) / scale


def _cross_validate(name: str, features, labels: np.ndarray, c_values, seed: int) -> float:
    """The value with the most right answers over the folds, the smallest of several."""
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    commonest = np.unique(labels, return_counts=True)[1].max()
    num_folds = int(max(2, min(_NUM_FOLDS, commonest)))
    folds = StratifiedKFold(num_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # A label with fewer rows than folds is missing from some folds; one without any other
        # label cannot be learned from.
        warnings.simplefilter("ignore")
        scores = [
            cross_val_score(_classifier(name, c), features, labels, cv=folds) for c in c_values
        ]
    return c_values[int(np.argmax(np.nanmean(scores, axis=1)))]


def _classifier(name: str, c: float):
    """A multinomial logistic regression, or a linear SVM, one-versus-rest; with L2 penalty."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if name == "svm":
        return LinearSVC(C=c, dual=True, max_iter=1000, random_state=0)
    return LogisticRegression(C=c, max_iter=2000)
