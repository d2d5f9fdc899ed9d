"""Packed sentences, and the layers of `models.layers` on them, in NumPy.

Sentences follow each other without padding, the longest first, so that those of equal length are
one array [sentences, length, …]. Everything that acts on single tokens sees [tokens, …] at once.
Inference needs no more than this on a CPU: nothing is compiled, whatever the lengths.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

# Elements that fit the cache between two operations: attention scores, and rows.
_SCORES_AT_ONCE = 1 << 17
_BLOCK = 1 << 17
# Fewer queries at a time would make a product of matrices one of a matrix and a vector.
_QUERIES_AT_LEAST = 64
# A product of so few rows and a matrix copies the matrix first, which costs more than the rows.
_ROWS_ONE_BY_ONE = 3

POOLINGS = ("first", "mean", "max", "last")

Params = Mapping[str, Any]
Memory = dict[str, np.ndarray]


class Packed:
    """Tokens of sentences one after another.

    Args:
        tokens: [sum of lengths] int.
        lengths: [sentences] int, none 0, longest first; each begins at its `starts`.
        memory: what `empty` uses, of earlier sentences that are done; none for new memory.
        executor: threads for `run_each` besides the caller's; none to run one after the other.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        lengths: np.ndarray,
        memory: Memory | None = None,
        executor: Executor | None = None,
    ):
        self.tokens, self.lengths = tokens, lengths
        self.starts = np.cumsum(lengths) - lengths
        self._memory = {} if memory is None else memory
        self._executor = executor

    def run_each(self, function: Callable[[int], None], count: int) -> None:
        """Calls a function with 0, …, count − 1, at the same time if there are threads."""
        if self._executor is None:
            for number in range(count):
                function(number)
            return
        others = [self._executor.submit(function, number) for number in range(1, count)]
        function(0)
        for other in others:
            other.result()

    def empty(self, name: str, rows: int, width: int) -> np.ndarray:
        """Returns an uninitialized float32 array; it overwrites the last one of the same name.

        Fresh memory would cost a tenth of the time of an encoder of width 512, in page faults.
        """
        size = rows * width
        memory = self._memory.get(name)
        if memory is None or len(memory) < size:
            memory = self._memory[name] = np.empty(size, np.float32)
        return memory[:size].reshape(rows, width)

    @functools.cached_property
    def positions(self) -> np.ndarray:
        return positions_within(self.lengths)

    def groups(self, elements: int | None = None) -> Iterator[tuple[slice, slice, int]]:
        """Yields sentences of equal length: (sentences, tokens, length), the first two as slices.

        A group has at most `elements` tokens², unless it is a single sentence.
        """
        first = token = 0
        for length, group in itertools.groupby(self.lengths.tolist()):
            left = len(list(group))
            most = max(1, elements // length**2) if elements else left
            while left:
                count = min(left, most)
                yield slice(first, first + count), slice(token, token + count * length), length
                first, token, left = first + count, token + count * length, left - count


def padded_vocab_size(vocab_size: int, multiple: int) -> int:
    """Rows of an embedding table: the vocabulary size rounded up to a multiple."""
    return -(-vocab_size // multiple) * multiple


def positions_within(lengths: np.ndarray) -> np.ndarray:
    """[n] lengths -> [sum of lengths] int64: 0, 1, … in each row."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def dense(
    inputs: np.ndarray,
    params: Params,
    activation: str = "identity",
    residual: np.ndarray | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """f(inputs · kernel + bias) + residual, [tokens, in] -> [tokens, out].

    f is a key of `ACTIVATIONS`; a bias and a residual are optional; `out` is filled if given.
    """
    outputs = np.matmul(inputs, params["kernel"], out=out)
    bias = params.get("bias")
    for block in _blocks(outputs):
        rows = outputs[block]
        if bias is not None:
            rows += bias
        ACTIVATIONS[activation](rows)
        if residual is not None:
            rows += residual[block]
    return outputs


def _blocks(array: np.ndarray) -> Iterator[slice]:
    """Blocks of rows of [rows, …] that stay in the cache between passes."""
    step = max(1, _BLOCK // math.prod(array.shape[1:]))
    for start in range(0, len(array), step):
        yield slice(start, start + step)


def layer_norm(
    states: np.ndarray, params: Params, epsilon: float, *, out: np.ndarray | None = None
) -> np.ndarray:
    """Normalizes each row [tokens, …, width]: s ∘ (x − mean) / √(variance + ε) + b.

    `out`, which may be `states`, is filled if given.
    """
    width = np.float32(states.shape[-1])
    out = np.empty_like(states) if out is None else out
    for block in _blocks(states):
        rows, normed = states[block], out[block]
        np.subtract(rows, rows.sum(axis=-1, keepdims=True) / width, out=normed)
        variance = np.einsum("...w,...w->...", normed, normed) / width
        normed *= (1 / np.sqrt(variance + np.float32(epsilon)))[..., None]
        normed *= params["scale"]
        normed += params["bias"]
    return out


def _sigmoid(values: np.ndarray) -> None:
    """σ(x) = (1 + tanh(x / 2)) / 2, which never overflows."""
    values *= 0.5
    np.tanh(values, out=values)
    values += 1
    values *= 0.5


def _gate(values: np.ndarray, logits: np.ndarray) -> None:
    """Multiplies x by (1 + tanh(z)) / 2 in place; z is overwritten."""
    np.tanh(logits, out=logits)
    values *= 0.5
    logits *= values
    values += logits


def _swish(values: np.ndarray) -> None:
    _gate(values, values * np.float32(0.5))


def _gelu(values: np.ndarray) -> None:
    """Multiplies x by Φ(x) = (1 + tanh(x P(x²))) / 2, P fitted with an error below 1e-7 + ε |x|.

    NumPy has no erf, and SciPy's takes five times as long.
    """
    _gate(values, _odd_polynomial(values, _NORMAL_LOGIT))


def _gelu_tanh(values: np.ndarray) -> None:
    _gate(values, _odd_polynomial(values, (np.sqrt(2 / np.pi), 0.044715 * np.sqrt(2 / np.pi))))


def _odd_polynomial(values: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
    """Computes x P(x²), a new array; P is held constant beyond |x| = 6.3, where its tanh is ±1."""
    squares = values * values
    np.minimum(squares, np.float32(6.3**2), out=squares)
    *others, last = map(np.float32, coefficients)
    result = squares * last
    for coefficient in others[:0:-1]:
        result += coefficient
        result *= squares
    result += others[0]
    result *= values
    return result


# Coefficients in x² of atanh(erf(x / √2)) / x, fitted by weighted least squares on |x| < 6.
_NORMAL_LOGIT = (0.79788422, 0.036334281, -3.3128594e-05, -5.5240539e-05)
_NORMAL_LOGIT += (3.9691575e-06, -1.3344918e-07, 1.8056746e-09)

# Each acts on any array, in place.
ACTIVATIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,  # the tanh approximation
    "identity": lambda values: None,
    "relu": lambda values: np.maximum(values, 0, out=values),
    "sigmoid": _sigmoid,
    "swish": _swish,
    "tanh": lambda values: np.tanh(values, out=values),
}


def softmax(scores: np.ndarray) -> np.ndarray:
    """Softmax along the last axis, in place."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def attend(
    packed: Packed, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, heads: int
) -> np.ndarray:
    """softmax(Q Kᵀ / √head_width) V of each sentence and head, in place of the queries.

    Queries, keys and values are [tokens, heads · head_width], queries [sentences, …] for one a
    sentence.
    """
    queries *= np.float32(1 / np.sqrt(queries.shape[1] // heads))
    is_one = len(queries) < len(keys)
    for sentences, tokens, length in packed.groups(_SCORES_AT_ONCE // heads):
        count, rows = sentences.stop - sentences.start, sentences if is_one else tokens
        query = _by_head(queries[rows], count, heads)
        key, value = (_by_head(array[tokens], count, heads) for array in (keys, values))
        # If the scores of one sentence exceed the limit, take some queries at a time.
        step = max(_QUERIES_AT_LEAST, _SCORES_AT_ONCE // (heads * length))
        for start in range(0, query.shape[2], step):
            block = slice(start, min(start + step, query.shape[2]))
            scores = query[:, :, block] @ key.swapaxes(2, 3)
            np.matmul(softmax(scores), value, out=query[:, :, block])
    return queries


def _by_head(rows: np.ndarray, sentences: int, heads: int) -> np.ndarray:
    """A view of [sentences · length, width] as [sentences, heads, length, head_width]."""
    return rows.reshape(sentences, -1, heads, rows.shape[1] // heads).transpose(0, 2, 1, 3)


def transformer_layer(
    packed: Packed,
    states: np.ndarray,
    params: Params,
    *,
    heads: int,
    activation: str,
    norm: str,
    epsilon: float,
    first_only: bool = False,
) -> np.ndarray:
    """`bert.BertLayer`, or `layers.TransformerLayer` without a memory: [tokens, width] -> the same.

    With `first_only`, -> [sentences, width]. The next layer overwrites the result.
    """
    is_pre, keys = norm == "pre", states
    if is_pre:
        normed = packed.empty("normed", *states.shape)
        keys = layer_norm(states, params["attention_norm"], epsilon, out=normed)
    residual = states[packed.starts] if first_only else states
    if "attention_input" in params:  # one product gives queries, keys and values
        joined = packed.empty("joined", len(keys), 3 * keys.shape[1])
        dense(keys, params["attention_input"], out=joined)
        query, key, value = np.split(joined, 3, axis=1)
        query = query[packed.starts] if first_only else query
        output, inner, outer = params["attention_output"], params["ffn_inner"], params["ffn_outer"]
    else:
        attention, ffn = params["attention"], params["ffn"]
        queries = keys[packed.starts] if first_only else keys
        query = dense(queries, attention["query"], out=packed.empty("queries", *residual.shape))
        key = dense(keys, attention["key"], out=packed.empty("keys", *keys.shape))
        value = dense(keys, attention["value"], out=packed.empty("values", *keys.shape))
        output, inner, outer = attention["output"], ffn["inner"], ffn["outer"]
    attended = attend(packed, query, key, value, heads)
    states = packed.empty("attended", *residual.shape)
    dense(attended, output, residual=residual, out=states)
    if not is_pre:
        layer_norm(states, params["attention_norm"], epsilon, out=states)
    inputs = states
    if is_pre:
        normed = packed.empty("normed", *states.shape)
        inputs = layer_norm(states, params["ffn_norm"], epsilon, out=normed)
    hidden = packed.empty("hidden", len(inputs), inner["kernel"].shape[1])
    dense(inputs, inner, activation, out=hidden)
    # In the memory of the layer before.
    outputs = dense(hidden, outer, residual=states, out=packed.empty("states", *states.shape))
    if not is_pre:
        layer_norm(outputs, params["ffn_norm"], epsilon, out=outputs)
    return outputs


def pool_packed(packed: Packed, states: np.ndarray, pooling: str, params: Params) -> np.ndarray:
    """`layers.SentencePooling`: [tokens, width] -> [sentences, width or hops · width]."""
    if pooling in ("first", "last"):
        return states[packed.starts + (packed.lengths - 1 if pooling == "last" else 0)]
    scores = None
    if pooling == "self_attention":
        scores = dense(np.tanh(dense(states, params["inner"])), params["scores"])
    width = states.shape[1]
    hops = 1 if scores is None else scores.shape[1]
    pooled = np.empty((len(packed.lengths), hops * width), np.float32)
    for sentences, tokens, length in packed.groups():
        group, out = states[tokens].reshape(-1, length, width), pooled[sentences]
        if pooling == "max":
            group.max(axis=1, out=out)
        elif pooling == "mean":
            group.mean(axis=1, out=out)
        else:
            weights = scores[tokens].reshape(len(group), length, -1).swapaxes(1, 2)
            out[:] = (softmax(weights.copy()) @ group).reshape(len(group), -1)
    return pooled


def lstm_layer(packed: Packed, inputs: np.ndarray, params: Params, out: np.ndarray) -> np.ndarray:
    """`lstm.LstmLayer`, the directions side by side: fills and returns `out`.

    [tokens, in] -> [tokens, directions · width], both in the order of `time_major`; the first axis
    of `params` is over directions.
    """
    directions, width, _ = params["recurrent_kernel"].shape
    halves = np.repeat(np.array([0.5, 0.5, 1, 0.5], np.float32), width)
    offsets = np.float32(1) - halves
    # Sentences that are at least t + 1 long come first in step t.
    counts = np.bincount(packed.lengths - 1)[::-1].cumsum()[::-1]
    steps = [slice(end - count, end) for count, end in zip(counts, counts.cumsum())]

    def run(direction: int) -> None:
        projected = packed.empty(f"projected_{direction}", len(inputs), 4 * width)
        np.matmul(inputs, params["input_kernel"][direction], out=projected)
        projected += params["bias"][direction]
        if "recurrent_bias" in params:
            projected += params["recurrent_bias"][direction]
        kernel = params["recurrent_kernel"][direction]
        outputs = out[:, direction * width : (direction + 1) * width]
        # A sentence that the second direction has yet to reach has a state of zeros.
        hidden = np.zeros((counts[0], width), np.float32)
        cell = np.zeros_like(hidden)
        for step in steps if direction == 0 else steps[::-1]:
            n = step.stop - step.start
            gates = packed.empty(f"gates_{direction}", n, 4 * width)
            if n <= _ROWS_ONE_BY_ONE:
                np.matmul(hidden[:n, None], kernel, out=gates[:, None])
            else:
                np.matmul(hidden[:n], kernel, out=gates)
            gates += projected[step]
            # σ(z) = (1 + tanh(z / 2)) / 2 for i, f and o: one tanh for all.
            gates *= halves
            np.tanh(gates, out=gates)
            gates *= halves
            gates += offsets
            candidate = gates[:, 2 * width : 3 * width]
            states = cell[:n]
            states *= gates[:, width : 2 * width]
            candidate *= gates[:, :width]
            states += candidate
            np.tanh(states, out=candidate)
            np.multiply(gates[:, 3 * width :], candidate, out=hidden[:n])
            outputs[step] = hidden[:n]

    packed.run_each(run, directions)
    return out


def time_major(packed: Packed) -> np.ndarray:
    """Indices that put all first tokens first, then all second ones, and so on: [tokens] int."""
    return np.argsort(packed.positions, kind="stable")
