"""Prepares the data if needed, trains, evaluates while training, exports the encoder."""

import argparse
import logging

from xling_jax.cli import distributed
from xling_jax.cli.arguments import add_config_and_workdir
from xling_jax.config import load
from xling_jax.files.untrusted import printable
from xling_jax.options import OptionError, wrong_use
from xling_jax.runs.train import check_dry_run, train_experiment

_logger = logging.getLogger(__name__)

EXAMPLES = """\
examples:
  xling train --config ct_laser:small --workdir runs/ct_laser \\
      --config.data.corpora="('tsv:corpora/*.tsv.gz',)" --config.train.total_steps=2000
  xling train --config ct_laser --workdir runs/x --dry-run

Run the same command again to continue from the last checkpoint. SIGTERM and Ctrl-C save and
stop; a second Ctrl-C exits immediately.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_and_workdir(parser, needs_workdir=False)
    distributed.add_arguments(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print config, parameters, buckets, FLOPs and memory; touches no corpora",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the command; 143 if SIGTERM ended it before it was done, 130 if Ctrl-C did."""
    experiment = load(args.config, args.config_overrides)
    if args.dry_run:
        from xling_jax.train.dry_run import describe

        with wrong_use():
            check_dry_run(experiment)
            print(printable(describe(experiment)))
        return 0
    if args.workdir is None:
        raise OptionError("--workdir is required, except with --dry-run")
    data = experiment.data
    pairs, corpora = (", ".join(names) or "nothing" for names in (data.pairs, data.corpora))
    chosen = {word.partition("=")[0] for word in args.config_overrides}
    hint = "; --config.languages, --config.data.pairs and --config.data.corpora choose others"
    hint *= not {"--config.data.pairs", "--config.data.corpora"} <= chosen
    _logger.info("%s trains on %s from %s%s", args.config, pairs, corpora, hint)
    with distributed.joined(args) as processes:
        return train_experiment(experiment, args.workdir, processes)
