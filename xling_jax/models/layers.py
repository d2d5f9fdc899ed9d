"""Building blocks shared by the model families: masks, dropout, positions, attention, pooling."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.dtypes import promote_dtype
from jax.typing import DTypeLike

from xling_jax import products
from xling_jax.models.numpy_encoders import TokenOptions
from xling_jax.models.numpy_layers import POOLINGS
from xling_jax.registry import check_choice

Initializer = Callable[..., jax.Array]

DROPOUT_GENERATORS = ("threefry", "hash")


def hash_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Cheap pseudo-random uint32 bits: a Murmur3 finalizer over the element's index and the key.

    Fuses into the multiplication that applies the mask, so it is almost free on a CPU, where random
    numbers otherwise take a quarter of a training step. Not a vetted generator: the key, from
    `fold_in` or `split`, is what makes it random. Fewer than 2**32 elements.
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
    """Inverted dropout, with random bits by `threefry` (JAX's own) or `hash` (see `hash_bits`)."""

    rate: float
    generator: str = "threefry"

    @nn.compact
    def __call__(self, inputs: jax.Array, deterministic: bool) -> jax.Array:
        if deterministic or self.rate == 0.0:
            return inputs
        check_choice("dropout_generator", self.generator, DROPOUT_GENERATORS)
        key = self.make_rng("dropout")
        draw = hash_bits if self.generator == "hash" else jax.random.bits
        keep = draw(key, inputs.shape) >= np.uint32(self.rate * 2**32)
        return jnp.where(keep, inputs / (1.0 - self.rate), 0).astype(inputs.dtype)

    def unless(self, deterministic: bool) -> Callable[[jax.Array], jax.Array] | None:
        """A function of inputs, or None where it drops nothing."""
        drops = not deterministic and self.rate > 0
        return functools.partial(self, deterministic=False) if drops else None


class Dense(nn.Dense):
    """Linen's Dense computed by `xling_jax.products`; [..., in] -> [..., features]."""

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        shape = (inputs.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, self.param_dtype)
        inputs, kernel = promote_dtype(inputs, kernel, dtype=self.dtype)
        outputs = products.project(inputs, kernel)
        if not self.use_bias:
            return outputs
        bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype)
        return products.add_bias(outputs, bias)


def pad_row_zero(init: Initializer, pad_id: int) -> Initializer:
    """Initializes a table by `init`, with a zero row at `pad_id`."""

    def table(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> jax.Array:
        return init(key, shape, dtype).at[pad_id].set(0)

    return table


def look_up(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """Rows of a table by id, [batch, length] -> [batch, length, width].

    The table is [rows, width], or [devices, rows, width], a copy for each of the devices that the
    batch is split over; see `train.step.copy_to_devices`.
    """
    rows = functools.partial(jnp.take, axis=0)
    if table.ndim == 2:
        return rows(table, tokens)
    states = jax.vmap(rows)(table, tokens.reshape(len(table), -1, tokens.shape[1]))
    return states.reshape(*tokens.shape, -1)


@jax.custom_vjp
def weighted_bag(table: jax.Array, weights: jax.Array, tokens: jax.Array) -> jax.Array:
    """Weighted sums of table rows [batch, width]: Σ_l weights[b, l] · table[tokens[b, l]].

    `weights`, 0 at padding, and `tokens` are [batch, length]. Works position by position: writing
    [batch, length, width] takes most of the time of the plain product on a CPU.
    """
    return _bag_forward(table, weights, tokens)[0]


def _bag_forward(
    table: jax.Array, weights: jax.Array, tokens: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    def add(column: jax.Array, sums: jax.Array) -> jax.Array:
        rows = jnp.take(table, jnp.take(tokens, column, axis=1), axis=0)
        return sums + jnp.take(weights, column, axis=1)[:, None] * rows

    sums = jnp.zeros((tokens.shape[0], table.shape[1]), table.dtype)
    return jax.lax.fori_loop(0, tokens.shape[1], add, sums), (table, weights, tokens)


def _bag_backward(
    saved: tuple[jax.Array, ...], gradient: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    table, weights, tokens = saved

    # In the loop, adding takes half the time on a CPU; but several devices that share the batch
    # would sum whole tables at every position.
    in_loop = jax.device_count() == 1

    def step(column: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        of_weights, *of_table = sums
        here, weight = jnp.take(tokens, column, axis=1), jnp.take(weights, column, axis=1)
        rows = jnp.take(table, here, axis=0)
        of_weights = of_weights.at[:, column].set((gradient * rows).sum(1))
        return of_weights, *(sums.at[here].add(weight[:, None] * gradient) for sums in of_table)

    none = (jnp.zeros_like(weights), *([jnp.zeros_like(table)] if in_loop else []))
    of_weights, *of_table = jax.lax.fori_loop(0, tokens.shape[1], step, none)
    if not in_loop:
        products = weights[..., None] * gradient[:, None]
        of_table = [jnp.zeros_like(table).at[tokens].add(products)]
    return *of_table, of_weights, None


weighted_bag.defvjp(_bag_forward, _bag_backward)


def positions(tokens: jax.Array, longest: int) -> jax.Array:
    """0, 1, … for [batch, length] tokens of at most `longest`: [length] int32."""
    # Not of the length, which has no number while jax2onnx traces; nor can it write `arange`.
    return jnp.asarray(np.arange(longest, dtype=np.int32))[: tokens.shape[1]]


def pool(states: jax.Array, mask: jax.Array, pooling: str) -> jax.Array:
    """Pools token states [batch, length, width] into vectors [batch, width].

    Rows without real tokens, where `mask` [batch, length] is True, give zeros. `first` is position
    0, `mean` and `max` are over real tokens, `last` is the last real token of a row padded on the
    right. The result is in the dtype of the states; a mean of float16 states is float32.
    """
    check_choice("pooling", pooling, POOLINGS)
    if pooling == "first":
        pooled = states[:, 0]
    elif pooling == "last":
        last = jnp.maximum(mask.sum(1) - 1, 0)
        pooled = jnp.take_along_axis(states, last[:, None, None], axis=1)[:, 0]
    elif pooling == "mean":
        # Sums over tokens exceed the range of float16.
        states = states.astype(jnp.float32) if states.dtype == jnp.float16 else states
        counts = jnp.maximum(mask.sum(1, keepdims=True), 1).astype(states.dtype)
        pooled = jnp.where(mask[..., None], states, 0).sum(1) / counts
    else:
        pooled = jnp.where(mask[..., None], states, -jnp.inf).max(1)
    return jnp.where(mask.any(1)[:, None], pooled, 0)


class SentencePooling(nn.Module):
    """Pools token states into a sentence vector; see `pool`, or by `self_attention`.

    The latter is the structured self-attention of Lin et al. (2017), A = softmax(W2 tanh(W1 Hᵀ))
    over real tokens, M = A H, with the rows of M concatenated: A has `hops` rows, W1
    `attention_width`. The softmax is float32.
    """

    pooling: str
    hops: int = 1
    attention_width: int = 128
    kernel_init: Initializer = nn.initializers.normal(0.02)
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array) -> jax.Array:
        """[batch, length, width], [batch, length] -> [batch, width] or [batch, hops · width]."""
        check_choice("pooling", self.pooling, (*POOLINGS, "self_attention"))
        if self.pooling != "self_attention":
            return pool(states, mask, self.pooling)
        dense = lambda width, name: Dense(
            width, use_bias=False, kernel_init=self.kernel_init, dtype=self.dtype, name=name
        )
        scores = dense(self.hops, "scores")(jnp.tanh(dense(self.attention_width, "inner")(states)))
        scores = jnp.where(mask[..., None], scores.astype(jnp.float32), -1e9)
        weights = nn.softmax(scores, axis=1).astype(self.dtype)
        pooled = jnp.einsum("blh,blw->bhw", weights, states).reshape(states.shape[0], -1)
        return jnp.where(mask.any(1)[:, None], pooled, 0)


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array,
    *,
    scale: float | None = None,
    drop: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """softmax(Q Kᵀ · scale) V for each head, [batch, queries, heads, width].

    The softmax is float32; a row of the mask without any True attends uniformly (never NaN).

    Args:
        query: [batch, queries, heads, width].
        key: [batch, keys, groups, width]; a group serves heads / groups heads.
        value: like `key`.
        mask: bool, broadcastable to [batch, queries, keys]; False is not attended to.
        scale: None if the queries are scaled.
        drop: dropout on the weights.
    """
    if drop is None and (fused := products.attention_implementation(query, key)):
        options = {"mask": mask[:, None], "scale": 1.0 if scale is None else scale}
        return jax.nn.dot_product_attention(query, key, value, implementation=fused, **options)
    # Not XLA's form of it, which jax2onnx writes with the mask after the softmax, where a large
    # score of padding has taken all weight from the tokens.
    (batch, queries, heads, width), groups = query.shape, key.shape[2]
    by_group, mask = groups != heads, mask[:, None]
    if by_group:
        query, mask = query.reshape(batch, queries, groups, -1, width), mask[:, None]
    subscripts = "bqgnd,bkgd->bgnqk" if by_group else "bqhd,bkhd->bhqk"
    scores = products.scores(subscripts, query, key)
    scores = scores if scale is None else scores * np.float32(scale)
    weights = nn.softmax(jnp.where(mask, scores, -1e9)).astype(value.dtype)
    weights = weights if drop is None else drop(weights)
    subscripts = "bgnqk,bkgd->bqgnd" if by_group else "bhqk,bkhd->bqhd"
    return jnp.einsum(subscripts, weights, value).reshape(batch, queries, heads, width)


class Attention(nn.Module):
    """Multi-head attention: softmax(Q Kᵀ / √head_width) V, projected; the softmax is float32.

    `dropout` is on the attention probabilities; `output_init` is that of the output projection, by
    default as of the others.
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
        """[batch, queries, width], [batch, keys, width] -> [batch, queries, width]."""
        if self.width % self.heads:
            raise ValueError(f"heads={self.heads} must divide width={self.width}")
        head_width = self.width // self.heads

        def project(inputs: jax.Array, name: str) -> jax.Array:
            dense = Dense(self.width, kernel_init=self.kernel_init, dtype=self.dtype, name=name)
            return dense(inputs)

        query, key, value = project(queries, "query"), project(keys, "key"), project(keys, "value")
        kernels = products.kernels_for(self.dtype, query.shape[0])
        drops = self.dropout > 0 and not deterministic
        if kernels and not drops and kernels.fits_attention(query, key, self.heads):
            attended = kernels.attention(query, key, value, mask, self.heads)
        else:
            query = (query / np.sqrt(head_width).astype(np.float32)).astype(self.dtype)
            query, key, value = (
                array.reshape(*array.shape[:-1], self.heads, head_width)
                for array in (query, key, value)
            )
            drop = Dropout(self.dropout, self.generator).unless(deterministic)
            attended = attend(query, key, value, mask, drop=drop)
        output_init = self.output_init or self.kernel_init
        output = Dense(self.width, kernel_init=output_init, dtype=self.dtype, name="output")
        return output(attended.reshape(*queries.shape[:-1], self.width))


class FeedForward(nn.Module):
    """W2 · f(W1 x + b1) + b2, with dropout after f, `relu` or `swish`.

    W1 is `hidden` wide; the others are as in `Attention`, `output_init` for W2.
    """

    width: int
    hidden: int
    dropout: float = 0.0
    activation: str = "relu"
    generator: str = "threefry"
    kernel_init: Initializer = nn.initializers.normal(0.02)
    dtype: DTypeLike = jnp.float32
    output_init: Initializer | None = None

    @nn.compact
    def __call__(self, inputs: jax.Array, deterministic: bool) -> jax.Array:
        dense = lambda width, init, name: Dense(
            width, kernel_init=init, dtype=self.dtype, name=name
        )
        hidden = getattr(nn, self.activation)(dense(self.hidden, self.kernel_init, "inner")(inputs))
        hidden = Dropout(self.dropout, self.generator)(hidden, deterministic)
        return dense(self.width, self.output_init or self.kernel_init, "outer")(hidden)


class LayerNorm(nn.LayerNorm):
    """Linen's LayerNorm over [batch, ..., width], computed by a kernel where there is one."""

    def __call__(self, inputs: jax.Array) -> jax.Array:
        kernels = self.use_bias and products.kernels_for(self.dtype, inputs.shape[0])
        return self._by_kernel(inputs, kernels) if kernels else super().__call__(inputs)

    @nn.compact
    def _by_kernel(self, inputs: jax.Array, kernels: ModuleType) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, inputs.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, inputs.shape[-1:])
        return kernels.layer_norm(inputs, scale, bias, self.epsilon, self.dtype)


def layer_norm(
    epsilon: float, dtype: DTypeLike, name: str | None = None, use_bias: bool = True
) -> nn.Module:
    """A layer norm with the variance computed in two passes, as PyTorch does."""
    options = {"epsilon": epsilon, "dtype": dtype, "use_bias": use_bias}
    return LayerNorm(**options, use_fast_variance=False, name=name)


class TransformerLayer(nn.Module):
    """Self-attention, then a feed-forward block, each with dropout, residual and layer norm.

        norm="pre":   x ← x + Drop(Block(LN(x)))
        norm="post":  x ← LN(x + Drop(Block(x)))

    A decoder (pre-norm) adds W_O(W_V m + b_V) + b_O between the two, at every position: attention
    over a memory m of a single slot has weight 1 whatever the query. Its query and key projections
    and the layer norm before them never get a gradient; `published_parameters` creates them all the
    same, for counting and for loading published checkpoints.

    Attributes (see also `Attention` and `FeedForward`):
        dropout, attention_dropout, activation_dropout: on the output of each block, the attention
        probabilities, and the inner layer of the feed-forward block.
        first_only: compute position 0 only (keys and values still come from all positions). Exact,
            and all that the last layer of a first-token encoder needs.
    """

    width: int
    heads: int
    ffn_width: int
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: str = "relu"
    norm: str = "pre"
    epsilon: float = 1e-5
    first_only: bool = False
    generator: str = "threefry"
    kernel_init: Initializer = nn.initializers.normal(0.02)
    dtype: DTypeLike = jnp.float32
    output_init: Initializer | None = None
    published_parameters: bool = False

    @nn.compact
    def __call__(
        self, states: jax.Array, mask: jax.Array, deterministic: bool, memory=None
    ) -> jax.Array:
        """Maps [batch, length, width] to the same, or to [batch, 1, width] if `first_only`.

        The mask is that of `attend`; the memory of a decoder is [batch, memory_width].
        """
        drop = Dropout(self.dropout, self.generator)
        norm = lambda block: layer_norm(self.epsilon, self.dtype, f"{block}_norm")
        shared = {name: getattr(self, name) for name in ("generator", "kernel_init", "dtype")}
        shared["output_init"] = self.output_init
        sizes = (self.width, self.heads, self.attention_dropout)
        attention = Attention(*sizes, name="attention", **shared)
        sizes = (self.width, self.ffn_width, self.activation_dropout, self.activation)
        ffn = FeedForward(*sizes, name="ffn", **shared)
        pre, attention_norm, ffn_norm = self.norm == "pre", norm("attention"), norm("ffn")

        keys = attention_norm(states) if pre else states
        queries = keys
        if self.first_only:
            states, queries = states[:, :1], keys[:, :1]
        states = states + drop(attention(queries, keys, mask, deterministic), deterministic)
        states = states if pre else attention_norm(states)
        if memory is not None:
            dense = lambda name: Dense(
                self.width, kernel_init=self.kernel_init, dtype=self.dtype, name=f"memory_{name}"
            )
            read = dense("output")(dense("value")(memory))
            if self.published_parameters:
                norm("memory")(states)
                dense("query")(states)
                dense("key")(memory)
            states = states + drop(jnp.broadcast_to(read[:, None], states.shape), deterministic)
        transformed = drop(ffn(ffn_norm(states) if pre else states, deterministic), deterministic)
        return states + transformed if pre else ffn_norm(states + transformed)


class TokenEncoder(nn.Module, TokenOptions):
    """Base of the encoders with a token table.

    A family derives from its options and from this, in this order, and adds options of training.

    Called with tokens [batch, length] int32, padded on the right, it returns sentence vectors
    [batch, dim] float32, zeros for a row of padding only. `deterministic=False` enables dropout,
    which needs a `dropout` PRNG.

    Attributes (see also `numpy_encoders.TokenOptions`):
        dropout: on token vectors and on the outputs of layers or their blocks.
        remat: recompute layers in the backward pass to save memory.
        dtype: of the computation; parameters and embeddings are float32.
    """

    dropout: float = 0.1
    remat: bool = False
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    def __post_init__(self):
        TokenOptions.__post_init__(self)
        super().__post_init__()

    def make_table(self, init: Initializer, width: int) -> jax.Array:
        """Creates the token table, [rows, width]; `table` returns it.

        It may be given as [devices, rows, width], a copy for each; see `look_up`.
        """
        copies = self.get_variable("params", "embedding")
        if copies is not None and copies.ndim == 3:
            return copies
        return self.param("embedding", pad_row_zero(init, self.pad_id), (self.rows, width))

    def make_pooling(self, init: Initializer) -> SentencePooling:
        return SentencePooling(
            self.pooling, self.attention_hops, self.attention_width, init, self.dtype
        )

    def make_blocks(self, first_only: bool, **own: Any) -> list[nn.Module]:
        """The layers of a transformer; `first_only` is for the last."""
        layer = nn.remat(TransformerLayer, static_argnums=(3,)) if self.remat else TransformerLayer
        names = ("width", "heads", "ffn_width", "dropout", "attention_dropout", "norm", "dtype")
        own |= {name: getattr(self, name) for name in names}
        last = self.layers - 1
        return [
            layer(**own, generator=self.dropout_generator, first_only=first_only and n == last)
            for n in range(self.layers)
        ]

    def table(self) -> jax.Array:
        """The token table, for a head that shares it."""
        return self.embedding


class SentenceDecoder(nn.Module):
    """Base of the decoders: from a sentence vector and a language to a translation.

    Called with

        sentence: [batch, sentence_width] float32
        language: [batch] int32, target language, below `num_languages`
        previous: [batch, length] int32, the targets shifted by one
        deterministic: False enables dropout

    it returns `hidden` [batch, length, output width] in dtype, `output_table` [rows, output width]
    and `output_bias` [rows] float32, or None: logits are hidden · output_tableᵀ + output_bias.

    `width` is that of the hidden state, `language_width` that of a language vector;
    `published_parameters` creates redundant parameters of the published models, too.
    """

    vocab_size: int
    num_languages: int
    sentence_width: int = 1024
    width: int = 1024
    dropout: float = 0.1
    language_width: int = 32
    published_parameters: bool = False
    pad_id: int = 1
    vocab_multiple: int = 128
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32
