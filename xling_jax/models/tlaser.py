"""T-LASER (Li and Mak 2020): a transformer whose first token is the sentence vector.

Encoder: pre-norm transformer over [<s>, w_1 .. w_n, </s>]; the sentence vector P is the final layer
norm's output at position 0. Decoder: one pre-norm layer that sees the source only through P.
Where the published code departs from the paper, the code is followed; options give the paper's
version.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from xling_jax.models.layers import (
    Dense,
    Dropout,
    SentenceDecoder,
    TokenEncoder,
    TransformerLayer,
    layer_norm,
    pad_row_zero,
)
from xling_jax.models.numpy_encoders import (
    TLASER_EPSILON,
    FairseqOptions,
    TLaserOptions,
    sinusoidal_positions,
)
from xling_jax.models.numpy_layers import padded_vocab_size
from xling_jax.registry import check_choice

_INIT_STDDEV = 0.02  # published, at width 1024
SYMBOLIC_LENGTH = 4096  # positions of an exported encoder


class TokenEmbedding(nn.Module):
    """√width · E[token] + sinusoidal position; no position at padding, whose row starts at zero."""

    rows: int
    width: int
    pad_id: int
    init_stddev: float = _INIT_STDDEV
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Embeds [batch, length] ids to [batch, length, width]."""
        init = nn.initializers.normal(self.init_stddev)
        shape = (self.rows, self.width)
        table = self.param("embedding", pad_row_zero(init, self.pad_id), shape)
        positions = self._positions(tokens.shape[1])
        positions = jnp.where((tokens != self.pad_id)[..., None], positions, 0)
        # A float32 lookup keeps its scatter-add gradient in float32.
        scaled = jnp.take(table, tokens, axis=0) * np.sqrt(self.width)
        return (scaled + positions).astype(self.dtype)

    def _positions(self, length: int) -> np.ndarray | jax.Array:
        """[length, width]; the length may be symbolic, as `export` traces the encoder."""
        if isinstance(length, int):
            return sinusoidal_positions(length, self.width, self.pad_id + 1)
        longest = sinusoidal_positions(SYMBOLIC_LENGTH, self.width, self.pad_id + 1)
        return jnp.asarray(longest)[:length]

    def table(self) -> jax.Array:
        """[rows, width]."""
        return self.get_variable("params", "embedding")


class TLaserEncoder(TLaserOptions, TokenEncoder):
    """Tokens to sentence vectors.

    Attributes (see also `TLaserOptions` and `layers.TokenEncoder`):
        dropout: on embeddings and block outputs; attention_dropout, activation_dropout inside.
        init_stddev: of tables and matrices. The published 0.02 at width 1024 is 0.64 / √width;
            narrower models learn faster if they keep to that.
    """

    dropout: float = 0.3
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    init_stddev: float = _INIT_STDDEV

    training_only = ("dropout", "attention_dropout", "activation_dropout", "init_stddev", "remat")

    def setup(self):
        init = nn.initializers.normal(self.init_stddev)
        self.embed = TokenEmbedding(
            self.rows, self.width, self.pad_id, self.init_stddev, self.dtype
        )
        self.drop = Dropout(self.dropout, self.dropout_generator)
        own = {"activation_dropout": self.activation_dropout, "epsilon": TLASER_EPSILON}
        self.blocks = self.make_blocks(self.pooling == "first", kernel_init=init, **own)
        if self.last_norm:
            self.final_norm = layer_norm(TLASER_EPSILON, self.dtype)
        self.pooled = self.make_pooling(init)

    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences [<s>, w_1 .. w_n, </s>]."""
        mask = tokens != self.pad_id
        states = self.drop(self.embed(tokens), deterministic)
        for block in self.blocks:
            states = block(states, mask[:, None, :], deterministic)
        states = self.final_norm(states) if self.last_norm else states
        return self.pooled(states, mask).astype(jnp.float32)

    def table(self) -> jax.Array:
        """The token table, for a head that shares it."""
        return self.embed.table()


class FairseqEncoder(FairseqOptions, TLaserEncoder):
    """Encoders trained in fairseq, LASER3 and SONAR's: T-LASER's but for norms and <s>."""


class TLaserDecoder(SentenceDecoder):
    """Sentence vector and language to the hidden states of a translation.

    Attributes (see also `layers.SentenceDecoder`):
        layers, heads, ffn_width: depth, attention heads, inner width.
        language_at: `memory` (published code: the memory is [P; E_l]) or `input` (Eq. 3 of the
            paper: [token; E_l] projected to the width, the memory is P).
        published_parameters: see `layers.TransformerLayer`.
        init_stddev: as in the encoder.
    """

    layers: int = 1
    heads: int = 16
    ffn_width: int = 4096
    dropout: float = 0.3
    language_at: str = "memory"
    init_stddev: float = _INIT_STDDEV

    @nn.compact
    def __call__(
        self,
        sentence: jax.Array,
        language: jax.Array,
        previous: jax.Array,
        deterministic: bool = True,
    ) -> tuple[jax.Array, jax.Array, None]:
        """Runs the decoder; see `layers.SentenceDecoder`."""
        check_choice("language_at", self.language_at, ("memory", "input"))
        rows = padded_vocab_size(self.vocab_size, self.vocab_multiple)
        embed = TokenEmbedding(
            rows, self.width, self.pad_id, self.init_stddev, self.dtype, name="embed"
        )
        init = nn.initializers.normal(self.init_stddev)
        states = embed(previous)
        languages = self.param(
            "language_embedding", init, (self.num_languages, self.language_width)
        )
        vectors = languages[language].astype(self.dtype)
        memory = sentence.astype(self.dtype)
        if self.language_at == "memory":
            memory = jnp.concatenate([memory, vectors], axis=-1)
        else:
            repeated = jnp.broadcast_to(vectors[:, None], (*states.shape[:2], self.language_width))
            project = Dense(self.width, kernel_init=init, dtype=self.dtype, name="input_projection")
            states = project(jnp.concatenate([states, repeated], axis=-1))
        states = Dropout(self.dropout, self.dropout_generator)(states, deterministic)
        length = previous.shape[1]
        causal = np.tril(np.ones((length, length), bool))
        mask = causal[None] & (previous != self.pad_id)[:, None, :]
        for number in range(self.layers):
            layer = TransformerLayer(
                width=self.width,
                heads=self.heads,
                ffn_width=self.ffn_width,
                dropout=self.dropout,
                epsilon=TLASER_EPSILON,
                generator=self.dropout_generator,
                kernel_init=init,
                dtype=self.dtype,
                published_parameters=self.published_parameters,
                name=f"blocks_{number}",
            )
            states = layer(states, mask, deterministic, memory)
        hidden = layer_norm(TLASER_EPSILON, self.dtype, "final_norm")(states)
        output_init = nn.initializers.normal(self.width**-0.5)
        return hidden, self.param("output_embedding", output_init, (rows, self.width)), None
