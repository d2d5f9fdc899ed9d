"""`xling evaluate TASK`: measures an encoder; results, a table and pictures in a directory."""

from __future__ import annotations

import argparse
from typing import Any

from xling_jax.cli import (
    evaluate_alignment,
    evaluate_classification,
    evaluate_mining,
    evaluate_probing,
    evaluate_retrieval,
)
from xling_jax.cli.evaluation import EXAMPLE

TASKS = (
    evaluate_retrieval,
    evaluate_classification,
    evaluate_mining,
    evaluate_alignment,
    evaluate_probing,
)


def add_parser(subparsers: Any) -> None:
    """Adds the command to the parser of `xling`."""
    parser = subparsers.add_parser(
        "evaluate",
        help="measure an encoder",
        description="Measures an encoder. Writes results.json, results.md and pictures to the "
        "output directory and prints the table.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tasks = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    for task in TASKS:
        task.add_task(tasks)
