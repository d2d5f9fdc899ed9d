import gzip
import json

import jax
import pytest

from tests.train.synthetic import OnStep, smoke_experiment, write_corpus
from xling_jax.train.loop import train
from xling_jax.train.options import TrainOptions


@pytest.mark.slow
def test_the_updates_between_two_steps_are_traced(tmp_path):
    def annotate(step: int) -> None:
        with jax.profiler.TraceAnnotation(f"after update {step}"):
            pass

    values = {"data.bucket_lengths": (24,), "data.accumulation_steps": 1}
    experiment = smoke_experiment(values, total_steps=5, profile_steps=(2, 4))
    corpus = write_corpus(tmp_path / "data")
    train(experiment, str(tmp_path), corpus, callbacks=[OnStep(annotate)])
    (trace,) = tmp_path.glob("profile/plugins/profile/*/perfetto_trace.json.gz")
    assert list(trace.parent.glob("*.xplane.pb"))
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    found = {event["name"] for event in events if event.get("name", "").startswith("after update")}
    assert found == {"after update 2", "after update 3"}


@pytest.mark.parametrize("steps", [(100,), (0, 5), (7, 5), (7, 10)])
def test_steps_that_are_not_first_and_last_are_refused(steps):
    with pytest.raises(ValueError, match="train.profile_steps=.* first and the last update"):
        TrainOptions(total_steps=9, profile_steps=steps)
