"""Preparing the data of a run."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from xling_jax.corpora.prepare import Engine, prepare
from xling_jax.corpora.specs import local_name
from xling_jax.corpora.stages import PreparedData
from xling_jax.encode.teacher import Teacher, teacher_dim
from xling_jax.files.progress import counted
from xling_jax.options import OptionError, wrong_use
from xling_jax.runs.workdir import Workdir

if TYPE_CHECKING:
    from xling_jax.train.experiment import Experiment

_logger = logging.getLogger(__name__)


def prepare_workdir(
    experiment: Experiment,
    workdir: Workdir,
    *,
    anew: bool = False,
    num_workers: int | None = None,
    engine: Engine | None = None,
) -> PreparedData:
    """Prepares the data of a run; of several processes, the first does while the others wait.

    `anew` looks at the corpora even if there are data of this config, see
    `Workdir.ensure_prepared`; the `engine` does the work, by default `num_workers` processes.
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
            engine=engine,
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


def check_teacher(experiment: Experiment) -> None:
    """Refuses a teacher that is not there, or whose vectors the encoder cannot learn."""
    if not (teacher := experiment.preparation.teacher):
        return
    where = "--config.objective.distillation"
    form = experiment.terms["distillation"].passed["form"]
    with wrong_use(f"{where}.teacher"):
        dim = teacher_dim(local_name(teacher["model"]), local_name(teacher["texts"]))
    if dim < teacher["width"] and form != "similarity":
        raise OptionError(
            f"{where}.teacher: {teacher['model']} has {dim} dimensions, the encoder "
            f"{teacher['width']}; make the encoder as narrow or set {where}.form=similarity"
        )
