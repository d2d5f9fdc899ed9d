"""The lightweight dual encoder (Mao et al. 2021), down to the mean of tokens.

One encoder for both sides of a pair: a shallow post-norm transformer over [w_1 .. w_n], learned
positions, mean pooling. In training, a head predicts from the pooled vector which tokens the
sentence or its translation has; it is not exported.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from xling_jax.models.layers import (
    Dense,
    Dropout,
    Initializer,
    TokenEncoder,
    layer_norm,
    look_up,
    weighted_bag,
)
from xling_jax.models.numpy_encoders import DUAL_EPSILON, DualOptions, check_length
from xling_jax.models.numpy_layers import padded_vocab_size


def _initializers(stddev: float) -> tuple[Initializer, Initializer]:
    """For tables and for matrices; 0 gives those of the published code, N(0, 1) and U(±1/√fan_in).

    Choice: biases start at 0; the published code draws them like the matrices.
    """
    if stddev:
        return nn.initializers.normal(stddev), nn.initializers.normal(stddev)
    uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
    return nn.initializers.normal(1.0), uniform


class DualEncoder(DualOptions, TokenEncoder):
    """Tokens to sentence vectors.

    With `layers=0` only the pooling is left: no positions, norm or dropout. With
    `pooling="weighted_mean"` this is the mean of weighted token vectors, u = 1/n Σ_t a(w_t) E[w_t].

    With `norm="pre"` tokens are not normalized before the first layer, and positions and the output
    matrices of both blocks start at 0. The encoder then starts out equal to the one without layers
    and with the same pooling, and can continue from its trained parameters.

    Attributes (see also `DualOptions` and `layers.TokenEncoder`):
        dropout: on embeddings and block outputs; attention_dropout on attention probabilities.
        token_dropout: on the weights of `pooling="weighted_mean"`; drops whole tokens.
        init_stddev: of tables and matrices; 0 for the published code's, see `_initializers`.
    """

    attention_dropout: float = 0.1
    token_dropout: float = 0.0
    init_stddev: float = 0.0

    training_only = ("dropout", "attention_dropout", "token_dropout", "init_stddev", "remat")

    def setup(self):
        table_init, kernel_init = _initializers(self.init_stddev)
        self.embedding = self.make_table(table_init, self.width)
        if self.pooling == "weighted_mean":
            self.drop_tokens = Dropout(self.token_dropout, self.dropout_generator)
            weights = self.embedding.shape[-2:-1]
            self.token_weight = self.param("token_weight", nn.initializers.ones, weights)
        else:
            self.pooled = self.make_pooling(kernel_init)
        if not self.layers:
            return
        pre = self.norm == "pre"
        self.position_embedding = self.param(
            "position_embedding",
            nn.initializers.zeros if pre else table_init,
            (self.max_length_tokens + 1, self.width),
        )
        self.embedding_norm = (
            None if pre else layer_norm(DUAL_EPSILON, self.dtype, "embedding_norm")
        )
        self.drop = Dropout(self.dropout, self.dropout_generator)
        own = {"activation": "swish", "epsilon": DUAL_EPSILON, "kernel_init": kernel_init}
        own["output_init"] = nn.initializers.zeros if pre else None
        self.blocks = self.make_blocks(False, **own)

    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences [w_1 .. w_n]; raises ValueError if they exceed the positions."""
        mask = tokens != self.pad_id
        if self.pooling == "weighted_mean":
            weights = jnp.where(mask, jnp.take(self.token_weight, tokens, axis=0), 0)
            weights = weights / jnp.maximum(mask.sum(1, keepdims=True), 1)
            weights = self.drop_tokens(weights, deterministic)
            if not self.layers:
                return weighted_bag(self.embedding, weights, tokens)
        states = look_up(self.embedding, tokens)
        if self.layers:
            states = self._transform(states, mask, deterministic)
        if self.pooling == "weighted_mean":
            return jnp.einsum("bl,blw->bw", weights, states.astype(jnp.float32))
        return self.pooled(states, mask).astype(jnp.float32)

    def _transform(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        check_length(mask.shape[1], self.max_length_tokens)
        length = mask.shape[1]
        # Row 0 is the published code's position of padding.
        states += jnp.where(mask[..., None], self.position_embedding[1 : length + 1], 0)
        states = states.astype(self.dtype)
        if self.embedding_norm is not None:
            states = self.embedding_norm(states)
        states = self.drop(states, deterministic)
        for block in self.blocks:
            states = block(states, mask[:, None, :], deterministic)
        return states


class TokenDistributionHead(nn.Module):
    """Predicts the tokens of a sentence from its pooled vector u: softmax(h Eᵀ + c).

    h = LN(swish(W u + b)).

    Attributes:
        linear: False for h = u, which then has the width of E.
        vocab_size, vocab_multiple: as in the encoder.
        tie_embeddings: E is the encoder's token table, as published; otherwise a separate one.
        width: of h, unless embeddings are tied.
        init_stddev: as in the encoder.
        dtype: of the computation.
    """

    vocab_size: int
    width: int = 512
    tie_embeddings: bool = True
    init_stddev: float = 0.0
    vocab_multiple: int = 128
    dtype: DTypeLike = jnp.float32
    linear: bool = True

    @nn.compact
    def __call__(
        self, sentence: jax.Array, table: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Maps sentence vectors [batch, dim] and the encoder's table to what logits are made of.

        Returns:
            hidden: [batch, width] in dtype; logits are hidden · output_tableᵀ + output_bias.
            output_table: [rows, width] float32.
            output_bias: [rows] float32.
        """
        table_init, kernel_init = _initializers(self.init_stddev)
        rows = padded_vocab_size(self.vocab_size, self.vocab_multiple)
        width = table.shape[-1] if self.tie_embeddings else self.width
        if not self.tie_embeddings:
            table = self.param("output_embedding", table_init, (rows, width))
        hidden = sentence.astype(self.dtype)
        if self.linear:
            dense = Dense(width, kernel_init=kernel_init, dtype=self.dtype, name="dense")
            hidden = layer_norm(DUAL_EPSILON, self.dtype, "norm")(nn.swish(dense(sentence)))
        return hidden, table, self.param("output_bias", nn.initializers.zeros, (rows,))
