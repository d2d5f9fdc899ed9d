"""Building blocks shared by the model families: masks, dropout, positions, attention, pooling."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

Initializer = Callable[..., jax.Array]

DROPOUT_GENERATORS = ("threefry", "hash")
POOLINGS = ("first", "mean", "max", "self_attention")


def hash_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Cheap pseudo-random bits: a Murmur3 finaliser over the element's index and the key.

    Fuses into the multiplication that applies the mask, so it costs almost nothing where random
    numbers are a quarter of a training step (CPU). It is no vetted generator.

    Args:
        key: a PRNG key out of `fold_in` or `split`, whose words are random already: drawing
            seeds with it would only add to what is compiled, twenty times in a small model.
        shape: of the result; fewer than 2**32 elements.

    Returns:
        [*shape] uint32.
    """
    seeds = jax.random.key_data(key)
    index = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride)
        stride *= shape[axis]
    bits = index * jnp.uint32(0x9E3779B1) ^ seeds[0]
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13) ^ seeds[1]) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


class Dropout(nn.Module):
    """Inverted dropout.

    Attributes:
        rate: probability of a zero.
        generator: `threefry` (JAX's own) or `hash` (see `hash_bits`).
    """

    rate: float
    generator: str = "threefry"

    @nn.compact
    def __call__(self, inputs: jax.Array, deterministic: bool) -> jax.Array:
        """Drops elements of `inputs`, any shape; the identity if `deterministic` or rate 0."""
        if deterministic or self.rate == 0.0:
            return inputs
        if self.generator not in DROPOUT_GENERATORS:
            raise ValueError(
                f"dropout_generator={self.generator!r} must be one of {DROPOUT_GENERATORS}"
            )
        key = self.make_rng("dropout")
        draw = hash_bits if self.generator == "hash" else jax.random.bits
        keep = draw(key, inputs.shape) >= np.uint32(self.rate * 2**32)
        return jnp.where(keep, inputs / (1.0 - self.rate), 0).astype(inputs.dtype)


def padded_vocab_size(vocab_size: int, multiple: int) -> int:
    """Rows of an embedding table: the vocabulary rounded up to a multiple for the hardware."""
    return -(-vocab_size // multiple) * multiple


def pad_row_zero(init: Initializer, pad_id: int) -> Initializer:
    """`init` of a table, with a zero row at `pad_id`."""

    def table(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> jax.Array:
        return init(key, shape, dtype).at[pad_id].set(0)

    return table


@jax.custom_vjp
def weighted_bag(table: jax.Array, weights: jax.Array, tokens: jax.Array) -> jax.Array:
    """Weighted sums of table rows: Σ_l weights[b, l] · table[tokens[b, l]].

    Position by position, so that the [batch, length, width] rows are not in memory together; to
    write and read them is most of what the plain form does on a CPU (`benchmarks/static.py`).

    Args:
        table: [rows, width].
        weights: [batch, length], 0 at padding.
        tokens: [batch, length] int.

    Returns:
        [batch, width].
    """
    return _bag_forward(table, weights, tokens)[0]


def _bag_forward(
    table: jax.Array, weights: jax.Array, tokens: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    def add(place: jax.Array, sums: jax.Array) -> jax.Array:
        rows = jnp.take(table, jnp.take(tokens, place, axis=1), axis=0)
        return sums + jnp.take(weights, place, axis=1)[:, None] * rows

    sums = jnp.zeros((tokens.shape[0], table.shape[1]), table.dtype)
    return jax.lax.fori_loop(0, tokens.shape[1], add, sums), (table, weights, tokens)


def _bag_backward(
    saved: tuple[jax.Array, ...], gradient: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    table, weights, tokens = saved

    def fill(place: jax.Array, of_weights: jax.Array) -> jax.Array:
        rows = jnp.take(table, jnp.take(tokens, place, axis=1), axis=0)
        return of_weights.at[:, place].set((gradient * rows).sum(1))

    of_weights = jax.lax.fori_loop(0, tokens.shape[1], fill, jnp.zeros_like(weights))
    # At once: in a loop, devices that hold parts of the batch would add up whole tables for every
    # position.
    of_table = jnp.zeros_like(table).at[tokens].add(weights[..., None] * gradient[:, None])
    return of_table, of_weights, None


weighted_bag.defvjp(_bag_forward, _bag_backward)


def sinusoidal_positions(length: int, width: int, first: int) -> np.ndarray:
    """Fixed position vectors as fairseq lays them out: all sines, then all cosines.

    Entry t is position p = first + t; ω_i = 10000^(−i / (width / 2 − 1)).

    Args:
        length: number of positions.
        width: of a vector, even.
        first: number of the first position; fairseq counts from pad_id + 1.

    Returns:
        [length, width] float32.
    """
    half = width // 2
    frequencies = np.exp(np.arange(half) * -(np.log(10000.0) / (half - 1)))
    angles = (first + np.arange(length))[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def pool(states: jax.Array, mask: jax.Array, pooling: str) -> jax.Array:
    """Reduces token states to one vector a sentence; rows without a real token give zeros.

    Args:
        states: [batch, length, width] float.
        mask: [batch, length] bool, True at real tokens.
        pooling: `first` (position 0), `mean` over real tokens, or `max` over real tokens.

    Returns:
        [batch, width].

    Raises:
        ValueError: for an unknown pooling.
    """
    if pooling == "first":
        pooled = states[:, 0]
    elif pooling == "mean":
        counts = jnp.maximum(mask.sum(1, keepdims=True), 1).astype(states.dtype)
        pooled = jnp.where(mask[..., None], states, 0).sum(1) / counts
    elif pooling == "max":
        pooled = jnp.where(mask[..., None], states, -jnp.inf).max(1)
    else:
        raise ValueError(f"pooling={pooling!r} must be one of {', '.join(POOLINGS)}")
    return jnp.where(mask.any(1)[:, None], pooled, 0)


class SentencePooling(nn.Module):
    """Token states to a sentence vector.

    `self_attention` is the structured self-attention of Lin et al. (2017),
    A = softmax(W2 tanh(W1 Hᵀ)) over real tokens, M = A H, its rows side by side.

    Attributes:
        pooling: one of `POOLINGS`; all but `self_attention` are `pool`.
        hops: rows of A.
        attention_width: rows of W1.
        kernel_init: of W1 and W2.
        dtype: of the computation; the softmax is float32.
    """

    pooling: str
    hops: int = 1
    attention_width: int = 128
    kernel_init: Initializer = nn.initializers.normal(0.02)
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array) -> jax.Array:
        """[batch, length, width], [batch, length] -> [batch, width], or hops · width of them."""
        if self.pooling != "self_attention":
            return pool(states, mask, self.pooling)
        dense = lambda width, name: nn.Dense(
            width, use_bias=False, kernel_init=self.kernel_init, dtype=self.dtype, name=name
        )
        scores = dense(self.hops, "scores")(jnp.tanh(dense(self.attention_width, "inner")(states)))
        scores = jnp.where(mask[..., None], scores.astype(jnp.float32), -1e9)
        weights = nn.softmax(scores, axis=1).astype(self.dtype)
        pooled = jnp.einsum("blh,blw->bhw", weights, states).reshape(states.shape[0], -1)
        return jnp.where(mask.any(1)[:, None], pooled, 0)


class Attention(nn.Module):
    """Multi-head attention: softmax(Q Kᵀ / √head_width) V, projected.

    Attributes:
        width: model width; `heads` must divide it.
        heads: number of heads.
        dropout: on the attention probabilities.
        generator: of dropout.
        kernel_init: of the projections; biases start at 0.
        dtype: of the computation; the softmax is float32.
        output_init: of the last projection, where it is not `kernel_init`.
    """

    width: int
    heads: int
    dropout: float = 0.0
    generator: str = "threefry"
    kernel_init: Initializer = nn.initializers.normal(0.02)
    dtype: DTypeLike = jnp.float32
    output_init: Initializer | None = None

    @nn.compact
    def __call__(
        self, queries: jax.Array, keys: jax.Array, mask: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Attends from `queries` to `keys`.

        Args:
            queries: [batch, queries, width].
            keys: [batch, keys, width], also the values.
            mask: bool, broadcastable to [batch, queries, keys]; False is not attended to. A row
                without any True attends uniformly (never NaN).
            deterministic: no dropout.

        Returns:
            [batch, queries, width].
        """
        if self.width % self.heads:
            raise ValueError(f"heads={self.heads} must divide width={self.width}")
        head_width = self.width // self.heads

        def project(inputs: jax.Array, name: str) -> jax.Array:
            dense = nn.Dense(self.width, kernel_init=self.kernel_init, dtype=self.dtype, name=name)
            return dense(inputs).reshape(*inputs.shape[:-1], self.heads, head_width)

        query = project(queries, "query") / np.sqrt(head_width).astype(np.float32)
        key, value = project(keys, "key"), project(keys, "value")
        scores = jnp.einsum(
            "bqhd,bkhd->bhqk", query.astype(self.dtype), key, preferred_element_type=jnp.float32
        )
        scores = jnp.where(mask[:, None], scores, -1e9)
        weights = nn.softmax(scores).astype(self.dtype)
        weights = Dropout(self.dropout, self.generator)(weights, deterministic)
        attended = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
        attended = attended.reshape(*queries.shape[:-1], self.width)
        output_init = self.output_init or self.kernel_init
        return nn.Dense(self.width, kernel_init=output_init, dtype=self.dtype, name="output")(
            attended
        )


class FeedForward(nn.Module):
    """W2 · f(W1 x + b1) + b2.

    Attributes:
        width: of input and output.
        hidden: of the inner layer.
        dropout: behind the activation.
        generator: of dropout.
        kernel_init: of both matrices; biases start at 0.
        dtype: of the computation.
        activation: f, `relu` or `swish`.
        output_init: of W2, where it is not `kernel_init`.
    """

    width: int
    hidden: int
    dropout: float = 0.0
    generator: str = "threefry"
    kernel_init: Initializer = nn.initializers.normal(0.02)
    dtype: DTypeLike = jnp.float32
    activation: str = "relu"
    output_init: Initializer | None = None

    @nn.compact
    def __call__(self, inputs: jax.Array, deterministic: bool) -> jax.Array:
        """Maps [..., width] to [..., width]."""
        hidden = nn.Dense(
            self.hidden, kernel_init=self.kernel_init, dtype=self.dtype, name="inner"
        )(inputs)
        hidden = Dropout(self.dropout, self.generator)(
            getattr(nn, self.activation)(hidden), deterministic
        )
        output_init = self.output_init or self.kernel_init
        return nn.Dense(self.width, kernel_init=output_init, dtype=self.dtype, name="outer")(hidden)
