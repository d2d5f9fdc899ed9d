"""Cross-lingual classification: labels in some languages, texts in others.

A protocol says which languages a classifier is trained and tested on. Baselines are a bag of words
and the most common label.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xling_jax.encode.documents import document_encoder
from xling_jax.encode.unique import encode_unique
from xling_jax.eval.classification_data import (
    ClassificationData,
    LabeledText,
    list_languages,
    load_classification_data,
)
from xling_jax.eval.classifiers import (
    CLASSIFIERS,
    NEURAL,
    Examples,
    default_c_values,
    selection_rule,
    train_classifier,
)
from xling_jax.eval.results import Heatmap, markdown_table, percent
from xling_jax.eval.tasks import Task
from xling_jax.options import OptionError, option, wrong_use
from xling_jax.registry import check_choice

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)

PROTOCOLS = ("zero-shot", "targeted", "leave-one-out")
DOCUMENTS = ("sequence", "sentences-mean", "sentences-max", "windows-mean", "windows-max")

_KINDS = {
    "accuracy": "embeddings",
    "oracle": "embeddings, selected on the test language's dev split (oracle)",
    "bag_of_words": "bag of words",
    "chance": "commonest label",
}
_MEANS = ("same", "cross", "all")


@dataclass(frozen=True)
class Classification(Task):
    """Trains classifiers on embeddings of labeled text and tests them on all languages.

    `python -m xling_jax.eval.mldoc` makes MLDoc's files from the licensed Reuters corpora.
    """

    train_languages: tuple[str, ...] | None = option(
        None, "languages with labels (default: all)", metavar="CODE,CODE"
    )
    classifiers: tuple[str, ...] = option(
        ("logreg",), "logreg (Yu), svm, mlp (LASER), linear (lightweight)", CLASSIFIERS,
        metavar="NAME,NAME",
    )  # fmt: skip
    protocols: tuple[str, ...] = option(
        ("zero-shot",),
        "zero-shot: train on each language, test on all; targeted: train, select and test in one; "
        "leave-one-out: train on all languages but that of the test",
        PROTOCOLS,
        metavar="NAME,NAME",
    )
    seeds: int = option(5, "runs of mlp and linear", positive=True, metavar="N")
    seed: int = option(0, "the first seed")
    c_values: tuple[float, ...] | None = option(
        None, "inverse regularization strengths to choose from", positive=True, metavar="C,C"
    )
    split: str | None = option(
        None,
        "split to test on (default: test, or dev where there is none); dev to compare checkpoints",
        ("dev", "test"),
    )
    documents: str = option(
        "sequence",
        "how a text becomes a vector: as one sequence, truncated to the model's longest; or the "
        "mean or maximum over its sentences, or over windows of 128 words, one every 64",
        DOCUMENTS,
    )
    splitter: str = option(
        "rule",
        "where sentences end: at punctuation (rule), or at each separate '.' of tokenized text "
        "(laser)",
        ("rule", "laser"),
    )
    max_tokens: int | None = option(
        None,
        "truncate sequences to N tokens (default: the model's longest)",
        positive=True,
        metavar="N",
    )

    baselines: bool = True

    title = "Classification"
    data_help = "directory of {train,dev,test}.LANG.tsv[.gz], label<TAB>text"
    several = False
    examples = """examples:
  xling evaluate classification --model M --data mldoc/ --train-languages en --output O
  xling evaluate classification --model M --data mldoc/ --classifiers mlp --seeds 3 --output O

MLDoc is made from the licensed Reuters corpora by python -m xling_jax.eval.mldoc.
"""
    columns = {"same": "same", "cross": "cross", "all": "all", "en": "en ↔ others"}
    primary = "cross"
    axes = ("train", "test")
    cheap = MappingProxyType({"c_values": (1.0,), "baselines": False})

    def load(
        self, paths: Sequence[str], languages: Sequence[str] | None
    ) -> list[ClassificationData]:
        """See `load_classification_data`."""
        known = list_languages(paths[0])
        asked = {"--languages": languages, "--train-languages": self.train_languages}
        for name, codes in asked.items():
            for code in codes or () if known else ():
                if code not in known:
                    where = f"no text in {code!r} in {paths[0]}"
                    raise OptionError(f"{name}: {where}; found {', '.join(known)}")
        data = load_classification_data(paths[0], languages)
        for code in self.train_languages or ():
            if code not in data.splits["train"]:
                read = ", ".join(data.splits["train"])
                raise OptionError(
                    f"--train-languages: no training text in {code!r} among that read ({read}); "
                    f"name it in --languages, too, or add train.{code}.tsv"
                )
        if self.split and self.split not in data.splits:
            raise OptionError(f"split: {paths[0]} has no {self.split} files")
        if self.split == "dev":  # else text of the test split would be embedded as well
            splits = {name: part for name, part in data.splits.items() if name != "test"}
            data = dataclasses.replace(data, splits=splits)
        return [data]

    def vector_files(self, data: Sequence[ClassificationData]) -> dict[str, Sequence[str]]:
        """`train.en.tsv.gz` has `train.en`; a header is no row."""
        if self.documents != "sequence" or self.max_tokens:
            raise OptionError("embeddings are of whole texts; leave out documents and max_tokens")
        return {
            f"{split}.{code}": part.texts
            for one in data
            for split, parts in one.splits.items()
            for code, part in parts.items()
        }

    def measure(
        self, encoder: Any, data: ClassificationData, directory: Path | None = None
    ) -> dict[str, ClassificationMatrix]:
        """Every protocol with every classifier; each text is embedded once."""
        if self.max_tokens is not None:
            with wrong_use("max_tokens"):
                encoder = encoder.with_max_length(self.max_tokens)
        mode, _, pooling = self.documents.partition("-")
        encode = document_encoder(
            encoder.encode, mode, pooling=pooling or "mean", splitter=self.splitter
        )
        texts = [part.texts for split in data.splits.values() for part in split.values()]
        vectors, ids = encode_unique(encode, texts)
        embed = lambda text: Examples(vectors[ids(text.texts)], text.labels)
        matrices = {}
        for protocol, classifier in itertools.product(
            dict.fromkeys(self.protocols), dict.fromkeys(self.classifiers)
        ):
            # The data alone names the measurement by zero-shot logistic regression.
            words = [w for w in (protocol, classifier) if w not in ("zero-shot", "logreg")]
            name = "_".join([data.name, *words]).replace("-", "_")
            matrices[name] = self._measure_one(embed, data, protocol, classifier)
            mean = percent(matrices[name].mean("all"))
            _logger.info("%s: %s, %s: %s%%", data.name, protocol, classifier, mean)
        return matrices

    def settings(
        self, encoder: Any, outcomes: Mapping[str, ClassificationMatrix]
    ) -> dict[str, Any]:
        """The options, and how each classifier was selected."""
        return {
            "classifier": ", ".join(self.classifiers),
            "protocol": ", ".join(self.protocols),
            "c_values": {
                name: list(self.c_values or default_c_values(name))
                for name in self.classifiers
                if name not in NEURAL
            },
            "seeds": list(range(self.seed, self.seed + self.seeds)),
            "documents": self.documents,
            "splitter": self.splitter,
            "max_tokens": self.max_tokens or getattr(encoder, "max_length_tokens", None),
            "selection": {name: matrix.selection for name, matrix in outcomes.items()},
        }

    def tables(
        self, data: Sequence[ClassificationData], outcomes: Mapping[str, ClassificationMatrix]
    ) -> list[str]:
        """All means first if there are several measurements, then a section for each."""
        tables = [classification_table(name, matrix) for name, matrix in outcomes.items()]
        if len(outcomes) > 1:
            summary = summary_table(outcomes.values())
            tables.insert(0, f"## {data[0].name}: accuracy, %\n\n{summary}\n")
        return tables

    def pictures(
        self, encoder: Any, data: Sequence[Any], outcomes: Mapping[str, ClassificationMatrix]
    ) -> Iterator[Heatmap]:
        """The matrix of each measurement."""
        for name, matrix in outcomes.items():
            means = {which: matrix.mean(which) for which in ("same", "cross")}
            if "bag_of_words" in matrix.accuracies:
                means["bag of words"] = matrix.mean("cross", "bag_of_words")
            shown = [f"{what} {percent(value)}" for what, value in _known(means).items()]
            yield Heatmap(
                f"{name}.matrix",
                matrix.accuracies["accuracy"],
                matrix.train_languages,
                matrix.test_languages,
                title=f"{name}: accuracy, %",
                subtitle=", ".join([matrix.protocol, *shown]),
                axes=self.axes,
            )

    def while_training(
        self, path: str, languages: Sequence[str]
    ) -> dict[str, Callable[[Encoder], dict[str, float]]]:
        """Trained on English, or else on the first of the languages with training text."""
        known = list_languages(path)
        shared = [code for code in languages if code in known]
        if not shared:
            wanted, found = ", ".join(languages), ", ".join(known) or "none"
            raise ValueError(f"{path}: must have text in one of {wanted}; found {found}")
        labeled = [code for code in shared if code in list_languages(path, ("train",))]
        first = ("en",) if "en" in labeled else tuple(labeled[:1])
        task = dataclasses.replace(self, train_languages=first or None)
        return super(Classification, task).while_training(path, shared)

    def is_logged(self, metric: str) -> bool:
        """Whether a metric is logged while training."""
        return metric in ("same", "cross") or metric.startswith("accuracy_")

    @classmethod
    def summary(cls, results: Mapping[str, Any]) -> list[tuple[str, dict[str, float], str]]:
        """One row for each protocol and classifier; a data set is named without these."""
        rows = []
        for name, matrix in (results.get("matrices") or {}).items():
            means = (matrix.get("mean") or {}).get("accuracy") or {}
            scores = {cls.columns[which]: 100 * value for which, value in means.items()}
            cells = matrix.get("accuracy") or {}
            out = [value for code, value in (cells.get("en") or {}).items() if code != "en"]
            back = [row.get("en") for code, row in cells.items() if code != "en"]
            if out and back and None not in (*out, *back):
                scores[cls.columns["en"]] = 100 * float(np.mean([*out, *back]))
            for part in (matrix.get("classifier"), matrix.get("protocol")):
                name = name.removesuffix(f"_{str(part).replace('-', '_')}")
            if scores:
                how = cls.conditions(results.get("settings") or {}, matrix)
                rows.append((name, scores, how))
        return rows

    @classmethod
    def conditions(cls, settings: Mapping[str, Any], matrix: Mapping[str, Any]) -> str:
        """Classifier, protocol, how documents are pooled, number of languages, split."""
        documents, languages = settings.get("documents"), matrix.get("test_languages")
        words = [matrix.get("classifier"), matrix.get("protocol")]
        words += [documents if documents != "sequence" else None]
        words += [f"{len(languages)} languages" if languages else None]
        words += [f"on {matrix['test_split']}" if matrix.get("test_split") else None]
        return ", ".join(filter(None, words))

    def _measure_one(
        self,
        embed: Callable[[LabeledText], Examples],
        data: ClassificationData,
        protocol: str,
        classifier: str,
    ) -> ClassificationMatrix:
        """One protocol with one classifier.

        With both dev and test text, the classifier is selected on the dev split of the training
        languages; with one of them, that one is tested on and the training text selects. Test
        languages select nothing, except for the oracle.
        """
        train, test = data.splits["train"], data.splits[data.test_split]
        dev = data.splits.get("dev", {}) if data.test_split == "test" else {}
        pool = self.train_languages or tuple(train)
        for code in pool:
            if code not in train:
                raise ValueError(f"no training text in {code}; there is some in {', '.join(train)}")
        trainings = list_trainings(protocol, pool, test)
        # Others than the neural classifiers draw nothing but the folds of a cross-validation.
        seeds = range(self.seed, self.seed + (self.seeds if classifier in NEURAL else 1))
        rows = tuple(dict.fromkeys(training.row for training in trainings))
        columns = tuple(code for code in test if any(code in t.tests for t in trainings))
        scores = {kind: np.full((len(seeds), len(rows), len(columns)), np.nan) for kind in _KINDS}
        chosen, num_train, num_dev = {}, {}, 0
        for training in trainings:
            text = _join(train[code] for code in training.train)
            if len(set(text.labels)) < 2:
                raise ValueError(
                    f"training needs two labels; the text in {', '.join(training.train)} has one"
                )
            held_out = _join(dev[code] for code in training.train if code in dev)
            folds = not held_out.texts and (self.c_values is None or len(self.c_values) > 1)
            if folds and len(set(text.labels)) == len(text.labels):
                raise ValueError(
                    f"{data.path or data.name}: the train text in {', '.join(training.train)} has "
                    f"{len(text.labels)} labels, each once, and cross-validation needs one twice; "
                    "add a dev split, or give one value in --c-values; are label and text swapped?"
                )
            selected, by_oracle = train_classifier(
                classifier,
                embed(text),
                embed(held_out) if held_out.texts else None,
                {code: embed(dev[code]) for code in training.tests if code in dev},
                c_values=self.c_values,
                seeds=seeds,
            )
            guesses = {}
            if self.baselines and classifier == self.classifiers[0]:
                guesses = _train_baselines(text, held_out, self.c_values, seeds[:1])
            for code in training.tests:
                cell = np.s_[:, rows.index(training.row), columns.index(code)]
                examples = embed(test[code])
                scores["accuracy"][cell] = [one.accuracy(examples) for one in selected]
                if code in by_oracle[0]:
                    scores["oracle"][cell] = [one[code].accuracy(examples) for one in by_oracle]
                for kind, accuracy in guesses.items():
                    scores[kind][cell] = accuracy(test[code])
            name = training.row if protocol == "zero-shot" else training.tests[0]
            chosen[name] = [one.chosen for one in selected]
            num_train[name] = len(text.texts)
            num_dev += bool(held_out.texts)
        return ClassificationMatrix(
            train_languages=rows,
            test_languages=columns,
            by_seed={kind: v for kind, v in scores.items() if not np.isnan(v).all()},
            labels=data.labels,
            test_split=data.test_split,
            protocol=protocol,
            classifier=classifier,
            seeds=tuple(seeds),
            selection=selection_rule(classifier, self.c_values, num_dev, len(trainings)),
            chosen=chosen,
            num_train=num_train,
            num_test={code: len(test[code].texts) for code in columns},
        )


@dataclass(frozen=True)
class ClassificationMatrix:
    """Accuracies of every training on every test language.

    Attributes:
        train_languages: names of the rows; "itself" or "the others" where there is only one.
        test_languages: names of the columns.
        by_seed: "accuracy" (on embeddings), where there is development text beside the test text
            "oracle" (selected on that of the test language), and with baselines "bag_of_words" and
            "chance" (always the most common training label) -> [seeds, train, test] float64 in
            [0, 1]; NaN where not measured.
        labels: of the training text.
        test_split: the split that was tested on.
        protocol: one of `PROTOCOLS`.
        classifier: one of `CLASSIFIERS`.
        seeds: of the classifier; one for `logreg` and `svm`, where only folds are random.
        selection: the rule that selected the classifier.
        chosen: what was selected in each training, C or the epoch, for each seed.
        num_train: training texts of each training.
        num_test: test texts of each test language.
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
        """Standard deviations [train, test] over the seeds of "accuracy" and "oracle", if any."""
        kinds = [kind for kind in ("accuracy", "oracle") if kind in self.by_seed]
        kinds = kinds if len(self.seeds) > 1 else []
        return {kind: np.std(self.by_seed[kind], axis=0, ddof=1) for kind in kinds}

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

    def scores(self, name: str) -> dict[str, float]:
        """The named numbers of a data set, in [0, 1]; the primary one is `NAME/cross`.

        `NAME/same`, `NAME/cross`, `NAME/all`, `NAME/x_cross_TRAIN`, `NAME/accuracy_TRAIN_TEST`,
        with several seeds `NAME/cross_sd`, with an oracle `NAME/oracle_cross` and with baselines
        `NAME/bag_of_words_cross`, and so on.
        """
        scores = {}
        for kind, values in self.accuracies.items():
            prefix = "" if kind == "accuracy" else f"{kind}_"
            for which in _MEANS:
                scores[f"{prefix}{which}"] = self.mean(which, kind)
                scores[f"{prefix}{which}_sd"] = self.spread(which, kind)
            for row, train in enumerate(self.train_languages if kind == "accuracy" else ()):
                word = train.replace(" ", "_")
                scores[f"x_cross_{word}"] = self.x_cross(train)
                for column, test in enumerate(self.test_languages):
                    scores[f"accuracy_{word}_{test}"] = float(values[row, column])
        return {f"{name}/{metric}": value for metric, value in _known(scores).items()}

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
            "mean": {k: _known({w: self.mean(w, k) for w in _MEANS}) for k in self.accuracies},
            "spread": {k: _known({w: self.spread(w, k) for w in _MEANS}) for k in spreads},
            "x_cross": _known({code: self.x_cross(code) for code in self.train_languages}),
            **{kind: nested(values) for kind, values in tables.items()},
        }

    def _cells(self, which: str) -> np.ndarray:
        """[train, test] bool."""
        same = np.full(
            (len(self.train_languages), len(self.test_languages)), self.protocol == "targeted"
        )
        if self.protocol == "zero-shot":
            same = np.array(self.train_languages)[:, None] == np.array(self.test_languages)
        return {"same": same, "cross": ~same, "all": np.ones_like(same)}[which]


class Training(NamedTuple):
    """One training: the row of the table that it fills, and the languages on either side."""

    row: str
    train: tuple[str, ...]
    tests: tuple[str, ...]


def list_trainings(
    protocol: str, train_languages: Sequence[str], test_languages: Collection[str]
) -> list[Training]:
    """Lists the trainings of a protocol, in the order of the languages.

    `zero-shot` trains on each language and tests on all. `targeted` trains, selects and tests in
    one language; what Yu et al. (2018) call targeted, a zero-shot classifier selected in the test
    language, is the oracle of zero-shot. `leave-one-out` trains on all languages but the one it
    tests on.

    Raises:
        ValueError: if the protocol is unknown or the languages leave nothing to measure.
    """
    check_choice("protocol", protocol, PROTOCOLS)
    tests = tuple(test_languages)
    if protocol == "zero-shot":
        trainings = [Training(code, (code,), tests) for code in train_languages]
    elif protocol == "targeted":
        both = [code for code in tests if code in train_languages]
        trainings = [Training("itself", (code,), (code,)) for code in both]
    else:
        others = {code: tuple(c for c in train_languages if c != code) for code in tests}
        trainings = [Training("the others", others[c], (c,)) for c in tests if others[c]]
    if not trainings:
        raise ValueError(
            f"{protocol} needs training text for one of the test languages {', '.join(tests)}; "
            f"there is some in {', '.join(train_languages) or 'none'}"
        )
    return trainings


def classification_table(name: str, matrix: ClassificationMatrix) -> str:
    """Returns the Markdown section of one data set, protocol and classifier."""
    kinds = [kind for kind in _KINDS if kind in matrix.accuracies]
    means = [
        [_KINDS[kind], *(_cell(matrix.mean(w, kind), matrix.spread(w, kind)) for w in _MEANS)]
        for kind in kinds
    ]
    described = f"{len(matrix.labels)} labels; {matrix.selection}."
    if len(matrix.seeds) > 1:
        described += f" Mean ± standard deviation over {len(matrix.seeds)} seeds."
    title = f"{name}: {matrix.protocol}, {matrix.classifier}: accuracy on {matrix.test_split} text"
    sections = [f"## {title}, %", described, markdown_table(["features", *_MEANS], means)]
    for kind in kinds:
        values = matrix.accuracies[kind]
        spread = matrix.deviations.get(kind, np.full_like(values, np.nan))
        rows = [
            [
                f"**{row}**",
                *map(_cell, values[index], spread[index]),
                percent(matrix.x_cross(row, kind)),
            ]
            for index, row in enumerate(matrix.train_languages)
        ]
        header = [f"{_KINDS[kind]}, train \\ test", *matrix.test_languages, "X_cross"]
        sections.append(markdown_table(header, rows))
    return "\n\n".join(sections) + "\n"


def summary_table(matrices: Collection[ClassificationMatrix]) -> str:
    """Returns one Markdown table of several protocols and classifiers on one data set."""
    rows = []
    for matrix in matrices:
        oracle = ("same" if matrix.protocol == "targeted" else "cross", "oracle")
        has_oracle = "oracle" in matrix.accuracies
        means = [_cell(matrix.mean(w), matrix.spread(w)) for w in _MEANS]
        last = _cell(matrix.mean(*oracle), matrix.spread(*oracle)) if has_oracle else ""
        rows.append([matrix.protocol, matrix.classifier, *means, last])
    return markdown_table(["protocol", "classifier", *_MEANS, "oracle"], rows)


def _cell(mean: float, spread: float) -> str:
    return percent(mean) + ("" if np.isnan(spread) else f" ± {percent(spread)}")


def _join(parts: Iterable[LabeledText]) -> LabeledText:
    joined = LabeledText([], [])
    for part in parts:
        joined.texts.extend(part.texts)
        joined.labels.extend(part.labels)
    return joined


def _train_baselines(
    text: LabeledText,
    held_out: LabeledText,
    c_values: Sequence[float] | None,
    seeds: Sequence[int],
) -> dict[str, Callable[[LabeledText], float]]:
    """The accuracy on any text of a bag of words, and of always the most common label."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # One-letter words count too: some languages have them, and Chinese has single characters.
    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    vectorizer.fit([*text.texts, "word"])  # "word": a vocabulary even for texts without any.
    embed = lambda part: Examples(vectorizer.transform(part.texts), part.labels)
    dev = embed(held_out) if held_out.texts else None
    (selected,), _ = train_classifier(
        "logreg", embed(text), dev, {}, c_values=c_values, seeds=seeds
    )
    names, counts = np.unique(text.labels, return_counts=True)
    commonest = names[counts.argmax()]
    return {
        "bag_of_words": lambda part: selected.accuracy(embed(part)),
        "chance": lambda part: float(np.mean(np.array(part.labels) == commonest)),
    }


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")


def _known(values: dict[str, float]) -> dict[str, float]:
    """Those that are not NaN."""
    return {name: value for name, value in values.items() if not np.isnan(value)}
