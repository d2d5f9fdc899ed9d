import jax.numpy as jnp
import numpy as np
import optax.contrib
import pytest

from xling_jax.config import load
from xling_jax.train.optimizer import make_optimizer, make_schedule

PEAK, WARMUP = 5e-4, 4000


def fairseq_learning_rate(update):
    """Of the update with this number, from 0: linear warm-up, then inverse square root."""
    if update < WARMUP:
        return 1e-7 + update * (PEAK - 1e-7) / WARMUP
    return PEAK * WARMUP**0.5 * update**-0.5


def test_the_schedule_is_inverse_sqrt_with_warmup():
    schedule = make_schedule("warmup_inverse_sqrt_schedule", peak_value=PEAK, warmup_steps=WARMUP)
    for update in (0, 1, 2000, 3999, 4000, 4001, 100_000):
        np.testing.assert_allclose(schedule(update), fairseq_learning_rate(update), rtol=1e-6)


def test_the_published_optimizer_equals_fairseqs_adam_with_decoupled_decay():
    settings = load("t_laser").optimizer | {"weight_decay": 0.1}  # to be seen at all
    optimizer = make_optimizer(schedule=lambda step: 0.01 * (step + 1), **settings)
    random = np.random.default_rng(0)
    start = random.normal(size=(3, 4)).astype(np.float32)
    expected = start.astype(np.float64)
    mean = square = np.zeros_like(expected)
    params = {"w": jnp.asarray(start)}
    state = optimizer.init(params)
    for update in range(4):
        gradient = random.normal(size=(3, 4)) * (50 if update == 1 else 1)  # once above the clip
        updates, state = optimizer.update({"w": jnp.float32(gradient)}, state, params)
        params = {"w": params["w"] + updates["w"]}

        norm = np.sqrt((gradient**2).sum())
        gradient = gradient * min(1.0, 25.0 / norm)
        rate, step = 0.01 * (update + 1), update + 1
        expected = expected * (1 - rate * 0.1)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.98 * square + 0.02 * gradient**2
        size = rate * np.sqrt(1 - 0.98**step) / (1 - 0.9**step)
        expected = expected - size * mean / (np.sqrt(square) + 1e-8)
        np.testing.assert_allclose(params["w"], expected, atol=1e-6)


def test_amsgrad_takes_the_maximum_as_pytorch_does():
    """Of the moments before their bias correction."""
    optimizer = make_optimizer("amsgrad", schedule=lambda step: 0.1)
    random = np.random.default_rng(1)
    params = {"w": jnp.zeros((3, 4))}
    state, expected = optimizer.init(params), np.zeros((3, 4))
    mean = square = largest = np.zeros_like(expected)
    for step in range(1, 40):
        gradient = random.normal(size=(3, 4)) * (10 if step == 1 else 1)
        updates, state = optimizer.update({"w": jnp.float32(gradient)}, state, params)
        params = {"w": params["w"] + updates["w"]}

        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        largest = np.maximum(largest, square)
        denominator = np.sqrt(largest / (1 - 0.999**step)) + 1e-8
        expected = expected - 0.1 * mean / (1 - 0.9**step) / denominator
        np.testing.assert_allclose(params["w"], expected, atol=1e-5)


PIECEWISE = {"init_value": 1.0, "boundaries_and_scales": {"3": 0.1}}


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("warmup", {}, "schedule.name='warmup'"),
        ("constant_schedule", {"rate": 1}, "schedule.rate is not an option"),
        ("constant_schedule", {}, "schedule.value is missing"),
        ("warmup_inverse_sqrt_schedule", {"peak_value": 1, "warmup_steps": 0})
        + ("schedule.warmup_steps=0",),
        ("piecewise_constant_schedule", PIECEWISE, "name='piecewise_constant_schedule' cannot"),
        ("rprop", {"schedule": lambda step: 1.0}, "optimizer.name='rprop' does not work with"),
        ("adamm", {"schedule": None}, "optimizer.name='adamm'"),
        ("adam", {"schedule": None, "weight_decay": 1}, "weight_decay is not an option of adam"),
    ],
)
def test_unknown_names_and_arguments_are_refused(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        (make_optimizer if "schedule" in arguments else make_schedule)(name, **arguments)


def test_the_lightweight_schedule_warms_up_holds_and_drops():
    schedule = make_schedule(
        "warmup_drop_schedule", peak_value=1e-3, warmup_steps=2000, drop_steps=5000
    )
    values = [schedule(step) for step in (0, 999, 1999, 4999, 5000, 10**6)]
    np.testing.assert_allclose(values, [5e-7, 5e-4, 1e-3, 1e-3, 1e-4, 1e-4], rtol=1e-5)
    never = make_schedule("warmup_drop_schedule", peak_value=1e-3, warmup_steps=1)
    np.testing.assert_allclose(never(10**6), 1e-3)


def test_the_l2_penalty_is_part_of_the_gradient():
    params, gradient = jnp.array([2.0, -3.0]), jnp.array([0.5, 0.25])
    settings = {"name": "sgd", "schedule": lambda step: 0.1}
    for clip, expected in ((0.0, gradient), (1e-9, jnp.zeros(2))):
        optimizer = make_optimizer(**settings, clip_global_norm=clip, l2_penalty=0.01)
        updates, _ = optimizer.update(gradient, optimizer.init(params), params)
        np.testing.assert_allclose(updates, -0.1 * (expected + 0.01 * params), atol=1e-8)


def test_arguments_that_do_not_fit_each_other_are_named():
    given = {"init_value": 0.0, "peak_value": 1e-3, "warmup_steps": 100, "decay_steps": 8}
    with pytest.raises(
        ValueError, match="schedule.name='warmup_cosine_decay_schedule' cannot"
    ) as e:
        make_schedule("warmup_cosine_decay_schedule", **given)
    assert "warmup_steps=100, decay_steps=8: " in str(e.value)
    assert "train.total_steps" in str(e.value)


def test_optimizers_of_optax_contrib_have_their_names_and_arguments():
    optimizer = make_optimizer("muon", schedule=lambda step: 0.1, beta=0.9, clip_global_norm=0.5)
    params = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)}
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    expected = optax.contrib.muon(0.1, beta=0.9)
    updated, _ = expected.update(params, expected.init(params), params)
    np.testing.assert_allclose(updates["w"], updated["w"], atol=1e-5)  # it ignores the scale


def test_another_optimizer_or_schedule_has_what_it_takes_of_the_config():
    before = load("t_laser:smoke").optimizer
    given = ["--config.optimizer.name=muon", "--config.optimizer.beta=0.9"]
    given += ["--config.schedule.name=constant_schedule", "--config.schedule.value=0.01"]
    experiment = load("t_laser:smoke", given)
    kept = {name: before[name] for name in ("clip_global_norm", "weight_decay", "eps")}
    assert "b1" in before
    assert dict(experiment.optimizer) == {"name": "muon", "beta": 0.9, "l2_penalty": 0.0, **kept}
    assert dict(experiment.schedule) == {"name": "constant_schedule", "value": 0.01}
