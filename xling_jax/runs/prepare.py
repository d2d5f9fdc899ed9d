"""Preparing the data of a run, on this machine or on Apache Beam."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from xling_jax.corpora.cleaning import CleaningRules
from xling_jax.corpora.options import Preparation, VocabOptions
from xling_jax.corpora.prepare import PreparedData, prepare
from xling_jax.corpora.shards import pair_name
from xling_jax.encode.teacher import Teacher
from xling_jax.files.progress import counted, track
from xling_jax.files.urls import is_url
from xling_jax.options import build, wrong_use
from xling_jax.runs.copies import local_name
from xling_jax.runs.encoder import encoder_arguments
from xling_jax.runs.workdir import Workdir
from xling_jax.text.languages import parse_pair

if TYPE_CHECKING:
    from xling_jax.corpora.beam.runner import BeamRunner
    from xling_jax.train.terms.distillation import Distillation

_logger = logging.getLogger(__name__)


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
    preparation = checked_settings(config)

    def prepare_here() -> None:
        started = time.monotonic()
        prepared = prepare(
            preparation,
            workdir=workdir.path,
            num_workers=num_workers,
            progress=track,
            local=local_name,
            open_teacher=Teacher,
            keep=workdir.has_checkpoints(),
        )
        rows = sum(pair["rows"] for pair in prepared.counts["pairs"].values())
        _logger.info(
            "%s of %s in %s, %.0f s",
            *(counted(rows, "row"), counted(len(prepared.pairs), "pair")),
            *(prepared.directory, time.monotonic() - started),
        )

    if workdir.processes.index == 0:
        workdir.ensure_prepared(preparation, prepare_here, anew)
    workdir.processes.meet("data are prepared")
    return workdir.prepared(preparation)


def prepare_on_beam(runner: BeamRunner, config: ConfigDict, workdir: str) -> dict[str, Any]:
    """Prepares the data of a config on Apache Beam; returns the counts."""
    from xling_jax.corpora.beam import store
    from xling_jax.corpora.beam.prepare import prepare as beam_prepare

    # A URL is Beam's to read and write, and may be of a kind that training does not know.
    store.check(workdir)
    here = None if is_url(workdir) else Workdir(workdir)
    started = time.monotonic()
    with here.in_use() if here else contextlib.nullcontext():
        steps = store.join(workdir, "checkpoints", "[0-9]**")
        keep = here.has_checkpoints() if here else bool(store.match(steps))
        preparation = checked_settings(config)
        counts = beam_prepare(runner, preparation, workdir=workdir, local=local_name, keep=keep)
    rows = sum(pair["rows"] for pair in counts["pairs"].values())
    _logger.info("%s in %s, %.0f s", counted(rows, "row"), workdir, time.monotonic() - started)
    return counts


def checked_settings(config: ConfigDict) -> Preparation:
    """What a config prepares, without touching data; raises OptionError if it is wrong."""
    with wrong_use():
        return Preparation(**prepare_settings(config))


def prepare_settings(config: ConfigDict) -> dict[str, Any]:
    """The arguments of `Preparation` that a config gives."""
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
        "cleaning": build(CleaningRules, config.cleaning.to_dict(), "cleaning"),
        "vocab": build(VocabOptions, config.vocab.to_dict(), "vocab"),
        "layout": vocab_layout(
            config.encoder.family, translates="decoder" in reads, masks="head" in reads
        ),
        "seed": config.seed,
        "teacher": _taught(config, terms["distillation"]) if "distillation" in terms else {},
    }


def _taught(config: ConfigDict, distillation: Distillation) -> dict[str, Any]:
    """The vectors of a teacher that training needs, for `Preparation`."""
    from xling_jax.models.registry import build_encoder

    if not distillation.teacher:
        raise ValueError(
            "objective.distillation.teacher is missing; name a model directory, or mini for the "
            "packaged encoder"
        )
    both = config.data.both_directions and distillation.fits == "source"
    pairs = {parse_pair(pair, allow_same=True) for pair in config.data.pairs} if both else set()
    for source, target in sorted(pairs):
        if source != target and (target, source) in pairs:
            raise ValueError(
                "objective.distillation.fits='source' does not go with data.both_directions: a "
                f"batch of {source}-{target} and {target}-{source} has two sources; set "
                "fits='own', or leave both_directions out"
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
