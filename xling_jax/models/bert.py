"""Published post-norm transformers: BERT, RoBERTa, XLM-R, XLM and DistilBERT are one encoder.

Their differences are resolved when a checkpoint is converted (`convert.huggingface`): names of
tensors, the first row of the position table that a text uses, and the vectors of token types, which
are added to the positions because a sentence has one type. For encoding with published weights:
there is no dropout.
"""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from xling_jax.models.layers import POOLINGS, check_length, layer_norm, pool
from xling_jax.registry import check_choice


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


def _activation(name: str) -> Callable[[jax.Array], jax.Array]:
    check_choice("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]


class BertLayer(nn.Module):
    """x ← LN(x + MHA(x)); x ← LN(x + W2 f(W1 x)).

    Attributes:
        width, heads, ffn_width: sizes; `heads` must divide `width`.
        activation: f, a key of `ACTIVATIONS`.
        layer_norm_epsilon: of both norms.
        first_only: compute position 0 only (keys and values still come from all positions).
        dtype: of the computation; the softmax is float32.
    """

    width: int
    heads: int
    ffn_width: int
    activation: str
    layer_norm_epsilon: float
    first_only: bool = False
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array) -> jax.Array:
        """Maps [batch, length, width] to the same, or to [batch, 1, width] if `first_only`."""
        dense = lambda width, name: nn.Dense(width, dtype=self.dtype, name=name)
        norm = lambda name: layer_norm(self.layer_norm_epsilon, self.dtype, name)
        # One product gives queries, keys and values.
        joined = dense(3 * self.width, "attention_input")(states)
        joined = joined.reshape(*states.shape[:2], 3, self.heads, self.width // self.heads)
        query, key, value = (joined[:, :, part] for part in range(3))
        if self.first_only:
            states, query = states[:, :1], query[:, :1]
        attended = jax.nn.dot_product_attention(query, key, value, mask=mask[:, None, None, :])
        attended = dense(self.width, "attention_output")(attended.reshape(states.shape))
        states = norm("attention_norm")(states + attended)
        hidden = _activation(self.activation)(dense(self.ffn_width, "ffn_inner")(states))
        return norm("ffn_norm")(states + dense(self.width, "ffn_outer")(hidden))


class BertEncoder(nn.Module):
    """Tokens to sentence vectors: layers, pooling, dense layers, normalization.

    Attributes:
        vocab_size: rows of the token table.
        width, layers, heads, ffn_width: sizes; with `layers=0` the normalized embeddings are
            pooled.
        activation: of the layers, a key of `ACTIVATIONS`.
        layer_norm_epsilon: of every norm.
        max_length_tokens: rows of the position table; longer input is an error.
        pooling: `first`, `mean` or `max`.
        pool_specials: whether mean and max count the special tokens around the text.
        projections: dense layers on the pooled vector, each (width, activation, use_bias).
        normalize: whether vectors are scaled to length 1.
        pad_id: id of padding.
        dtype: of the layers; parameters, pooling, head and the result are float32.
    """

    vocab_size: int
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn_width: int = 3072
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-12
    max_length_tokens: int = 512
    pooling: str = "mean"
    pool_specials: bool = True
    projections: Sequence[tuple[int, str, bool]] = ()
    normalize: bool = False
    pad_id: int = 0
    dtype: DTypeLike = jnp.float32

    specials = (("bos",), ("eos",))
    training_only = ()

    def __post_init__(self):
        # A config.json holds lists; a module must be hashable.
        self.projections = tuple(map(tuple, self.projections))
        super().__post_init__()

    @property
    def dim(self) -> int:
        """Size of the sentence vector."""
        return self.projections[-1][0] if self.projections else self.width

    @nn.compact
    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences.

        Args:
            tokens: [batch, length] int32, a special token, w_1 .. w_n, a special token, padded on
                the right.
            deterministic: ignored; there is no dropout.

        Returns:
            [batch, dim] float32; for a row of padding only, the projections of zeros.

        Raises:
            ValueError: for more tokens than positions, or an unknown pooling or activation.
        """
        if self.width % self.heads:
            raise ValueError(f"encoder.heads={self.heads} must divide encoder.width={self.width}")
        check_choice("encoder.pooling", self.pooling, POOLINGS)
        mask = tokens != self.pad_id
        states = self._embed(tokens)
        for number in range(self.layers):
            states = BertLayer(
                *(self.width, self.heads, self.ffn_width, self.activation),
                self.layer_norm_epsilon,
                first_only=self.pooling == "first" and number == self.layers - 1,
                dtype=self.dtype,
                name=f"blocks_{number}",
            )(states, mask)
        if self.pooling != "first" and not self.pool_specials:
            position = jnp.arange(tokens.shape[1])
            mask = (position > 0) & (position < mask.sum(1, keepdims=True) - 1)
        vectors = pool(states.astype(jnp.float32), mask, self.pooling)
        for number, (width, activation, use_bias) in enumerate(self.projections):
            dense = nn.Dense(width, use_bias=use_bias, name=f"projections_{number}")
            vectors = _activation(activation)(dense(vectors))
        if self.normalize:
            norms = jnp.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / jnp.maximum(norms, 1e-12)
        return vectors

    def _embed(self, tokens: jax.Array) -> jax.Array:
        """LN(E[token] + position), [batch, length, width] in `dtype`."""
        check_length(tokens, self.max_length_tokens)
        init = nn.initializers.normal(0.02)
        table = self.param("embedding", init, (self.vocab_size, self.width))
        shape = (self.max_length_tokens, self.width)
        positions = self.param("position_embedding", init, shape)
        states = (jnp.take(table, tokens, axis=0) + positions[: tokens.shape[1]]).astype(self.dtype)
        return layer_norm(self.layer_norm_epsilon, self.dtype, "embedding_norm")(states)
