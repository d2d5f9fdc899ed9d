"""The lightweight dual encoder (Mao et al. 2021), and its smallest form, the mean of tokens.

One encoder for both sides of a pair: a shallow post-norm transformer over [w_1 .. w_n], learned
positions, mean pooling. A head predicts from the pooled vector which tokens the sentence or its
translation has; it is not part of the encoder that is kept.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from xling_jax.models.layers import (
    Attention,
    Dropout,
    FeedForward,
    Initializer,
    SentencePooling,
    pad_row_zero,
    padded_vocab_size,
    weighted_bag,
)

_LAYER_NORM_EPSILON = 1e-12  # in float32
NORMS = ("post", "pre")


def _initializers(stddev: float) -> tuple[Initializer, Initializer]:
    """For tables and for matrices; 0 takes the published code's: N(0, 1) and U(±1/√fan_in).

    Biases start at 0. Choice: the published code draws them like the matrices.
    """
    if stddev:
        return nn.initializers.normal(stddev), nn.initializers.normal(stddev)
    uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
    return nn.initializers.normal(1.0), uniform


def _layer_norm(dtype: DTypeLike, name: str) -> nn.LayerNorm:
    return nn.LayerNorm(
        epsilon=_LAYER_NORM_EPSILON, dtype=dtype, use_fast_variance=False, name=name
    )


class DualLayer(nn.Module):
    """x ← LN(x + Drop(MHA(x))); x ← LN(x + Drop(W2 · swish(W1 x))).

    With `norm="pre"`: x ← x + Drop(MHA(LN(x))); x ← x + Drop(W2 · swish(W1 LN(x))), where both
    blocks' output matrices start at 0, so that a new layer changes nothing.

    Attributes:
        width, heads, ffn_width: sizes.
        dropout: on both block outputs; attention_dropout on the attention probabilities.
        kernel_init: of the matrices.
        norm: `post` or `pre`.
        dropout_generator: see `layers.Dropout`.
        dtype: of the computation.
    """

    width: int
    heads: int
    ffn_width: int
    dropout: float
    attention_dropout: float
    kernel_init: Initializer
    norm: str = "post"
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """Maps [batch, length, width] to the same."""
        drop = Dropout(self.dropout, self.dropout_generator)
        shared = {"kernel_init": self.kernel_init, "dtype": self.dtype}
        if self.norm == "pre":
            shared["output_init"] = nn.initializers.zeros
        attention = Attention(
            self.width,
            self.heads,
            self.attention_dropout,
            self.dropout_generator,
            name="attention",
            **shared,
        )
        ffn = FeedForward(
            self.width,
            self.ffn_width,
            0.0,
            self.dropout_generator,
            activation="swish",
            name="ffn",
            **shared,
        )
        norms = [_layer_norm(self.dtype, f"{block}_norm") for block in ("attention", "ffn")]
        attend = lambda states: attention(states, states, mask[:, None, :], deterministic)
        transform = lambda states: ffn(states, deterministic)
        for block, norm in zip((attend, transform), norms, strict=True):
            if self.norm == "pre":
                states = states + drop(block(norm(states)), deterministic)
            else:
                states = norm(states + drop(block(states), deterministic))
        return states


class DualEncoder(nn.Module):
    """Tokens to sentence vectors.

    With `layers=0` nothing but the pooling is left, no positions, no norm, no dropout: with
    `pooling="weighted_mean"`, the mean of weighted token vectors u = 1/n Σ_t a(w_t) E[w_t].

    With `norm="pre"` tokens are not normalized before the first layer, positions start at 0 and
    layers add to what is there (`DualLayer`). At the start the encoder then is the one without
    layers of the same pooling, and can go on from its trained parameters.

    Attributes:
        vocab_size: ids are below it; `vocab_multiple` pads the table.
        width: D, of tokens and of the sentence vector.
        layers, heads, ffn_width: depth, attention heads, inner width.
        dropout: on embeddings and block outputs; attention_dropout on attention probabilities.
        token_dropout: on the weights of `pooling="weighted_mean"`, so that whole tokens are gone.
        norm: `post` as published, or `pre`.
        max_length_tokens: rows of the position table; longer input is an error.
        pooling: `mean` over real tokens as published, `first`, `max` or `self_attention`; or
            `weighted_mean`, 1/n Σ_t a(w_t) x_t, with one learned weight a(w) a token.
        attention_hops, attention_width: of `self_attention`.
        pad_id: id of padding.
        init_stddev: of tables and matrices; 0 for the published code's, see `_initializers`.
        remat: recompute layers in the backward pass, for memory.
        dropout_generator: see `layers.Dropout`.
        dtype: of the computation; parameters and the result are float32.
    """

    vocab_size: int
    width: int = 512
    layers: int = 2
    heads: int = 8
    ffn_width: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.1
    token_dropout: float = 0.0
    norm: str = "post"
    max_length_tokens: int = 200
    pooling: str = "mean"
    attention_hops: int = 1
    attention_width: int = 128
    pad_id: int = 0
    vocab_multiple: int = 128
    init_stddev: float = 0.0
    remat: bool = False
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    specials = ((), ())
    training_only = ("dropout", "attention_dropout", "token_dropout", "init_stddev", "remat")

    @property
    def dim(self) -> int:
        """Size of the sentence vector."""
        return self.width * (self.attention_hops if self.pooling == "self_attention" else 1)

    def setup(self):
        if self.norm not in NORMS:
            raise ValueError(f"encoder.norm={self.norm!r} must be one of {', '.join(NORMS)}")
        table_init, kernel_init = _initializers(self.init_stddev)
        rows = padded_vocab_size(self.vocab_size, self.vocab_multiple)
        self.embedding = self.param(
            "embedding", pad_row_zero(table_init, self.pad_id), (rows, self.width)
        )
        if self.pooling == "weighted_mean":
            self.drop_tokens = Dropout(self.token_dropout, self.dropout_generator)
            self.token_weight = self.param("token_weight", nn.initializers.ones, (rows,))
        else:
            self.pooled = SentencePooling(
                self.pooling, self.attention_hops, self.attention_width, kernel_init, self.dtype
            )
        if not self.layers:
            return
        pre = self.norm == "pre"
        self.position_embedding = self.param(
            "position_embedding",
            nn.initializers.zeros if pre else table_init,
            (self.max_length_tokens + 1, self.width),
        )
        self.embedding_norm = None if pre else _layer_norm(self.dtype, "embedding_norm")
        self.drop = Dropout(self.dropout, self.dropout_generator)
        layer = nn.remat(DualLayer, static_argnums=(3,)) if self.remat else DualLayer
        self.blocks = [
            layer(
                self.width,
                self.heads,
                self.ffn_width,
                self.dropout,
                self.attention_dropout,
                kernel_init,
                self.norm,
                self.dropout_generator,
                self.dtype,
            )
            for _ in range(self.layers)
        ]

    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences.

        Args:
            tokens: [batch, length] int32, [w_1 .. w_n], padded on the right.
            deterministic: no dropout; otherwise a `dropout` PRNG is needed.

        Returns:
            [batch, dim] float32; zeros for an empty sentence.

        Raises:
            ValueError: if there are more tokens than positions.
        """
        mask = tokens != self.pad_id
        if self.pooling == "weighted_mean":
            weights = jnp.where(mask, jnp.take(self.token_weight, tokens, axis=0), 0)
            weights = weights / jnp.maximum(mask.sum(1, keepdims=True), 1)
            weights = self.drop_tokens(weights, deterministic)
            if not self.layers:
                return weighted_bag(self.embedding, weights, tokens)
        states = jnp.take(self.embedding, tokens, axis=0)
        if self.layers:
            states = self._transform(states, mask, deterministic)
        if self.pooling == "weighted_mean":
            return jnp.einsum("bl,blw->bw", weights, states.astype(jnp.float32))
        return self.pooled(states, mask).astype(jnp.float32)

    def _transform(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        length = states.shape[1]
        if length > self.max_length_tokens:
            raise ValueError(
                f"tokens have length {length}; encoder.max_length_tokens="
                f"{self.max_length_tokens} is the longest"
            )
        # Row 0 is the published code's position of padding.
        states += jnp.where(mask[..., None], self.position_embedding[1 : length + 1], 0)
        states = states.astype(self.dtype)
        if self.embedding_norm is not None:
            states = self.embedding_norm(states)
        states = self.drop(states, deterministic)
        for block in self.blocks:
            states = block(states, mask, deterministic)
        return states

    def table(self) -> jax.Array:
        """The token table, for a head or decoder that shares it."""
        return self.embedding


class TokenDistributionHead(nn.Module):
    """From the pooled vector u to the tokens a sentence has: h = LN(swish(W u + b)).

    The distribution is softmax(h Eᵀ + c) over the vocabulary.

    Attributes:
        vocab_size, vocab_multiple: as in the encoder.
        tie_embeddings: E is the encoder's token table, as published; else one of its own.
        width: of h; that of the table where it is tied.
        init_stddev: as in the encoder.
        dtype: of the computation.
    """

    vocab_size: int
    width: int = 512
    tie_embeddings: bool = True
    init_stddev: float = 0.0
    vocab_multiple: int = 128
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self, sentence: jax.Array, table: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Maps sentence vectors to what the logits are made of.

        Args:
            sentence: [batch, dim] float32.
            table: [rows, width], the encoder's.

        Returns:
            hidden: [batch, width] in dtype; logits are hidden · output_tableᵀ + output_bias.
            output_table: [rows, width] float32.
            output_bias: [rows] float32.
        """
        table_init, kernel_init = _initializers(self.init_stddev)
        rows = padded_vocab_size(self.vocab_size, self.vocab_multiple)
        width = table.shape[1] if self.tie_embeddings else self.width
        if not self.tie_embeddings:
            table = self.param("output_embedding", table_init, (rows, width))
        dense = nn.Dense(width, kernel_init=kernel_init, dtype=self.dtype, name="dense")
        hidden = _layer_norm(self.dtype, "norm")(nn.swish(dense(sentence)))
        return hidden, table, self.param("output_bias", nn.initializers.zeros, (rows,))
