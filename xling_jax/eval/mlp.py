"""Small neural classifiers on fixed vectors, with the schedules that LASER and SentEval published.

Many runs (seeds, folds, strengths of regularization) share one compiled program and differ in their
rows, the order of these and their first weights; what one learns does not depend on the others.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import softmax

# In one call of the compiled program; few enough for the orders of a large training text to fit.
_EPOCHS_PER_CALL = 25
# Of `learn_scores`, from SentEval's relatedness.py.
_SCORES_BATCH_SIZE, _PASSES_PER_LOOK, _MAX_PASSES, _SCORES_PATIENCE = 64, 50, 1000, 3
_SCORES_LEARNING_RATE = 1e-3
_ACTIVATIONS = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid}

# (kernel [in, out], bias [out]) of each layer, with leading axes where it is of several runs.
Layers = list[tuple[Any, Any]]


@dataclass(frozen=True)
class Schedule:
    """A classifier's network and how it is trained, by Adam on the cross-entropy.

    Attributes:
        hidden: sizes of the hidden layers; none makes a linear classifier.
        activation: of the hidden layers, "tanh" or "sigmoid".
        input_dropout: share of the input dropped.
        hidden_dropout: share of each hidden layer dropped.
        dropout_first: whether hidden dropout comes before the activation.
        learning_rate: of Adam.
        batch_size: rows in a batch; the last batch of a pass may have fewer.
        passes_per_epoch: passes through the training rows between two looks at the dev rows.
        num_epochs: looks at the dev rows, at most.
        patience: epochs without a gain in dev accuracy, counted over the whole training, before
            the next such epoch ends it; None never ends it early.
        keep_last: whether the last of equally good epochs is kept, or the first.
    """

    hidden: tuple[int, ...] = (10, 8)
    activation: str = "tanh"
    input_dropout: float = 0.2
    hidden_dropout: float = 0.2
    dropout_first: bool = False
    learning_rate: float = 1e-3
    batch_size: int = 12
    passes_per_epoch: int = 1
    num_epochs: int = 500
    patience: int | None = None
    keep_last: bool = True


# sent_classif.py and mldoc.sh of LASER.
LASER = Schedule()
# The lightweight model's classifier. Choice: its paper says "linear" only; LASER's schedule.
LINEAR = Schedule(hidden=(), input_dropout=0.0)
# SentEval's classifier.py; the epoch that begins at its limit of 200 passes still runs.
SENTEVAL = Schedule(
    hidden=(128,),
    activation="sigmoid",
    input_dropout=0.0,
    hidden_dropout=0.0,
    dropout_first=True,
    batch_size=64,
    passes_per_epoch=4,
    num_epochs=51,
    patience=5,
    keep_last=False,
)


@dataclass(frozen=True)
class Trained:
    """The classifiers kept, for every run and every set of dev rows.

    Attributes:
        layers: kernels [runs, sets, in, out] and biases [runs, sets, out], float32.
        epochs: [runs, sets] int, the epoch kept, from 1.
        correct: [runs, sets] int, dev rows right at that epoch.
        activation: of the hidden layers.
    """

    layers: Layers
    epochs: np.ndarray
    correct: np.ndarray
    activation: str

    def predict(self, run: int, dev_set: int, features: np.ndarray) -> np.ndarray:
        """Returns the label of each row of [n, dim], int64, by what one run kept for one set."""
        *hidden, last = [(kernel[run, dev_set], bias[run, dev_set]) for kernel, bias in self.layers]
        values = np.asarray(features, np.float32)
        for kernel, bias in hidden:
            values = values @ kernel + bias
            values = np.tanh(values) if self.activation == "tanh" else 1 / (1 + np.exp(-values))
        return (values @ last[0] + last[1]).argmax(axis=1)


def initial_layers(schedule: Schedule, dim: int, num_labels: int, seed: int) -> Layers:
    """Draws kernels [in, out] and biases [out], float32, as PyTorch: within 1/sqrt(inputs)."""
    rng = np.random.default_rng([seed, 0])
    layers = []
    for size_in, size_out in itertools.pairwise((dim, *schedule.hidden, num_labels)):
        bound = size_in**-0.5
        kernel = rng.uniform(-bound, bound, (size_in, size_out)).astype(np.float32)
        layers.append((kernel, rng.uniform(-bound, bound, size_out).astype(np.float32)))
    return layers


def train(
    schedule: Schedule,
    features: np.ndarray,
    labels: np.ndarray,
    num_labels: int,
    *,
    dev_features: np.ndarray,
    dev_labels: np.ndarray,
    dev_members: np.ndarray,
    seeds: Sequence[int],
    train_rows: Sequence[np.ndarray] | None = None,
    l2: Sequence[float] | None = None,
    initial: Sequence[Layers] | None = None,
    orders: np.ndarray | None = None,
) -> Trained:
    """Trains one classifier a run and keeps its best epoch for every set of dev rows.

    Args:
        schedule: network and training.
        features: [n, dim] float, all rows that any run trains on.
        labels: [n] int, in [0, num_labels).
        num_labels: size of the output.
        dev_features: [m, dim] float.
        dev_labels: [m] int; -1 for a label that is not in the training text and so always wrong.
        dev_members: [runs, sets, m] bool, the rows of each set of dev rows; early stopping uses
            the first set.
        seeds: one per run, of first weights, orders and dropout.
        train_rows: for each run the rows it trains on; None for all.
        l2: for each run the weight decay added to the gradient, biases included; None is 0.
        initial: first weights of each run, instead of random ones.
        orders: [runs, epochs * passes_per_epoch, n] int, the order of rows in each pass, instead
            of random ones.
    """
    runs = len(seeds)
    rows = [np.arange(len(labels))] * runs if train_rows is None else list(train_rows)
    initial = initial or [
        initial_layers(schedule, features.shape[1], num_labels, seed) for seed in seeds
    ]
    layers = jax.tree.map(lambda *leaves: np.stack(leaves), *initial)
    sets = dev_members.shape[1]
    state = {
        "layers": layers,
        "adam": jax.vmap(optax.scale_by_adam().init)(layers),
        "best": jax.tree.map(lambda leaf: np.repeat(leaf[:, None], sets, 1), layers),
        "correct": np.full((runs, sets), -1, np.int32),
        "epochs": np.zeros((runs, sets), np.int32),
        "failures": np.zeros(runs, np.int32),
        "stopped": np.zeros(runs, bool),
        "epoch": np.int32(0),
    }
    fixed = jax.device_put(
        {
            "features": np.asarray(features, np.float32),
            "labels": np.asarray(labels, np.int32),
            "dev_features": np.asarray(dev_features, np.float32),
            "dev_labels": np.asarray(dev_labels, np.int32),
            "dev_members": np.asarray(dev_members, np.float32),
            "l2": np.zeros(runs, np.float32) if l2 is None else np.asarray(l2, np.float32),
            "keys": jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)),
        }
    )
    num_batches = [-(-len(chosen) // schedule.batch_size) for chosen in rows]
    ragged = len(set(num_batches)) > 1
    draws = [np.random.default_rng([seed, 1]) for seed in seeds]
    per_call = min(schedule.num_epochs, _EPOCHS_PER_CALL if schedule.patience is None else 1)
    for first in range(0, schedule.num_epochs, per_call):
        count = min(per_call, schedule.num_epochs - first) * schedule.passes_per_epoch
        if orders is None:
            passes = [[draw.permutation(r) for _ in range(count)] for draw, r in zip(draws, rows)]
        else:
            start = first * schedule.passes_per_epoch
            passes = orders[:, start : start + count]
        batches = _batches(passes, count, max(num_batches), schedule)
        state = _run_epochs(schedule, ragged, state, fixed, batches)
        if schedule.patience is not None and np.all(state["stopped"]):
            break
    kept = jax.device_get({name: state[name] for name in ("best", "epochs", "correct")})
    return Trained(kept["best"], kept["epochs"], kept["correct"], schedule.activation)


def _batches(passes, count: int, num_batches: int, schedule: Schedule) -> np.ndarray:
    """Orders of rows as [epochs, batches, runs, batch_size] int32; -1 fills up."""
    size = schedule.batch_size
    batches = np.full((len(passes), count, num_batches * size), -1, np.int32)
    for run, orders in enumerate(passes):
        batches[run, :, : len(orders[0])] = orders
    batches = batches.reshape(len(passes), count, num_batches, size).transpose(1, 2, 0, 3)
    return batches.reshape(-1, schedule.passes_per_epoch * num_batches, len(passes), size)


def _apply(schedule: Schedule, layers: Layers, values: jax.Array, key: Any = None) -> jax.Array:
    """Logits [..., labels] of one run; a key turns dropout on."""
    activation = _ACTIVATIONS[schedule.activation]
    keys = [None] * len(layers) if key is None else jax.random.split(key, len(layers))

    def drop(values: jax.Array, rate: float, key: Any) -> jax.Array:
        if key is None or not rate:
            return values
        # 16 random bits take half the time of 32, and their rate is exact to 1e-5.
        bits = jax.random.bits(key, values.shape, jnp.uint16)
        return jnp.where(bits >= round(rate * 65536), values / (1 - rate), 0.0)

    values = drop(values, schedule.input_dropout, keys[0])
    for (kernel, bias), key in zip(layers[:-1], keys[1:]):
        values = values @ kernel + bias
        if schedule.dropout_first:
            values = activation(drop(values, schedule.hidden_dropout, key))
        else:
            values = drop(activation(values), schedule.hidden_dropout, key)
    return values @ layers[-1][0] + layers[-1][1]


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _run_epochs(schedule: Schedule, ragged: bool, state: dict, fixed: dict, batches: jax.Array):
    """Trains for as many epochs as `batches` has; returns the state after them."""

    def step(layers, adam, rows, key, l2):
        """One batch of one run."""
        weights = (rows >= 0).astype(jnp.float32)
        values, labels = fixed["features"][rows], fixed["labels"][rows]

        def loss(layers):
            logits = _apply(schedule, layers, values, key)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return jnp.sum(losses * weights) / jnp.maximum(jnp.sum(weights), 1.0)

        gradients = jax.grad(loss)(layers)
        gradients = jax.tree.map(lambda g, p: g + l2 * p, gradients, layers)
        updates, new_adam = optax.scale_by_adam().update(gradients, adam)
        new = jax.tree.map(lambda p, u: p - schedule.learning_rate * u, layers, updates)
        if ragged:  # A batch without rows must be no step; Adam's momentum would move the weights.
            some = weights[0] > 0
            new, new_adam = jax.tree.map(
                lambda after, before: jnp.where(some, after, before),
                (new, new_adam),
                (layers, adam),
            )
        return new, new_adam

    def batch(carry, rows):
        layers, adam = carry
        # By the steps taken, so that a run with fewer batches drops the same units as alone.
        keys = jax.vmap(jax.random.fold_in)(fixed["keys"], adam.count)
        return jax.vmap(step)(layers, adam, rows, keys, fixed["l2"]), None

    def epoch(state, rows):
        (layers, adam), _ = jax.lax.scan(batch, (state["layers"], state["adam"]), rows)
        return _keep_best(schedule, {**state, "layers": layers, "adam": adam}, fixed), None

    return jax.lax.scan(epoch, state, batches)[0]


def _keep_best(schedule: Schedule, state: dict, fixed: dict) -> dict:
    """Measures on the dev rows after an epoch, and keeps what is best."""
    logits = jax.vmap(lambda layers: _apply(schedule, layers, fixed["dev_features"]))(
        state["layers"]
    )
    right = (jnp.argmax(logits, axis=-1) == fixed["dev_labels"]).astype(jnp.float32)
    correct = jnp.einsum("rm,rsm->rs", right, fixed["dev_members"]).astype(jnp.int32)
    better = correct >= state["correct"] if schedule.keep_last else correct > state["correct"]
    better = better & ~state["stopped"][:, None]

    def keep(best, now):
        return jnp.where(better.reshape(*better.shape, *[1] * (now.ndim - 1)), now[:, None], best)

    epoch = state["epoch"] + 1
    failed = ~better[:, 0] & ~state["stopped"]
    # As published, a gain does not reset the count.
    stops = failed & (state["failures"] >= (schedule.patience or 0))
    return {
        **state,
        "best": jax.tree.map(keep, state["best"], state["layers"]),
        "correct": jnp.where(better, correct, state["correct"]),
        "epochs": jnp.where(better, epoch, state["epochs"]),
        "failures": state["failures"] + failed,
        "stopped": state["stopped"] | stops if schedule.patience is not None else state["stopped"],
        "epoch": epoch,
    }


def pearson(predicted: np.ndarray, scores: np.ndarray) -> float:
    """Pearson correlation of two [n] arrays; 0 if one of them is constant."""
    x, y = (np.asarray(values, np.float64) - np.mean(values) for values in (predicted, scores))
    length = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / length) if length > 0 else 0.0


def score_distribution(scores: np.ndarray) -> np.ndarray:
    """Spreads scores [n] over the two whole numbers around, equation 16 of Tai et al. (2015).

    Returns [n, 5] float32 for the classes from 1; the mean class of a row is its score.
    As published, the share of class 0 is lost: a row of the STS benchmark may sum to less than 1.
    """
    scores = np.asarray(scores, np.float64)[:, None]
    classes = np.arange(1, 6)
    return np.maximum(0.0, 1.0 - np.abs(scores - classes)).astype(np.float32)


def learn_scores(
    features: np.ndarray,
    scores: np.ndarray,
    dev_features: np.ndarray,
    dev_scores: np.ndarray,
    test_features: np.ndarray,
    *,
    seed: int = 1111,
) -> tuple[float, np.ndarray]:
    """Learns scores from pair features with a softmax over classes, squared error and Adam.

    As SentEval's relatedness.py, for SICK. Every 50 passes the Pearson correlation is measured on
    the dev rows; the fourth measurement without a gain, over the whole training, or the 1000th
    pass ends it.

    Features are [n, dim] float and scores [n]. Returns the best correlation on the dev rows, and
    the test scores predicted with its weights.
    """
    targets = score_distribution(scores)
    classes = np.arange(1, targets.shape[1] + 1)
    layers = initial_layers(Schedule(hidden=()), features.shape[1], targets.shape[1], seed)
    params = jax.device_put(layers[0])
    state = (params, optax.adam(_SCORES_LEARNING_RATE).init(params))
    draw = np.random.default_rng([seed, 1])
    data = jax.device_put((np.asarray(features, np.float32), targets))
    num_batches = -(-len(targets) // _SCORES_BATCH_SIZE)
    best, kept, failures = -1.0, state[0], 0
    # As published, the look that would exceed the limit is still begun.
    for _ in range(_MAX_PASSES // _PASSES_PER_LOOK + 1):
        order = np.full((_PASSES_PER_LOOK, num_batches * _SCORES_BATCH_SIZE), -1, np.int32)
        order[:, : len(targets)] = [draw.permutation(len(targets)) for _ in range(_PASSES_PER_LOOK)]
        state = _train_scores(state, data, order.reshape(-1, _SCORES_BATCH_SIZE))
        correlation = pearson(_predict_shares(state[0], dev_features) @ classes, dev_scores)
        if correlation > best:
            best, kept = correlation, jax.device_get(state[0])
        elif failures >= _SCORES_PATIENCE:
            break
        else:
            failures += 1
    return best, _predict_shares(kept, test_features) @ classes


@jax.jit
def _train_scores(state, data, batches):
    features, targets = data
    adam = optax.adam(_SCORES_LEARNING_RATE)

    def step(state, rows):
        params, adam_state = state
        weights = (rows >= 0).astype(jnp.float32)[:, None]

        def loss(params):
            shares = jax.nn.softmax(features[rows] @ params[0] + params[1])
            errors = jnp.square(shares - targets[rows]) * weights
            return jnp.sum(errors) / (jnp.sum(weights) * targets.shape[1])

        updates, adam_state = adam.update(jax.grad(loss)(params), adam_state)
        return (optax.apply_updates(params, updates), adam_state), None

    return jax.lax.scan(step, state, batches)[0]


def _predict_shares(params, features: np.ndarray) -> np.ndarray:
    kernel, bias = (np.asarray(array, np.float64) for array in params)
    return softmax(np.asarray(features, np.float64) @ kernel + bias, axis=1)
