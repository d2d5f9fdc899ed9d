"""`xling evaluate mining`."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xling_jax.cli.common import UsageError
from xling_jax.cli.evaluation import add_common, check_names, check_output, finish, load_vectors

if TYPE_CHECKING:
    from xling_jax.eval.bitext_mining import MiningData, MiningResult, MiningText

logger = logging.getLogger(__name__)

_EXAMPLE = """example:
  xling evaluate mining --model runs/quickstart --data bucc2018/ --output runs/mining
"""


def add_task(tasks: Any) -> None:
    """Adds the task to `xling evaluate`."""
    parser = tasks.add_parser(
        "mining",
        help="are a text's translations found among other text?",
        description="Bitext mining by the rules of BUCC: precision, recall and F1 on the test "
        "part, with the threshold that is best on the training part. Without test pairs the "
        "numbers are of the training part, and the table says so.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common(
        parser,
        "directory with BUCC's files PAIR.training.LANG, PAIR.training.gold and the same of test",
        nargs="+",
        embeddings=True,
    )
    parser.add_argument("--margin", choices=("ratio", "distance", "absolute"), default="ratio")
    parser.add_argument("--k", type=int, default=4, help="size of the neighborhoods (4)")
    parser.add_argument(
        "--retrieval", choices=("max", "intersect", "fwd", "bwd"), default="max", help="see mine"
    )
    parser.add_argument("--memory-mb", type=float, default=512, help="memory to search in (512)")
    parser.add_argument(
        "--backend",
        choices=("auto", "numpy", "jax", "faiss"),
        default="auto",
        help="what searches; auto: JAX where it has an accelerator, else NumPy",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the task.

    Raises:
        UsageError: if an input is missing, an argument is out of range or the output exists.
        ValueError, OSError: if the model or the data is broken, or writing fails.
    """
    from xling_jax.eval import bitext_mining

    started = time.monotonic()
    if args.k < 1:
        raise UsageError(f"--k {args.k} must be at least 1")
    if not args.memory_mb > 0:
        raise UsageError(f"--memory-mb {args.memory_mb:g} must be positive")
    output = check_output(args)
    sets = [
        data for path in args.data for data in bitext_mining.load_mining_data(path, args.languages)
    ]
    check_names([data.name for data in sets], args.data)
    encoder = load_vectors(args, lambda: _columns(sets))
    output.mkdir(parents=True, exist_ok=True)
    settings = {name: getattr(args, name) for name in ("k", "margin", "retrieval", "backend")}
    results = {}
    for data in sets:
        logger.info("%s: %s", data.name, _sizes(data.train))
        results[data.name] = bitext_mining.measure_mining(
            encoder.encode, data, memory_mb=args.memory_mb, **settings
        )
    finish(
        args,
        encoder,
        [_describe(data) for data in sets],
        settings | {"selection": "threshold with the best F1 on the training part"},
        {
            name: value
            for data in sets
            for name, value in bitext_mining.named_metrics(data.name, results[data.name]).items()
        },
        {data.name: _counts(results[data.name]) for data in sets},
        [_table(sets, results)],
        started,
    )


def _columns(sets: Sequence[MiningData]) -> dict[str, list[str]]:
    """Names of the files of vectors, `PAIR.SPLIT.LANG`, to their texts."""
    parts = [part for data in sets for part in (data.train, data.test)]
    return {
        f"{part.name}.{code}": texts
        for part in parts
        for code, texts in zip(part.languages, part.texts)
    }


def _sizes(text: MiningText) -> str:
    counts = " and ".join(
        f"{len(column):,} {code}" for code, column in zip(text.languages, text.texts)
    )
    return f"{counts} sentences, {len(text.gold):,} pairs"


def _describe(data: MiningData) -> dict:
    return {
        "name": data.name,
        "sha256": data.fingerprint,
        "languages": list(data.train.languages),
        "tuned_on": data.train.name,
        "measured_on": data.test.name,
        "num_rows": [len(column) for column in data.test.texts],
        "num_gold": len(data.test.gold),
    }


def _counts(result: MiningResult) -> dict:
    return {
        split: {
            "precision": scores.precision,
            "recall": scores.recall,
            "f1": scores.f1,
            "num_gold": scores.num_gold,
            "num_extracted": scores.num_extracted,
            "num_correct": scores.num_correct,
        }
        for split, scores in (("train", result.train), ("test", result.test))
    } | {"threshold": result.threshold}


def _table(sets: Sequence[MiningData], results: Mapping[str, MiningResult]) -> str:
    from xling_jax.eval.results import markdown_table

    rows = []
    for data in sets:
        result = results[data.name]
        scores = (result.test.precision, result.test.recall, result.test.f1, result.train.f1)
        rows.append(
            [
                data.name,
                *(f"{100 * score:.2f}" for score in scores),
                f"{result.threshold:.3f}",
                data.test.name,
                f"{result.test.num_gold}",
            ]
        )
    header = ["pair", "precision", "recall", "F1", "train F1", "threshold", "measured on", "pairs"]
    lines = ["## Bitext mining, %", "", markdown_table(header, rows)]
    untested = [data.name for data in sets if not data.has_test]
    if untested:
        lines += [
            "",
            f"No test pairs for {', '.join(untested)}: measured on the text that the threshold was "
            "tuned on.",
        ]
    return "\n".join(lines) + "\n"
