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

from xling_jax.files.errors import one_line
from xling_jax.files.whole import naming_errors, read_json, write_json
from xling_jax.registry import Registry, import_extra

WRITERS = Registry(
    "train.writers",
    tensorboard="xling_jax.train.writers:TensorBoardWriter",
    wandb="xling_jax.train.writers:WandbWriter",
    mlflow="xling_jax.train.writers:MlflowWriter",
)

_IDS_FILE = "writers.json"
# MLflow's limits: parameters in a request, and characters of a value.
_MLFLOW_BATCH, _MLFLOW_VALUE = 100, 6000


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
        workdir = Path(workdir)
        with _one_line("wandb", wandb.Error, "run `wandb login`, or set WANDB_MODE=offline"):
            self._run = wandb.init(
                dir=workdir,
                id=_read_id(workdir, "wandb"),
                name=workdir.absolute().name,
                config=dict(config),
                resume="allow",
                settings=wandb.Settings(console="off", quiet=True),
            )
        _write_id(workdir, "wandb", self._run.id)
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
        workdir = Path(workdir)
        run_id = _read_id(workdir, "mlflow")
        way_out = "set MLFLOW_TRACKING_URI to a store that is there"
        with _one_line("mlflow", mlflow.exceptions.MlflowException, way_out):
            if not mlflow.is_tracking_uri_set():
                mlflow.set_tracking_uri(f"sqlite:///{workdir.absolute() / 'mlflow.db'}")
            name = None if run_id else workdir.absolute().name
            self._run_id = mlflow.start_run(run_id=run_id, run_name=name).info.run_id
            if not run_id:
                flat = flatten_dict(dict(config), sep=".")
                params = [(key, str(value)[:_MLFLOW_VALUE]) for key, value in flat.items()]
                for start in range(0, len(params), _MLFLOW_BATCH):
                    mlflow.log_params(dict(params[start : start + _MLFLOW_BATCH]))
        _write_id(workdir, "mlflow", self._run_id)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the scalars of a step."""
        metrics = {name: float(value) for name, value in values.items()}
        self._mlflow.log_metrics(metrics, step=step, run_id=self._run_id)

    def close(self) -> None:
        """Ends the run until it is continued."""
        self._mlflow.end_run()


# Writers whose client is a package of the same name, in an extra of the same name.
_CLIENTS = ("wandb", "mlflow")


def check_writers(names: tuple[str, ...]) -> None:
    """Checks the writers of a config.

    Raises:
        ValueError: for an unknown one.
        ImportError: for one whose client is not installed; says how to install it.
    """
    for name in names:
        WRITERS[name]
        if name in _CLIENTS:
            import_extra(name, name, f"train.writers={name}")


@contextlib.contextmanager
def _one_line(name: str, kind: type[Exception], way_out: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        raise ValueError(f"train.writers: {name}: {one_line(error, 300)}; {way_out}") from error


def _read_id(workdir: Path, name: str) -> str | None:
    return (read_json(workdir / _IDS_FILE) or {}).get(name)


def _write_id(workdir: Path, name: str, number: str) -> None:
    write_json(workdir / _IDS_FILE, (read_json(workdir / _IDS_FILE) or {}) | {name: number})
