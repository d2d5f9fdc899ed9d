"""`xling evaluate probing`."""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import Any

from xling_jax.cli.common import UsageError
from xling_jax.cli.evaluation import check_output, finish, load_encoder, numbers, words

logger = logging.getLogger(__name__)

EPILOG = """example:
  xling evaluate probing --model M --data SentEval/data --tasks MR,TREC,Length --output O
"""


def add_task(tasks: Any) -> None:
    """Adds the task to `xling evaluate`."""
    parser = tasks.add_parser(
        "probing",
        help="SentEval's tasks, in one language",
        description="Measures what simple classifiers find in the embeddings, on SentEval's tasks "
        "and with its folds.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, help="model directory, workdir, or name of a shipped encoder"
    )
    parser.add_argument(
        "--data",
        required=True,
        nargs=1,
        metavar="DIR",
        help="SentEval's data, or a directory of .txt files of tr|va|te<TAB>label<TAB>text",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="directory of the results")
    parser.add_argument("--tasks", type=words, metavar="NAME,NAME", help="those to measure (all)")
    parser.add_argument(
        "--classifier",
        choices=("logreg", "mlp"),
        default="logreg",
        help="logistic regression (default), or one hidden layer with early stopping",
    )
    parser.add_argument("--hidden", type=_count, default=128, help="size of that layer (128)")
    parser.add_argument("--folds", type=_count, default=10, help="of cross-validation (10)")
    parser.add_argument("--seed", type=int, default=1111, help="of folds and weights (1111)")
    parser.add_argument("--overwrite", action="store_true", help="replace existing results")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the task.

    Raises:
        UsageError: if an input is missing, a task is unknown or the output exists.
        ValueError, OSError: if the model or the data is broken, or writing fails.
    """
    from xling_jax.eval import probing, probing_data
    from xling_jax.eval import results as results_lib

    started = time.monotonic()
    output = check_output(args)
    known = probing_data.find_tasks(args.data[0])
    for name in args.tasks or ():
        if name not in known:
            raise UsageError(f"--tasks: {args.data[0]} has no {name}; it has {', '.join(known)}")
    if args.folds < 2:
        raise UsageError(f"--folds {args.folds}: must be 2 or more")
    tasks = probing.load_tasks(args.data[0], args.tasks)
    encoder = load_encoder(args.model)
    scores = []
    for task in tasks:
        scores += probing.measure_probing(
            encoder.encode,
            [task],
            classifier=args.classifier,
            hidden=args.hidden,
            num_folds=args.folds,
            seed=args.seed,
        )
        metric, value = next(iter(scores[-1].metrics.items()))
        logger.info("%s: %s %.2f%%", task.name, metric, 100 * value)
    output.mkdir(parents=True, exist_ok=True)
    settings = {
        "classifier": args.classifier,
        "hidden": args.hidden if args.classifier == "mlp" else None,
        "folds": args.folds,
        "seed": args.seed,
        "selection": {one.task: one.protocol for one in scores},
    }
    data = [
        {
            "name": task.name,
            "path": str(Path(args.data[0])),
            "sha256": task.fingerprint,
        }
        for task in tasks
    ]
    finish(
        args,
        encoder,
        data,
        settings,
        probing.named_scores(scores),
        {
            one.task: {"kind": one.kind, "num_train": one.num_train, "num_test": one.num_test}
            | one.metrics
            for one in scores
        },
        [_table(args.classifier, scores, results_lib.markdown_table)],
        started,
    )


def _table(classifier: str, scores: list, markdown_table: Any) -> str:
    """One row a task; the first metric, its value on dev, and the others."""
    rows = []
    for one in scores:
        (metric, value), *others = one.metrics.items()
        dev = one.metrics.get(f"dev_{metric}")
        rest = [
            f"{name} {v:.3f}" if name == "mse" else f"{name} {100 * v:.1f}"
            for name, v in others
            if not name.startswith("dev_")
        ]
        rows.append(
            [
                one.task,
                one.protocol,
                metric,
                "" if dev is None else f"{100 * dev:.1f}",
                f"{100 * value:.1f}",
                ", ".join(rest),
            ]
        )
    table = markdown_table(["task", "protocol", "metric", "dev", "test", "others"], rows)
    return f"## SentEval with {classifier}, %\n\n{table}\n"


def _count(text: str) -> int:
    """An integer of at least 1."""
    (value,) = numbers(int)(text)
    return value
