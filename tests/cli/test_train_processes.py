"""`xling train` as several processes: one prepares the data, all measure together."""

import json
import os

import pytest

from tests.cli import processes_for_cli as processes
from tests.cli.corpora_for_cli import ROOT, arguments, write_tsv

pytestmark = pytest.mark.slow

NUM_ROWS = 37  # no multiple of the devices, and less than the rows of a batch


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_tsv(tmp_path_factory.mktemp("corpus") / "corpus.tsv")


def heartbeats_of_5_seconds(number):
    from xling_jax.cli import distributed

    distributed.HEARTBEAT_TIMEOUT_S = 5


def end(processes_started, logs):
    """Waits for the end of all, by an error in some of them; returns what each has said."""
    statuses = processes.finish(processes_started, 60)
    assert 0 not in statuses and None not in statuses, processes.said(logs)
    return [(logs / f"{number}.txt").read_text() for number in range(len(statuses))]


def another_learning_rate_in_the_second(number):
    from xling_jax.cli import train

    heartbeats_of_5_seconds(number)
    load, rate = train.load, f"--config.schedule.peak_value=0.0{number + 1}"
    train.load = lambda path, overrides: load(path, [*overrides, rate])


def test_processes_with_different_settings_are_all_told_so(corpus, tmp_path):
    command = arguments("train", f"tsv:{corpus}", tmp_path / "w")
    started = processes.start(tmp_path / "logs", 2, command, another_learning_rate_in_the_second)
    for said in end(started, tmp_path / "logs"):
        assert (
            "config.schedule.peak_value is 0.01 in process 0, 0.02 in process 1; start all "
            "processes with the same arguments" in said
        )
    assert not (tmp_path / "w" / "encoder").exists()


def programs_in_the_workdir(number):
    import jax

    del os.environ["JAX_COMPILATION_CACHE_DIR"]
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def test_two_processes_continue_with_programs_of_several_lengths(corpus, tmp_path):
    """Programs read from a cache have lost the order of some of their collectives."""
    command = arguments("train", f"tsv:{corpus}", tmp_path / "w")
    command[command.index("--config") + 1] = f"{ROOT}/configs/static.py:smoke"
    kept = ("languages", "data.pairs", "data.corpora", "vocab.size")
    command = [
        word
        for word in command
        if not word.startswith("--config.") or word[9:].partition("=")[0] in kept
    ]
    command += ["--config.data.bucket_lengths=(16,24,32)", "--config.schedule.decay_steps=200"]
    for total in (40, 80):
        words = [*command, f"--config.train.total_steps={total}"]
        processes.run(tmp_path / f"logs{total}", 2, words, programs_in_the_workdir)
    assert "resuming from checkpoint 40" in processes.said(tmp_path / "logs80")
    assert not (tmp_path / "w" / "xla_cache").exists()


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


@pytest.mark.exhaustive
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
