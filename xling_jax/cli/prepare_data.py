"""Turns the parallel corpora that a config names into token shards for training.

Cleans the text, trains or loads the SentencePiece model, and prints what was dropped and why.
"""

from __future__ import annotations

import argparse
import logging
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xling_jax.cli.arguments import add_config_and_workdir
from xling_jax.config import load
from xling_jax.corpora.cleaning import REASONS
from xling_jax.corpora.prepare import check_corpora
from xling_jax.files.untrusted import printable
from xling_jax.options import OptionError, wrong_use
from xling_jax.runs.prepare import prepare_workdir
from xling_jax.runs.workdir import Workdir

if TYPE_CHECKING:
    from xling_jax.corpora.beam import BeamEngine

EXAMPLES = """\
examples:
  xling prepare --config ct_laser:small --workdir runs/ct_laser \\
      --config.data.corpora="('tsv:corpora/*.tsv.gz', 'moses:europarl-v7.de-en')" \\
      --config.data.exclude="('dev/*.tsv.gz',)"

  xling prepare --config ct_laser --workdir /share/runs/ct_laser \\
      --config.data.corpora="('tsv:/share/ccmatrix/*.tsv',)" \\
      --runner flink --beam-options="--flink_master=master:8081 --parallelism=64"

Run again, it does only what is missing. The counts are also in WORKDIR/data/counts.json.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_and_workdir(parser)
    parser.add_argument(
        "--num-workers",
        type=int,
        help="number of processes (default: one per core); the output does not depend on it",
    )
    parser.add_argument(
        "--runner",
        metavar="NAME",
        help="prepare on Apache Beam: direct, flink, spark or another of its runners; "
        "the output does not depend on it",
    )
    parser.add_argument(
        "--beam-options",
        metavar="'--NAME=VALUE ...'",
        default="",
        help="options of the runner; join them to this option with an equals sign",
    )


def run(args: argparse.Namespace) -> None:
    """Runs the command and prints the counts."""
    if args.num_workers is not None and args.num_workers < 1:
        raise OptionError(f"--num-workers must be at least 1; found {args.num_workers}")
    experiment = load(args.config, args.config_overrides)
    how = {"num_workers": args.num_workers, "engine": _make_engine(args)}
    with wrong_use():
        check_corpora(experiment.preparation)
    workdir = Workdir(args.workdir)
    with workdir.in_use():
        made = prepare_workdir(experiment, workdir, anew=True, **how)
    print(printable(format_counts(made.counts)))


def _make_engine(args: argparse.Namespace) -> BeamEngine | None:
    """The runner of the command line, checked before data is touched."""
    if not args.runner:
        if args.beam_options:
            raise OptionError("--beam-options need --runner")
        return None
    if args.num_workers is not None:
        raise OptionError(
            "--num-workers is for processes of this machine; set the number of workers of "
            f"--runner {args.runner} in --beam-options"
        )
    from xling_jax.corpora.beam import BeamEngine, BeamRunner

    # Beam logs every step.
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    # It logs tracebacks of errors of steps, which `run` raises as well.
    logging.getLogger("apache_beam.runners.common").setLevel(logging.CRITICAL)
    with wrong_use():
        runner = BeamRunner(args.runner, tuple(shlex.split(args.beam_options)))
    return BeamEngine(runner, args.workdir)


def format_counts(counts: Mapping[str, Any]) -> str:
    """`PreparedData.counts` as a table: by corpus and pair with what was dropped, then by pair."""
    lines = [f"{'pair':<8}{'read':>12}{'used':>12}  corpus, rows dropped"]
    for corpus, pairs in counts["corpora"].items():
        for pair, count in pairs.items():
            reasons = (*REASONS, "duplicate", "validation", "no_tokens")
            dropped = ", ".join(f"{count[r]:,} {r}" for r in reasons if count.get(r))
            label = corpus if not dropped else f"{corpus}: {dropped}"
            lines.append(f"{pair:<8}{count['read']:>12,}{count['rows']:>12,}  {label}")
    lines.append("")
    lines.append(f"{'pair':<8}{'':>12}{'used':>12}  tokens")
    for pair, count in counts["pairs"].items():
        tokens = ", ".join(f"{language} {n:,}" for language, n in count["tokens"].items())
        lines.append(f"{pair:<8}{'':>12}{count['rows']:>12,}  {tokens}")
    if validation := counts.get("validation"):
        held = ", ".join(f"{pair} {count['rows']:,}" for pair, count in validation.items())
        lines += ["", f"pairs held out for the validation loss: {held}"]
    for name, pairs in counts.get("held_out", {}).items():
        dropped = ", ".join(f"{pair} {count:,}" for pair, count in pairs.items())
        lines.append(f"rows dropped because they repeat text of {name}: {dropped}")
    return "\n".join(lines)
