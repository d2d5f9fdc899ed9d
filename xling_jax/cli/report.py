"""`xling report`: one self-contained HTML page from runs and results."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli.common import UsageError, keep_compiled_programs, refuse_existing, require_file
from xling_jax.cli.options import words

if TYPE_CHECKING:
    from xling_jax.report.page import VectorSection
    from xling_jax.report.runs import Run

logger = logging.getLogger(__name__)

_EXAMPLE = """examples:
  xling report --run runs/t_laser --run runs/ct_laser --output report.html
  xling report --run runs/ct_laser --results results/ --output report.html \\
      --data pud.dev.tsv.gz --data sib200/ --languages en,de,fr,es,it
"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the parser of `xling`."""
    parser = subparsers.add_parser(
        "report",
        description="Writes one self-contained HTML page: training curves, runs side by side and "
        "beside published\nscores, heatmaps; with --data also projections of the vectors and the "
        "worst retrieval errors.\nIt opens without a network.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for flag, name, metavar, text in (
        # `args.run` is the function that carries out the command.
        ("--run", "workdirs", "W", "workdir of xling train, with any results in it"),
        ("--results", "results", "DIR", "outputs of xling evaluate, in the directory or below"),
        ("--data", "data", "FILE_OR_DIR", "retrieval data or labelled text to embed with each run"),
    ):
        parser.add_argument(
            flag,
            dest=name,
            action="append",
            default=[],
            metavar=metavar,
            help=f"{text}; can be repeated",
        )
    parser.add_argument(
        "--languages",
        type=words,
        metavar="CODE,CODE",
        help="those of --data to show (default: all)",
    )
    parser.add_argument("--title", default="Cross-lingual sentence embeddings", help="of the page")
    parser.add_argument("--output", required=True, metavar="HTML", help="the page")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing page")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
        UsageError: if an input is missing, the output exists, or there is nothing to report.
        ValueError, OSError: if a run, a model or the data is broken, or writing fails.
    """
    output = Path(args.output)
    refuse_existing(output, args.overwrite)
    if output.is_dir():
        raise UsageError(f"--output {output}: is a directory; name a file in it")
    if not args.workdirs and not args.results:
        raise UsageError("--run or --results: give at least one of them")
    for flag, paths in (("run", args.workdirs), ("results", args.results), ("data", args.data)):
        for path in paths:
            require_file(path, f"--{flag}")

    from xling_jax.files.whole import write_whole
    from xling_jax.report.page import make_page
    from xling_jax.report.runs import load_runs

    runs = load_runs(args.workdirs, args.results)
    vectors = _vectors(runs, args.data, args.languages) if args.data else []
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = make_page(runs, vectors, title=args.title, note=f"Made {made}").encode()
    output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(output, page)
    size = len(page) / 2**20
    logger.info("%s: %d runs, %d with vectors, %.1f MB", output, len(runs), len(vectors), size)


def _vectors(
    runs: Sequence[Run], paths: Sequence[str], languages: Sequence[str] | None
) -> list[VectorSection]:
    """Embeds the data with the encoder of each run that has one."""
    import xling_jax
    from xling_jax.report.vectors import load_data, vector_section

    sets = [load_data(path, languages) for path in paths]
    sections = []
    keep_compiled_programs()
    for run in runs:
        if run.path is None or not (run.path / "encoder").is_dir():
            logger.info("%s: no encoder, so no projections and no errors", run.name)
            continue
        sections.append(vector_section(run.name, xling_jax.load(run.path).encode, sets))
    return sections
