"""`xling evaluate classification`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli.common import UsageError
from xling_jax.cli.evaluation import (
    EXAMPLE,
    add_common,
    check_output,
    finish,
    load_encoder,
    numbers,
    words,
)

if TYPE_CHECKING:
    from xling_jax.eval.classification import ClassificationMatrix


def add_task(tasks: Any) -> None:
    """Adds the task to `xling evaluate`."""
    classification = tasks.add_parser(
        "classification",
        help="labels in one language, texts in the others",
        description="Trains a logistic regression on embeddings of one language and tests it on "
        "all, beside chance and a bag of words.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common(
        classification, "directory of {train,dev,test}.LANG.tsv[.gz], label<TAB>text", nargs=None
    )
    classification.add_argument(
        "--train-languages", type=words, metavar="CODE,CODE", help="those with labels (all)"
    )
    classification.add_argument(
        "--c-values", type=numbers(float), metavar="C,C", help="regularizations to choose from"
    )
    classification.add_argument("--seed", type=int, default=0, help="of the cross-validation")
    classification.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the task.

    Raises:
        UsageError: if an input is missing or the output exists.
        ValueError, OSError: if the model or the data is broken, or writing fails.
    """
    from xling_jax.eval import classification, classification_data
    from xling_jax.eval import results as results_lib

    started = time.monotonic()
    output = check_output(args)
    known = classification_data.list_languages(args.data[0])
    for code in [*(args.languages or ()), *(args.train_languages or ())]:
        if code not in known:
            raise UsageError(f"--languages: unknown language {code}; the data has {known}")
    data = classification_data.load_classification_data(args.data[0], args.languages)
    encoder = load_encoder(args.model)
    output.mkdir(parents=True, exist_ok=True)
    c_values = args.c_values or classification.C_VALUES
    matrix = classification.measure_classification(
        encoder.encode,
        data,
        train_languages=args.train_languages,
        c_values=c_values,
        seed=args.seed,
    )
    described = [{"name": data.name, "path": str(args.data[0]), "sha256": data.fingerprint}]
    settings = {
        "classifier": "logreg",
        "protocol": "zero-shot",
        "c_values": list(c_values),
        "seed": args.seed,
        "selection": matrix.selection,
    }
    if args.pictures:
        _draw_classification(output / f"{data.name}.matrix.png", data.name, matrix)
    finish(
        args,
        encoder,
        described,
        settings,
        classification.named_scores(data.name, matrix),
        {data.name: matrix.to_dict()},
        [results_lib.classification_table(data.name, matrix)],
        started,
    )


def _draw_classification(path: Path, name: str, matrix: ClassificationMatrix) -> None:
    from xling_jax.eval import pictures

    baseline = matrix.mean("cross", "bag_of_words")
    means = f"cross {100 * matrix.mean('cross'):.1f}, bag of words {100 * baseline:.1f}"
    pictures.draw_matrix(
        path,
        matrix.accuracies["accuracy"],
        matrix.train_languages,
        matrix.test_languages,
        title=f"{name}: zero-shot accuracy, %",
        subtitle=means if matrix.mean("cross") >= 0 else "",
        row_title="train",
        column_title="test",
    )
