"""`xling evaluate classification`."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli.common import UsageError
from xling_jax.cli.evaluation import (
    EXAMPLE,
    add_common,
    check_output,
    finish,
    load_vectors,
    numbers,
    words,
)

if TYPE_CHECKING:
    from xling_jax.eval.classification import ClassificationMatrix
    from xling_jax.eval.classification_data import ClassificationData

logger = logging.getLogger(__name__)

# Repeated here because the parser of `xling` must not load scikit-learn; a test compares them.
CLASSIFIERS = ("logreg", "svm", "mlp", "linear")
PROTOCOLS = ("zero-shot", "targeted", "leave-one-out")
DOCUMENTS = ("sequence", "sentences-mean", "sentences-max", "windows-mean", "windows-max")
SPLITS = ("punctuation", "laser")


def add_task(tasks: Any) -> None:
    """Adds the task to `xling evaluate`."""
    parser = tasks.add_parser(
        "classification",
        help="labels in one language, texts in the others",
        description="Trains classifiers on embeddings of labelled text and tests them on all "
        "languages, beside chance and a bag of words.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common(
        parser,
        "directory of {train,dev,test}.LANG.tsv[.gz], label<TAB>text",
        nargs=None,
        embeddings=True,
    )
    parser.add_argument(
        "--train-languages", type=words, metavar="CODE,CODE", help="those with labels (all)"
    )
    parser.add_argument(
        "--classifiers",
        type=_choices(CLASSIFIERS),
        default=["logreg"],
        metavar="NAME,NAME",
        help="logreg (Yu), svm, mlp (LASER), linear (lightweight); by default logreg",
    )
    parser.add_argument(
        "--protocols",
        type=_choices(PROTOCOLS),
        default=["zero-shot"],
        metavar="NAME,NAME",
        help="zero-shot: train on each language, test on all (default); targeted: train, select "
        "and test in one; leave-one-out: train on all languages but that of the test",
    )
    parser.add_argument(
        "--seeds", type=_count, default=5, metavar="N", help="runs of mlp and linear (5)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument(
        "--c-values", type=numbers(float), metavar="C,C", help="regularizations to choose from"
    )
    parser.add_argument(
        "--documents",
        choices=DOCUMENTS,
        default="sequence",
        help="how a text becomes a vector: as one sequence, cut at the model's longest (default), "
        "or the mean or maximum over its sentences or over windows of 128 words, one every 64",
    )
    parser.add_argument(
        "--split",
        choices=SPLITS,
        default="punctuation",
        help="where sentences end: at punctuation, or as in LASER at each standalone '.' of "
        "tokenised text",
    )
    parser.add_argument(
        "--max-tokens", type=_count, metavar="N", help="cut sequences at N tokens (the model's)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the task.

    Raises:
        UsageError: if an input is missing or the output exists.
        ValueError, OSError: if the model or the data is broken, or writing fails.
    """
    from xling_jax.eval import (
        classification,
        classification_data,
        classifiers,
        stored_embeddings,
    )
    from xling_jax.eval import classification_tables as tables_lib

    started = time.monotonic()
    output = check_output(args)
    known = classification_data.list_languages(args.data[0])
    for code in [*(args.languages or ()), *(args.train_languages or ())]:
        if code not in known:
            raise UsageError(f"--languages: unknown language {code}; the data has {known}")
    if args.embeddings and (args.documents != "sequence" or args.max_tokens):
        raise UsageError("--embeddings: is of whole texts; leave out --documents and --max-tokens")
    data = classification_data.load_classification_data(args.data[0], args.languages)
    encoder = load_vectors(args, lambda: stored_embeddings.classification_columns(data))
    matrices = _measure(args, encoder, data)
    tables = [tables_lib.classification_table(name, matrix) for name, matrix in matrices.items()]
    if len(matrices) > 1:
        summary = tables_lib.summary_table(list(matrices.values()))
        tables.insert(0, f"## {data.name}: accuracy, %\n\n{summary}\n")
    output.mkdir(parents=True, exist_ok=True)
    if args.pictures:
        for name, matrix in matrices.items():
            _draw(output / f"{name}.matrix.png", name, matrix)
    settings = {
        "classifier": ", ".join(args.classifiers),
        "protocol": ", ".join(args.protocols),
        "c_values": {
            name: list(args.c_values or classifiers.default_c_values(name))
            for name in args.classifiers
            if name not in classifiers.NEURAL
        },
        "seeds": _seeds(args),
        "documents": args.documents,
        "split": args.split,
        "max_tokens": args.max_tokens or getattr(encoder, "max_length_tokens", None),
        "selection": {name: matrix.selection for name, matrix in matrices.items()},
    }
    metrics: dict[str, float] = {}
    for name, matrix in matrices.items():
        metrics |= classification.named_scores(name, matrix)
    finish(
        args,
        encoder,
        [{"name": data.name, "path": str(args.data[0]), "sha256": data.fingerprint}],
        settings,
        metrics,
        {name: matrix.to_dict() for name, matrix in matrices.items()},
        tables,
        started,
    )


def _measure(
    args: argparse.Namespace, encoder: Any, data: ClassificationData
) -> dict[str, ClassificationMatrix]:
    """The matrix of every protocol and classifier asked for, by name; texts are embedded once."""
    from xling_jax.encode import document_modes
    from xling_jax.eval import classification

    if args.max_tokens is not None:
        try:
            encoder = encoder.with_max_length(args.max_tokens)
        except ValueError as error:
            raise UsageError(f"--max-tokens: {error}") from error
    encode = encoder.encode
    encode = document_modes.document_encoder(encode, args.documents, split=args.split)
    encode = classification.embed_once(encode, data)
    matrices = {}
    for protocol in args.protocols:
        for classifier in args.classifiers:
            name = _name(data.name, protocol, classifier)
            matrices[name] = classification.measure_classification(
                encode,
                data,
                protocol=protocol,
                classifier=classifier,
                train_languages=args.train_languages,
                c_values=args.c_values,
                baselines=classifier == args.classifiers[0],
                seeds=_seeds(args),
            )
            mean = matrices[name].mean("all")
            logger.info("%s: %s, %s: %.1f%%", data.name, protocol, classifier, 100 * mean)
    return matrices


def _seeds(args: argparse.Namespace) -> list[int]:
    return list(range(args.seed, args.seed + args.seeds))


def _name(data: str, protocol: str, classifier: str) -> str:
    """The name of one measurement; that of the data alone for zero-shot logistic regression."""
    words = [data]
    words += [protocol.replace("-", "_")] if protocol != "zero-shot" else []
    words += [classifier] if classifier != "logreg" else []
    return "_".join(words)


def _choices(known: Sequence[str]) -> Any:
    """The argparse type of a list of known names."""

    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(words(text)))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        if not names:
            raise argparse.ArgumentTypeError(f"must name one of {', '.join(known)}")
        return names

    return parse


def _count(text: str) -> int:
    """An integer of at least 1."""
    (value,) = numbers(int)(text)
    return value


def _draw(path: Path, name: str, matrix: ClassificationMatrix) -> None:
    from xling_jax.report import pictures

    means = [
        f"{which} {100 * matrix.mean(which):.1f}"
        for which in ("same", "cross")
        if matrix.mean(which) >= 0
    ]
    baseline = "bag_of_words" in matrix.accuracies and matrix.mean("cross", "bag_of_words")
    if baseline and baseline >= 0:
        means.append(f"bag of words {100 * baseline:.1f}")
    pictures.draw_matrix(
        path,
        matrix.accuracies["accuracy"],
        matrix.train_languages,
        matrix.test_languages,
        title=f"{name}: accuracy, %",
        subtitle=", ".join([matrix.protocol, *means]),
        row_title="train",
        column_title="test",
    )
