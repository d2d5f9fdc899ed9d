"""Runs jobs on the processes of one command, each of which does its share.

The first process drives: it runs `prepare` and announces each job by a file, which the others are
waiting for. They need no settings and look at no corpus before there is work.

    DIR/data/.jobs.partial/00000000     the first job, and so on; None: there are no more
"""

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterable, Sized
from pathlib import Path
from typing import Any

from xling_jax.corpora.jobs import Job, appears, forget_errors, load, save
from xling_jax.files.processes import Processes
from xling_jax.files.workers import map_in_order

_logger = logging.getLogger(__name__)


class ProcessRunner:
    """The processes of one command as a runner.

    The first process gives it to `prepare`, the others call `help_first`.

    Args:
        directory: `WORKDIR/data`, under one path in all processes.
        processes: who shares the work.
        settings: a fingerprint of what data are prepared with, which must be that of all.
        num_workers: processes that each of them starts for its share.
        progress: wraps an iterable for display, called as `progress(items, desc, total)`.
    """

    def __init__(
        self,
        directory: Path,
        processes: Processes,
        *,
        settings: str,
        num_workers: int,
        progress: Callable[..., Iterable],
    ):
        # Absolute paths of the first process are in the jobs.
        self._directory, self._processes = directory.absolute(), processes
        self._settings, self._num_workers, self._progress = settings, num_workers, progress
        self._jobs, self._num_jobs = self._directory / ".jobs.partial", 0
        self._is_finished = False

    def run(self, job: Job) -> None:
        """Does a job together with the others; called by the first process.

        Raises:
            ValueError, OSError: as the job, or if another process has ended.
        """
        self._announce(job)
        self._do(job)

    def prepare_dataset(self, where: str) -> None:
        """Prepares a dataset of TFDS, unless that is done.

        Args:
            where: see `readers.tfds.read_tfds`.

        Raises:
            ValueError, OSError, ImportError: as `readers.tfds.read_tfds`.
        """
        from xling_jax.corpora.readers.tfds import prepare_dataset

        prepare_dataset(where, None)

    def finish(self) -> None:
        """Tells the others, once, that no more jobs come; called by the first process."""
        if self._is_finished:
            return
        self._is_finished = True
        self._announce(None)
        self._meet("leave")
        shutil.rmtree(self._jobs, ignore_errors=True)

    def help_first(self, get_ready: Callable[[], Any] = lambda: None) -> None:
        """Does this process' share of jobs until there are no more.

        Args:
            get_ready: called before a job that reads corpora.

        Raises:
            ValueError, OSError: as the jobs, or if another process has ended.
        """
        # Process 0 would take what earlier runs left here for errors of now. Where both see one
        # directory, it may just be removing them.
        with contextlib.suppress(FileNotFoundError):
            forget_errors(self._directory)
        while job := self._next():
            if job.reads_corpora:
                get_ready()
            for path in (job.scratch, *job.inputs):
                self._processes.receive(path)
            for path in (job.scratch, *job.outputs):
                path.mkdir(parents=True, exist_ok=True)
            self._do(job)
        self._meet("leave")

    def _announce(self, job: Job | None) -> None:
        if not self._num_jobs:
            shutil.rmtree(self._jobs, ignore_errors=True)
        save(self._next_path(), (str(self._directory), self._settings, job))
        self._processes.send(self._jobs)
        for path in (job.scratch, *job.inputs) if job else ():
            self._processes.send(path)
        self._meet("announced")

    def _next(self) -> Job | None:
        self._meet("announced")
        self._processes.receive(self._jobs)
        path = self._next_path()
        if not appears(path):
            raise FileNotFoundError(
                f"{path}: process 0 has put this there, where process {self._processes.index} does "
                "not see it; choose a --workdir on a file system that all processes share"
            )
        directory, settings, job = load(path)
        if settings != self._settings:
            raise ValueError(
                f"process {self._processes.index} was started with another config of the data than "
                "process 0; start all with the same arguments"
            )
        if job and directory != str(self._directory):
            raise ValueError(
                f"process 0 prepares data in {directory}, process {self._processes.index} in "
                f"{self._directory}; let all have the workdir under one path, or, if it is at "
                "gs://, the same $XDG_CACHE_HOME or home"
            )
        return job

    def _do(self, job: Job) -> None:
        own = f"share of process {self._processes.index} of {self._processes.count}"
        _logger.info("%s, %s", job.name, own)
        function, pieces = job.share(self._processes)
        total = len(pieces) if isinstance(pieces, Sized) else None
        results = map_in_order(function, pieces, self._num_workers)
        num_pieces = sum(1 for _ in self._progress(results, job.name, total))
        _logger.info("%s, %s: %d pieces", job.name, own, num_pieces)
        if self._processes.index:
            for path in (job.scratch, *job.outputs):
                self._processes.send(path)
        self._meet("done")
        if not self._processes.index:
            for path in (job.scratch, *job.outputs):
                self._processes.receive(path)
        self._num_jobs += 1

    def _next_path(self) -> Path:
        return self._jobs / f"{self._num_jobs:08d}"

    def _meet(self, what: str) -> None:
        # Without the directory, which one of them may see under another path.
        self._processes.meet(f"prepare: job {self._num_jobs} {what}")
