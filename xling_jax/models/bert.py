"""Published post-norm transformers: BERT, RoBERTa, XLM-R, XLM, DistilBERT in one encoder.

Their differences are resolved when a checkpoint is converted (`formats.huggingface_layouts`).
Dropout is where the original has it.
"""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from xling_jax.models.layers import Dense, Dropout, attend, layer_norm, pool
from xling_jax.models.numpy_encoders import BertOptions, check_length
from xling_jax.models.numpy_layers import padded_vocab_size

# `vocab_multiple` of decoders and heads; the table itself has the published rows.
_ROWS_MULTIPLE = 128


def gelu(inputs: jax.Array) -> jax.Array:
    """The exact GELU, x/2 (1 + erf(x / √2)); that of `nn.gelu` uses the slower erfc."""
    return 0.5 * inputs * (1 + jax.lax.erf(inputs * np.asarray(np.sqrt(0.5), inputs.dtype)))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": nn.gelu,  # the tanh approximation
    "identity": lambda inputs: inputs,
    "relu": nn.relu,
    "sigmoid": nn.sigmoid,
    "swish": nn.swish,
    "tanh": jnp.tanh,
}


def padded_table(table: jax.Array) -> jax.Array:
    """A token table [rows, width] with zero rows behind, as many as the bias of a head has."""
    missing = padded_vocab_size(len(table), _ROWS_MULTIPLE) - len(table)
    return jnp.pad(table, ((0, missing), (0, 0)))


def project(
    vectors: jax.Array, projections: Sequence[tuple[int, str, bool]], normalize: bool
) -> jax.Array:
    """Applies dense layers to pooled vectors, inside the module whose parameters they are.

    [batch, width] -> [batch, width of the last layer] float32; see `PublishedOptions`.
    """
    for number, (width, activation, use_bias) in enumerate(projections):
        dense = Dense(width, use_bias=use_bias, name=f"projections_{number}")
        vectors = ACTIVATIONS[activation](dense(vectors))
    if normalize:
        # Under the root: the norm of a row of padding, 0, has no gradient.
        squares = jnp.sum(vectors * vectors, axis=1, keepdims=True)
        vectors = vectors / jnp.sqrt(jnp.maximum(squares, 1e-24))
    return vectors


class BertLayer(nn.Module):
    """x ← LN(x + Drop(MHA(x))); x ← LN(x + Drop(W2 f(W1 x))).

    `dropout` is on the output of the feed-forward block, `attention_dropout` on the attention
    probabilities, `attention_output_dropout` on the output of the attention block. `first_only`
    computes position 0 only (keys and values still come from all positions). Softmax is float32.
    """

    width: int
    heads: int
    ffn_width: int
    activation: str
    layer_norm_epsilon: float
    dropout: float = 0.0
    attention_dropout: float = 0.0
    attention_output_dropout: float = 0.0
    dropout_generator: str = "threefry"
    first_only: bool = False
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool = True) -> jax.Array:
        """[batch, length, width] -> the same, or [batch, 1, width] if `first_only`.

        `mask` [batch, length] is True at tokens.
        """
        drop = lambda rate, inputs: Dropout(rate, self.dropout_generator)(inputs, deterministic)
        dense = lambda width, name: Dense(width, dtype=self.dtype, name=name)
        norm = lambda name: layer_norm(self.layer_norm_epsilon, self.dtype, name)
        # One product gives queries, keys and values.
        joined = dense(3 * self.width, "attention_input")(states)
        joined = joined.reshape(*states.shape[:2], 3, self.heads, self.width // self.heads)
        query, key, value = (joined[:, :, part] for part in range(3))
        if self.first_only:
            states, query = states[:, :1], query[:, :1]
        query = query / np.asarray(np.sqrt(query.shape[-1]), query.dtype)
        dropout = Dropout(self.attention_dropout, self.dropout_generator)
        drop_weights = dropout.unless(deterministic)
        attended = attend(query, key, value, mask[:, None], drop=drop_weights)
        attended = dense(self.width, "attention_output")(attended.reshape(states.shape))
        attended = drop(self.attention_output_dropout, attended)
        states = norm("attention_norm")(states + attended)
        hidden = ACTIVATIONS[self.activation](dense(self.ffn_width, "ffn_inner")(states))
        hidden = drop(self.dropout, dense(self.width, "ffn_outer")(hidden))
        return norm("ffn_norm")(states + hidden)


# Options of the encoder that its layers take.
_OF_LAYER = ("width", "heads", "ffn_width", "activation", "layer_norm_epsilon", "dropout")
_OF_LAYER += ("attention_dropout", "attention_output_dropout", "dropout_generator", "dtype")


class BertEncoder(nn.Module, BertOptions):
    """Tokens to sentence vectors: layers, pooling, dense layers, normalization.

    For the rates of dropout see `BertLayer`; `dropout` also acts on the normalized embeddings. In
    DistilBERT `attention_output_dropout` is 0, in the others `dropout`. Parameters, pooling, head
    and the result are float32.
    """

    dropout: float = 0.1
    attention_dropout: float = 0.1
    attention_output_dropout: float = 0.1
    remat: bool = False
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    training_only = ("dropout", "attention_dropout", "attention_output_dropout", "remat")

    def __post_init__(self):
        BertOptions.__post_init__(self)
        super().__post_init__()

    @nn.compact
    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences, [batch, length] int32 -> [batch, dim] float32.

        A row is a special token, w_1 .. w_n, a special token, padded on the right; one of padding
        only gives the projections of zeros. ValueError for more tokens than positions.
        """
        mask = tokens != self.pad_id
        drop = Dropout(self.dropout, self.dropout_generator)
        states = drop(self._embed(tokens), deterministic)
        layer = nn.remat(BertLayer, static_argnums=(3,)) if self.remat else BertLayer
        shared = {name: getattr(self, name) for name in _OF_LAYER}
        for number in range(self.layers):
            states = layer(
                **shared,
                first_only=self.pooling == "first" and number == self.layers - 1,
                name=f"blocks_{number}",
            )(states, mask, deterministic)
        vectors = pool(states.astype(jnp.float32), mask, self.pooling)
        return project(vectors, self.projections, self.normalize)

    def table(self) -> jax.Array:
        """The token table, for a head that shares it; after a call, padded."""
        return padded_table(self.get_variable("params", "embedding"))

    def _embed(self, tokens: jax.Array) -> jax.Array:
        """LN(E[token] + position), [batch, length, width] in `dtype`."""
        check_length(tokens.shape[1], self.max_length_tokens)
        init = nn.initializers.normal(0.02)
        table = self.param("embedding", init, (self.vocab_size, self.width))
        shape = (self.max_length_tokens, self.width)
        added = self.param("position_embedding", init, shape)[: tokens.shape[1]]
        if self.unplaced_id is not None:
            is_placed = tokens != self.unplaced_id
            position = jnp.maximum(jnp.cumsum(is_placed, axis=1) - 1, 0)
            added = jnp.take(added, position, axis=0) * is_placed[..., None]
        states = (jnp.take(table, tokens, axis=0) + added).astype(self.dtype)
        return layer_norm(self.layer_norm_epsilon, self.dtype, "embedding_norm")(states)
