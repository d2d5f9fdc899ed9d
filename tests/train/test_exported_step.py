"""What a run exports and measures at its end, stopped and continued."""

import json

import jax
import pytest

from tests.train.processes import tiny_config
from tests.train.synthetic import write_corpus
from xling_jax.train.loop import train
from xling_jax.train.metrics import read_metrics

METRIC = "dev/score"
SCORES = {4: 0.9, 6: 0.5, 8: 0.1, 12: 0.2, 16: 0.3}  # the highest is best


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trains in a workdir, with a stop signal during the update `stop_at`."""
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"))
    cache = tmp_path_factory.mktemp("cache")

    def run(workdir, stop_at=0, total_steps=8, evaluate=True, scores=SCORES):
        selecting = {"best_metric": METRIC, "best_goal": "max", "export": "best"}
        intervals = {"evaluate_every_steps": 4, "checkpoint_every_steps": 4, "writers": ()}
        given = intervals | {"total_steps": total_steps} | (selecting if evaluate else {})
        updates = []
        return train(
            tiny_config({f"train.{name}": value for name, value in given.items()}),
            str(workdir),
            corpus,
            evaluators=[lambda _, step: {METRIC: scores[step]}] if evaluate else (),
            on_step=lambda step, *_: updates.append(step),
            should_stop=lambda: updates[-1] == stop_at,
        )

    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    yield run
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)


def evaluations(workdir):
    return {r["step"]: r[METRIC] for r in read_metrics(workdir) if METRIC in r}


def test_the_metrics_are_those_of_the_exported_step(run, tmp_path):
    for _ in range(2):  # the second time nothing is left to train
        result = run(tmp_path)
        assert result.finished and result.exported_step == 4
        assert result.metrics == {METRIC: SCORES[4]}
    assert evaluations(tmp_path) == {4: SCORES[4], 8: SCORES[8]}


def test_a_run_stopped_in_its_last_step_is_not_finished_until_it_is_evaluated(run, tmp_path):
    stopped = run(tmp_path, stop_at=8)
    assert (stopped.step, stopped.finished) == (8, False)
    assert evaluations(tmp_path) == {4: SCORES[4]}
    result = run(tmp_path)
    assert (result.step, result.finished, result.exported_step) == (8, True, 4)
    assert evaluations(tmp_path) == {4: SCORES[4], 8: SCORES[8]}


def kept(workdir):
    return sorted(path.name for path in (workdir / "checkpoints").iterdir())


@pytest.mark.parametrize("killed", [False, True])
def test_a_stop_at_an_evaluation_does_not_change_which_step_is_best(
    killed, run, tmp_path, monkeypatch
):
    expected = run(tmp_path / "whole", total_steps=16)
    assert expected.exported_step == 4 and len(kept(tmp_path / "whole")) == 3
    assert not run(tmp_path / "w", stop_at=4, total_steps=16).finished
    if killed:  # after the first of the two files with the scores
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("xling_jax.train.checkpoint.seal", _interrupt)
            run(tmp_path / "w", total_steps=16)
    result = run(tmp_path / "w", total_steps=16)
    assert (result.exported_step, result.metrics) == (4, {METRIC: SCORES[4]})
    assert evaluations(tmp_path / "w") == evaluations(tmp_path / "whole")
    assert kept(tmp_path / "w") == kept(tmp_path / "whole")
    for name in ("identity/metadata", "metrics/metrics"):
        files = [tmp_path / d / "checkpoints" / "00000004" / name for d in ("w", "whole")]
        records = [json.loads(file.read_text()) for file in files]
        assert records[0] == records[1], name


def test_an_evaluation_made_up_for_is_not_made_again(run, tmp_path):
    run(tmp_path, stop_at=8)
    assert run(tmp_path).finished
    assert run(tmp_path, scores={}).metrics == {METRIC: SCORES[4]}


def _interrupt(*_):
    raise KeyboardInterrupt


def test_without_anything_to_evaluate_the_last_step_finishes_even_a_stopped_run(run, tmp_path):
    assert run(tmp_path, stop_at=8, evaluate=False).finished


def test_a_run_beyond_its_total_steps_is_finished_and_exports_the_best(run, tmp_path):
    assert run(tmp_path).finished
    result = run(tmp_path, total_steps=6)
    assert (result.step, result.total_steps, result.finished) == (8, 6, True)
    assert (result.exported_step, result.metrics) == (4, {METRIC: SCORES[4]})


def test_a_run_that_is_shortened_to_where_it_was_stopped_evaluates_there(run, tmp_path):
    assert not run(tmp_path, stop_at=6).finished
    assert evaluations(tmp_path) == {4: SCORES[4]}
    assert run(tmp_path, total_steps=6).finished
    assert evaluations(tmp_path) == {4: SCORES[4], 6: SCORES[6]}
