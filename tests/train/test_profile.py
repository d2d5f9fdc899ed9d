import gzip
import json

import pytest

from tests.train.synthetic import smoke_experiment, write_corpus
from xling_jax.train.loop import train
from xling_jax.train.options import TrainOptions


@pytest.mark.slow
def test_the_updates_between_two_steps_are_traced(tmp_path):
    experiment = smoke_experiment(total_steps=4, profile_steps=(2, 3))
    train(experiment, str(tmp_path), write_corpus(tmp_path / "data"))
    (trace,) = tmp_path.glob("profile/plugins/profile/*/perfetto_trace.json.gz")
    assert list(trace.parent.glob("*.xplane.pb"))
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    called = [e for e in events if e.get("name") == "PjitFunction(train)" and e.get("ph") == "X"]
    assert len(called) == 2


@pytest.mark.parametrize("steps", [(100,), (0, 5), (7, 5), (7, 10)])
def test_steps_that_are_not_first_and_last_are_refused(steps):
    with pytest.raises(ValueError, match="train.profile_steps=.* first and the last update"):
        TrainOptions(total_steps=9, profile_steps=steps)
