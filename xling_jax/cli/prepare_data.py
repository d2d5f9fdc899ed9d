"""Turns the parallel corpora that a config names into token shards for training.

Cleans the text, trains or loads the SentencePiece model, and prints what was dropped and why.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import shlex
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from xling_jax.cli.arguments import add_config_and_workdir, load_config
from xling_jax.cli.remote import Workdir, local_name
from xling_jax.corpora.cleaning import REASONS
from xling_jax.corpora.prepare import PreparedData, prepare
from xling_jax.corpora.settings import PrepareSettings
from xling_jax.corpora.shards import pair_name
from xling_jax.encode.teacher import Teacher
from xling_jax.files.progress import counted, track
from xling_jax.files.urls import is_url
from xling_jax.options import OptionError, wrong_use
from xling_jax.text.languages import parse_pair

if TYPE_CHECKING:
    from xling_jax.corpora.beam.runner import BeamRunner
    from xling_jax.train.terms.distillation import Distillation

logger = logging.getLogger(__name__)

EXAMPLES = """\
examples:
  xling prepare --config ct_laser:small --workdir runs/ct_laser \\
      --config.data.corpora="('tsv:corpora/*.tsv.gz', 'moses:europarl-v7.de-en')" \\
      --config.data.exclude="('dev/*.tsv.gz',)"

  xling prepare --config ct_laser --workdir gs://bucket/runs/ct_laser \\
      --config.data.corpora="('tsv:gs://bucket/ccmatrix/*.tsv',)" \\
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
        help="prepare on Apache Beam: direct, dataflow, flink, spark or another of its runners; "
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
    config = load_config(args.config, args.config_overrides)
    runner = _make_runner(args)
    checked_settings(config)
    if runner:
        print(format_counts(_prepare_on(runner, config, args.workdir)))
        return
    workdir = Workdir(args.workdir)
    with workdir.in_use():
        made = prepare_workdir(config, workdir, anew=True, num_workers=args.num_workers)
    print(format_counts(made.counts))


def _prepare_on(runner: BeamRunner, config: ConfigDict, workdir: str) -> dict[str, Any]:
    """Prepares the data of a config on Apache Beam; returns the counts."""
    from xling_jax.corpora.beam.prepare import prepare as beam_prepare

    # A URL is Beam's to read and write, and may be of a kind that training does not know.
    in_use = contextlib.nullcontext() if is_url(workdir) else Workdir(workdir).in_use()
    started = time.monotonic()
    with in_use:
        settings = prepare_settings(config)
        counts = beam_prepare(runner, workdir=workdir, local=local_name, **settings)
    rows = sum(pair["rows"] for pair in counts["pairs"].values())
    logger.info("%s in %s, %.0f s", counted(rows, "row"), workdir, time.monotonic() - started)
    return counts


def _make_runner(args: argparse.Namespace) -> BeamRunner | None:
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
    from xling_jax.corpora.beam.runner import BeamRunner

    # Beam logs every step; what becomes of a job elsewhere is worth a line.
    for library in ("apache_beam", "botocore"):
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.getLogger("apache_beam.runners.dataflow").setLevel(logging.INFO)
    with wrong_use():
        return BeamRunner(args.runner, tuple(shlex.split(args.beam_options)))


def prepare_workdir(
    config: ConfigDict,
    workdir: Workdir,
    *,
    anew: bool = False,
    num_workers: int | None = None,
) -> PreparedData:
    """Prepares the data of a config; of several processes, the first does while the others wait.

    Args:
        config: complete; what it names may be at URLs.
        workdir: of the run.
        anew: whether to look at the corpora even if there are data of this config; see
            `Workdir.ensure_prepared`.
        num_workers: number of processes that the first process starts; None for one per core.

    Raises:
        OptionError: if the config is wrong, or there is nothing at a URL.
        ValueError, OSError: as `prepare`, or if copying fails, or another process ended.
    """
    settings, checked = prepare_settings(config), checked_settings(config)

    def prepare_here() -> None:
        started = time.monotonic()
        prepared = prepare(
            workdir=workdir.path,
            num_workers=num_workers,
            progress=track,
            local=local_name,
            open_teacher=Teacher,
            keep=workdir.has_checkpoints(),
            **settings,
        )
        rows = sum(pair["rows"] for pair in prepared.counts["pairs"].values())
        logger.info(
            "%s of %s in %s, %.0f s",
            *(counted(rows, "row"), counted(len(prepared.pairs), "pair")),
            *(prepared.directory, time.monotonic() - started),
        )

    if workdir.processes.index == 0:
        workdir.ensure_prepared(checked, prepare_here, anew)
    workdir.processes.meet("data are prepared")
    return workdir.prepared(checked)


def checked_settings(config: ConfigDict) -> PrepareSettings:
    """What a config prepares, without touching data; raises OptionError if it is wrong."""
    with wrong_use():
        return PrepareSettings(**prepare_settings(config))


def prepare_settings(config: ConfigDict) -> dict[str, Any]:
    """The arguments of `PrepareSettings` that a config gives."""
    from xling_jax.models.registry import vocab_layout
    from xling_jax.train.objective import parse_objective
    from xling_jax.train.terms.term import all_reads

    terms = parse_objective(config.objective.to_dict())[1]
    reads = all_reads(terms.values())
    return {
        "languages": tuple(config.languages),
        "corpora": tuple(config.data.corpora),
        "exclude": tuple(config.data.get("exclude", ())),
        "evaluation": held_out_of_training(config),
        "validation_pairs": config.data.validation_pairs,
        "validation_corpora": tuple(config.data.validation_corpora),
        "hold_out_validation": config.data.hold_out_evaluation,
        "pairs": tuple(config.data.pairs),
        "cleaning": config.cleaning.to_dict(),
        "vocab": config.vocab.to_dict(),
        "layout": vocab_layout(
            config.encoder.family, translates="decoder" in reads, masks="head" in reads
        ),
        "seed": config.seed,
        "teacher": _taught(config, terms["distillation"]) if "distillation" in terms else {},
        "negatives": config.data.negatives_file,
    }


def _taught(config: ConfigDict, distillation: Distillation) -> dict[str, Any]:
    """The vectors of a teacher that training needs, for `PrepareSettings`."""
    from xling_jax.cli.export import encoder_arguments
    from xling_jax.models.registry import build_encoder

    if not distillation.teacher:
        raise ValueError(
            "objective.distillation.teacher is missing; name a model directory, or mini for the "
            "packaged encoder"
        )
    family, arguments, _ = encoder_arguments(config)
    encoder = build_encoder(family, vocab_size=config.vocab.size, **arguments)
    languages = {}
    for pair in config.data.pairs:
        source, target = parse_pair(pair, allow_same=True)
        sides = {source, target} if "target_teacher" in distillation.reads else {source}
        languages.setdefault(pair_name(source, target), set()).update(sides)
    languages = {pair: sorted(sides) for pair, sides in languages.items()}
    named = {"model": distillation.teacher, "texts": distillation.teacher_texts}
    return {**named, "width": encoder.dim, "languages": languages}


def held_out_of_training(config: ConfigDict) -> tuple[str, ...]:
    """The paths in the `evaluation` section whose texts training may not repeat."""
    if not config.data.hold_out_evaluation:
        return ()
    return tuple(sorted({path for paths in config.evaluation.values() for path in paths}))


def format_counts(counts: Mapping[str, Any]) -> str:
    """`PreparedData.counts` as a table: by corpus and pair with what was dropped, then by pair."""
    lines = [f"{'pair':<8}{'read':>12}{'used':>12}  corpus, rows dropped"]
    for corpus, pairs in counts["corpora"].items():
        for pair, count in pairs.items():
            reasons = (*REASONS, "duplicate", "validation", "too_many_tokens")
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
