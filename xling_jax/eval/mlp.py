"""Small neural networks on fixed vectors, with the schedules that LASER and SentEval published."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

_ACTIVATIONS = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid}

Layers = list[tuple[Any, Any]]  # kernel [in, out] and bias [out] of each


@dataclass(frozen=True)
class Schedule:
    """A network and how it is trained, by Adam on the cross-entropy.

    Attributes:
        hidden: sizes of the hidden layers; none makes a linear classifier.
        activation: of the hidden layers, "tanh" or "sigmoid".
        input_dropout: share of the input dropped.
        hidden_dropout: share of each hidden layer dropped, after the activation.
        batch_size: rows in a batch; the last batch of a pass may have fewer.
        passes_per_epoch: passes through the training rows between two looks at the dev rows.
        num_epochs: looks at the dev rows, at most.
        patience: epochs without a gain in the score, counted over the whole training, before the
            next such epoch ends it; None never ends it early.
        keep_last: whether the last of equally good epochs is kept, or the first.
    """

    hidden: tuple[int, ...] = (10, 8)
    activation: str = "tanh"
    input_dropout: float = 0.2
    hidden_dropout: float = 0.2
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
    batch_size=64,
    passes_per_epoch=4,
    num_epochs=51,
    patience=5,
    keep_last=False,
)


@dataclass(frozen=True)
class Network:
    """The function of trained layers, [n, dim] -> logits [n, labels]."""

    layers: Layers
    activation: str

    def __call__(self, features: np.ndarray) -> np.ndarray:
        values = np.asarray(features, np.float32)
        for kernel, bias in self.layers[:-1]:
            values = values @ kernel + bias
            values = np.tanh(values) if self.activation == "tanh" else 1 / (1 + np.exp(-values))
        kernel, bias = self.layers[-1]
        return values @ kernel + bias


class Kept(NamedTuple):
    """The network of the best epoch, which it was, from 1, and its score."""

    network: Network
    epoch: int
    score: float


def initial_layers(schedule: Schedule, dim: int, num_labels: int, seed: int) -> Layers:
    """Draws kernels and biases, float32, as PyTorch: within 1/sqrt(inputs)."""
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
    looks: Sequence[Callable[[Network], float]],
    *,
    seed: int,
    rows: np.ndarray | None = None,
    l2: float = 0.0,
) -> list[Kept]:
    """Trains a network and keeps its best epoch for every look; returns them.

    Args:
        schedule: network and training.
        features: [n, dim].
        labels: [n] int, below `num_labels`; of the rows to train on.
        num_labels: size of the output.
        looks: functions from a network to its score on some dev rows; the first decides about
            early stopping.
        seed: of first weights, orders and dropout.
        rows: [m] int, those to train on; None for all.
        l2: the weight decay added to the gradient, biases included.
    """
    rows = np.arange(len(features)) if rows is None else rows
    data = jax.device_put((np.asarray(features, np.float32), np.asarray(labels, np.int32)))
    layers = initial_layers(schedule, features.shape[1], num_labels, seed)
    state = layers, optax.scale_by_adam().init(layers)
    draw = np.random.default_rng([seed, 1])
    size, kept, failures = schedule.batch_size, [None] * len(looks), 0
    for epoch in range(1, schedule.num_epochs + 1):
        batches = np.full((schedule.passes_per_epoch, -(-len(rows) // size) * size), -1, np.int32)
        batches[:, : len(rows)] = [draw.permutation(rows) for _ in batches]
        state = _run_epoch(schedule, state, data, batches.reshape(-1, size), np.uint32(seed), l2)
        network = Network(jax.device_get(state[0]), schedule.activation)
        gained = []
        for number, (best, look) in enumerate(zip(kept, looks)):
            score = float(look(network))
            ties = schedule.keep_last and best and score == best.score
            gained.append(best is None or score > best.score or ties)
            if gained[-1]:
                kept[number] = Kept(network, epoch, score)
        if schedule.patience is not None and not gained[0]:
            # As published, a gain does not reset the count.
            if failures == schedule.patience:
                break
            failures += 1
    return kept


def _apply(schedule: Schedule, layers: Layers, values: jax.Array, key: jax.Array) -> jax.Array:
    """Logits [n, labels] with dropout."""

    def drop(values: jax.Array, rate: float, key: jax.Array) -> jax.Array:
        if not rate:
            return values
        # 16 random bits take half the time of 32, and their rate is exact to 1e-5.
        bits = jax.random.bits(key, values.shape, jnp.uint16)
        return jnp.where(bits >= round(rate * 65536), values / (1 - rate), 0.0)

    keys = jax.random.split(key, len(layers))
    values = drop(values, schedule.input_dropout, keys[0])
    for (kernel, bias), key in zip(layers[:-1], keys[1:]):
        values = _ACTIVATIONS[schedule.activation](values @ kernel + bias)
        values = drop(values, schedule.hidden_dropout, key)
    return values @ layers[-1][0] + layers[-1][1]


@functools.partial(jax.jit, static_argnums=0)
def _run_epoch(schedule: Schedule, state: tuple, data: tuple, batches: jax.Array, seed, l2):
    """Trains on batches of rows [batches, batch_size], -1 for none; returns the state after."""
    features, labels = data

    def step(state, rows):
        layers, adam = state
        weights = (rows >= 0).astype(jnp.float32)
        key = jax.random.fold_in(jax.random.key(seed), adam.count)

        def loss(layers):
            logits = _apply(schedule, layers, features[rows], key)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels[rows])
            return jnp.sum(losses * weights) / jnp.sum(weights)

        gradients = jax.tree.map(lambda g, p: g + l2 * p, jax.grad(loss)(layers), layers)
        updates, adam = optax.scale_by_adam().update(gradients, adam)
        layers = jax.tree.map(lambda p, u: p - schedule.learning_rate * u, layers, updates)
        return (layers, adam), None

    return jax.lax.scan(step, state, batches)[0]
