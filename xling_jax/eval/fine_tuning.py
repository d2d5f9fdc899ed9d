"""Encoders fine-tuned on labels as a whole, with a linear layer on top: the baseline of mBERT.

The published systems keep the encoder fixed; mBERT's row in their tables does not. Neither Li and
Mak (2020) nor Mao et al. (2021) say how it was tuned.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from xling_jax.encode.encoder import Encoder
from xling_jax.encode.jax_backend import in_dtype
from xling_jax.encode.texts import encode_unique
from xling_jax.eval.classification_data import LabeledText
from xling_jax.eval.classifiers import Examples
from xling_jax.eval.mlp import Kept

_ROWS = 64  # of a batch when predicting


@dataclass(frozen=True)
class Schedule:
    """AdamW as for BERT (Devlin et al. 2019): warmup, then linearly to zero; norms clipped at 1.

    Choice: of the rates that BERT's authors try, that of most published uses; with a thousand
    texts, more epochs than theirs (Mosbach et al. 2021). The best one is selected on development
    text.
    """

    learning_rate: float = 2e-5
    batch_size: int = 32
    num_epochs: int = 10
    warmup: float = 0.1
    weight_decay: float = 0.01
    dropout: float = 0.1


@dataclass(frozen=True)
class Network:
    """A fine-tuned encoder and its linear layer, tokens [n, length] -> logits [n, labels]."""

    apply: Callable[[Any, jax.Array], jax.Array]
    params: Any
    pad_id: int

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        logits = [np.empty((0, self.params["bias"].shape[0]), np.float32)]
        for start in range(0, len(tokens), _ROWS):
            part = tokens[start : start + _ROWS]
            rows = np.full((_ROWS, tokens.shape[1]), self.pad_id, np.int32)
            rows[: len(part)] = part
            logits.append(np.asarray(self.apply(self.params, rows))[: len(part)])
        return np.concatenate(logits)


def tuner(
    encoder: Encoder, columns: Sequence[Sequence[str]]
) -> tuple[Callable[[LabeledText], Examples], Callable[..., list[Kept]]]:
    """A function from texts in these columns to examples of their tokens, and `train` for them."""
    tokens, ids = encode_unique(encoder.tokenize, columns)
    examples = lambda text: Examples(tokens[ids(text.texts)], text.labels)
    pad_id = encoder.vocab.pad_id
    return examples, functools.partial(train, encoder.module, encoder.params, pad_id=pad_id)


def train(
    encoder: nn.Module,
    params: Any,
    tokens: np.ndarray,
    labels: np.ndarray,
    num_labels: int,
    looks: Sequence[Callable[[Network], float]],
    *,
    pad_id: int,
    seed: int,
    rows: np.ndarray | None = None,
    schedule: Schedule = Schedule(),
) -> list[Kept]:
    """Minimizes the cross-entropy, and keeps the first of the best epochs for each of `looks`.

    Args:
        encoder: tokens [n, length] to vectors [n, dim], with its rates of dropout.
        params: of the encoder; they are not changed.
        tokens: [n, length] int32, padded with `pad_id`.
        labels: [n] int32, below `num_labels`.
        num_labels: size of the linear layer's output.
        looks: scores of a network, such as the accuracy on development text.
        pad_id: id of padding.
        seed: of the linear layer, the order and dropout.
        rows: those to train on; all if None.
        schedule: rates, and how long.
    """
    encoder = in_dtype(encoder, "auto")
    rows = np.arange(len(tokens)) if rows is None else rows
    drop = nn.Dropout(schedule.dropout)
    num_updates = schedule.num_epochs * -(-len(rows) // schedule.batch_size)
    turns = jnp.array([0, max(1, schedule.warmup * num_updates), num_updates])
    rate = lambda step: jnp.interp(step, turns, schedule.learning_rate * jnp.array([0, 1, 0]))
    decays = lambda tree: jax.tree.map(lambda leaf: jnp.ndim(leaf) > 1, tree)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(rate, weight_decay=schedule.weight_decay, mask=decays),
    )

    def forward(params: Any, tokens: jax.Array, key: jax.Array | None = None) -> jax.Array:
        rngs = {} if key is None else {"dropout": key}
        vectors = encoder.apply(
            {"params": params["encoder"]}, tokens, deterministic=key is None, rngs=rngs
        )
        vectors = scale * vectors.astype(jnp.float32)
        vectors = drop.apply({}, vectors, deterministic=key is None, rngs=rngs)
        return vectors @ params["kernel"] + params["bias"]

    @jax.jit
    def update(state: tuple, tokens: jax.Array, labels: jax.Array, key: jax.Array) -> tuple:
        params, optimizer_state = state
        weights = (labels >= 0).astype(jnp.float32)

        def loss(params: Any) -> jax.Array:
            logits = forward(params, tokens, key)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return (losses * weights).sum() / weights.sum()

        changes, optimizer_state = optimizer.update(jax.grad(loss)(params), optimizer_state, params)
        return optax.apply_updates(params, changes), optimizer_state

    some = tokens[rows[: schedule.batch_size]]
    vectors = jax.jit(encoder.apply)({"params": params}, some).astype(jnp.float32)
    # The rate is for components of about 1, as layer norm leaves them; some scale to length 1.
    scale, dim = 1 / jnp.sqrt(jnp.square(vectors).mean()), vectors.shape[-1]
    kernel_key, key = jax.random.split(jax.random.key(seed))
    kernel = 0.02 * jax.random.normal(kernel_key, (dim, num_labels))
    start = {"encoder": params, "kernel": kernel, "bias": jnp.zeros(num_labels)}
    state = start, optimizer.init(start)
    apply, draw = jax.jit(forward), np.random.default_rng([seed, 1])
    size, kept = schedule.batch_size, [None] * len(looks)
    for epoch in range(1, schedule.num_epochs + 1):
        order = draw.permutation(rows)
        for first in range(0, len(order), size):
            chosen = np.resize(order[first : first + size], size)
            wanted = np.where(np.arange(size) < len(order) - first, labels[chosen], -1)
            key, own = jax.random.split(key)
            state = update(state, tokens[chosen], wanted, own)
        network = Network(apply, state[0], pad_id)
        for place, look in enumerate(looks):
            score = float(look(network))
            if kept[place] is None or score > kept[place].score:
                kept[place] = Kept(network, epoch, score)
    return kept
