"""Published transformers with rotary positions: ModernBERT, Qwen3, Gemma 3 and GTE are one encoder.

Their differences are options here, or are resolved when a checkpoint is converted
(`convert.huggingface_rotary`): names of tensors, the order of gate and inner layer, norms that
multiply by 1 + w, and the vector of the token type. Sentences are padded on the right; where the
original pads does not matter, because rotary attention sees only distances.
"""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from xling_jax import products
from xling_jax.models.bert import activation_function, padded_table, project
from xling_jax.models.layers import (
    Dense,
    Dropout,
    check_length,
    layer_norm,
    pool,
    positions,
)
from xling_jax.models.rotary_form import RotaryForm, rope_table

_INIT = nn.initializers.normal(0.02)


def rotate(states: jax.Array, table: jax.Array) -> jax.Array:
    """Turns the halves (x, y) of each head into (x cos − y sin, y cos + x sin), in float32.

    Args:
        states: [batch, length, heads, head_width].
        table: [2, length, head_width / 2], see `rope_table`.
    """
    cos, sin = table[:, :, None]
    first, second = jnp.split(states.astype(jnp.float32), 2, axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, axis=-1).astype(states.dtype)


class RotaryOptions(nn.Module):
    """What a layer and the encoder share.

    Attributes:
        width, heads, ffn_width: sizes.
        kv_heads: heads of keys and values, which groups of `heads / kv_heads` query heads share
            (grouped-query attention); 0 for `heads`.
        head_width: of queries, keys and values, even; 0 for `width / heads`.
        activation: f of the gated feed-forward block W2 (f(W1 x) ∘ W3 x), a key of
            `bert.ACTIVATIONS`.
        norm: `layer` or `rms`, the root mean square without a shift.
        norm_bias: whether layer norms have a bias.
        norm_epsilon: of every norm.
        norm_placement: of the norms of a block: `pre`, x + Block(N(x)); `post`, N(x + Block(x));
            `both`, x + N(Block(N(x))).
        query_key_norm: whether queries and keys are normalized in each head before they turn.
        attention_bias, ffn_inner_bias, ffn_outer_bias: whether the projections of attention, W1
            with W3, and W2 have biases.
        query_scale: factor of the scores; 0 for 1 / √head_width.
        causal: whether a token sees only itself and those before it.
        window: in a local layer, a token sees those at a distance below it.
        dropout: on the output of the feed-forward block.
        attention_dropout, attention_output_dropout: on the attention probabilities, and on the
            output of the attention block.
        activation_dropout: on the inner layer of the feed-forward block.
        dropout_generator: see `layers.Dropout`.
        dtype: of the products; norms, softmax, and the sums of blocks are float32.
    """

    width: int = RotaryForm.width
    heads: int = RotaryForm.heads
    ffn_width: int = RotaryForm.ffn_width
    kv_heads: int = RotaryForm.kv_heads
    head_width: int = RotaryForm.head_width
    activation: str = RotaryForm.activation
    norm: str = RotaryForm.norm
    norm_bias: bool = RotaryForm.norm_bias
    norm_epsilon: float = RotaryForm.norm_epsilon
    norm_placement: str = RotaryForm.norm_placement
    query_key_norm: bool = RotaryForm.query_key_norm
    attention_bias: bool = RotaryForm.attention_bias
    ffn_inner_bias: bool = RotaryForm.ffn_inner_bias
    ffn_outer_bias: bool = RotaryForm.ffn_outer_bias
    query_scale: float = RotaryForm.query_scale
    causal: bool = RotaryForm.causal
    window: int = RotaryForm.window
    dropout: float = 0.0
    attention_dropout: float = 0.0
    attention_output_dropout: float = 0.0
    activation_dropout: float = 0.0
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    def make_norm(self, name: str, dtype: DTypeLike | None = None) -> nn.Module:
        """A norm of the options, by default in `dtype`."""
        dtype = self.dtype if dtype is None else dtype
        if self.norm == "rms":
            return nn.RMSNorm(epsilon=self.norm_epsilon, dtype=dtype, name=name)
        return layer_norm(self.norm_epsilon, dtype, name, use_bias=self.norm_bias)

    def drop(self, states: jax.Array, rate: float, deterministic: bool) -> jax.Array:
        return Dropout(rate, self.dropout_generator)(states, deterministic)


class RotaryLayer(RotaryOptions):
    """Grouped-query attention, then a gated feed-forward block; see `RotaryOptions`.

    Attributes:
        normed: whether the input is normalized already, so that `pre` has no first norm.
    """

    normed: bool = False

    @nn.compact
    def __call__(
        self, states: jax.Array, table: jax.Array, mask: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Maps [batch, length, width] float32 to the same.

        Args:
            states: of the tokens.
            table: see `rotate`.
            mask: [batch, length or 1, length] bool, True where a token sees another.
            deterministic: disables dropout.
        """
        drop = lambda rate: lambda outputs: self.drop(outputs, rate, deterministic)
        attend = lambda inputs: self._attend(inputs, table, mask, deterministic)
        states = self._add("attention", states, attend, drop(self.attention_output_dropout))
        feed_forward = lambda inputs: self._feed_forward(inputs, deterministic)
        return self._add("ffn", states, feed_forward, drop(self.dropout))

    def _add(self, name: str, states: jax.Array, block: Callable, drop: Callable) -> jax.Array:
        """Adds a block to its input, with the norms of the placement."""
        inputs = states.astype(self.dtype)
        if self.norm_placement != "post" and not (name == "attention" and self.normed):
            inputs = self.make_norm(f"{name}_norm")(states)
        outputs = block(inputs).astype(jnp.float32)
        if self.norm_placement == "both":
            outputs = self.make_norm(f"{name}_output_norm", jnp.float32)(outputs)
        states = states + drop(outputs)
        if self.norm_placement == "post":
            states = self.make_norm(f"{name}_norm", jnp.float32)(states)
        return states

    def _dense(self, width: int, use_bias: bool, name: str) -> Dense:
        return Dense(width, use_bias=use_bias, kernel_init=_INIT, dtype=self.dtype, name=name)

    def _attend(
        self, inputs: jax.Array, table: jax.Array, mask: jax.Array, deterministic: bool
    ) -> jax.Array:
        heads, groups, width = self.heads, self.kv_heads or self.heads, self.head_width
        width = width or self.width // heads
        # One product gives queries, keys and values.
        joined = self._dense((heads + 2 * groups) * width, self.attention_bias, "attention_input")
        joined = joined(inputs).reshape(*inputs.shape[:2], heads + 2 * groups, width)
        query, key, value = jnp.split(joined, [heads, heads + groups], axis=2)
        if self.query_key_norm:
            query, key = self.make_norm("query_norm")(query), self.make_norm("key_norm")(key)
        query, key = rotate(query, table), rotate(key, table)
        query = query.reshape(*query.shape[:2], groups, heads // groups, width)
        scores = products.scores("bqgnd,bkgd->bgnqk", query, key)
        scores = scores * np.float32(self.query_scale or width**-0.5)
        # A row of padding may see nothing; finite scores keep it from being NaN.
        weights = nn.softmax(jnp.where(mask[:, None, None], scores, -1e9)).astype(self.dtype)
        weights = self.drop(weights, self.attention_dropout, deterministic)
        attended = jnp.einsum("bgnqk,bkgd->bqgnd", weights, value)
        attended = attended.reshape(*inputs.shape[:2], heads * width)
        return self._dense(self.width, self.attention_bias, "attention_output")(attended)

    def _feed_forward(self, inputs: jax.Array, deterministic: bool) -> jax.Array:
        # One product gives W1 x and W3 x.
        joined = self._dense(2 * self.ffn_width, self.ffn_inner_bias, "ffn_inner")(inputs)
        inner, gate = jnp.split(joined, 2, axis=-1)
        hidden = activation_function(self.activation)(inner) * gate
        hidden = self.drop(hidden, self.activation_dropout, deterministic)
        return self._dense(self.width, self.ffn_outer_bias, "ffn_outer")(hidden)


class RotaryEncoder(RotaryOptions, kw_only=True):
    """Tokens to sentence vectors: layers, pooling, dense layers, normalization.

    Attributes (see also `RotaryOptions`):
        vocab_size: rows of the token table.
        layers: depth; with `layers=0` the embeddings are pooled.
        embedding_scale: factor of token vectors.
        embedding_norm: whether they are normalized; the first layer of `pre` then has no first
            norm.
        final_norm: whether the output of the last layer is.
        local_layers: numbers, from 0, of the layers that see a `window` only.
        rope: base θ of the rotation and its scaling, see `rotary_form.rope_frequencies`.
        local_rope: that of local layers.
        max_length_tokens: longest input; longer input is an error.
        pooling: `first`, `mean`, `max` or `last`.
        pool_specials: whether mean and max count the special tokens around the text.
        projections: dense layers on the pooled vector, each (width, activation, use_bias), or
            norms, with `LAYER_NORM` in place of the activation.
        normalize: whether vectors are scaled to length 1.
        specials: names of the special tokens before and after a sentence; a decoder such as Qwen3
            has none before.
        pad_id: id of padding.
        embedding_dropout: on token vectors.
        remat: recompute layers in the backward pass to save memory.
    """

    vocab_size: int
    layers: int = RotaryForm.layers
    embedding_scale: float = RotaryForm.embedding_scale
    embedding_norm: bool = RotaryForm.embedding_norm
    final_norm: bool = RotaryForm.final_norm
    local_layers: Sequence[int] = RotaryForm.local_layers
    rope: Sequence[Any] = RotaryForm.rope
    local_rope: Sequence[Any] = RotaryForm.local_rope
    max_length_tokens: int = RotaryForm.max_length_tokens
    pooling: str = RotaryForm.pooling
    pool_specials: bool = RotaryForm.pool_specials
    projections: Sequence[tuple[int, str, bool]] = RotaryForm.projections
    normalize: bool = RotaryForm.normalize
    specials: Sequence[Sequence[str]] = RotaryForm.specials
    pad_id: int = RotaryForm.pad_id
    embedding_dropout: float = 0.0
    remat: bool = False

    training_only = ("embedding_dropout", "dropout", "attention_dropout")
    training_only += ("attention_output_dropout", "activation_dropout", "remat")

    def __post_init__(self):
        # A config.json holds lists; a module must be hashable.
        for name in ("local_layers", "rope", "local_rope"):
            setattr(self, name, tuple(getattr(self, name)))
        for name in ("projections", "specials"):
            setattr(self, name, tuple(map(tuple, getattr(self, name))))
        super().__post_init__()

    @property
    def dim(self) -> int:
        """Size of the sentence vector."""
        return self.projections[-1][0] if self.projections else self.width

    @nn.compact
    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences.

        Args:
            tokens: [batch, length] int32, with the `specials` around each sentence, padded on the
                right.
            deterministic: False enables dropout, which needs a `dropout` PRNG.

        Returns:
            [batch, dim] float32; for a row of padding only, the projections of zeros.

        Raises:
            ValueError: for more tokens than `max_length_tokens`, or an option out of range.
        """
        RotaryForm.of(self)  # checks the options
        check_length(tokens, self.max_length_tokens)
        mask, position = tokens != self.pad_id, positions(tokens, self.max_length_tokens)
        table = self.param("embedding", _INIT, (self.vocab_size, self.width))
        states = jnp.take(table, tokens, axis=0) * self.embedding_scale
        if self.embedding_norm:
            states = self.make_norm("embedding_norm", jnp.float32)(states)
        states = self.drop(states, self.embedding_dropout, deterministic)
        kinds = {}
        for is_local in {number in self.local_layers for number in range(self.layers)}:
            rope = self.local_rope if is_local else self.rope
            kinds[is_local] = self._rotation(rope, tokens), self._sees(mask, position, is_local)
        layer = nn.remat(RotaryLayer, static_argnums=(4,)) if self.remat else RotaryLayer
        shared = {name: getattr(self, name) for name in _SHARED}
        for number in range(self.layers):
            first = number == 0 and self.embedding_norm
            block = layer(**shared, normed=first, name=f"blocks_{number}")
            states = block(states, *kinds[number in self.local_layers], deterministic)
        if self.final_norm:
            states = self.make_norm("final_norm", jnp.float32)(states)
        if self.pooling in ("mean", "max") and not self.pool_specials:
            before, after = map(len, self.specials)
            mask = (position >= before) & (position < mask.sum(1, keepdims=True) - after)
        return project(pool(states, mask, self.pooling), self.projections, self.normalize)

    def table(self) -> jax.Array:
        """The token table, for a decoder or head that shares it; after a call.

        Padded to the rows of a head's bias.
        """
        return padded_table(self.get_variable("params", "embedding"))

    def _rotation(self, rope: Sequence[Any], tokens: jax.Array) -> jax.Array:
        """The `rope_table` of the length of tokens."""
        length = tokens.shape[1]
        # While jax2onnx traces, the length has no number, and the whole table is a constant.
        rows = length if isinstance(length, int) else self.max_length_tokens
        table = rope_table(rope, self.head_width or self.width // self.heads, rows)
        return jnp.asarray(table)[:, :length]

    def _sees(self, mask: jax.Array, position: jax.Array, is_local: bool) -> jax.Array:
        """[batch, length or 1, length] bool: which tokens a token sees."""
        distance = position[:, None] - position
        seen = mask[:, None]
        if self.causal:
            seen = seen & (distance >= 0)
        if is_local:
            seen = seen & (abs(distance) < self.window)
        return seen


_SHARED = tuple(
    name for name in RotaryOptions.__dataclass_fields__ if name not in ("parent", "name")
)
