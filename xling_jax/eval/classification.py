"""Cross-lingual classification: labels in some languages, documents in others.

A classifier is trained on embeddings of labelled text and tested on all languages; `protocols`
says on which text, `classifiers` by what. Zero-shot gives MLDoc's tables: rows are the language
of training, columns that of testing. Beside it stand what chance and a bag of words of the
training text reach. Writes and prints nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from xling_jax.eval.classification_data import (
    ClassificationData,
    LabelledText,
    load_classification_data,
)
from xling_jax.eval.classifiers import (
    C_VALUES,
    CLASSIFIERS,
    NEURAL,
    Examples,
    selection_rule,
    train_classifier,
)
from xling_jax.eval.protocols import PROTOCOLS, is_same, list_trainings
from xling_jax.eval.retrieval import Encode, encode_unique

__all__ = [
    "CLASSIFIERS",
    "C_VALUES",
    "PROTOCOLS",
    "ClassificationMatrix",
    "embed_once",
    "evaluate_classification",
    "load_classification_data",
    "measure_classification",
    "named_scores",
]

_KINDS = ("accuracy", "oracle", "bag_of_words", "chance")


@dataclass(frozen=True)
class ClassificationMatrix:
    """Accuracies of every training on every test language.

    Attributes:
        train_languages: names of the rows; "itself" and "the others" where the protocol has one
            row for all languages.
        test_languages: names of the columns.
        accuracies: "accuracy" (on embeddings), where there is other development text "oracle"
            (selected on that of the test language), and with baselines "bag_of_words" and
            "chance" (always the most frequent training label), to [train, test] float64 in
            [0, 1], means over the seeds; NaN where not measured.
        by_seed: "accuracy" and "oracle" to [seeds, train, test].
        labels: what is told apart.
        test_split: the split that measured.
        protocol: one of `PROTOCOLS`.
        classifier: one of `CLASSIFIERS`.
        seeds: of the classifier; one for `logreg` and `svm`, which draw nothing but folds.
        selection: the rule that selected the classifier.
        chosen: what was selected in each training, C or the epoch, for each seed.
        num_train: training texts of each training.
        num_test: test texts of each test language.
    """

    train_languages: tuple[str, ...]
    test_languages: tuple[str, ...]
    accuracies: dict[str, np.ndarray]
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

    def mean(self, which: str, kind: str = "accuracy") -> float:
        """Mean over the cells `same` (one language), `cross` (two) or `all`; NaN if none."""
        return _mean(self.accuracies[kind][self._cells(which)])

    def spread(self, which: str, kind: str = "accuracy") -> float:
        """Standard deviation, over the seeds, of such a mean; NaN for one seed."""
        if kind not in self.by_seed or len(self.seeds) < 2:
            return float("nan")
        cells = self._cells(which)
        return float(np.std([_mean(values[cells]) for values in self.by_seed[kind]], ddof=1))

    def x_cross(self, train_language: str, kind: str = "accuracy") -> float:
        """Mean over the other languages of one row, X_cross in Li and Mak (2020), Table 3."""
        row = self.train_languages.index(train_language)
        return _mean(self.accuracies[kind][row][self._cells("cross")[row]])

    def to_dict(self) -> dict:
        """As plain numbers for JSON; means without a cell are left out."""
        kinds = ("same", "cross", "all")
        means = {
            kind: {which: self.mean(which, kind) for which in kinds} for kind in self.accuracies
        }
        spreads = {
            kind: {which: self.spread(which, kind) for which in kinds} for kind in self.by_seed
        }
        deviations = {
            f"{kind}_sd": np.std(values, axis=0, ddof=1)
            for kind, values in self.by_seed.items()
            if len(self.seeds) > 1
        }
        tables = {
            kind: {
                row: {code: _or_none(v) for code, v in zip(self.test_languages, values[index])}
                for index, row in enumerate(self.train_languages)
            }
            for kind, values in (self.accuracies | deviations).items()
        }
        return {
            "train_languages": list(self.train_languages),
            "test_languages": list(self.test_languages),
            "labels": list(self.labels),
            "test_split": self.test_split,
            "protocol": self.protocol,
            "classifier": self.classifier,
            "seeds": list(self.seeds),
            "selection": self.selection,
            "chosen": self.chosen,
            "num_train": self.num_train,
            "num_test": self.num_test,
            "mean": {kind: _without_nan(values) for kind, values in means.items()},
            "spread": {kind: _without_nan(values) for kind, values in spreads.items()},
            "x_cross": _without_nan({code: self.x_cross(code) for code in self.train_languages}),
            **tables,
        }

    def _cells(self, which: str) -> np.ndarray:
        same = np.array(
            [
                [is_same(self.protocol, row, column) for column in self.test_languages]
                for row in self.train_languages
            ]
        )
        return {"same": same, "cross": ~same, "all": np.ones_like(same)}[which]


def measure_classification(
    encode: Encode,
    data: ClassificationData,
    *,
    protocol: str = "zero-shot",
    classifier: str = "logreg",
    train_languages: Sequence[str] | None = None,
    c_values: Sequence[float] | None = None,
    baselines: bool = True,
    oracle: bool = True,
    seeds: Sequence[int] = (0,),
) -> ClassificationMatrix:
    """Embeds labelled text and measures classification across languages.

    Args:
        encode: texts to [n, dim] embeddings; called once, with each text once.
        data: labelled text. Where it has both dev and test, the classifier is selected on the dev
            split of the training languages; where only one of them, which then measures, on the
            training text. Test languages choose nothing, but for the oracle.
        protocol: one of `PROTOCOLS`.
        classifier: one of `CLASSIFIERS`.
        train_languages: languages that may teach; None: every one with training text.
        c_values: of `logreg` and `svm`, inverse regularization strengths to choose from; a single
            one saves the search. None: the classifier's own, C_VALUES of `logreg`.
        baselines: whether to measure chance and a bag of words too.
        oracle: whether to select also on the dev split of each test language.
        seeds: of the classifier; `logreg` and `svm` use the first.

    Returns:
        The accuracies.

    Raises:
        ValueError: if a training language has no training text or only one label, a setting is
            unknown, or an embedding is not finite.
    """
    train, test, dev = _splits(data)
    pool = tuple(train if train_languages is None else train_languages)
    for code in pool:
        if code not in train:
            raise ValueError(f"no training text in {code}; there is some in {', '.join(train)}")
    trainings = list_trainings(protocol, pool, test)
    taught = [_training_text(train, training.train) for training in trainings]
    embed = _embedder(encode, [*(train[code] for code in pool), *test.values(), *dev.values()])
    settings = {"c_values": c_values, "seeds": _needed_seeds(classifier, seeds)}
    rows = tuple(dict.fromkeys(training.row for training in trainings))
    columns = tuple(code for code in test if any(code in t.tests for t in trainings))
    shape = (len(settings["seeds"]), len(rows), len(columns))
    scores = {kind: np.full(shape, np.nan) for kind in _KINDS[: None if baselines else 2]}
    chosen, num_train, num_dev = {}, {}, 0
    for training, part in zip(trainings, taught):
        held_out = _join(dev, [code for code in training.train if code in dev])
        tests = {code: test[code] for code in training.tests}
        oracles = {code: dev[code] for code in training.tests if oracle and code in dev}
        name = training.row if protocol == "zero-shot" else training.tests[0]
        measured, chosen[name] = _measure_training(
            classifier, embed, part, held_out, tests, oracles, settings
        )
        if baselines:
            measured |= _measure_baselines(part, held_out, tests, settings)
        for kind, by_test in measured.items():
            for code, values in by_test.items():
                scores[kind][:, rows.index(training.row), columns.index(code)] = values
        num_train[name] = len(part.texts)
        num_dev += held_out is not None
    scores = {kind: values for kind, values in scores.items() if not np.isnan(values).all()}
    return ClassificationMatrix(
        train_languages=rows,
        test_languages=columns,
        accuracies={kind: values.mean(axis=0) for kind, values in scores.items()},
        by_seed={kind: scores[kind] for kind in _KINDS[:2] if kind in scores},
        labels=data.labels,
        test_split=data.test_split,
        protocol=protocol,
        classifier=classifier,
        seeds=settings["seeds"],
        selection=selection_rule(classifier, c_values, num_dev, len(trainings)),
        chosen=chosen,
        num_train=num_train,
        num_test={code: len(test[code].texts) for code in columns},
    )


def embed_once(encode: Encode, data: ClassificationData) -> Encode:
    """Embeds all text of a data set now, for measuring it several times.

    Args:
        encode: texts to [n, dim] embeddings; called once, with each text once.
        data: labelled text.

    Returns:
        The function from texts of `data` to their embeddings.
    """
    parts = [part for split in data.splits.values() for part in split.values()]
    vectors, ids = encode_unique(encode, [part.texts for part in parts])
    return lambda texts: vectors[ids(texts)]


def evaluate_classification(
    encode: Encode, data: ClassificationData, **settings
) -> dict[str, float]:
    """Measures cross-lingual classification as named numbers, for training loops and tables.

    Args:
        encode: texts to [n, dim] embeddings.
        data: labelled text.
        **settings: see `measure_classification`; `c_values=(1.0,)` and `baselines=False` make it
            cheap.

    Returns:
        `NAME/same`, `NAME/cross`, `NAME/all`, `NAME/x_cross_TRAIN`, `NAME/accuracy_TRAIN_TEST`,
        with several seeds `NAME/cross_sd`, with an oracle `NAME/oracle_cross` and with baselines
        `NAME/bag_of_words_cross` and so on, in [0, 1]. The primary one is `NAME/cross`.

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
            scores[f"{prefix}{which}_sd"] = matrix.spread(which, kind)
        if kind == "accuracy":
            for row, train in enumerate(matrix.train_languages):
                train = train.replace(" ", "_")
                scores[f"x_cross_{train}"] = matrix.x_cross(matrix.train_languages[row])
                for column, test in enumerate(matrix.test_languages):
                    scores[f"accuracy_{train}_{test}"] = float(values[row, column])
    return {f"{name}/{metric}": value for metric, value in _without_nan(scores).items()}


def _splits(data: ClassificationData) -> tuple[dict, dict, dict]:
    """Training text, the text that measures, and the text that selects, by language."""
    selects = data.test_split == "test"
    dev = data.splits.get("dev", {}) if selects else {}
    return data.splits["train"], data.splits[data.test_split], dev


def _join(parts: dict[str, LabelledText], languages: Sequence[str]) -> LabelledText | None:
    """The text of several languages as one; None without a language."""
    chosen = [parts[code] for code in languages]
    if not chosen:
        return None
    return LabelledText(
        [text for part in chosen for text in part.texts],
        [label for part in chosen for label in part.labels],
    )


def _training_text(train: dict[str, LabelledText], languages: Sequence[str]) -> LabelledText:
    """The training text of several languages, if it can be learned from."""
    joined = _join(train, languages)
    if len(set(joined.labels)) < 2:
        raise ValueError(f"training needs two labels; the text in {', '.join(languages)} has one")
    return joined


def _embedder(encode: Encode, parts: Sequence[LabelledText]) -> Callable[[LabelledText], Examples]:
    """The function from labelled text to examples; embeds everything now."""
    vectors, ids = encode_unique(encode, [part.texts for part in parts])
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"embeddings must be finite; {np.sum(~finite)} of {len(finite)} texts have NaN or "
            f"infinite values; check the model"
        )
    return lambda part: Examples(vectors[ids(part.texts)], part.labels)


def _needed_seeds(classifier: str, seeds: Sequence[int]) -> tuple[int, ...]:
    """The seeds; only the first where no more than the folds of a cross-validation would change."""
    if not seeds:
        raise ValueError("seeds must hold at least one; got none")
    return tuple(seeds) if classifier in NEURAL else tuple(seeds)[:1]


def _measure_training(
    classifier: str,
    embed: Callable[[LabelledText], Examples],
    part: LabelledText,
    held_out: LabelledText | None,
    tests: dict[str, LabelledText],
    oracles: dict[str, LabelledText],
    settings: dict,
) -> tuple[dict[str, dict[str, list[float]]], list[float]]:
    """Accuracies by kind, test language and seed; and what was selected for each seed."""
    selected, known = train_classifier(
        classifier,
        embed(part),
        embed(held_out) if held_out else None,
        {code: embed(dev) for code, dev in oracles.items()},
        **settings,
    )
    measured: dict[str, dict[str, list[float]]] = {"accuracy": {}, "oracle": {}}
    for code, text in tests.items():
        examples = embed(text)
        measured["accuracy"][code] = [one.accuracy(examples) for one in selected]
        if code in known[0]:
            measured["oracle"][code] = [one[code].accuracy(examples) for one in known]
    return measured, [one.chosen for one in selected]


def _measure_baselines(
    part: LabelledText, held_out: LabelledText | None, tests: dict[str, LabelledText], settings
) -> dict[str, dict[str, float]]:
    """Accuracies by kind and test language of a bag of words and of the commonest label."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # One-letter words count too: some languages have them, and single characters of Chinese.
    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    vectorizer.fit([*part.texts, "word"])  # "word": a vocabulary even for texts without any.

    def embed(text: LabelledText) -> Examples:
        return Examples(vectorizer.transform(text.texts), text.labels)

    settings = settings | {"seeds": settings["seeds"][:1]}
    dev = embed(held_out) if held_out else None
    (selected,), _ = train_classifier("logreg", embed(part), dev, {}, **settings)
    names, counts = np.unique(part.labels, return_counts=True)
    commonest = names[counts.argmax()]
    return {
        "bag_of_words": {code: selected.accuracy(embed(text)) for code, text in tests.items()},
        "chance": {c: float(np.mean(np.array(t.labels) == commonest)) for c, t in tests.items()},
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _without_nan(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not np.isnan(value)}
