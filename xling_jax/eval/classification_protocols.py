"""Protocols of cross-lingual classification: languages trained and tested on, and the accuracies.

Baselines are a bag of words and the most common label.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from xling_jax.eval.classification_data import ClassificationData, LabeledText
from xling_jax.eval.classifiers import NEURAL, Examples, selection_rule, train_classifier
from xling_jax.eval.results import known

PROTOCOLS = ("zero-shot", "targeted", "leave-one-out")
MEANS = ("same", "cross", "all")
# Kinds of accuracy, and what they are called in tables.
KINDS = {
    "accuracy": "embeddings",
    "oracle": "embeddings, selected on the test language's dev split (oracle)",
    "bag_of_words": "bag of words",
    "chance": "commonest label",
}


def list_trainings(
    protocol: str, train_languages: Sequence[str], test_languages: Collection[str]
) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Lists the trainings of a protocol: row of the table, languages trained and tested on.

    `zero-shot` trains on each language and tests on all. `targeted` trains, selects and tests in
    one language; what Yu et al. (2018) call targeted, a zero-shot classifier selected in the test
    language, is the oracle of zero-shot. `leave-one-out` trains on all languages but that of the
    test.
    """
    tests = tuple(test_languages)
    if protocol == "zero-shot":
        trainings = [(code, (code,), tests) for code in train_languages]
    elif protocol == "targeted":
        trainings = [("itself", (code,), (code,)) for code in tests if code in train_languages]
    else:
        others = {code: tuple(c for c in train_languages if c != code) for code in tests}
        trainings = [("the others", others[c], (c,)) for c in tests if others[c]]
    if not trainings:
        raise ValueError(
            f"{protocol} needs training text for one of the test languages {', '.join(tests)}; "
            f"there is some in {', '.join(train_languages) or 'none'}"
        )
    return trainings


def measure_protocol(
    embed: Callable[[LabeledText], Examples],
    data: ClassificationData,
    protocol: str,
    classifier: str,
    *,
    train_languages: Sequence[str] | None = None,
    c_values: Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    baselines: bool = True,
    fine_tune: Callable | None = None,
) -> ClassificationMatrix:
    """Trains a classifier by a protocol and tests it.

    With both dev and test text, the classifier is selected on the dev split of the training
    languages; with one of them, that one is tested on and the training text selects. Test
    languages select nothing, except for the oracle. Of the seeds, `logreg` and `svm` use the first,
    for folds alone; `c_values` and `fine_tune` are as for `train_classifier`. ValueError if a
    training text has too few labels.
    """
    train, test = data.splits["train"], data.splits[data.test_split]
    dev = data.splits.get("dev", {}) if data.test_split == "test" else {}
    pool = train_languages or tuple(train)
    trainings = list_trainings(protocol, pool, test)
    seeds = seeds if classifier in NEURAL else seeds[:1]
    rows = tuple(dict.fromkeys(row for row, _, _ in trainings))
    columns = tuple(code for code in test if any(code in tests for _, _, tests in trainings))
    scores = {kind: np.full((len(seeds), len(rows), len(columns)), np.nan) for kind in KINDS}
    chosen, num_train, num_dev = {}, {}, 0
    for row, sources, tests in trainings:
        text = _join(train[code] for code in sources)
        held_out = _join(dev[code] for code in sources if code in dev)
        _check_labels(text, held_out, c_values, f"{data.path or data.name}", ", ".join(sources))
        own_dev = held_out if held_out.texts else None
        selected, by_oracle = train_classifier(
            classifier,
            embed(text),
            own_dev and embed(own_dev),
            {code: embed(dev[code]) for code in tests if code in dev},
            c_values=c_values,
            seeds=seeds,
            fine_tune=fine_tune,
        )
        guesses = _train_baselines(text, own_dev, c_values, seeds[:1]) if baselines else {}
        for code in tests:
            cell = np.s_[:, rows.index(row), columns.index(code)]
            examples = embed(test[code])
            scores["accuracy"][cell] = [one.accuracy(examples) for one in selected]
            if code in by_oracle[0]:
                scores["oracle"][cell] = [one[code].accuracy(examples) for one in by_oracle]
            for kind, accuracy in guesses.items():
                scores[kind][cell] = accuracy(test[code])
        name = row if protocol == "zero-shot" else tests[0]
        chosen[name], num_train[name] = [one.chosen for one in selected], len(text.texts)
        num_dev += own_dev is not None
    return ClassificationMatrix(
        train_languages=rows,
        test_languages=columns,
        by_seed={kind: v for kind, v in scores.items() if not np.isnan(v).all()},
        labels=data.labels,
        test_split=data.test_split,
        protocol=protocol,
        classifier=classifier,
        seeds=tuple(seeds),
        selection=selection_rule(classifier, c_values, num_dev, len(trainings)),
        chosen=chosen,
        num_train=num_train,
        num_test={code: len(test[code].texts) for code in columns},
    )


def _check_labels(text, held_out, c_values, where: str, languages: str) -> None:
    """Refuses training text that nothing can be learned from, or selected on."""
    num_labels = len(set(text.labels))
    if num_labels < 2:
        raise ValueError(f"training needs two labels; the text in {languages} has one")
    folds = not held_out.texts and (c_values is None or len(c_values) > 1)
    if folds and num_labels == len(text.labels):
        raise ValueError(
            f"{where}: the train text in {languages} has {num_labels} labels, each once, and "
            "cross-validation needs one twice; add a dev split, or give one value in --c-values; "
            "are label and text swapped?"
        )


@dataclass(frozen=True)
class ClassificationMatrix:
    """Accuracies of every training on every test language.

    Attributes:
        train_languages: names of the rows; "itself" or "the others" where there is only one.
        by_seed: a kind of accuracy, see `KINDS`, -> [seeds, train, test] float64 in [0, 1]; NaN
            where not measured.
        selection: the rule that selected the classifier.
        chosen: what was selected in each training, C or the epoch, for each seed.
        num_train, num_test: texts of each training and of each test language.
    """

    train_languages: tuple[str, ...]
    test_languages: tuple[str, ...]
    by_seed: dict[str, np.ndarray]
    labels: tuple[str, ...]
    test_split: str
    protocol: str
    classifier: str
    seeds: tuple[int, ...]
    selection: str
    chosen: dict[str, list[float]]
    num_train: dict[str, int]
    num_test: dict[str, int]

    @functools.cached_property
    def accuracies(self) -> dict[str, np.ndarray]:
        """Means over the seeds, [train, test] for each kind in `by_seed`."""
        return {kind: values.mean(axis=0) for kind, values in self.by_seed.items()}

    @functools.cached_property
    def deviations(self) -> dict[str, np.ndarray]:
        """Standard deviations [train, test] over several seeds, of "accuracy" and "oracle"."""
        kinds = [kind for kind in ("accuracy", "oracle") if kind in self.by_seed]
        several = kinds if len(self.seeds) > 1 else []
        return {kind: np.std(self.by_seed[kind], axis=0, ddof=1) for kind in several}

    def mean(self, which: str, kind: str = "accuracy") -> float:
        """Mean over the cells `same` (one language), `cross` (two) or `all`; NaN if none."""
        return _mean(self.accuracies[kind][self._cells(which)])

    def spread(self, which: str, kind: str = "accuracy") -> float:
        """Standard deviation, over the seeds, of such a mean; NaN for one seed."""
        if kind not in self.deviations:
            return float("nan")
        cells = self._cells(which)
        return float(np.std([_mean(values[cells]) for values in self.by_seed[kind]], ddof=1))

    def x_cross(self, train_language: str, kind: str = "accuracy") -> float:
        """Mean over the other languages of one row, X_cross in Li and Mak (2020), Table 3."""
        row = self.train_languages.index(train_language)
        return _mean(self.accuracies[kind][row][self._cells("cross")[row]])

    def scores(self) -> dict[str, float]:
        """The primary one is `cross`.

        `same`, `x_cross_TRAIN`, `accuracy_TRAIN_TEST`, with several seeds `cross_sd`, with an
        oracle `oracle_cross`, and so on.
        """
        scores = {}
        for kind, values in self.accuracies.items():
            prefix = "" if kind == "accuracy" else f"{kind}_"
            for which in MEANS:
                scores[f"{prefix}{which}"] = self.mean(which, kind)
                scores[f"{prefix}{which}_sd"] = self.spread(which, kind)
            for row, train in enumerate(self.train_languages if kind == "accuracy" else ()):
                word = train.replace(" ", "_")
                scores[f"x_cross_{word}"] = self.x_cross(train)
                for column, test in enumerate(self.test_languages):
                    scores[f"accuracy_{word}_{test}"] = float(values[row, column])
        return known(scores)

    def to_dict(self) -> dict:
        """As plain values for JSON; means without a cell are left out, other cells are None."""
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del facts["by_seed"]
        spreads = [kind for kind in ("accuracy", "oracle") if kind in self.by_seed]
        tables = self.accuracies | {f"{kind}_sd": v for kind, v in self.deviations.items()}

        def nested(values: np.ndarray) -> dict[str, dict[str, float | None]]:
            cells = np.where(np.isnan(values), None, values).tolist()
            rows = (dict(zip(self.test_languages, row)) for row in cells)
            return dict(zip(self.train_languages, rows))

        return facts | {
            "mean": {k: known({w: self.mean(w, k) for w in MEANS}) for k in self.accuracies},
            "spread": {k: known({w: self.spread(w, k) for w in MEANS}) for k in spreads},
            "x_cross": known({code: self.x_cross(code) for code in self.train_languages}),
            **{kind: nested(values) for kind, values in tables.items()},
        }

    def _cells(self, which: str) -> np.ndarray:
        """[train, test] bool."""
        same = np.array(self.train_languages)[:, None] == np.array(self.test_languages)
        same |= self.protocol == "targeted"  # whose row is called "itself"
        return {"same": same, "cross": ~same, "all": np.ones_like(same)}[which]


def _join(parts: Iterable[LabeledText]) -> LabeledText:
    joined = LabeledText([], [])
    for part in parts:
        joined.texts.extend(part.texts)
        joined.labels.extend(part.labels)
    return joined


def _train_baselines(
    text: LabeledText,
    dev: LabeledText | None,
    c_values: Sequence[float] | None,
    seeds: Sequence[int],
) -> dict[str, Callable[[LabeledText], float]]:
    """The accuracy on any text of a bag of words, and of always the most common label."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # One-letter words count too: some languages have them, and Chinese has single characters.
    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    vectorizer.fit([*text.texts, "word"])  # "word": a vocabulary even for texts without any.
    embed = lambda part: Examples(vectorizer.transform(part.texts), part.labels)
    (selected,), _ = train_classifier(
        "logreg", embed(text), dev and embed(dev), {}, c_values=c_values, seeds=seeds
    )
    names, counts = np.unique(text.labels, return_counts=True)
    commonest = names[counts.argmax()]
    return {
        "bag_of_words": lambda part: selected.accuracy(embed(part)),
        "chance": lambda part: float(np.mean(np.array(part.labels) == commonest)),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")
