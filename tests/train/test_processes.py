"""One device, eight devices and two processes train the same: real processes, same batches."""

from pathlib import Path

import pytest

from tests.train import processes

pytestmark = pytest.mark.slow

SETTINGS = {
    "train.total_steps": 6,
    "train.checkpoint_every_steps": 3,
    "train.evaluate_every_steps": 3,
    "train.best_metric": "validation/loss",
    "data.validation_pairs": 37,
    # Large enough that fsdp has parameters to split.
    "encoder.width": 32,
    "decoder.width": 32,
    "encoder.ffn_width": 512,
    "decoder.ffn_width": 512,
}
TOPOLOGIES = {"dp": {"mesh.fsdp": 1}, "fsdp": {"mesh.fsdp": 4}}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def one_device(corpus, cache, tmp_path_factory) -> Path:
    """The workdir of a run on one device."""
    workdir = tmp_path_factory.mktemp("one")
    process = processes.start(workdir, corpus, SETTINGS, cache=cache)
    assert processes.finish(process) == 0, processes.log_text(workdir)
    return workdir


def start_pair(workdir: Path, corpus: Path, settings, cache: Path):
    """Two processes of four devices each."""
    return processes.start_several(2, workdir, corpus, settings, cache=cache, num_devices=4)


logs, check_same_training = processes.log_texts, processes.check_same_training


@pytest.mark.parametrize("topology", [pytest.param("dp", marks=pytest.mark.exhaustive), "fsdp"])
def test_eight_devices_and_two_processes_train_like_one_device(
    topology, corpus, cache, one_device, tmp_path
):
    settings = SETTINGS | TOPOLOGIES[topology]
    eight = processes.start(tmp_path / "8", corpus, settings, cache=cache, num_devices=8)
    assert processes.finish(eight) == 0, processes.log_text(tmp_path / "8")
    assert "8 devices" in processes.log_text(tmp_path / "8")
    check_same_training(tmp_path / "8", one_device)

    pair = start_pair(tmp_path / "2x4", corpus, settings, cache)
    assert [processes.finish(process) for process in pair] == [0, 0], logs(tmp_path / "2x4")
    check_same_training(tmp_path / "2x4", one_device)


@pytest.mark.exhaustive
def test_sigterm_to_one_of_two_processes_stops_both_with_a_checkpoint(corpus, cache, tmp_path):
    endless = SETTINGS | {"train.total_steps": 5000, "train.checkpoint_every_steps": 5000}
    endless["train.evaluate_every_steps"] = 5000
    pair = start_pair(tmp_path, corpus, endless, cache)
    metrics = tmp_path / "metrics.jsonl"
    started = processes.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, 120)
    assert started, logs(tmp_path)
    pair[1].terminate()
    assert [processes.finish(process) for process in pair] == [143, 143], logs(tmp_path)
    saved = [path for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit()]
    assert len(saved) == 1 and 0 < int(saved[0].name) < 5000
