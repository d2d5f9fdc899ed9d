"""Checkpoints of a run, written by orbax asynchronously and atomically."""

import json
import logging
import math
import os
import sys
from collections.abc import Collection, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import (
    AnyPreservationPolicy,
    BestN,
    CustomSteps,
    LatestN,
)

from xling_jax.train.identity import difference
from xling_jax.train.selection import score
from xling_jax.train.state import TrainState

logger = logging.getLogger(__name__)

# orbax wraps these in exceptions of its own.
_DISK_ERRORS = ("No space left on device", "Disk quota exceeded", "File too large")


class Checkpoints:
    """Saves and restores `TrainState`s.

    Args:
        directory: created if needed; may be `gs://BUCKET/PATH`, where a checkpoint counts once it
            has orbax' `commit_success.txt`, since object stores have no rename.
        identity: of the run, see `train.identity`; JSON-like.
        keep_last: number of newest checkpoints to keep.
        keep_best: number of best checkpoints to keep.
        best_metric: name of the dev metric that ranks them; "" for none.
        best_goal: of that metric, `max` or `min`.
        keep_steps: steps whose checkpoints are kept for good.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        identity: Mapping[str, Any],
        *,
        keep_last: int = 2,
        keep_best: int = 1,
        best_metric: str = "",
        best_goal: str = "max",
        keep_steps: Collection[int] = (),
    ):
        self._directory = _absolute(directory)
        self._identity = json.loads(json.dumps(identity))
        policies, metric = [LatestN(keep_last), CustomSteps(sorted(keep_steps))], None
        if best_metric and keep_best:
            metric = lambda metrics: score(metrics.get(best_metric, math.nan), best_goal)
            policies.append(
                BestN(get_metric_fn=metric, n=keep_best, keep_checkpoints_without_metrics=False)
            )
        self._best_metric, self._best_goal = best_metric, best_goal
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=AnyPreservationPolicy(policies),
                best_fn=metric,  # without it orbax writes no metrics
                cleanup_tmp_directories=True,
                step_format_fixed_length=8,
                async_options=ocp.AsyncOptions(barrier_sync_fn=_meet_unless_failed),
            ),
            item_names=("state", "identity"),
        )

    def latest_step(self) -> int | None:
        """Step of the newest complete checkpoint, None if there is none."""
        return self._manager.latest_step()

    def save(
        self,
        state: TrainState,
        step: int,
        metrics: Mapping[str, float],
        progress: Mapping[str, Any],
    ) -> None:
        """Starts saving; returns before the files are written.

        Args:
            state: of the run.
            step: updates done.
            metrics: dev metrics of this step; empty if it was not evaluated.
            progress: JSON-like, returned by `restore`.

        Raises:
            OSError: if writing this or the previous checkpoint failed, e.g. on a full disk.
        """
        if self._manager.latest_step() == step:
            return
        scores = None
        if self._best_metric and self._best_metric in metrics:
            scores = {self._best_metric: float(metrics[self._best_metric])}
        try:
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state),
                    identity=ocp.args.JsonSave(self._identity | {"progress": progress}),
                ),
                metrics=scores,
            )
        except Exception as error:
            raise self._failed(error) from error

    def restore(self, shapes: TrainState) -> tuple[TrainState, int, Mapping[str, Any]]:
        """Restores the newest readable checkpoint onto the shardings of `shapes`.

        Returns:
            The state, the updates done and the `progress` saved with them.

        Raises:
            ValueError: if it belongs to another config, vocabulary or corpus, or none is readable.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for step in steps:
            try:
                saved = self._manager.restore(
                    step, args=ocp.args.Composite(identity=ocp.args.JsonRestore())
                )["identity"]
                progress = saved.pop("progress", {})
                if found := difference(saved, self._identity):
                    raise _OtherRun(
                        f"{self._directory}: checkpoint {step} belongs to another run: {found}; "
                        "choose another --workdir or restore the setting"
                    )
                restored = self._manager.restore(
                    step, args=ocp.args.Composite(state=ocp.args.StandardRestore(shapes))
                )
                self._set_aside([broken for broken in steps if broken > step])
                return restored["state"], step, progress
            except _OtherRun:
                raise
            except Exception as error:  # orbax raises many kinds for damaged files
                reason = str(error).strip().partition("\n")[0][:200]
                logger.warning(
                    "checkpoint %d in %s is unreadable (%s: %s); trying an older one",
                    *(step, self._directory, type(error).__name__, reason),
                )
        raise ValueError(
            f"{self._directory}: none of the checkpoints {steps} is readable (truncated files?); "
            "remove the directory to start over, or restore it from a backup"
        )

    def _set_aside(self, steps: list[int]) -> None:
        """Renames unreadable checkpoints; called once an older one was restored."""
        if not steps:
            return
        if jax.process_index() == 0:
            for step in steps:
                target = self._directory / f"broken-{step:08d}"
                target.rmtree(missing_ok=True)
                (self._directory / f"{step:08d}").rename(target)
        multihost_utils.sync_global_devices("unreadable checkpoints are set aside")
        self._manager.reload()

    def reached_preemption(self, step: int) -> bool:
        """Whether all processes are to stop at this step."""
        return self._manager.reached_preemption(step)

    def best_step(self) -> int | None:
        """Step of the stored checkpoint with the best dev metric, the newest of equals."""
        if not self._best_metric:
            return None
        metrics = {step: self._manager.metrics(step) or {} for step in self._manager.all_steps()}
        name, goal = self._best_metric, self._best_goal
        scored = [(score(m[name], goal), step) for step, m in metrics.items() if name in m]
        return max(scored)[1] if scored else None

    def restore_params(self, step: int, shapes: TrainState) -> Any:
        """Parameters of one stored checkpoint."""
        args = ocp.args.Composite(state=ocp.args.StandardRestore(shapes))
        return self._manager.restore(step, args=args)["state"].params

    def wait(self) -> None:
        """Waits until everything is on disk; raises OSError if writing failed."""
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._failed(error) from error

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
            logger.warning("%s", second)
        finally:
            self._manager.close()

    def _failed(self, error: Exception) -> Exception:
        """If the disk is at fault, an OSError that names the directory and the last checkpoint."""
        text = str(error).partition(" [tensorstore_spec")[0]
        reason = next((known for known in _DISK_ERRORS if known in text), None)
        # Failures of an object store come as many kinds of exceptions.
        is_remote = "://" in str(self._directory)
        if reason is None and not isinstance(error, OSError) and not is_remote:
            return error
        good = self._manager.latest_step()
        return OSError(
            f"{self._directory}: writing a checkpoint failed: {reason or text[-200:]}; the last "
            f"good checkpoint is {good}; {'see why' if is_remote else 'make room'} and start the "
            "same command again"
        )


def has_checkpoints(directory: str | os.PathLike) -> bool:
    """Whether there is a checkpoint, complete or being written."""
    return any(_absolute(directory).glob("[0-9]*"))


def kept_steps(directory: str | os.PathLike) -> list[int]:
    """The steps of the complete checkpoints in a directory, ascending."""
    return sorted(ocp.utils.checkpoint_steps(_absolute(directory)))


def read_params(directory: str | os.PathLike, step: int, shapes: TrainState) -> Any:
    """Parameters of one checkpoint; a run may be writing others.

    Args:
        directory: of the checkpoints.
        step: one of `kept_steps`.
        shapes: of the state, with shardings.

    Raises:
        ValueError: if it cannot be read, or is of another model.
    """
    path = _absolute(directory) / f"{step:08d}" / "state"
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(path, shapes).params
    except Exception as error:  # orbax raises many kinds for damaged files
        reason = str(error).strip().partition("\n")[0][:200]
        raise ValueError(
            f"{path}: unreadable or of another model ({type(error).__name__}: {reason})"
        ) from error


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


class _OtherRun(ValueError):
    """A readable checkpoint that does not belong to this run."""
