"""Metrics in Weights & Biases and MLflow, written by their own clients without a network."""

import json
import sys

import pytest

from tests.train.processes import wait_for
from xling_jax.train.metrics import MetricsWriter
from xling_jax.train.options import TrainOptions

CONFIG = {"seed": 3, "train": {"total_steps": 4, "model_init": "x" * 7000}, "languages": ("de",)}
# The run was killed after step 3 and goes on from its checkpoint at step 2.
FIRST = [(1, {"train/loss": 3.0}), (2, {"dev/p_at_1": 0.5}), (3, {"train/loss": 2.0})]
SECOND = [(3, {"train/loss": 2.0}), (4, {"validation/de-en/loss": 1.5})]


def write_twice(workdir, name):
    for resume_step, records in ((0, FIRST), (2, SECOND)):
        writer = MetricsWriter(workdir, resume_step, writers=(name,), config=CONFIG)
        for step, values in records:
            writer.write(step, values)
        writer.close()
    return json.loads((workdir / "writers.json").read_text())[name]


def wandb_records(path):
    """The records in a file of the real client: a log of LevelDB with protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:  # no room for a header in this block
            place += left
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        if place + 7 + size > len(data):  # still being written
            return
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def kind_of(record):
    return record.WhichOneof("record_type")


def wandb_history(path):
    """(step, name) -> value, and what the file says about its run."""
    values, run = {}, None
    for record in wandb_records(path):
        if kind_of(record) == "run":
            run = run or record.run
        elif kind_of(record) == "history":
            row = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            own = {name: value for name, value in row.items() if "/" in name}
            values |= {(row["step"], name): value for name, value in own.items()}
    return values, run


@pytest.mark.exhaustive
def test_wandb_offline_one_run_before_and_after_a_kill(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "ours")
    workdir = tmp_path / "mine"
    workdir.mkdir()
    number = write_twice(workdir, "wandb")
    files = sorted(workdir.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2 and all(number in path.name for path in files)
    for path, records in zip(files, (FIRST, SECOND)):
        # The client's own process may still write when the run has finished.
        ended = lambda path=path: "exit" in map(kind_of, wandb_records(path))
        assert wait_for(ended, interval_s=0.1)
        values, run = wandb_history(path)
        assert values == {(step, name): v for step, row in records for name, v in row.items()}
        assert (run.run_id, run.project, run.display_name) == (number, "ours", "mine")
        config = {item.key: item.value_json for item in run.config.update}
        assert json.loads(config["seed"]) == 3 and json.loads(config["languages"]) == ["de"]


@pytest.mark.exhaustive
def test_mlflow_in_the_workdir_one_run_before_and_after_a_kill(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mlflow.set_tracking_uri(None)
    try:
        number = write_twice(tmp_path, "mlflow")
        client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
        run = client.get_run(number)
    finally:
        mlflow.set_tracking_uri(None)
    assert run.info.status == "FINISHED" and run.info.run_name == tmp_path.name
    assert run.data.params["train.total_steps"] == "4" and run.data.params["seed"] == "3"
    assert len(run.data.params["train.model_init"]) == 6000
    history = {m: client.get_metric_history(number, m) for m in run.data.metrics}
    found = {name: [(point.step, point.value) for point in h] for name, h in history.items()}
    assert found == {
        "train/loss": [(1, 3.0), (3, 2.0), (3, 2.0)],
        "dev/p_at_1": [(2, 0.5)],
        "validation/de-en/loss": [(4, 1.5)],
    }
    assert not (tmp_path / "tensorboard").exists()


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_client_names_its_extra_before_any_work(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    message = rf"train.writers={name} needs {name}; pip install 'xling_jax\[{name}\]'"
    with pytest.raises(ImportError, match=message):
        TrainOptions(writers=("tensorboard", name))
    TrainOptions()  # by default neither is imported


def test_an_unknown_writer_is_refused_and_other_processes_write_nothing(tmp_path):
    with pytest.raises(ValueError, match="train.writers='wanb' must be one of tensorboard, wandb"):
        TrainOptions(writers=("wanb",))
    MetricsWriter(tmp_path, 0, enabled=False, writers=("wandb", "mlflow")).write(1, {"a": 1.0})
    assert not any(tmp_path.iterdir())
