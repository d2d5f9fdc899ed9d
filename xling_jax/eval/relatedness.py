"""Pairs of texts with a score: learned as SentEval does for SICK, or read off their cosine."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from xling_jax.eval import mlp

# SentEval's relatedness.py.
_BATCH_SIZE, _PASSES_PER_EPOCH, _MAX_PASSES, _PATIENCE = 64, 50, 1000, 3
_LEARNING_RATE = 1e-3


def pearson(predicted: np.ndarray, scores: np.ndarray) -> float:
    """Pearson correlation of two [n] arrays; 0 if one of them is constant."""
    x, y = (np.asarray(values, np.float64) - np.mean(values) for values in (predicted, scores))
    length = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / length) if length > 0 else 0.0


def spearman(predicted: np.ndarray, scores: np.ndarray) -> float:
    """Spearman correlation of two [n] arrays, equal values sharing their mean rank."""
    from scipy.stats import rankdata

    return pearson(rankdata(predicted), rankdata(scores))


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosine of each pair of rows of [n, dim]; 0 where a row is zero."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.sum(first * second, axis=1) / np.where(lengths > 0, lengths, 1.0)


def score_distribution(scores: np.ndarray, num_classes: int = 5) -> np.ndarray:
    """Spreads each score over the two whole numbers around it, Tai et al. (2015), equation 16.

    Args:
        scores: [n] float; classes stand for 1 to `num_classes`.
        num_classes: of them.

    Returns:
        [n, num_classes] float32; the mean class of a row is its score. As published, what falls
        on 0 is lost, so that a row of the STS benchmark may sum to less than 1.
    """
    scores = np.asarray(scores, np.float64)[:, None]
    classes = np.arange(1, num_classes + 1)
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

    Every 50 passes the Pearson correlation on the dev rows is looked at; the fourth look without
    a gain, counted over all the training, or the 1000th pass ends it.

    Args:
        features: [n, dim] float.
        scores: [n] float.
        dev_features: [m, dim] float.
        dev_scores: [m] float.
        test_features: [t, dim] float.
        seed: of first weights and order.

    Returns:
        The best correlation on the dev rows, and the scores [t] predicted by what reached it.
    """
    targets = score_distribution(scores)
    classes = np.arange(1, targets.shape[1] + 1)
    schedule = mlp.Schedule(hidden=())
    ((kernel, bias),) = mlp.initial_layers(schedule, features.shape[1], targets.shape[1], seed)
    params = jax.device_put((kernel, bias))
    state = (params, optax.adam(_LEARNING_RATE).init(params))
    draw = np.random.default_rng([seed, 1])
    data = jax.device_put((np.asarray(features, np.float32), targets))
    num_batches = -(-len(targets) // _BATCH_SIZE)
    best, kept, failures = -1.0, state[0], 0
    # As published: the pass that would exceed the limit is still begun.
    for _ in range(_MAX_PASSES // _PASSES_PER_EPOCH + 1):
        order = np.full((_PASSES_PER_EPOCH, num_batches * _BATCH_SIZE), -1, np.int32)
        order[:, : len(targets)] = [
            draw.permutation(len(targets)) for _ in range(_PASSES_PER_EPOCH)
        ]
        state = _train_passes(state, data, order.reshape(-1, _BATCH_SIZE))
        correlation = pearson(_predict(state[0], dev_features) @ classes, dev_scores)
        if correlation > best:
            best, kept = correlation, jax.device_get(state[0])
        elif failures >= _PATIENCE:
            break
        else:
            failures += 1
    return best, _predict(kept, test_features) @ classes


@functools.partial(jax.jit)
def _train_passes(state, data, batches):
    features, targets = data
    adam = optax.adam(_LEARNING_RATE)

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


def _predict(params, features: np.ndarray) -> np.ndarray:
    kernel, bias = (np.asarray(array, np.float64) for array in params)
    logits = np.asarray(features, np.float64) @ kernel + bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)
