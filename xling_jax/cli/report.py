"""`xling report`: one self-contained HTML page from runs and results."""

from __future__ import annotations

import argparse
import logging
import os
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
        help="one HTML page from runs and results",
        description="Writes one self-contained HTML page: training curves, runs side by side and "
        "beside published scores, heatmaps; with --data also projections of the vectors and the "
        "worst retrieval errors. It opens without a network.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--run",
        dest="workdirs",  # `args.run` is what carries out the command.
        action="append",
        default=[],
        metavar="W",
        help="workdir of xling train, with the results in it; any number of them",
    )
    parser.add_argument(
        "--results",
        action="append",
        default=[],
        metavar="DIR",
        help="outputs of xling evaluate, in the directory or below; any number of them",
    )
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="FILE_OR_DIR",
        help="retrieval data or a directory of labelled text, to be embedded by each run's encoder",
    )
    parser.add_argument(
        "--languages", type=words, metavar="CODE,CODE", help="those of --data to show (all)"
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
        raise UsageError(f"--output {output}: is a directory; name the page in it")
    if not args.workdirs and not args.results:
        raise UsageError("--run or --results: give at least one of them")
    for argument in ("run", "results", "data"):
        for path in getattr(args, "workdirs" if argument == "run" else argument):
            require_file(path, f"--{argument}")

    from xling_jax.eval import results
    from xling_jax.report import page as report
    from xling_jax.report import runs as report_data

    runs = report_data.load_runs(args.workdirs, args.results)
    vectors = _vectors(runs, args.data, args.languages) if args.data else []
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = report.make_page(runs, vectors, title=args.title, note=f"Made {made}")
    output.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(output, page)
    size = os.path.getsize(output) / 2**20
    logger.info("%s: %d runs, %d with vectors, %.1f MB", output, len(runs), len(vectors), size)


def _vectors(runs: list[Run], paths: list[str], languages: list[str] | None) -> list[VectorSection]:
    """Embeds the data with the encoder of each run that has one."""
    import xling_jax
    from xling_jax.eval.classification_data import ClassificationData
    from xling_jax.report import vectors as report_vectors
    from xling_jax.report.page import ErrorList, VectorSection

    sets = [_load_data(path, languages) for path in paths]
    sections = []
    keep_compiled_programs()
    for run in runs:
        if run.path is None or not (run.path / "encoder").is_dir():
            logger.info("%s: no encoder, so no projections and no errors", run.name)
            continue
        encode = xling_jax.load(run.path).encode
        section = VectorSection(run.name)
        for data in sets:
            logger.info("%s: embedding %s", run.name, data.name)
            if isinstance(data, ClassificationData):
                projection = report_vectors.project_classification(encode, data)
            else:
                found, num_errors, num_queries = report_vectors.worst_errors(encode, data)
                section.errors.append(ErrorList(data.name, found, num_errors, num_queries))
                projection = report_vectors.project_retrieval(encode, data)
            if projection is not None:
                section.projections.append(projection)
        sections.append(section)
    return sections


def _load_data(path: str, languages: list[str] | None) -> Any:
    """Labelled text where a directory holds such files, else parallel text."""
    from xling_jax.eval.classification_data import list_languages, load_classification_data
    from xling_jax.eval.retrieval_data import load_retrieval_data

    if Path(path).is_dir() and (known := list_languages(path)):
        if languages is None:
            return load_classification_data(path)
        return load_classification_data(path, [code for code in languages if code in known])
    return load_retrieval_data(path, languages)
