"""LASER (Schwenk and Douze 2017; Artetxe and Schwenk 2019) and the similarity-loss model's LSTMs.

Encoder: LSTM layers over [w_1 .. w_n, </s>], mostly in two directions, pooled over tokens. Decoder:
one LSTM layer that sees the source through the sentence vector alone. The published variants are
options; defaults are those that reproduce the parameter counts of Li and Mak (2020), LASER_1 and
LASER_6. The LSTM of Yu, Li and Oguz (2018) is the same modules with other options.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from xling_jax.models.layers import Dropout, SentencePooling, pad_row_zero, padded_vocab_size
from xling_jax.models.lstm import (
    LstmLayer,
    halve_sigmoid_gates,
    project,
    recurrence,
    uniform_init,
)

INITIAL_STATES = ("projected", "sentence")
LANGUAGE_PLACES = ("every_step", "first_token")


class LaserEncoder(nn.Module):
    """Tokens to sentence vectors by stacked LSTMs.

    Attributes:
        vocab_size: ids are below it; `vocab_multiple` pads the table.
        embedding_width: of a token vector.
        width: D, of a layer's output; half of it a direction where there are two.
        layers: all of them; `unidirectional_layers` of them, the last ones, read forward only.
        dropout: on token vectors, between layers, and on the last layer's output before pooling.
        pooling: `max` as published, `mean`, or `self_attention` (see `layers.SentencePooling`).
        attention_hops, attention_width: of `self_attention`.
        pad_id: id of padding.
        init_scale: everything starts as U(−init_scale, init_scale).
        published_parameters: two bias vectors a gate, see `lstm.LstmLayer`.
        lstm_implementation: `auto`, `scan` or `cudnn`, see `lstm.use_cudnn`.
        remat: recompute layers in the backward pass, for memory.
        dropout_generator: see `layers.Dropout`.
        dtype: of the computation; parameters and the result are float32.
    """

    vocab_size: int
    embedding_width: int = 512
    width: int = 1024
    layers: int = 1
    unidirectional_layers: int = 0
    dropout: float = 0.1
    pooling: str = "max"
    attention_hops: int = 1
    attention_width: int = 128
    pad_id: int = 1
    vocab_multiple: int = 128
    init_scale: float = 0.1
    published_parameters: bool = False
    lstm_implementation: str = "auto"
    remat: bool = False
    dropout_generator: str = "threefry"
    dtype: DTypeLike = jnp.float32

    specials = ((), ("eos",))
    training_only = ("dropout", "init_scale", "lstm_implementation", "remat")

    @property
    def dim(self) -> int:
        """Size of the sentence vector."""
        return self.width * (self.attention_hops if self.pooling == "self_attention" else 1)

    def setup(self):
        if self.pooling == "first":
            raise ValueError(
                "pooling='first' of an LSTM is a vector of its first token; "
                "use 'max', 'mean' or 'self_attention'"
            )
        if not 0 <= self.unidirectional_layers <= self.layers:
            raise ValueError(
                f"unidirectional_layers={self.unidirectional_layers} must be between 0 and the "
                f"{self.layers} layers"
            )
        bidirectional_layers = self.layers - self.unidirectional_layers
        if bidirectional_layers and self.width % 2:
            raise ValueError(f"width={self.width} must be even: each direction has half of it")
        init = uniform_init(self.init_scale)
        rows = padded_vocab_size(self.vocab_size, self.vocab_multiple)
        self.embedding = self.param(
            "embedding", pad_row_zero(init, self.pad_id), (rows, self.embedding_width)
        )
        layer = nn.remat(LstmLayer) if self.remat else LstmLayer
        self.stack = [
            layer(
                self.width // 2 if number < bidirectional_layers else self.width,
                number < bidirectional_layers,
                self.init_scale,
                self.published_parameters,
                self.lstm_implementation,
                self.dtype,
                name=f"layers_{number}",
            )
            for number in range(self.layers)
        ]
        self.drop = Dropout(self.dropout, self.dropout_generator)
        self.pooled = SentencePooling(
            self.pooling, self.attention_hops, self.attention_width, init, self.dtype
        )

    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences.

        Args:
            tokens: [batch, length] int32, [w_1 .. w_n, </s>], padded on the right.
            deterministic: no dropout; otherwise a `dropout` PRNG is needed.

        Returns:
            [batch, dim] float32; zeros for a row of padding alone.
        """
        tokens = tokens.T  # time-major from here
        mask = tokens != self.pad_id
        states = jnp.take(self.embedding, tokens, axis=0).astype(self.dtype)
        states = self.drop(states, deterministic)
        for layer in self.stack:
            states = self.drop(layer(states, mask), deterministic)
        pooled = self.pooled(jnp.swapaxes(states, 0, 1), mask.T)
        return pooled.astype(jnp.float32)

    def table(self) -> jax.Array:
        """The token table, for a decoder that shares it."""
        return self.embedding


class LaserDecoder(nn.Module):
    """Sentence vector and language to the hidden states of a translation, by one LSTM.

    A step reads [token; sentence; language; previous output]. Only the previous output and state
    are in the recurrence: the rest is projected beforehand, the sentence and language once.

    Attributes:
        vocab_size, vocab_multiple, pad_id, init_scale: as in the encoder.
        num_languages: rows of the language table.
        sentence_width: of the sentence vector.
        embedding_width: of a token vector.
        width: of the hidden state.
        output_width: of a linear bottleneck between hidden state and vocabulary; 0 for none.
        dropout: on token vectors, on outputs (those fed back too), and behind the bottleneck.
        input_feeding: the previous output is read again.
        initial_state: `projected`: h and c from one linear map D -> 2 · width, which is the same
            as the two maps D -> width of other implementations; `sentence`: h is the sentence
            vector itself, c is 0.
        language_at: `every_step` (a vector of `language_width` at each step) or `first_token` (the
            first input is a token that names the language, in place of </s>).
        language_width: of a language vector; N(0, 1) at the start.
        share_embeddings: the input table is the encoder's; the output table never is.
        published_parameters: two bias vectors a gate.
        dropout_generator, dtype: as in the encoder.
    """

    vocab_size: int
    num_languages: int
    sentence_width: int = 1024
    embedding_width: int = 512
    width: int = 2048
    output_width: int = 0
    dropout: float = 0.1
    input_feeding: bool = True
    initial_state: str = "projected"
    language_at: str = "every_step"
    language_width: int = 32
    share_embeddings: bool = False
    published_parameters: bool = False
    init_scale: float = 0.1
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
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Runs the decoder on shifted targets.

        Args:
            sentence: [batch, sentence_width] float32.
            language: [batch] int32, target language.
            previous: [batch, length] int32, decoder inputs.
            table: [rows, embedding_width], the encoder's, where embeddings are shared.
            deterministic: no dropout.

        Returns:
            hidden: [batch, length, output width] in dtype; logits are
                hidden · output_tableᵀ + output_bias.
            output_table: [rows, output width] float32.
            output_bias: [rows] float32.
        """
        self._check(table)
        init = uniform_init(self.init_scale)
        drop = Dropout(self.dropout, self.dropout_generator)
        rows = padded_vocab_size(self.vocab_size, self.vocab_multiple)
        if not self.share_embeddings:
            table = self.param(
                "embedding", pad_row_zero(init, self.pad_id), (rows, self.embedding_width)
            )
        at_every_step = self.language_at == "every_step"
        languages = self.param(
            "language_embedding",
            nn.initializers.normal(1.0) if at_every_step else init,
            (self.num_languages, self.language_width if at_every_step else self.embedding_width),
        )[language]
        sentence = sentence.astype(self.dtype)
        tokens = jnp.take(table, previous.T, axis=0)  # time-major from here
        if not at_every_step:
            tokens = tokens.at[0].set(languages)
        tokens = drop(tokens.astype(self.dtype), deterministic)

        dense = lambda name, bias=False, width=4 * self.width: nn.Dense(
            width, use_bias=bias, kernel_init=init, bias_init=init, dtype=self.dtype, name=name
        )
        constant = self._project(sentence, "sentence", bias=True)
        if at_every_step:
            constant += self._project(languages.astype(self.dtype), "language")
        projected = self._project(tokens, "token")
        hidden, cell = self._initial_state(sentence, dense)
        states = drop_mask = None
        if self.dropout and not deterministic:
            ones = jnp.ones((*previous.T.shape, self.width), self.dtype)
            drop_mask = drop(ones, deterministic)
        states = self._recur(projected, constant, hidden, cell, drop_mask)
        hidden = jnp.swapaxes(states if drop_mask is None else states * drop_mask, 0, 1)
        if self.output_width:
            hidden = drop(dense("bottleneck", True, self.output_width)(hidden), deterministic)
        output_width = self.output_width or self.width
        return (
            hidden,
            self.param("output_embedding", init, (rows, output_width)),
            self.param("output_bias", init, (rows,)),
        )

    def _check(self, table: jax.Array | None) -> None:
        if self.language_at not in LANGUAGE_PLACES:
            raise ValueError(
                f"language_at={self.language_at!r} must be one of {', '.join(LANGUAGE_PLACES)}"
            )
        if self.initial_state not in INITIAL_STATES:
            raise ValueError(
                f"initial_state={self.initial_state!r} must be one of {', '.join(INITIAL_STATES)}"
            )
        if self.initial_state == "sentence" and self.sentence_width != self.width:
            raise ValueError(
                f"initial_state='sentence' needs a decoder as wide as the sentence vector; "
                f"found width={self.width} and a vector of {self.sentence_width}"
            )
        if self.share_embeddings and (table is None or table.shape[1] != self.embedding_width):
            found = "none" if table is None else f"one of width {table.shape[1]}"
            raise ValueError(
                f"share_embeddings=True needs an encoder with a token table of width "
                f"{self.embedding_width}; found {found}"
            )

    def _project(self, inputs: jax.Array, name: str, bias: bool = False) -> jax.Array:
        """What `inputs` add to the gates, [..., 4 · width]."""
        init = uniform_init(self.init_scale)
        kernel = self.param(f"{name}_kernel", init, (inputs.shape[-1], 4 * self.width))
        projected = project(inputs, halve_sigmoid_gates(kernel).astype(self.dtype))
        if bias:
            offset = self.param("bias", init, (4 * self.width,))
            if self.published_parameters:
                offset = offset + self.param("recurrent_bias", init, (4 * self.width,))
            projected += halve_sigmoid_gates(offset).astype(self.dtype)
        return projected

    def _initial_state(self, sentence: jax.Array, dense) -> tuple[jax.Array, jax.Array]:
        """H and c before the first step, [batch, width]."""
        if self.initial_state == "sentence":
            return sentence, jnp.zeros_like(sentence)
        both = dense("initial_state_projection", True, 2 * self.width)(sentence)
        return jnp.split(both, 2, -1)

    def _recur(self, projected, constant, hidden, cell, drop_mask) -> jax.Array:
        """States [length, batch, width] from [length, batch, 4 · width] and [batch, 4 · width]."""
        init = uniform_init(self.init_scale)
        kernel = self.param("recurrent_kernel", init, (self.width, 4 * self.width))
        kernel = halve_sigmoid_gates(kernel)
        feed_kernel = feed_mask = None
        if self.input_feeding:
            feed_kernel = halve_sigmoid_gates(
                self.param("feed_kernel", init, (self.width, 4 * self.width))
            )
            if drop_mask is None:
                # The output is the state, so both matrices act as their sum; but the first step
                # is fed nothing.
                unfed = (hidden @ feed_kernel.astype(self.dtype)).astype(projected.dtype)
                projected = projected.at[0].add(-unfed)
                kernel, feed_kernel = kernel + feed_kernel, None
            else:
                feed_mask = jnp.concatenate([jnp.zeros_like(drop_mask[:1]), drop_mask[:-1]])[
                    :, None
                ]
                feed_kernel = feed_kernel.astype(self.dtype)[None]
        (states,) = recurrence(
            (projected,),
            constant[None],
            None,
            kernel.astype(self.dtype)[None],
            feed_kernel,
            feed_mask,
            hidden[None],
            cell[None],
        )
        return states
