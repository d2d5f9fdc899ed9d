"""Several processes measure together while they train, and find what one process finds."""

import json

import pytest

from tests.cli import processes_for_cli as processes
from tests.cli.corpora_for_cli import arguments, write_tsv

pytestmark = pytest.mark.exhaustive

NUM_ROWS = 37  # no multiple of the devices, and less than the rows of a batch


def dev_metrics(workdir):
    """Of the only step that is measured."""
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").open()]
    (found,) = [
        {name: value for name, value in record.items() if name.startswith("uneven/")}
        for record in records
        if any(name.startswith("uneven/") for name in record)
    ]
    return found


def three_devices_each(number):
    import jax

    jax.config.update("jax_num_cpu_devices", 3)


def test_an_uneven_set_is_measured_alike_by_one_and_by_two_processes(tmp_path):
    corpus = f"tsv:{write_tsv(tmp_path / 'corpus.tsv')}"
    uneven = write_tsv(tmp_path / "uneven.tsv", NUM_ROWS)
    settings = (
        f"--config.evaluation.retrieval=({str(uneven)!r},)",
        "--config.train.total_steps=4",
        "--config.train.evaluate_every_steps=4",
        "--config.train.best_metric=uneven/p_at_1",
        "--config.data.hold_out_evaluation=False",  # the corpus has these rows, too
        "--config.data.batch_multiple=6",
    )
    processes.run(tmp_path / "1.logs", 1, arguments("train", corpus, tmp_path / "1", *settings))
    # Parameters are shared out over all devices, of both processes.
    sharded = arguments("train", corpus, tmp_path / "2", *settings, "--config.mesh.fsdp=6")
    processes.run(tmp_path / "2.logs", 2, sharded, three_devices_each)
    found, expected = dev_metrics(tmp_path / "2"), dev_metrics(tmp_path / "1")
    assert found.keys() == expected.keys() and "uneven/p_at_1" in found
    # Rounding may change the neighbor of one sentence.
    assert found == pytest.approx(expected, abs=1.01 / NUM_ROWS)
    assert found["uneven/p_at_1"] > 3 / NUM_ROWS  # more than chance
