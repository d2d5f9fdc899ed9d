import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from xling_jax.train.options import TrainOptions
from xling_jax.train.profile import Profile


def test_the_updates_between_two_steps_are_traced(tmp_path):
    profile = Profile((2, 3), tmp_path)
    for step in range(1, 5):
        profile.begin(step)
        with jax.profiler.TraceAnnotation(f"update {step}"):
            results = jnp.ones(3) * step
        profile.end(step, results)
    (trace,) = tmp_path.glob("profile/plugins/profile/*/perfetto_trace.json.gz")
    assert list(trace.parent.glob("*.xplane.pb"))
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    named = {event.get("name") for event in events}
    assert {"update 2", "update 3"} <= named and not {"update 1", "update 4"} & named


@pytest.mark.parametrize("steps", [(100,), (0, 5), (7, 5), (7, 10)])
def test_steps_that_are_not_first_and_last_are_refused(steps):
    with pytest.raises(ValueError, match="train.profile_steps=.* first and the last update"):
        TrainOptions(total_steps=9, profile_steps=steps)
