"""Cross-lingual classification: labels in some languages, texts in others."""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.encode.documents import document_encoder
from xling_jax.encode.encoder import Encoder
from xling_jax.encode.texts import encode_unique
from xling_jax.eval.classification_data import (
    ClassificationData,
    list_languages,
    load_classification_data,
)
from xling_jax.eval.classification_protocols import (
    KINDS,
    MEANS,
    PROTOCOLS,
    ClassificationMatrix,
    measure_protocol,
)
from xling_jax.eval.classifiers import C_VALUES, CLASSIFIERS, NEURAL, Examples
from xling_jax.eval.results import Heatmap, markdown_table, percent
from xling_jax.eval.tasks import Task
from xling_jax.options import OptionError, option, wrong_use

_logger = logging.getLogger(__name__)

DOCUMENTS = ("sequence", "sentences-mean", "sentences-max", "windows-mean", "windows-max")


@dataclass(frozen=True)
class Classification(Task):
    """Trains classifiers on embeddings of labeled text and tests them on all languages.

    `python -m xling_jax.eval.mldoc` makes MLDoc's files from the licensed Reuters corpora.
    """

    train_languages: tuple[str, ...] | None = option(
        None, "languages with labels (default: all)", metavar="CODE,CODE"
    )
    classifiers: tuple[str, ...] = option(
        ("logreg",),
        "logreg (Yu), svm, mlp (LASER), linear (lightweight); finetune: the encoder with a linear "
        "layer on top, as mBERT",
        CLASSIFIERS,
        metavar="NAME,NAME",
    )
    protocols: tuple[str, ...] = option(
        ("zero-shot",),
        "zero-shot: train on each language, test on all; targeted: train, select and test in one; "
        "leave-one-out: train on all languages but that of the test",
        PROTOCOLS,
        metavar="NAME,NAME",
    )
    seeds: int = option(5, "number of runs of mlp, linear and finetune", positive=True, metavar="N")
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
    columns = {"same": "same", "cross": "cross", "all": "all"}
    primary = "cross"
    axes = ("train", "test")
    cheap = {"c_values": (1.0,), "baselines": False}

    def load(
        self, paths: Sequence[str], languages: Sequence[str] | None
    ) -> list[ClassificationData]:
        """See `load_classification_data`."""
        data = load_classification_data(paths[0], languages)
        for code in self.train_languages or ():
            if code not in data.splits["train"]:
                read = ", ".join(data.splits["train"])
                raise OptionError(
                    f"--train-languages: no training text in {code!r} among that read ({read}); "
                    f"name it in --languages, too, or add train.{code}.tsv"
                )
        if self.split and self.split not in data.splits:
            raise OptionError(f"split={self.split}: {paths[0]} has no such files")
        if self.split == "dev":  # else text of the test split would be embedded as well
            data.splits.pop("test", None)
        return [data]

    def measure(
        self, encoder: Any, data: ClassificationData, directory: Path | None = None
    ) -> dict[str, ClassificationMatrix]:
        """Every protocol with every classifier; each text is embedded, or tokenized, once."""
        tunes = "finetune" in self.classifiers
        if tunes and self.documents != "sequence":
            rule = "finetune reads each text as one sequence"
            raise OptionError(f"documents={self.documents}: {rule}")
        if self.max_tokens is not None:
            with wrong_use(f"max_tokens={self.max_tokens}"):
                encoder = encoder.with_max_length(self.max_tokens)
        mode, _, pooling = self.documents.partition("-")
        encode = document_encoder(encoder.encode, mode, pooling=pooling or "mean")
        texts = [part.texts for split in data.splits.values() for part in split.values()]
        inputs = {}
        if set(self.classifiers) - {"finetune"}:
            vectors, ids = encode_unique(encode, texts)
            inputs["vectors"] = lambda text: Examples(vectors[ids(text.texts)], text.labels)
        fine_tune = None
        if tunes:
            from xling_jax.eval.fine_tuning import tuner

            with wrong_use("classifiers=finetune"):
                inputs["tokens"], fine_tune = tuner(encoder, texts)
        matrices = {}
        for protocol, classifier in itertools.product(
            dict.fromkeys(self.protocols), dict.fromkeys(self.classifiers)
        ):
            # The data alone names the measurement by zero-shot logistic regression.
            words = [w for w in (protocol, classifier) if w not in ("zero-shot", "logreg")]
            name = "_".join([data.name, *words]).replace("-", "_")
            matrices[name] = measure_protocol(
                inputs["tokens" if classifier == "finetune" else "vectors"],
                data,
                protocol,
                classifier,
                train_languages=self.train_languages,
                c_values=self.c_values,
                seeds=range(self.seed, self.seed + self.seeds),
                baselines=self.baselines and classifier == self.classifiers[0],
                fine_tune=fine_tune,
            )
            mean = percent(matrices[name].mean("all"))
            _logger.info("%s: %s, %s: %s%%", data.name, protocol, classifier, mean)
        return matrices

    def options(self, encoder: Any, outcomes: Mapping[str, ClassificationMatrix]) -> dict[str, Any]:
        """The options, and how each classifier was selected."""
        by_c = [name for name in self.classifiers if name not in NEURAL]
        return super().options(encoder, outcomes) | {
            "c_values": {name: list(self.c_values or C_VALUES[name]) for name in by_c},
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
            yield Heatmap(
                f"{name}.matrix",
                matrix.accuracies["accuracy"],
                matrix.train_languages,
                matrix.test_languages,
                title=f"{name}: {matrix.protocol}, accuracy, %",
                axes=self.axes,
            )

    def while_training(
        self, path: str, languages: Sequence[str]
    ) -> dict[str, Callable[[Encoder], dict[str, float]]]:
        """Trained on English, or else on the first of the languages with training text."""
        labeled = [code for code in languages if code in list_languages(path, ("train",))]
        first = ("en",) if "en" in labeled else tuple(labeled[:1])
        task = dataclasses.replace(self, train_languages=first or None)
        return super(Classification, task).while_training(path, languages)

    def is_logged(self, metric: str) -> bool:
        """True if a metric is logged while training."""
        return metric in ("same", "cross") or metric.startswith("accuracy_")

    @classmethod
    def summary(cls, results: Mapping[str, Any]) -> list[tuple[str, dict[str, float], str]]:
        """One row for each protocol and classifier; a data set is named without these."""
        rows = []
        for name, scores, how in super().summary(results):
            matrix = (results.get("matrices") or {}).get(name) or {}
            for part in (matrix.get("classifier"), matrix.get("protocol")):
                name = name.removesuffix(f"_{str(part).replace('-', '_')}")
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


def classification_table(name: str, matrix: ClassificationMatrix) -> str:
    """Returns the Markdown section of one data set, protocol and classifier."""
    kinds = [kind for kind in KINDS if kind in matrix.accuracies]
    means = [
        [KINDS[kind], *(percent(matrix.mean(w, kind), matrix.spread(w, kind)) for w in MEANS)]
        for kind in kinds
    ]
    described = f"{len(matrix.labels)} labels; {matrix.selection}."
    if len(matrix.seeds) > 1:
        described += f" Mean ± standard deviation over {len(matrix.seeds)} seeds."
    title = f"{name}: {matrix.protocol}, {matrix.classifier}: accuracy on {matrix.test_split} text"
    sections = [f"## {title}, %", described, markdown_table(["features", *MEANS], means)]
    for kind in kinds:
        values = matrix.accuracies[kind]
        spread = matrix.deviations.get(kind, np.full_like(values, np.nan))
        rows = [
            [
                f"**{row}**",
                *(percent(*cell) for cell in zip(values[index], spread[index])),
                percent(matrix.x_cross(row, kind)),
            ]
            for index, row in enumerate(matrix.train_languages)
        ]
        header = [f"{KINDS[kind]}, train \\ test", *matrix.test_languages, "X_cross"]
        sections.append(markdown_table(header, rows))
    return "\n\n".join(sections) + "\n"


def summary_table(matrices: Collection[ClassificationMatrix]) -> str:
    """Returns one Markdown table of several protocols and classifiers on one data set."""
    rows = []
    for matrix in matrices:
        oracle = ("same" if matrix.protocol == "targeted" else "cross", "oracle")
        has_oracle = "oracle" in matrix.accuracies
        means = [percent(matrix.mean(w), matrix.spread(w)) for w in MEANS]
        last = percent(matrix.mean(*oracle), matrix.spread(*oracle)) if has_oracle else ""
        rows.append([matrix.protocol, matrix.classifier, *means, last])
    return markdown_table(["protocol", "classifier", *MEANS, "oracle"], rows)
