"""Preparing the data of a run, on this machine or on Apache Beam."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from xling_jax.corpora.copies import local_name
from xling_jax.corpora.prepare import prepare
from xling_jax.corpora.prepared import PreparedData
from xling_jax.encode.teacher import Teacher
from xling_jax.files import urls
from xling_jax.files.progress import counted
from xling_jax.options import OptionError, wrong_use
from xling_jax.runs.workdir import Workdir

if TYPE_CHECKING:
    from xling_jax.corpora.beam.runner import BeamRunner
    from xling_jax.train.experiment import Experiment

_logger = logging.getLogger(__name__)


def prepare_workdir(
    experiment: Experiment, workdir: Workdir, *, anew: bool = False, num_workers: int | None = None
) -> PreparedData:
    """Prepares the data of a run; of several processes, the first does while the others wait.

    `anew` looks at the corpora even if there are data of this config, see
    `Workdir.ensure_prepared`; `num_workers` processes are started, by default one per core.
    """
    preparation = experiment.preparation

    def prepare_here() -> None:
        started = time.monotonic()
        prepared = prepare(
            preparation,
            workdir=workdir.path,
            num_workers=num_workers,
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


def prepare_on_beam(runner: BeamRunner, experiment: Experiment, workdir: str) -> dict[str, Any]:
    """Prepares the data of a run on Apache Beam; returns the counts."""
    from xling_jax.corpora.beam.prepare import prepare as beam_prepare

    # A URL is Beam's to read and write, and may be of a kind that training does not know.
    urls.check(workdir)
    here = None if urls.is_url(workdir) else Workdir(workdir)
    started = time.monotonic()
    with here.in_use() if here else contextlib.nullcontext():
        steps = f"{workdir.rstrip('/')}/checkpoints/[0-9]*/**"
        keep = here.has_checkpoints() if here else bool(urls.find(steps))
        preparation = experiment.preparation
        counts = beam_prepare(runner, preparation, workdir=workdir, keep=keep)
    rows = sum(pair["rows"] for pair in counts["pairs"].values())
    _logger.info("%s in %s, %.0f s", counted(rows, "row"), workdir, time.monotonic() - started)
    return counts


def check_teacher(experiment: Experiment) -> None:
    """Refuses a teacher that is not there, or whose vectors the encoder cannot learn."""
    if not (teacher := experiment.preparation.teacher):
        return
    from xling_jax.encode.teacher import teacher_dim

    where = "--config.objective.distillation"
    form = experiment.terms["distillation"].passed["form"]
    with wrong_use(f"{where}.teacher"):
        dim = teacher_dim(local_name(teacher["model"]), local_name(teacher["texts"]))
    if dim < teacher["width"] and form != "similarity":
        raise OptionError(
            f"{where}.teacher: {teacher['model']} has {dim} dimensions, the encoder "
            f"{teacher['width']}; make the encoder as narrow or set {where}.form=similarity"
        )
