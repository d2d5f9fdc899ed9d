"""Where a run's metrics go besides `W/metrics.jsonl`: TensorBoard, Weights & Biases, MLflow.

A writer is a class called with (workdir, step that the run resumes from, its config), with
`write(step, values)` and `close()`, and one line in `WRITERS`. Only the first process has any. The
clients of W&B and MLflow read their own environment variables; what names the run there is kept in
`W/writers.json`, so that a run that is continued stays one run.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flax.traverse_util import flatten_dict

from xling_jax.files.untrusted import one_line
from xling_jax.files.whole import naming_errors, read_json, write_json
from xling_jax.registry import Registry, import_extra

WRITERS = Registry(
    "train.writers",
    tensorboard="xling_jax.train.writers:TensorBoardWriter",
    wandb="xling_jax.train.writers:WandbWriter",
    mlflow="xling_jax.train.writers:MlflowWriter",
)


class TensorBoardWriter:
    """Event files in `W/tensorboard`.

    Events are written by the caller's thread: that of tensorboardX's `SummaryWriter` crashes on a
    full disk, after the run ended.
    """

    def __init__(self, workdir: str | os.PathLike, resume_step: int, config: Mapping[str, Any]):
        # Imported here: takes seconds, in which the first program compiles.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        del config
        self._make_event, self._make_scalar = Event, scalar
        self._board = Path(workdir) / "tensorboard"
        with naming_errors(self._board):
            self._board.mkdir(parents=True, exist_ok=True)
            self._events = EventsWriter(str(self._board / "events"))
            if resume_step:  # TensorBoard forgets what earlier files hold from here on
                start = SessionLog(status=SessionLog.SessionStatus.Value("START"))
                self._event(resume_step + 1, session_log=start)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the scalars of a step and flushes."""
        with naming_errors(self._board):
            for name, value in values.items():
                self._event(step, summary=self._make_scalar(name, float(value)))
            self._events.flush()

    def _event(self, step: int, **content: Any) -> None:
        self._events.write_event(self._make_event(wall_time=time.time(), step=step, **content))

    def close(self) -> None:
        """Closes the file."""
        with contextlib.suppress(OSError):  # of a failed write, already raised
            self._events.close()


class WandbWriter:
    """A run of Weights & Biases, with its files in `W/wandb`.

    The x-axis is `step`. W&B's own step may only grow, but a run that was killed repeats the steps
    since its last checkpoint.
    """

    def __init__(self, workdir: str | os.PathLike, resume_step: int, config: Mapping[str, Any]):
        del resume_step
        wandb = import_extra("wandb", "wandb", "train.writers=wandb")
        way_out = "run `wandb login`, or set WANDB_MODE=offline"
        with _run_ids(workdir, "wandb", wandb.Error, way_out) as ids:
            self._run = wandb.init(
                dir=workdir,
                id=ids.get("wandb"),
                name=Path(workdir).absolute().name,
                config=dict(config),
                resume="allow",
                settings=wandb.Settings(console="off", quiet=True),
            )
            ids["wandb"] = self._run.id
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the scalars of a step."""
        self._run.log({"step": step, **values})

    def close(self) -> None:
        """Waits until everything is written or sent."""
        self._run.finish()


class MlflowWriter:
    """A run of MLflow, in `W/mlflow.db` unless a tracking server is set.

    Options of the config are its parameters. It belongs to the experiment of
    MLFLOW_EXPERIMENT_NAME.
    """

    def __init__(self, workdir: str | os.PathLike, resume_step: int, config: Mapping[str, Any]):
        del resume_step
        self._mlflow = mlflow = import_extra("mlflow", "mlflow", "train.writers=mlflow")
        workdir = Path(workdir).absolute()
        way_out = "set MLFLOW_TRACKING_URI to a store that is there"
        with _run_ids(workdir, "mlflow", mlflow.exceptions.MlflowException, way_out) as ids:
            if not mlflow.is_tracking_uri_set():
                mlflow.set_tracking_uri(f"sqlite:///{workdir / 'mlflow.db'}")
            known = ids.get("mlflow")
            run = mlflow.start_run(run_id=known, run_name=None if known else workdir.name)
            ids["mlflow"] = self._run_id = run.info.run_id
            if not known:
                mlflow.log_params(flatten_dict(dict(config), sep="."))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the scalars of a step."""
        metrics = {name: float(value) for name, value in values.items()}
        self._mlflow.log_metrics(metrics, step=step, run_id=self._run_id)

    def close(self) -> None:
        """Ends the run until it is continued."""
        self._mlflow.end_run()


@contextlib.contextmanager
def _run_ids(
    workdir: str | os.PathLike, name: str, kind: type[Exception], way_out: str
) -> Iterator[dict[str, str]]:
    """The ids of the run at each service, kept in `W/writers.json`; errors become one line."""
    path = Path(workdir) / "writers.json"
    ids = read_json(path) or {}
    try:
        yield ids
    except kind as error:
        raise ValueError(f"train.writers: {name}: {one_line(error, 300)}; {way_out}") from error
    write_json(path, ids)


def check_writers(names: tuple[str, ...]) -> None:
    """Raises ValueError for an unknown writer, ImportError for one without its client."""
    for name in names:
        WRITERS[name]
        if name in ("wandb", "mlflow"):  # also the names of their packages and extras
            import_extra(name, name, f"train.writers={name}")
