"""Low-rank adaptation against float64, and in a run: the encoder stays, the export has the sum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.train.processes import tiny_experiment
from tests.train.synthetic import OnStep, write_corpus
from xling_jax.sharding import make_mesh
from xling_jax.train import lora
from xling_jax.train.checkpoint import read_params
from xling_jax.train.loop import train
from xling_jax.train.optimizer import frozen, trained_parts
from xling_jax.train.step import abstract_state, make_steps, sharded_shapes
from xling_jax.train.training import resolve

RANK = 2
SCALE = 16 / RANK


@pytest.fixture
def params():
    rng = np.random.default_rng(0)
    array = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    encoder = {"blocks_0": {"dense": {"kernel": array(5, 3), "bias": array(3)}}}
    encoder |= {"layers_1": {"input_kernel": array(2, 4, 3)}, "embedding": array(9, 5)}
    targets = r"(blocks|layers)_\d+/.*kernel"
    return lora.add_matrices({"encoder": encoder}, RANK, targets, jax.random.key(1))


def float64(array):
    return np.asarray(array, np.float64)


def test_what_is_merged_is_the_base_and_the_scaled_product(params):
    added = params["lora"]
    assert {*added} == {"blocks_0", "layers_1"} and {*added["blocks_0"]["dense"]} == {"kernel"}
    np.testing.assert_array_equal(
        lora.merged(params)["encoder"]["embedding"], params["encoder"]["embedding"]
    )
    begin = lora.merged(params)["encoder"]["blocks_0"]["dense"]["kernel"]
    np.testing.assert_array_equal(begin, params["encoder"]["blocks_0"]["dense"]["kernel"])  # B = 0
    added = jax.tree.map(lambda leaf: leaf + 0.5, added)
    found = lora.merged({**params, "lora": added})["encoder"]
    dense, recurrent = added["blocks_0"]["dense"]["kernel"], added["layers_1"]["input_kernel"]
    product = float64(dense["a"]) @ float64(dense["b"])
    expected = float64(begin) + SCALE * product
    np.testing.assert_allclose(found["blocks_0"]["dense"]["kernel"], expected, rtol=1e-6, atol=1e-6)
    for direction in range(2):
        product = float64(recurrent["a"][direction]) @ float64(recurrent["b"][direction])
        expected = (
            float64(params["encoder"]["layers_1"]["input_kernel"][direction]) + SCALE * product
        )
        np.testing.assert_allclose(
            found["layers_1"]["input_kernel"][direction], expected, rtol=1e-6, atol=1e-6
        )


def test_an_update_is_that_of_float64_and_leaves_the_base_and_its_state_alone(params):
    params = {**params, "lora": jax.tree.map(lambda leaf: leaf + 0.25, params["lora"])}
    inputs = np.random.default_rng(1).normal(size=(7, 5))

    def loss_fn(params, batch, key, train):
        kernel = lora.merged(params)["encoder"]["blocks_0"]["dense"]["kernel"]
        loss = jnp.square(batch["x"] @ kernel).sum() / 2
        return loss, {"loss": loss, "normalizer": jnp.float32(1)}

    trained = trained_parts(params, {"encoder"})
    optimizer = frozen(optax.sgd(0.01, momentum=0.9), trained)
    init, shapes = abstract_state(lambda key: params, optimizer, 0)
    moments = [leaf for leaf in jax.tree.leaves(shapes.opt_state) if leaf.ndim]
    assert sorted(m.shape for m in moments) == sorted(
        v.shape for v in jax.tree.leaves(params["lora"])
    )
    steps = make_steps(loss_fn, optimizer, make_mesh(1, 1), shapes, 0, trained=trained)
    before = jax.device_get(params)
    state, _ = steps.train(init(), {"x": inputs.astype(np.float32)}, np.int32(0))
    jax.tree.map(np.testing.assert_array_equal, state.params["encoder"], before["encoder"])
    kernel = before["encoder"]["blocks_0"]["dense"]["kernel"]
    pair = before["lora"]["blocks_0"]["dense"]["kernel"]
    a, b, scale = float64(pair["a"]), float64(pair["b"]), SCALE
    gradient = inputs.T @ inputs @ (float64(kernel) + scale * a @ b)
    found = state.params["lora"]["blocks_0"]["dense"]["kernel"]
    np.testing.assert_allclose(found["a"], a - 0.01 * scale * gradient @ b.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["b"], b - 0.01 * scale * a.T @ gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_run_exports_the_sum_and_continues_with_the_same_bits(tmp_path):
    corpus = write_corpus(tmp_path / "data")
    given = {"checkpoint_every_steps": 2, "evaluate_every_steps": 9}
    given |= {"lora_rank": RANK, "total_steps": 4}
    values = {"data.accumulation_steps": 1} | {f"train.{name}": given[name] for name in given}

    def run(name, stop_at=0):
        experiment = experiments[name] = tiny_experiment(values)
        steps = []
        note, stop = [OnStep(steps.append)], lambda: stop_at in steps
        return train(experiment, str(tmp_path / name), corpus, callbacks=note, should_stop=stop)

    experiments = {}
    whole, half = run("whole"), run("half", stop_at=2)
    assert (whole.step, half.step) == (4, 2)
    jax.tree.map(np.testing.assert_array_equal, run("half").encoder_params, whole.encoder_params)
    training = resolve(experiments["whole"], corpus.vocab)
    targets = sharded_shapes(make_mesh(1, 1), training.shapes)
    params = read_params(tmp_path / "whole/checkpoints", 4, targets, "vocab")
    begun = jax.jit(training.init)().params["encoder"]
    jax.tree.map(np.testing.assert_array_equal, params["encoder"], begun)
    assert np.abs(jax.tree.leaves(params["lora"])[1]).max() > 0
    jax.tree.map(
        lambda found, expected: np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7),
        whole.encoder_params,
        jax.device_get(lora.merged(params)["encoder"]),
    )
