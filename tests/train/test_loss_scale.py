"""float16: overflow is found, its update skipped, the loss scale adapted, saved and logged."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.train import processes
from tests.train.synthetic import VOCAB_SIZE, OnStep
from xling_jax.sharding import make_mesh
from xling_jax.train import loss_scale
from xling_jax.train.loop import Corpus, train
from xling_jax.train.loss_scale import with_loss_scale
from xling_jax.train.metrics import Interval
from xling_jax.train.optimizer import make_optimizer
from xling_jax.train.step import abstract_state, make_steps
from xling_jax.train.training import VocabFacts

START = np.array([1.0, -2.0, 0.5], np.float32)
SCALE = loss_scale.INITIAL_SCALE


def loss_fn(params, batch, key, train):
    """Least squares, whose errors and their gradients pass through float16."""
    del key, train
    error = batch["inputs"] @ params["w"] - batch["targets"]
    error = error.astype(jnp.float16).astype(jnp.float32)
    loss = 0.5 * (error**2).sum()
    return loss, {"loss": loss, "normalizer": jnp.float32(len(error))}


def make_batch(error):
    """Of which every error is as given with the initial parameters."""
    return {"inputs": np.eye(3, dtype=np.float32), "targets": START - np.float32(error)}


GOOD, OVERFLOW = make_batch(0.5), make_batch(3.0)  # 3 · 2^15 > 65,504


def make(optimizer):
    init, shapes = abstract_state(lambda key: {"w": jnp.asarray(START)}, optimizer, 0)
    return init(), make_steps(loss_fn, optimizer, make_mesh(1, 1), shapes, 0)


def adam():
    """With moments and a schedule, whose count must not move in a skipped update."""
    return make_optimizer("adam", schedule=optax.linear_schedule(0.1, 0.0, 10))


def on_host(tree):
    return jax.tree.map(np.array, tree)


def test_an_update_with_overflow_is_skipped_and_the_scale_halved():
    state, steps = make(with_loss_scale(adam()))
    state, sums = steps.train(state, GOOD, np.int32(0))  # moments are no longer 0
    assert (sums["skipped_updates"], sums["loss_scale"]) == (0, SCALE)
    before = on_host(state)
    state, sums = steps.train(state, OVERFLOW, np.int32(1))
    assert (sums["skipped_updates"], sums["loss_scale"]) == (1, SCALE / 2)
    jax.tree.map(np.testing.assert_array_equal, state.params, before.params)
    jax.tree.map(np.testing.assert_array_equal, state.opt_state.inner, before.opt_state.inner)
    assert (state.step, state.opt_state.scale, state.opt_state.good_updates) == (2, SCALE / 2, 0)
    state, sums = steps.train(state, OVERFLOW, np.int32(2))  # half the scale is small enough
    assert sums["skipped_updates"] == 0 and not np.array_equal(state.params["w"], START)


def test_a_good_update_is_that_without_a_scale():
    state, steps = make(with_loss_scale(adam()))
    plain, plain_steps = make(adam())
    for index in range(3):
        state, sums = steps.train(state, GOOD, np.int32(index))
        plain, plain_sums = plain_steps.train(plain, GOOD, np.int32(index))
    np.testing.assert_array_equal(state.params["w"], plain.params["w"])
    assert sums["loss"] == plain_sums["loss"]
    assert sums["gradient_norm"] == plain_sums["gradient_norm"]


@pytest.mark.parametrize("order", [(GOOD, OVERFLOW), (OVERFLOW, GOOD)])
def test_overflow_in_one_micro_batch_skips_the_whole_update(order):
    state, steps = make(with_loss_scale(adam()))
    accumulator = steps.first(state, order[0], np.int32(0))
    accumulator = steps.more(accumulator, state, order[1], np.int32(1))
    state, sums = steps.apply(state, accumulator)
    assert sums["skipped_updates"] == 1
    np.testing.assert_array_equal(state.params["w"], START)


@pytest.mark.parametrize(
    ("updates", "expected"),
    [(3, [1, 1, 2, 2, 2, 4, 4, 4, 8]), (1, [2.0**n for n in range(1, 10)] + [2.0**9] * 3)],
)
def test_the_scale_doubles_again_after_as_many_good_updates_up_to_a_bound(
    updates, expected, monkeypatch
):
    assert loss_scale._GROWTH_UPDATES == 2000 and loss_scale.MAXIMUM_SCALE == 2.0**24
    monkeypatch.setattr(loss_scale, "_GROWTH_UPDATES", updates)
    params = {"w": jnp.asarray(START)}
    optimizer = with_loss_scale(optax.sgd(0.1))
    state, scales = optimizer.init(params), []
    for _ in expected:
        _, state = optimizer.update(params, state, params)
        scales.append(float(state.scale) / SCALE)
    assert scales == expected


def sums_of(loss, norm, scale, skipped):
    return {
        "loss": np.float32(loss),
        "normalizer": np.float32(2),
        "tokens": np.float32(10),
        "sentences": np.float32(1),
        "gradient_norm": np.float32(norm),
        "loss_scale": np.float32(scale),
        "skipped_updates": np.float32(skipped),
    }


def test_an_interval_leaves_out_what_is_not_finite_in_skipped_updates():
    interval = Interval(lambda step: "pair aa-bb")
    updates = [(8, 3, 4, 0), (6, np.inf, 2, 1), (np.nan, np.nan, 1, 1), (4, 1, 1, 0)]
    for step, update in enumerate(updates, 1):
        interval.add(step, sums_of(*update), padded_tokens=10)
    interval.drain()
    interval = Interval(lambda step: "", json.loads(json.dumps(interval.progress())))
    values = interval.metrics()
    assert values["train/loss"] == (8 + 6 + 4) / (3 * 2)
    assert values["train/gradient_norm"] == (3 + 1) / 2
    assert (values["train/loss_scale"], values["train/skipped_updates"]) == (1, 2)
    assert values["train/padding_efficiency"] == 1  # all tokens count


@pytest.mark.parametrize(
    "update, message",
    [
        ((6, np.inf, 5e-5, 1), "step 1: loss 6.0, gradient norm inf on pair x, .* of only 0.0001"),
        ((np.nan, 1, 1, 0), "step 1: loss nan, gradient norm 1.0 on pair x$"),
    ],
)
def test_a_run_ends_when_lowering_the_scale_does_not_help(update, message):
    interval = Interval(lambda step: "pair x")
    interval.add(1, sums_of(*update), padded_tokens=10)
    with pytest.raises(FloatingPointError, match=message):
        interval.drain()


@pytest.mark.slow
def test_a_run_with_overflow_goes_on_with_the_same_bits(corpus, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(loss_scale, "INITIAL_SCALE", 2.0**18)
    facts = VocabFacts(VOCAB_SIZE, "vocab", {"bos": 0, "pad": 1, "eos": 2})
    settings = {
        "compute_dtype": "float16",
        "train.total_steps": 12,
        "train.log_every_steps": 3,
        "train.checkpoint_every_steps": 100,
        "data.accumulation_steps": 2,
    }

    def run(workdir, stop_at=None):
        steps = []
        workdir.mkdir(exist_ok=True)
        return train(
            processes.tiny_experiment(settings),
            str(workdir),
            Corpus(str(corpus), "data", facts),
            callbacks=[OnStep(steps.append)],
            should_stop=lambda: stop_at in steps,
        )

    caplog.set_level("INFO", "xling_jax")
    whole = run(tmp_path / "whole")
    skipped = [line for line in caplog.messages if "skipped; loss scale now" in line]
    assert skipped[0] == "step 1: float16 overflow, skipped; loss scale now 131072"
    assert 4 < len(skipped) < 12
    records = processes.metrics_without_timing(tmp_path / "whole")
    assert records[0]["train/skipped_updates"] == 3
    assert records[0]["train/loss_scale"] == 2.0**15
    assert np.isfinite(records[-1]["train/loss"])

    assert run(tmp_path / "stopped", stop_at=4).step == 4  # while it is still skipping
    resumed = run(tmp_path / "stopped")
    jax.tree.map(np.testing.assert_array_equal, resumed.encoder_params, whole.encoder_params)
    assert processes.metrics_without_timing(tmp_path / "stopped") == records

    settings["compute_dtype"] = "float32"
    with pytest.raises(ValueError, match="compute_dtype is 'float16' in the checkpoint, 'float32'"):
        run(tmp_path / "stopped")
