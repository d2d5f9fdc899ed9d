"""T-LASER (Li and Mak 2020): a transformer whose first token is the sentence vector.

Encoder: pre-norm transformer over [<s>, w_1 .. w_n, </s>]; the sentence vector P is the final layer
norm's output at position 0. Decoder: one pre-norm layer that sees the source through P alone.
Follows the published code where it departs from the paper; options give the paper's reading.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from xling_jax.models.layers import (
    Attention,
    Dropout,
    FeedForward,
    SentencePooling,
    pad_row_zero,
    padded_vocab_size,
    sinusoidal_positions,
)

_INIT_STDDEV = 0.02  # published, at width 1024
_LAYER_NORM_EPSILON = 1e-5


class TokenEmbedding(nn.Module):
    """√width · E[token] + sinusoidal position; zero position at padding.

    Attributes:
        rows: of the table.
        width: of a vector.
        pad_id: id of padding; its row starts at zero and gets no gradient that matters.
        init_stddev: of the other rows.
        dtype: of the result.
    """

    rows: int
    width: int
    pad_id: int
    init_stddev: float = _INIT_STDDEV
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, tokens: jax.Array, table: jax.Array | None = None) -> jax.Array:
        """Embeds [batch, length] ids to [batch, length, width], with a shared `table` if given."""
        if table is None:
            shape = (self.rows, self.width)
            init = nn.initializers.normal(self.init_stddev)
            table = self.param("embedding", pad_row_zero(init, self.pad_id), shape)
        positions = sinusoidal_positions(tokens.shape[1], self.width, self.pad_id + 1)
        positions = jnp.where((tokens != self.pad_id)[..., None], positions, 0)
        # The lookup stays float32, so that its scatter-add gradient does.
        return (jnp.take(table, tokens, axis=0) * np.sqrt(self.width) + positions).astype(
            self.dtype
        )

    def table(self) -> jax.Array:
        """[rows, width], for sharing."""
        return self.get_variable("params", "embedding")


class EncoderLayer(nn.Module):
    """x ← x + Drop(MHA(LN(x))); x ← x + Drop(FFN(LN(x))).

    Attributes:
        width, heads, ffn_width: sizes.
        dropout, attention_dropout, activation_dropout: rates.
        first_only: compute position 0 alone (keys and values still come from every position):
            exact, and all that the last layer of a first-token encoder owes.
        init_stddev: of the matrices; biases start at 0.
        dropout_generator: see `layers.Dropout`.
        dtype: of the computation.
    """

    width: int
    heads: int
    ffn_width: int
    dropout: float
    attention_dropout: float
    activation_dropout: float
    first_only: bool = False
    init_stddev: float = _INIT_STDDEV
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """Maps [batch, length, width] to the same, or to [batch, 1, width] if `first_only`."""
        drop = Dropout(self.dropout, self.dropout_generator)
        linear_init = nn.initializers.normal(self.init_stddev)
        norm = lambda name: nn.LayerNorm(
            epsilon=_LAYER_NORM_EPSILON, dtype=self.dtype, use_fast_variance=False, name=name
        )
        keys = norm("attention_norm")(states)
        if self.first_only:
            states, queries = states[:, :1], keys[:, :1]
        else:
            queries = keys
        attended = Attention(
            self.width,
            self.heads,
            self.attention_dropout,
            self.dropout_generator,
            linear_init,
            self.dtype,
            name="attention",
        )(queries, keys, mask[:, None, :], deterministic)
        states = states + drop(attended, deterministic)
        transformed = FeedForward(
            self.width,
            self.ffn_width,
            self.activation_dropout,
            self.dropout_generator,
            linear_init,
            self.dtype,
            name="ffn",
        )(norm("ffn_norm")(states), deterministic)
        return states + drop(transformed, deterministic)


class TLaserEncoder(nn.Module):
    """Tokens to sentence vectors.

    Attributes:
        vocab_size: ids are below it; `vocab_multiple` pads the table.
        width: D, of tokens and of the sentence vector.
        layers, heads, ffn_width: depth, attention heads, inner width.
        dropout: on embeddings and block outputs; attention_dropout, activation_dropout inside.
        pooling: `first` as published, `mean` or `max` over real tokens, or `self_attention` (see
            `layers.SentencePooling`) with attention_hops and attention_width.
        pad_id: id of padding.
        init_stddev: of tables and matrices. The published 0.02 at width 1024 is 0.64 / √width;
            narrower models learn faster if they keep to that.
        remat: recompute layers in the backward pass, for memory.
        dropout_generator: see `layers.Dropout`.
        dtype: of the computation; parameters and the result are float32.
    """

    vocab_size: int
    width: int = 1024
    layers: int = 6
    heads: int = 16
    ffn_width: int = 4096
    dropout: float = 0.3
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    pooling: str = "first"
    attention_hops: int = 1
    attention_width: int = 128
    pad_id: int = 1
    vocab_multiple: int = 128
    init_stddev: float = _INIT_STDDEV
    remat: bool = False
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    specials = (("bos",), ("eos",))
    training_only = ("dropout", "attention_dropout", "activation_dropout", "init_stddev", "remat")

    @property
    def dim(self) -> int:
        """Size of the sentence vector."""
        return self.width * (self.attention_hops if self.pooling == "self_attention" else 1)

    def setup(self):
        rows = padded_vocab_size(self.vocab_size, self.vocab_multiple)
        self.embed = TokenEmbedding(rows, self.width, self.pad_id, self.init_stddev, self.dtype)
        self.drop = Dropout(self.dropout, self.dropout_generator)
        layer = nn.remat(EncoderLayer, static_argnums=(3,)) if self.remat else EncoderLayer
        self.blocks = [
            layer(
                self.width,
                self.heads,
                self.ffn_width,
                self.dropout,
                self.attention_dropout,
                self.activation_dropout,
                first_only=self.pooling == "first" and number == self.layers - 1,
                init_stddev=self.init_stddev,
                dropout_generator=self.dropout_generator,
                dtype=self.dtype,
            )
            for number in range(self.layers)
        ]
        self.final_norm = nn.LayerNorm(
            epsilon=_LAYER_NORM_EPSILON, dtype=self.dtype, use_fast_variance=False
        )
        self.pooled = SentencePooling(
            self.pooling,
            self.attention_hops,
            self.attention_width,
            nn.initializers.normal(self.init_stddev),
            self.dtype,
        )

    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences.

        Args:
            tokens: [batch, length] int32, [<s>, w_1 .. w_n, </s>], padded on the right.
            deterministic: no dropout; otherwise a `dropout` PRNG is needed.

        Returns:
            [batch, dim] float32; zeros for a row of padding alone.
        """
        mask = tokens != self.pad_id
        states = self.drop(self.embed(tokens), deterministic)
        for block in self.blocks:
            states = block(states, mask, deterministic)
        return self.pooled(self.final_norm(states), mask).astype(jnp.float32)

    def table(self) -> jax.Array:
        """The token table, for a decoder that shares it."""
        return self.embed.table()


class DecoderLayer(nn.Module):
    """Causal self-attention, the sentence vector, feed-forward; pre-norm, residual.

    The memory has a single slot, so attention over it has weight 1 whatever the query: it is
    W_O(W_V m + b_V) + b_O at every position. Query and key projections and the layer norm before
    them never get a gradient; `published_parameters` creates them all the same, for counting and
    for loading published checkpoints.
    """

    width: int
    heads: int
    ffn_width: int
    dropout: float
    published_parameters: bool = False
    init_stddev: float = _INIT_STDDEV
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self, states: jax.Array, memory: jax.Array, mask: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Maps [batch, length, width] to the same, given memory [batch, memory_width]."""
        drop = Dropout(self.dropout, self.dropout_generator)
        linear_init = nn.initializers.normal(self.init_stddev)
        norm = lambda name: nn.LayerNorm(
            epsilon=_LAYER_NORM_EPSILON, dtype=self.dtype, use_fast_variance=False, name=name
        )
        dense = lambda name: nn.Dense(
            self.width, kernel_init=linear_init, dtype=self.dtype, name=name
        )
        normed = norm("attention_norm")(states)
        attended = Attention(
            self.width,
            self.heads,
            0.0,
            self.dropout_generator,
            linear_init,
            self.dtype,
            name="attention",
        )(normed, normed, mask, deterministic)
        states = states + drop(attended, deterministic)

        cross = dense("memory_output")(dense("memory_value")(memory))
        if self.published_parameters:
            norm("memory_norm")(states)
            dense("memory_query")(states)
            dense("memory_key")(memory)
        cross = jnp.broadcast_to(cross[:, None], states.shape)
        states = states + drop(cross, deterministic)

        transformed = FeedForward(
            self.width,
            self.ffn_width,
            0.0,
            self.dropout_generator,
            linear_init,
            self.dtype,
            name="ffn",
        )(norm("ffn_norm")(states), deterministic)
        return states + drop(transformed, deterministic)


class TLaserDecoder(nn.Module):
    """Sentence vector and language to the hidden states of a translation.

    Attributes:
        vocab_size, vocab_multiple: as in the encoder.
        num_languages: rows of the language table.
        sentence_width: of the sentence vector.
        width, layers, heads, ffn_width, dropout: sizes and rate.
        language_width: of a language vector.
        language_at: `memory` (published code: memory is [P; E_l]) or `input` (Eq. 3 of the paper:
            [token; E_l] projected to the width, memory is P).
        share_embeddings: input and output tables are the encoder's.
        published_parameters: see `DecoderLayer`.
        init_stddev, pad_id, dropout_generator, dtype: as in the encoder.
    """

    vocab_size: int
    num_languages: int
    sentence_width: int = 1024
    width: int = 1024
    layers: int = 1
    heads: int = 16
    ffn_width: int = 4096
    dropout: float = 0.3
    language_width: int = 32
    language_at: str = "memory"
    share_embeddings: bool = False
    published_parameters: bool = False
    init_stddev: float = _INIT_STDDEV
    pad_id: int = 1
    vocab_multiple: int = 128
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self,
        sentence: jax.Array,
        language: jax.Array,
        previous: jax.Array,
        table: jax.Array | None = None,
        deterministic: bool = True,
    ) -> tuple[jax.Array, jax.Array, None]:
        """Runs the decoder on shifted targets.

        Args:
            sentence: [batch, sentence_width] float32.
            language: [batch] int32, target language.
            previous: [batch, length] int32, decoder inputs.
            table: [rows, width], the encoder's, where embeddings are shared.
            deterministic: no dropout.

        Returns:
            hidden: [batch, length, width] in dtype; logits are hidden · output_tableᵀ.
            output_table: [rows, width] float32.
            None: there is no bias.
        """
        if self.language_at not in ("memory", "input"):
            raise ValueError(f"language_at={self.language_at!r} must be 'memory' or 'input'")
        if self.share_embeddings and (table is None or table.shape[1] != self.width):
            found = "none" if table is None else f"one of width {table.shape[1]}"
            raise ValueError(
                f"share_embeddings=True needs an encoder with a token table of width {self.width}; "
                f"found {found}"
            )
        rows = padded_vocab_size(self.vocab_size, self.vocab_multiple)
        embed = TokenEmbedding(
            rows, self.width, self.pad_id, self.init_stddev, self.dtype, name="embed"
        )
        linear_init = nn.initializers.normal(self.init_stddev)
        states = embed(previous, table if self.share_embeddings else None)
        languages = self.param(
            "language_embedding", linear_init, (self.num_languages, self.language_width)
        )
        language_vectors = languages[language].astype(self.dtype)
        memory = sentence.astype(self.dtype)
        if self.language_at == "memory":
            memory = jnp.concatenate([memory, language_vectors], axis=-1)
        else:
            repeated = jnp.broadcast_to(
                language_vectors[:, None], (*states.shape[:2], self.language_width)
            )
            states = nn.Dense(
                self.width, kernel_init=linear_init, dtype=self.dtype, name="input_projection"
            )(jnp.concatenate([states, repeated], axis=-1))
        states = Dropout(self.dropout, self.dropout_generator)(states, deterministic)
        length = previous.shape[1]
        causal = np.tril(np.ones((length, length), bool))
        mask = causal[None] & (previous != self.pad_id)[:, None, :]
        for number in range(self.layers):
            states = DecoderLayer(
                self.width,
                self.heads,
                self.ffn_width,
                self.dropout,
                self.published_parameters,
                self.init_stddev,
                self.dropout_generator,
                self.dtype,
                name=f"blocks_{number}",
            )(states, memory, mask, deterministic)
        hidden = nn.LayerNorm(
            epsilon=_LAYER_NORM_EPSILON,
            dtype=self.dtype,
            use_fast_variance=False,
            name="final_norm",
        )(states)
        if self.share_embeddings:
            return hidden, table, None
        output_init = nn.initializers.normal(self.width**-0.5)
        return hidden, self.param("output_embedding", output_init, (rows, self.width)), None
