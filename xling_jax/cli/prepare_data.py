"""`xling prepare`: from the corpora a config names to a vocabulary and token shards."""

import argparse
import logging
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict
from tqdm import tqdm

from xling_jax.cli import common, distributed
from xling_jax.cli.remote_arguments import local_config
from xling_jax.cli.remote_workdir import Workdir
from xling_jax.corpora.beam import BeamRunner
from xling_jax.corpora.cleaning import REASONS
from xling_jax.corpora.jobs import Runner
from xling_jax.corpora.prepare import PreparedData, num_cores, prepare
from xling_jax.corpora.process_runner import ProcessRunner
from xling_jax.corpora.settings import PrepareSettings
from xling_jax.files.whole import fingerprint

logger = logging.getLogger(__name__)

_PLAIN_INTERVAL_S = 30.0

_EPILOG = """\
example:
  xling prepare --config configs/ct_laser.py:small --workdir runs/ct_laser \\
      --config.data.corpora="('tsv:corpora/*.tsv.gz', 'moses:europarl-v7.de-en')" \\
      --config.data.exclude="('dev/*.tsv.gz',)"

  xling prepare --config configs/ct_laser.py --workdir /shared/runs/ct_laser \\
      --runner flink --beam-options="--flink_master=master:8081 --parallelism=64"

Started again, it does only what is missing. The counts are also in WORKDIR/data/counts.json.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "prepare",
        help="clean parallel corpora, train the vocabulary, write token shards",
        description="Reads the parallel corpora a config names, cleans them, trains or loads the "
        "SentencePiece model and writes token shards for training.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common.add_config_arguments(parser)
    distributed.add_arguments(parser)
    parser.add_argument(
        "--num-workers",
        type=int,
        help="processes that work for this one, or for each of several; one a core unless given; "
        "the output does not depend on it",
    )
    parser.add_argument(
        "--runner",
        metavar="NAME",
        help="have Apache Beam clean and tokenise: direct, dataflow, flink, spark or another of "
        "its runners; the output does not depend on it",
    )
    parser.add_argument(
        "--beam-options",
        metavar="'--NAME=VALUE ...'",
        default="",
        help="options of the runner, joined to this word by an equals sign",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the command; the first process prints the counts."""
    if args.num_workers is not None and args.num_workers < 1:
        raise common.UsageError(f"--num-workers must be at least 1; found {args.num_workers}")
    config = common.load_config(args.config, args.config_overrides)
    runner = _make_runner(args)
    with distributed.joined(args, ends_by_sigterm=True) as processes:
        workdir = Workdir(args.workdir, processes)
        if runner and not runner.is_here:
            corpora = [f"data.corpora: {spec}" for spec in config.data.corpora if "://" in spec]
            for name in [f"--workdir {args.workdir}"] * workdir.is_remote + corpora:
                raise common.UsageError(
                    f"{name}: is copied to this machine, where workers of --runner {args.runner} "
                    "do not see it; take a directory that they share"
                )
        prepared = prepare_workdir(
            config, workdir, anew=True, num_workers=args.num_workers, runner=runner
        )
        if processes.index == 0:
            print(format_counts(prepared.counts))


def _make_runner(args: argparse.Namespace) -> BeamRunner | None:
    """The runner of the command line, checked before data is touched."""
    if not args.runner:
        if args.beam_options:
            raise common.UsageError("--beam-options are for a runner; name it by --runner")
        return None
    if args.num_workers is not None:
        raise common.UsageError(
            "--num-workers is for processes of this machine; say in --beam-options how many "
            f"workers --runner {args.runner} may use"
        )
    if args.distributed or args.coordinator:
        raise common.UsageError(
            f"--runner {args.runner} spreads the work itself; start one process, without "
            "--distributed and --coordinator"
        )
    # Beam tells of every step; what becomes of a job elsewhere is worth a line.
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    logging.getLogger("apache_beam.runners.dataflow").setLevel(logging.INFO)
    try:
        return BeamRunner(args.runner, tuple(shlex.split(args.beam_options)))
    except ValueError as error:
        raise common.UsageError(str(error)) from error


def prepare_workdir(
    config: ConfigDict,
    workdir: Workdir,
    *,
    anew: bool = False,
    num_workers: int | None = None,
    runner: Runner | None = None,
) -> PreparedData:
    """As `prepare_from_config`, also for workdirs and corpora at URLs, by all processes together.

    Args:
        config: whose data and vocabulary may be at URLs; not yet copied.
        workdir: of the run.
        anew: whether data that lie at the workdir's URL are compared with the corpora.
        num_workers: processes that each process of the command starts; None for one a core.
        runner: has Apache Beam do the work instead.

    Raises:
        common.UsageError: if the config is wrong, or there is nothing at a URL.
        ValueError, OSError: as `prepare`, or if copying fails, or another process has ended.
    """
    settings, processes = _checked_settings(config), workdir.processes
    if processes.count > 1:
        workers = num_workers or max(1, num_cores() // processes.num_here)
        runner = ProcessRunner(
            workdir.path / "data",
            processes,
            settings=fingerprint(settings),
            num_workers=workers,
            progress=_progress,
        )

    def prepare_here() -> PreparedData:
        local = local_config(config, "data", "vocab")
        how = {"num_workers": num_workers, "runner": runner}
        return prepare_from_config(local, str(workdir.path), **how)

    if processes.index == 0:
        workdir.clear_exchange()  # what killed processes left
        workdir.ensure_prepared(settings, prepare_here, anew)
        if runner:
            runner.finish()  # even if there was nothing to be done
            workdir.clear_exchange()
    else:
        runner.help_first(lambda: local_config(config, "data"))
    processes.meet("data are prepared")
    return workdir.prepared()


def prepare_from_config(
    config: ConfigDict,
    workdir: str,
    *,
    num_workers: int | None = None,
    runner: Runner | None = None,
) -> PreparedData:
    """Prepares the data of a config, as `xling prepare` and `xling train` do.

    Args:
        config: with `languages`, `data`, `cleaning`, `vocab`, `encoder.family` and `seed`.
        workdir: directory of the run.
        num_workers: processes; None for one a core.
        runner: does the work instead.

    Raises:
        common.UsageError: if the config is wrong.
        ValueError, OSError: as `prepare`.
    """
    settings = _checked_settings(config)
    started = time.monotonic()
    prepared = prepare(
        workdir=workdir, num_workers=num_workers, progress=_progress, runner=runner, **settings
    )
    rows = sum(pair["rows"] for pair in prepared.counts["pairs"].values())
    logger.info(
        "%d rows of %d pairs in %s, %.0f s",
        *(rows, len(prepared.pairs), prepared.directory, time.monotonic() - started),
    )
    return prepared


def prepare_settings(config: ConfigDict) -> dict[str, Any]:
    """The arguments of `PrepareSettings.make` that a config gives."""
    from xling_jax.models.registry import vocab_layout
    from xling_jax.train.objective import parse_objective
    from xling_jax.train.terms.term import all_reads

    reads = all_reads(parse_objective(config.objective.to_dict())[1].values())

    return {
        "languages": tuple(config.languages),
        "corpora": tuple(config.data.corpora),
        "exclude": tuple(config.data.get("exclude", ())),
        "pairs": tuple(config.data.pairs),
        "cleaning": _section(config, "cleaning"),
        "vocab": _section(config, "vocab"),
        "layout": vocab_layout(
            config.encoder.family,
            translates="decoder" in reads,
            masks="head" in reads,
        ),
        "seed": config.seed,
    }


def _checked_settings(config: ConfigDict) -> dict[str, Any]:
    settings = prepare_settings(config)
    try:
        PrepareSettings.make(**settings)
    except ValueError as error:
        raise common.UsageError(str(error)) from error
    return settings


def format_counts(counts: Mapping[str, Any]) -> str:
    """Formats the counts of preparation as a table for the terminal.

    Args:
        counts: `PreparedData.counts`.

    Returns:
        A line for each corpus and pair, with the reasons rows were dropped for, and one for each
        pair over all corpora.
    """
    lines = [f"{'pair':<8}{'read':>12}{'used':>12}  corpus, rows dropped"]
    for corpus, pairs in counts["corpora"].items():
        for pair, count in pairs.items():
            reasons = (*REASONS, "duplicate", "too_many_tokens")
            dropped = ", ".join(f"{count[r]:,} {r}" for r in reasons if count.get(r))
            label = corpus if not dropped else f"{corpus}: {dropped}"
            lines.append(f"{pair:<8}{count['read']:>12,}{count['rows']:>12,}  {label}")
    lines.append("")
    lines.append(f"{'pair':<8}{'':>12}{'used':>12}  tokens")
    for pair, count in counts["pairs"].items():
        tokens = ", ".join(f"{language} {n:,}" for language, n in count["tokens"].items())
        lines.append(f"{pair:<8}{'':>12}{count['rows']:>12,}  {tokens}")
    return "\n".join(lines)


def _section(config: ConfigDict, name: str) -> dict[str, Any]:
    section = config.get(name)
    return section.to_dict() if section is not None else {}


def _progress(items: Iterable[Any], desc: str, total: int | None = None) -> Iterator[Any]:
    """A bar with rate and time left on a terminal, a line now and then otherwise."""
    if sys.stderr.isatty():
        yield from tqdm(items, desc, total, leave=False, unit_scale=True, mininterval=0.5)
        return
    started = last = time.monotonic()
    for number, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= _PLAIN_INTERVAL_S:
            last, rate = now, number / (now - started)
            left = f" of {total}, {(total - number) / rate:.0f} s left" if total else ""
            logger.info("%s: %d%s, %.1f/s", desc, number, left, rate)
