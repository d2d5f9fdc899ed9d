import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.synthetic import smoke_experiment
from xling_jax.train.training import resolve


@pytest.mark.parametrize(
    "names", [("embedding",), ("blocks_0", "final_norm"), ("encoder/blocks_0",)]
)
def test_frozen_parameters_stay_and_the_others_move(names):
    training = resolve(smoke_experiment(frozen=names))
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), training.shapes.params)
    updates, _ = training.optimizer.update(params, training.optimizer.init(params), params)
    found = set()
    for path, update in jax.tree_util.tree_leaves_with_path(updates):
        parts = [entry.key for entry in path]
        frozen = {*parts, "/".join(parts[:2])} & {*names}
        assert bool((update == 0).all()) == bool(frozen), path
        found |= frozen
    assert found == {*names}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("embeding",),
            r"no parameter or module is called 'embeding'; they are called .*encoder",
        ),
        (("encoder", "decoder"), r"\('encoder', 'decoder'\) leaves nothing to train"),
    ],
)
def test_frozen_names_that_cannot_be_are_refused(names, message):
    with pytest.raises(ValueError, match=rf"train\.frozen.*{message}"):
        resolve(smoke_experiment(frozen=names))


def test_the_schedule_begins_anew_for_each_extension():
    schedule = {"name": "linear_schedule", "init_value": 1.0, "end_value": 0.0}
    values = {"optimizer": {"name": "sgd"}, "schedule": schedule, "train.total_steps": 4}
    experiment = smoke_experiment(values | {"train.extend_to": (6, 9)})
    assert experiment.train.last_step == 9
    optimizer, one = resolve(experiment).optimizer, jnp.ones(())
    state, found = optimizer.init(one), []
    for _ in range(9):
        update, state = optimizer.update(one, state, one)
        found.append(-float(update))
    expected = [1, 0.75, 0.5, 0.25, 1, 0.5, 1, 2 / 3, 1 / 3]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="extend_to=.* must be after train.total_steps=4"):
        smoke_experiment(values | {"train.extend_to": (4,)})
