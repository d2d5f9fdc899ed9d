"""What a run exports and measures at its end, stopped and continued."""

import json

import pytest

from tests.train.processes import tiny_experiment
from tests.train.synthetic import OnStep, write_corpus
from xling_jax.train.loop import train
from xling_jax.train.metrics import read_metrics

pytestmark = pytest.mark.slow

METRIC = "dev/score"
SCORES = {4: 0.9, 6: 0.5, 8: 0.1, 12: 0.2, 16: 0.3}  # the highest is best
OTHER = "dev/other"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trains in a workdir, with a stop signal during the update `stop_at`."""
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"))

    def run(workdir, stop_at=0, total_steps=8, evaluate=True, scores=SCORES, other=None, **more):
        selecting = {"best_metric": METRIC, "export": "best"}
        intervals = {"evaluate_every_steps": 4, "checkpoint_every_steps": 4}
        given = intervals | {"total_steps": total_steps} | (selecting if evaluate else {}) | more
        updates = []
        more_measured = lambda step: {OTHER: other[step]} if other else {}
        measure = lambda _, step: {METRIC: scores[step]} | more_measured(step)
        return train(
            tiny_experiment({f"train.{name}": value for name, value in given.items()}),
            str(workdir),
            corpus,
            evaluators=[measure] if evaluate else (),
            goal_of=lambda metric: "min" if metric == OTHER else "max",
            callbacks=[OnStep(updates.append)],
            should_stop=lambda: stop_at in updates,
        )

    return run


def evaluations(workdir):
    return {r["step"]: r[METRIC] for r in read_metrics(workdir) if METRIC in r}


def test_the_metrics_are_those_of_the_exported_step(run, tmp_path):
    for _ in range(2):  # the second time nothing is left to train
        result = run(tmp_path)
        assert result.finished and result.exported_step == 4
        assert result.metrics == {METRIC: SCORES[4]}
    assert evaluations(tmp_path) == {4: SCORES[4], 8: SCORES[8]}


def test_the_best_may_have_been_measured_between_checkpoints(run, tmp_path):
    result = run(tmp_path, scores={3: 0.1, 6: 0.9, 8: 0.2}, evaluate_every_steps=3)
    assert (result.exported_step, result.metrics) == (6, {METRIC: 0.9})


@pytest.mark.exhaustive
def test_a_run_stopped_in_its_last_step_is_not_finished_until_it_is_evaluated(run, tmp_path):
    stopped = run(tmp_path, stop_at=8)
    assert (stopped.step, stopped.finished) == (8, False)
    assert evaluations(tmp_path) == {4: SCORES[4]}
    result = run(tmp_path)
    assert (result.step, result.finished, result.exported_step) == (8, True, 4)
    assert evaluations(tmp_path) == {4: SCORES[4], 8: SCORES[8]}
    assert run(tmp_path, scores={}).metrics == {METRIC: SCORES[4]}  # it is not made again


def kept(workdir):
    return sorted(path.name for path in (workdir / "checkpoints").iterdir())


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_stop_at_an_evaluation_does_not_change_which_step_is_best(
    killed, run, tmp_path, monkeypatch
):
    expected = run(tmp_path / "whole", total_steps=16)
    assert expected.exported_step == 4 and len(kept(tmp_path / "whole")) == 3
    assert not run(tmp_path / "w", stop_at=4, total_steps=16).finished
    if killed:  # after the evaluation, before it is added to the checkpoint
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("xling_jax.train.checkpoint.seal", _interrupt)
            run(tmp_path / "w", total_steps=16)
    result = run(tmp_path / "w", total_steps=16)
    assert (result.exported_step, result.metrics) == (4, {METRIC: SCORES[4]})
    assert evaluations(tmp_path / "w") == evaluations(tmp_path / "whole")
    assert kept(tmp_path / "w") == kept(tmp_path / "whole")
    files = [tmp_path / d / "checkpoints/00000004/identity/metadata" for d in ("w", "whole")]
    records = [json.loads(file.read_text()) for file in files]
    assert records[0] == records[1]


def _interrupt(*_):
    raise KeyboardInterrupt
