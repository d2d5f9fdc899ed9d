"""Writes one self-contained HTML page: curves, runs side by side, the pictures of xling evaluate.

--data adds the worst retrieval errors. The page opens without a network.
"""

from __future__ import annotations

import argparse
import logging
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from xling_jax.cli.arguments import (
    add_languages,
    add_output,
    check_input,
    load_encoder,
    refuse_existing,
)
from xling_jax.files.progress import counted
from xling_jax.options import OptionError, require_file

if TYPE_CHECKING:
    from xling_jax.report.errors import ErrorList
    from xling_jax.report.runs import Run

_logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  xling report --run runs/t_laser runs/ct_laser --output report.html
  xling report --run runs/ct_laser --results results/ --output report.html \\
      --data pud.dev.tsv.gz --languages en,de,fr,es,it
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for flag, name, metavar, text in (
        # `args.run` is the function that carries out the command.
        ("--run", "workdirs", "W", "workdir of xling train, with any results in it"),
        ("--results", "results", "DIR", "outputs of xling evaluate, in the directory or below"),
        ("--data", "data", "FILE_OR_DIR", "retrieval data to search with the encoder of each run"),
    ):
        options = {"action": "extend", "nargs": "+", "default": [], "metavar": metavar}
        parser.add_argument(flag, dest=name, help=f"{text}; one or more", **options)
    add_languages(parser, "languages of --data to show (default: all)")
    add_output(parser, "the page; - for stdout", metavar="HTML")


def run(args: argparse.Namespace) -> None:
    output = Path(args.output)
    if output.is_dir():
        raise OptionError(f"--output {output}: is a directory; name a file in it")
    refuse_existing(output, args.overwrite)
    if not args.workdirs and not args.results:
        raise OptionError("--run or --results: give at least one of them")
    for flag, paths in (("run", args.workdirs), ("results", args.results)):
        for path in paths:
            require_file(path, f"--{flag}")
    check_input(args, "data", can_be_folder=True)

    from xling_jax.align.pair_files import open_output
    from xling_jax.report.page import make_page
    from xling_jax.report.runs import load_runs

    runs = load_runs(args.workdirs, args.results)
    _describe_shipped(runs)
    errors = _errors(runs, args.data, args.languages)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    command = f"xling {shlex.join(args.words)}"
    page = make_page(runs, errors, note=f"Made {made}", command=command)
    output.parent.mkdir(parents=True, exist_ok=True)
    with open_output(args.output) as file:
        file.write(page)
    _logger.info("%s: %s, %.1f MB", output, counted(len(runs), "run"), len(page) / 2**20)


def _describe_shipped(runs: Sequence[Run]) -> None:
    """Gives the packaged encoders their config; others have that of their workdir."""
    from xling_jax.encode.model_directory import SHIPPED, read_config

    for run in runs:
        if run.path is None and run.model in SHIPPED:
            config = read_config(SHIPPED[run.model])
            run.config = {"languages": config["languages"]}
            run.config["encoder"] = {"family": config["family"], **config["encoder"]}


def _errors(
    runs: Sequence[Run], paths: Sequence[str], languages: Sequence[str] | None
) -> list[ErrorList]:
    """Searches the data with the encoder of each run that has one."""
    from xling_jax.eval.retrieval_data import load_retrieval_data
    from xling_jax.report.errors import worst_errors

    sets = [load_retrieval_data(path, languages) for path in paths]
    found = []
    for run in runs if sets else ():
        if not run.model:
            _logger.info("%s: no encoder, so no errors", run.name)
            continue
        encode = load_encoder(run.model).encode
        found += [worst_errors(run.name, encode, data) for data in sets]
    return found
