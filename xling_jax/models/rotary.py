"""Published transformers with rotary positions: ModernBERT, Qwen3 and Gemma 3 are one encoder.

Their differences are options here, or are resolved when a checkpoint is converted
(`formats.huggingface_layouts`). Sentences are padded on the right; where the original pads does not
matter, because rotary attention sees only distances.
"""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from xling_jax.models.bert import ACTIVATIONS, padded_table, project
from xling_jax.models.layers import Dense, Dropout, attend, layer_norm, pool, positions
from xling_jax.models.numpy_encoders import PublishedOptions, check_length
from xling_jax.options import check_number
from xling_jax.registry import check_choice

_INIT = nn.initializers.normal(0.02)


def rope_table(theta: float, head_width: int, length: int) -> np.ndarray:
    """Cosines and sines of the angles at positions 0, 1, …: [2, length, head_width / 2] float32.

    The angle per position is ω_i = θ^(−2i / d), i < d / 2, d = `head_width`; equation 15 of Su et
    al. (2021). As in the originals, exponents, ω and angles are rounded to float32, which counts at
    high positions.
    """
    exponents = np.arange(0, head_width, 2, dtype=np.float32) / np.float32(head_width)
    frequencies = 1 / (float(theta) ** exponents.astype(np.float64)).astype(np.float32)
    angles = (np.arange(length, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    return np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def rotate(states: jax.Array, table: jax.Array) -> jax.Array:
    """Turns the halves (x, y) of each head into (x cos − y sin, y cos + x sin), in float32.

    States are [batch, length, heads, head_width], the table [2, length, head_width / 2].
    """
    cos, sin = table[:, :, None]
    first, second = jnp.split(states.astype(jnp.float32), 2, axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, axis=-1).astype(states.dtype)


class RotaryOptions(nn.Module):
    """Options that a layer and the encoder share.

    Attributes:
        width, heads, ffn_width: sizes.
        kv_heads: heads of keys and values, which groups of `heads / kv_heads` query heads share
            (grouped-query attention); 0 for `heads`.
        head_width: of queries, keys and values, even; 0 for `width / heads`.
        activation: f of the gated feed-forward block W2 (f(W1 x) ∘ W3 x).
        norm: `layer` or `rms`, the root mean square without a shift.
        norm_bias: whether layer norms have a bias.
        norm_epsilon: of every norm.
        norm_placement: of the norms of a block: `pre`, x + Block(N(x)), or `both`,
            x + N(Block(N(x))).
        query_key_norm: whether queries and keys are normalized in each head before they turn.
        attention_bias, ffn_inner_bias, ffn_outer_bias: whether the projections of attention, W1
            with W3, and W2 have biases.
        query_scale: factor of the scores; 0 for 1 / √head_width.
        causal: whether a token sees only itself and those before it.
        window: in a local layer, a token sees those at a distance below it.
        dropout, attention_dropout, attention_output_dropout, activation_dropout: on the output of
            the feed-forward block, attention probabilities, the output of the attention block, and
            the inner layer of the feed-forward block.
        dtype: of the products; norms, softmax, and the sums of blocks are float32.
    """

    width: int = 768
    heads: int = 12
    ffn_width: int = 1152
    kv_heads: int = 0
    head_width: int = 0
    activation: str = "gelu"
    norm: str = "layer"
    norm_bias: bool = False
    norm_epsilon: float = 1e-5
    norm_placement: str = "pre"
    query_key_norm: bool = False
    attention_bias: bool = False
    ffn_inner_bias: bool = False
    ffn_outer_bias: bool = False
    query_scale: float = 0.0
    causal: bool = False
    window: int = 65
    dropout: float = 0.0
    attention_dropout: float = 0.0
    attention_output_dropout: float = 0.0
    activation_dropout: float = 0.0
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    @property
    def size_of_head(self) -> int:
        return self.head_width or self.width // self.heads

    def make_norm(self, name: str, dtype: DTypeLike | None = None) -> nn.Module:
        dtype = self.dtype if dtype is None else dtype
        if self.norm == "rms":
            return nn.RMSNorm(epsilon=self.norm_epsilon, dtype=dtype, name=name)
        return layer_norm(self.norm_epsilon, dtype, name, use_bias=self.norm_bias)

    def drop(self, states: jax.Array, rate: float, deterministic: bool) -> jax.Array:
        return Dropout(rate, self.dropout_generator)(states, deterministic)


class RotaryLayer(RotaryOptions):
    """Grouped-query attention, then a gated feed-forward block; see `RotaryOptions`.

    An input that is `normed` is normalized already, so that `pre` has no first norm.
    """

    normed: bool = False

    @nn.compact
    def __call__(
        self, states: jax.Array, table: jax.Array, mask: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Maps [batch, length, width] float32 to the same; for the table see `rotate`.

        `mask` [batch, length or 1, length] is True where a token sees another.
        """
        drop = lambda rate: lambda outputs: self.drop(outputs, rate, deterministic)
        attend = lambda inputs: self._attend(inputs, table, mask, deterministic)
        states = self._add("attention", states, attend, drop(self.attention_output_dropout))
        feed_forward = lambda inputs: self._feed_forward(inputs, deterministic)
        return self._add("ffn", states, feed_forward, drop(self.dropout))

    def _add(self, name: str, states: jax.Array, block: Callable, drop: Callable) -> jax.Array:
        """Adds a block to its input, with the norms of the placement."""
        inputs = states.astype(self.dtype)
        if not (name == "attention" and self.normed):
            inputs = self.make_norm(f"{name}_norm")(states)
        outputs = block(inputs).astype(jnp.float32)
        if self.norm_placement == "both":
            outputs = self.make_norm(f"{name}_output_norm", jnp.float32)(outputs)
        return states + drop(outputs)

    def _dense(self, width: int, use_bias: bool, name: str) -> Dense:
        return Dense(width, use_bias=use_bias, kernel_init=_INIT, dtype=self.dtype, name=name)

    def _attend(
        self, inputs: jax.Array, table: jax.Array, mask: jax.Array, deterministic: bool
    ) -> jax.Array:
        heads, groups, width = self.heads, self.kv_heads or self.heads, self.size_of_head
        # One product gives queries, keys and values.
        joined = self._dense((heads + 2 * groups) * width, self.attention_bias, "attention_input")
        joined = joined(inputs).reshape(*inputs.shape[:2], heads + 2 * groups, width)
        query, key, value = jnp.split(joined, [heads, heads + groups], axis=2)
        if self.query_key_norm:
            query, key = self.make_norm("query_norm")(query), self.make_norm("key_norm")(key)
        query, key = rotate(query, table), rotate(key, table)
        scale = self.query_scale or width**-0.5
        drop = Dropout(self.attention_dropout, self.dropout_generator).unless(deterministic)
        attended = attend(query, key, value, mask, scale=scale, drop=drop)
        attended = attended.reshape(*inputs.shape[:2], heads * width)
        return self._dense(self.width, self.attention_bias, "attention_output")(attended)

    def _feed_forward(self, inputs: jax.Array, deterministic: bool) -> jax.Array:
        # One product gives W1 x and W3 x.
        joined = self._dense(2 * self.ffn_width, self.ffn_inner_bias, "ffn_inner")(inputs)
        inner, gate = jnp.split(joined, 2, axis=-1)
        hidden = ACTIVATIONS[self.activation](inner) * gate
        hidden = self.drop(hidden, self.activation_dropout, deterministic)
        return self._dense(self.width, self.ffn_outer_bias, "ffn_outer")(hidden)


class RotaryEncoder(RotaryOptions, PublishedOptions, kw_only=True):
    """Tokens to sentence vectors: layers, pooling, dense layers, normalization.

    Attributes (see also `RotaryOptions` and `numpy_encoders.PublishedOptions`):
        embedding_scale: factor of token vectors.
        embedding_norm: whether they are normalized; the first layer of `pre` then has no first
            norm.
        final_norm: whether the output of the last layer is.
        local_layers: numbers, from 0, of the layers that see a `window` only.
        rope: base θ of the rotation, (θ,); see `rope_table`.
        local_rope: that of local layers.
        specials: names of the special tokens before and after a sentence; a decoder such as Qwen3
            has none before.
        embedding_dropout: on token vectors.
    """

    layers: int = 22
    embedding_scale: float = 1.0
    embedding_norm: bool = True
    final_norm: bool = True
    local_layers: Sequence[int] = ()
    rope: Sequence[float] = (160000.0,)
    local_rope: Sequence[float] = (10000.0,)
    max_length_tokens: int = 8192
    specials: Sequence[Sequence[str]] = (("bos",), ("eos",))
    embedding_dropout: float = 0.0
    remat: bool = False

    training_only = ("embedding_dropout", "dropout", "attention_dropout")
    training_only += ("attention_output_dropout", "activation_dropout", "remat")

    def __post_init__(self):
        # A config.json holds lists; a module must be hashable.
        for name in ("local_layers", "rope", "local_rope"):
            setattr(self, name, tuple(getattr(self, name)))
        self.specials = tuple(map(tuple, self.specials))
        PublishedOptions.__post_init__(self)
        check_choice("encoder.norm", self.norm, ("layer", "rms"))
        check_choice("encoder.norm_placement", self.norm_placement, ("pre", "both"))
        for name, least in (("heads", 1), ("window", 1), ("kv_heads", 0), ("head_width", 0)):
            check_number(getattr(self, name), f"encoder.{name}", least)
        if not self.head_width and self.width % self.heads:
            raise ValueError(
                f"encoder.heads={self.heads} must divide encoder.width={self.width}, unless "
                "encoder.head_width is given"
            )
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(
                f"encoder.kv_heads={self.kv_heads} must divide encoder.heads={self.heads}"
            )
        if self.size_of_head % 2:
            raise ValueError(
                f"encoder.head_width={self.size_of_head} must be even, for rotary positions"
            )
        for name in ("rope", "local_rope"):
            if len(getattr(self, name)) != 1:
                raise ValueError(f"encoder.{name}={getattr(self, name)!r:.100} must be (θ,)")
        super().__post_init__()

    @nn.compact
    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences, [batch, length] int32 -> [batch, dim] float32.

        Each has the `specials` around it and is padded on the right; a row of padding only gives
        the projections of zeros. ValueError for more tokens than `max_length_tokens`.
        """
        check_length(tokens.shape[1], self.max_length_tokens)
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
        return project(pool(states, mask, self.pooling), self.projections, self.normalize)

    def table(self) -> jax.Array:
        """The token table, for a head that shares it; after a call, padded."""
        return padded_table(self.get_variable("params", "embedding"))

    def _rotation(self, rope: Sequence[float], tokens: jax.Array) -> jax.Array:
        length = tokens.shape[1]
        # While jax2onnx traces, the length has no number, and the whole table is a constant.
        rows = length if isinstance(length, int) else self.max_length_tokens
        table = rope_table(*rope, self.size_of_head, rows)
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
