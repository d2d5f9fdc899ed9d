"""Bucket lengths that the text tells, from the prepared data to the compiled programs of a run."""

import collections
import json
import re
import threading
import time

import jax
import pytest

from tests.train.synthetic import smoke_experiment, write_corpus
from xling_jax.config import load
from xling_jax.runs.train import continued
from xling_jax.runs.workdir import Workdir
from xling_jax.train import loop
from xling_jax.train.loop import open_batches, train


@pytest.fixture
def compiled():
    """How often a function of each name was compiled."""
    counts = collections.Counter()

    def count(event: str, seconds: float, **facts: str) -> None:
        if event.endswith("backend_compile_duration"):
            counts[facts["fun_name"].removeprefix("jit_").removeprefix("jit(").rstrip(")")] += 1

    jax.monitoring.register_event_duration_secs_listener(count)
    yield counts
    jax.monitoring.unregister_event_duration_listener(count)


def with_buckets(total_steps: int, accumulation_steps: int):
    values = {"data.bucket_lengths": (), "data.longest_bucket": 24}
    values["data.accumulation_steps"] = accumulation_steps
    return smoke_experiment(values, total_steps=total_steps, checkpoint_every_steps=total_steps)


@pytest.mark.slow
@pytest.mark.parametrize("accumulation_steps", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
def test_a_run_compiles_each_program_once_and_only_those_it_needs(
    tmp_path, caplog, compiled, accumulation_steps
):
    corpus = write_corpus(tmp_path / "data", rows=400)
    experiment = with_buckets(6, accumulation_steps)
    with caplog.at_level("INFO"):
        train(experiment, str(tmp_path), corpus)
    plan = open_batches(experiment, corpus).plan
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["data"]["bucket_lengths"] == [bucket.length for bucket in plan.buckets]
    used = [plan[index].bucket for index in range(6 * accumulation_steps)]
    if accumulation_steps == 1:
        expected = {"train": len(set(used))}
    else:
        expected = {"gradients": len(set(used[::2])), "more": len(set(used[1::2])), "apply": 1}
    assert {name: compiled[name] for name in expected} == expected
    assert re.search(r"first step after [\d.]+ s \([\d.]+ s of compilation\)", caplog.text)


def test_a_run_keeps_the_lengths_it_began_with(tmp_path):
    words = ["--config.data.bucket_lengths=()", "--config.data.longest_bucket=24"]
    experiment = load("ct_laser:smoke", words)
    saved = {"version": "0.3.0", **experiment.config}
    saved["data"] = {**saved["data"], "bucket_lengths": [8, 16, 24]}
    (tmp_path / "config.json").write_text(json.dumps(saved))
    workdir = Workdir(str(tmp_path))
    assert continued(experiment, workdir).data.bucket_lengths == ()  # nothing was trained yet
    (tmp_path / "checkpoints/00000004").mkdir(parents=True)
    assert continued(experiment, workdir).data.bucket_lengths == (8, 16, 24)


def test_a_program_that_cannot_be_compiled_ends_the_run_with_its_error(tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(loop, "_compile", broken)
    with pytest.raises(MemoryError, match="too large"):
        train(with_buckets(6, 1), str(tmp_path), write_corpus(tmp_path / "data", rows=400))


def test_a_run_that_is_to_stop_does_not_wait_for_a_program(tmp_path, monkeypatch):
    corpus, released = write_corpus(tmp_path / "data", rows=400), threading.Event()
    monkeypatch.setattr(loop, "_compile", lambda *_: released.wait(60))
    started = time.monotonic()
    result = train(with_buckets(6, 1), str(tmp_path), corpus, should_stop=lambda: True)
    released.set()
    assert (result.step, result.finished) == (0, False) and time.monotonic() - started < 50
