"""Checkpoints of a run, written by orbax asynchronously and atomically, verified when read.

    00000100/state/                 arrays of the `TrainState`
    00000100/identity/metadata      record: identity, progress, dev metrics, hashes of the arrays
    broken-00000200/                a checkpoint that was set aside
    deleted/00000050/               one that is no longer kept, until its files are deleted

The record is sealed with its own hash (`train.integrity`). Damage to files that are not hashed
either makes them unreadable or has no effect on what is read.
"""

import contextlib
import functools
import itertools
import json
import logging
import math
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils

from xling_jax.files.untrusted import named
from xling_jax.files.whole import write_whole
from xling_jax.train.identity import difference
from xling_jax.train.integrity import array_hashes, seal, unseal
from xling_jax.train.options import TrainOptions
from xling_jax.train.step import TrainState

_logger = logging.getLogger(__name__)

# orbax wraps these in exceptions of its own.
_DISK_ERRORS = ("No space left on device", "Disk quota exceeded", "File too large")

_DELETED = "deleted"
_RECORD = "identity/metadata"

_HOUR_MS = 3600 * 1000
# All processes meet equally often; the system takes a name only once.
_meetings = itertools.count()


class Checkpoints:
    """Saves and restores `TrainState`s of a run with an `identity`, see `train.identity`.

    Kept are the newest `keep_last`, the best `keep_best` by `best_metric`, of which `best_goal` is
    better, and for good the `kept_steps`, also by runs that continue this one with others. The
    directory may be `gs://BUCKET/PATH`, where a checkpoint counts once it has orbax'
    `commit_success.txt`, since object stores have no rename. ValueError if the record or metadata
    of every one is damaged.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        identity: Mapping[str, Any],
        options: TrainOptions,
        best_goal: str = "max",
    ):
        self._directory = _absolute(directory)
        self._identity = json.loads(json.dumps(identity))
        self._options, self._best_goal = options, best_goal
        self._keep_steps = {*options.kept_steps}
        self._dev: dict[int, Mapping[str, float]] = {}
        self._delete_files()
        self._read_records()
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=self,
                cleanup_tmp_directories=True,
                # Renamed first: a run killed while it deletes files leaves no damaged checkpoint.
                todelete_subdir=None if self._is_remote else _DELETED,
                step_format_fixed_length=8,
                async_options=ocp.AsyncOptions(barrier_sync_fn=_meet_unless_failed),
            ),
            item_names=("state", "identity"),
        )

    def latest_step(self) -> int | None:
        """Step of the newest complete checkpoint."""
        return self._manager.latest_step()

    def evaluations(self) -> dict[int, Mapping[str, float]]:
        """The dev metrics of the steps that were saved and evaluated."""
        return {step: dev for step, dev in sorted(self._dev.items()) if dev}

    def save(
        self,
        state: TrainState,
        step: int,
        metrics: Mapping[str, float],
        progress: Mapping[str, Any],
    ) -> None:
        """Starts saving; OSError if writing this or the previous checkpoint failed.

        `metrics` are those of this step, empty if it was not evaluated; `progress`, JSON-like, is
        what `restore` returns.
        """
        if self._manager.latest_step() == step:
            return
        metrics = _floats(metrics)
        record = self._identity | {
            "progress": progress,
            "metrics": metrics,
            "kept": step in self._keep_steps,
            "arrays": array_hashes(state),
        }
        items = {"state": ocp.args.StandardSave(state)}
        items["identity"] = ocp.args.JsonSave(seal(record))
        with self._naming_failures():
            self._manager.wait_until_finished()
            self._delete_files()
            self._dev[step] = metrics
            self._manager.save(step, args=ocp.args.Composite(**items))

    def add_evaluation(
        self, step: int, metrics: Mapping[str, float], progress: Mapping[str, Any]
    ) -> None:
        """Adds to the newest checkpoint an evaluation that was made after it was saved.

        `progress` is what changes of that saved with it. OSError if the file cannot be written.
        """
        self._dev[step] = _floats(metrics)
        if jax.process_index() == 0:
            file = self._path(step) / _RECORD
            record = unseal(file.read_text())
            record |= {"metrics": self._dev[step], "progress": record["progress"] | progress}
            # Object stores do nothing by halves.
            write = file.write_text if self._is_remote else functools.partial(write_whole, file)
            with self._naming_failures():
                write(json.dumps(seal(record)))
        _meet("an evaluation is added")

    def restore(self, shapes: TrainState) -> tuple[TrainState, int, Mapping[str, Any]]:
        """Restores the newest intact checkpoint onto the shardings of `shapes`.

        Returns the state, the updates done and the `progress` saved with them. ValueError if it
        belongs to another config, vocabulary or corpus, or none is intact.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        step, state, record = self._first_intact(steps, shapes)
        return state, step, record["progress"]

    def _first_intact(
        self, steps: Sequence[int], shapes: TrainState
    ) -> tuple[int, TrainState, dict[str, Any]]:
        """The first intact checkpoint of these steps; sets those before it aside."""
        for number, step in enumerate(steps):
            if (restored := self._read(step, shapes)) is not None:
                if number:
                    self._rename_broken(steps[:number])
                    self._manager.reload()
                return step, *restored
        raise self._none_intact(steps)

    def _read(self, step: int, shapes: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """State and record of a checkpoint; None, with a warning, if it is damaged.

        ValueError if it belongs to another run.
        """
        state, record, problem, other = None, {}, "", None
        try:
            record = _read_record(self._path(step))
            other = difference(record, self._identity)
            state = None if other else _read_state(self._path(step), shapes)
        except Exception as error:  # orbax raises many kinds for damaged files
            problem = _reason(error)
        if other:
            raise ValueError(
                f"{self._directory}: checkpoint {step} belongs to another run: {other}; "
                "choose another --workdir or restore that key"
            )
        problem = next(filter(None, texts_of_processes(problem)), "")
        problem = problem or _mismatch(state, record["arrays"])
        if problem:
            self._warn(step, problem, "trying the one before it")
            return None
        return state, record

    @property
    def _is_remote(self) -> bool:
        """True for an object store, which has no rename."""
        return "://" in str(self._directory)

    def _delete_files(self) -> None:
        """Deletes the files of checkpoints that are no longer kept; nothing may be saving."""
        if jax.process_index() == 0 and not self._is_remote:
            (self._directory / _DELETED).rmtree(missing_ok=True)

    def _read_records(self) -> None:
        """Reads the records of all checkpoints; those with damaged small files are set aside."""
        steps, damaged = kept_steps(self._directory), []
        for step in steps:
            try:
                record = _read_record(self._path(step))
                json.loads((self._path(step) / "_CHECKPOINT_METADATA").read_text())
            except Exception as error:
                self._warn(step, _reason(error), "setting it aside")
                damaged.append(step)
                continue
            self._dev[step] = _floats(record.get("metrics", {}))
            if record.get("kept"):
                self._keep_steps.add(step)
        if damaged and damaged == steps:
            raise self._none_intact(damaged)
        self._rename_broken(damaged)

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        """Which checkpoints orbax keeps; its `BestN` knows only metrics that it writes itself."""
        steps = sorted(checkpoint.step for checkpoint in checkpoints)
        last, best = self._options.keep_last, self._options.keep_best
        ranked = self._ranked(steps)[-best:] if best else []
        kept = {*steps[-last:], *self._keep_steps, *ranked}
        return [checkpoint.step in kept for checkpoint in checkpoints]

    def _ranked(self, steps: Collection[int]) -> list[int]:
        """Those with the dev metric that ranks them, the best last, of equals the newest."""
        name, goal = self._options.best_metric, self._best_goal
        ranked = [step for step in steps if name in self._dev.get(step, {})]
        return sorted(ranked, key=lambda step: (score(self._dev[step][name], goal), step))

    def _rename_broken(self, steps: Sequence[int]) -> None:
        for step in steps if jax.process_index() == 0 else ():
            target = self._directory / f"broken-{step:08d}"
            target.rmtree(missing_ok=True)
            self._path(step).rename(target)
        for step in steps:
            self._dev.pop(step, None)
        _meet("damaged checkpoints are set aside")

    def _warn(self, step: int, problem: str, then: str) -> None:
        where = f"checkpoint {step} in {self._directory}"
        _logger.warning("%s is damaged (%s); %s", where, problem, then)

    def _none_intact(self, steps: Sequence[int]) -> ValueError:
        return ValueError(
            f"{self._directory}: none of the checkpoints {steps} is intact; remove the directory "
            "to start over, or restore it from a backup"
        )

    def _path(self, step: int) -> epath.Path:
        return self._directory / f"{step:08d}"

    def reached_preemption(self, step: int) -> bool:
        """True if all processes are to stop at this step."""
        return self._manager.reached_preemption(step)

    def best_steps(self) -> list[int]:
        """Steps of the stored checkpoints with the dev metric, the best first."""
        return self._ranked(self._manager.all_steps())[::-1]

    def restore_best(self, shapes: TrainState) -> tuple[int, Any]:
        """Step and parameters of the best intact checkpoint, the newest of equals.

        ValueError if the metric was measured at none.
        """
        if not (steps := self.best_steps()):
            raise ValueError(
                f"{self._directory}: no checkpoint has {self._options.best_metric}, which "
                "train.export='best' needs; set train.export='last', or compare them with "
                "xling evaluate --checkpoint all"
            )
        step, state, _ = self._first_intact(steps, shapes)
        return step, state.params

    def wait(self) -> None:
        """Waits until everything is on disk; raises OSError if writing failed."""
        with self._naming_failures():
            self._manager.wait_until_finished()
            self._delete_files()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Finishes writing, so that no exit from a run loses a checkpoint.

        Except after an error in one of several processes: it would wait for the others, which do
        not come here.
        """
        if error is not None and jax.process_count() > 1:
            return
        try:
            self.wait()
        except Exception as second:
            if error is None:
                raise
            _logger.warning("%s", second)
        finally:
            with contextlib.suppress(Exception):  # it says again what `wait` has said
                self._manager.close()

    @contextlib.contextmanager
    def _naming_failures(self) -> Iterator[None]:
        """If the disk is at fault, an OSError names the directory and the last checkpoint."""
        try:
            yield
        except Exception as error:
            reason = next((known for known in _DISK_ERRORS if known in str(error)), None)
            # Failures of an object store come as many kinds of exceptions.
            if reason is None and not isinstance(error, OSError) and not self._is_remote:
                raise
            way_out, step = "see why" if self._is_remote else "make room", self.latest_step()
            raise OSError(
                f"{self._directory}: writing a checkpoint failed: {reason or _reason(error)}; the "
                f"last good checkpoint is {step}; {way_out} and start the same command again"
            ) from error


def score(value: float, goal: str) -> float:
    """A value such that higher is better; one that is not finite is worse than all others.

    `goal` is `max` or `min`, whichever of the values is better. Rounded to 9 digits, as in
    `metrics.jsonl`: of equal means the last bits may differ.
    """
    if not math.isfinite(value):
        return -math.inf
    return float(f"{value if goal == 'max' else -value:.8e}")


def has_checkpoints(directory: str | os.PathLike) -> bool:
    """True if there is a checkpoint, complete or being written."""
    return any(_absolute(directory).glob("[0-9]*"))


def kept_steps(directory: str | os.PathLike) -> list[int]:
    """The steps of the complete checkpoints in a directory, ascending."""
    return sorted(ocp.utils.checkpoint_steps(_absolute(directory)))


def recorded_dtype(directory: str | os.PathLike, step: int) -> str | None:
    """The `compute_dtype` that a checkpoint was trained in, never `auto`; None if unknown."""
    try:
        return _read_record(_absolute(directory) / f"{step:08d}")["config"]["compute_dtype"]
    except Exception:  # `read_params` says what is wrong
        return None


def read_params(directory: str | os.PathLike, step: int, shapes: TrainState, vocab: str) -> Any:
    """Parameters of one checkpoint for the vocabulary with a fingerprint, as `Checkpoints.restore`.

    A run may be writing others. ValueError if it is damaged, or of another model or vocabulary.
    """
    path = _absolute(directory) / f"{step:08d}"
    try:
        record, state = _read_record(path), _read_state(path, shapes)
    except Exception as error:  # orbax raises many kinds for damaged files
        raise ValueError(f"{path}: damaged or of another model ({_reason(error)})") from error
    if record.get("vocab_fingerprint", vocab) != vocab:
        raise ValueError(
            f"{path}: the workdir has since been prepared with a different vocabulary; prepare it "
            "again with the run's own config"
        )
    if problem := _mismatch(state, record["arrays"]):
        raise ValueError(f"{path}: damaged ({problem}); choose another checkpoint")
    return state.params


def texts_of_processes(text: str) -> list[str]:
    """The texts of all processes, which call this together."""
    if jax.process_count() == 1:
        return [text]
    _meet("each has a text")
    own = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(own.size))
    rows = multihost_utils.process_allgather(np.pad(own, (0, max(1, sizes.max()) - own.size)))
    return [row[:size].tobytes().decode() for row, size in zip(rows, sizes)]


def _absolute(directory: str | os.PathLike) -> epath.Path:
    """The absolute path, which orbax requires, or the URL."""
    path = os.fspath(directory)
    return epath.Path(path if "://" in path else os.path.abspath(path))


def _meet_unless_failed(*, key: str, timeout_ms: int) -> None:
    """Waits for the other processes, unless an exception is propagating.

    orbax waits in a `finally`, too, for processes that in turn wait for the one that failed.
    """
    error = sys.exc_info()[1]
    if error is not None and jax.process_count() > 1:
        raise error
    ocp.multihost.get_barrier_sync_fn()(key=key, timeout_ms=timeout_ms)


def _read_record(path: epath.Path) -> dict[str, Any]:
    """The record of a checkpoint; ValueError if it is damaged, OSError if it cannot be read."""
    with named(_RECORD):
        return unseal((path / _RECORD).read_text())


def _read_state(path: epath.Path, shapes: TrainState) -> TrainState:
    """The arrays of a checkpoint.

    Without orbax' manager, which would wait for processes that cannot read their part.
    """
    restore = ocp.args.StandardRestore(shapes)
    return ocp.StandardCheckpointHandler().restore(path / "state", args=restore)


def _mismatch(state: TrainState, hashes: Mapping[str, str]) -> str:
    """Which arrays are not those that were saved; "" if all are."""
    found = array_hashes(state)
    wrong = [name for name in found if hashes.get(name, found[name]) != found[name]]
    if not wrong:
        return ""
    return f"{len(wrong)} of {len(found)} arrays do not match their hashes, first {min(wrong)}"


def _reason(error: Exception) -> str:
    """The reason of an error, without what tensorstore says about how a file was opened."""
    text = " ".join(str(error).partition(" [tensorstore_spec")[0].split())
    return text if len(text) <= 200 else f"…{text[-200:]}"


def _meet(name: str) -> None:
    """Waits for the other processes, for longer than a collective of the devices would."""
    if jax.process_count() > 1:
        key = f"xling, meeting {next(_meetings)}: {name}"
        ocp.multihost.get_barrier_sync_fn()(key=key, timeout_ms=_HOUR_MS)


def _floats(values: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as JSON has them."""
    return {name: float(value) for name, value in values.items()}
