"""LASER (Schwenk and Douze 2017; Artetxe and Schwenk 2019) and the similarity-loss model's LSTMs.

Encoder: LSTM layers over [w_1 .. w_n, </s>], mostly bidirectional, pooled over tokens. Decoder: one
LSTM layer that sees the source only through the sentence vector. The published variants are
options; the defaults reproduce the parameter counts of Li and Mak (2020), LASER_1 and LASER_6. The
LSTM of Yu, Li and Oguz (2018) is made of the same modules with other options.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xling_jax.models.layers import Dense, Dropout, SentenceDecoder, TokenEncoder, pad_row_zero
from xling_jax.models.lstm import LstmLayer, halve_sigmoid_gates, recurrence, uniform_init
from xling_jax.models.numpy_encoders import LaserOptions
from xling_jax.models.numpy_layers import padded_vocab_size
from xling_jax.products import project
from xling_jax.registry import check_choice


class LaserEncoder(LaserOptions, TokenEncoder):
    """Tokens to sentence vectors by stacked LSTMs.

    Attributes (see also `LaserOptions` and `layers.TokenEncoder`):
        dropout: on token vectors, between layers, and on the last layer's output before pooling.
        init_scale: all parameters start as U(−init_scale, init_scale).
    """

    init_scale: float = 0.1

    training_only = ("dropout", "init_scale", "remat")

    def setup(self):
        bidirectional_layers = self.layers - self.unidirectional_layers
        init = uniform_init(self.init_scale)
        self.embedding = self.make_table(init, self.embedding_width)
        layer = nn.remat(LstmLayer) if self.remat else LstmLayer
        self.stack = [
            layer(
                self.width // 2 if number < bidirectional_layers else self.width,
                number < bidirectional_layers,
                self.init_scale,
                self.published_parameters,
                self.dtype,
                name=f"layers_{number}",
            )
            for number in range(self.layers)
        ]
        self.drop = Dropout(self.dropout, self.dropout_generator)
        self.pooled = self.make_pooling(init)

    def __call__(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """Encodes sentences [w_1 .. w_n, </s>]."""
        tokens = tokens.T  # time-major from here
        mask = tokens != self.pad_id
        states = jnp.take(self.embedding, tokens, axis=0).astype(self.dtype)
        states = self.drop(states, deterministic)
        for layer in self.stack:
            states = self.drop(layer(states, mask), deterministic)
        pooled = self.pooled(jnp.swapaxes(states, 0, 1), mask.T)
        return pooled.astype(jnp.float32)


class LaserDecoder(SentenceDecoder):
    """Sentence vector and language to the hidden states of a translation, by one LSTM.

    A step reads [token; sentence; language; previous output]. Only the previous output and state
    are in the recurrence; everything else is projected beforehand.

    Attributes (see also `layers.SentenceDecoder`):
        embedding_width: of a token vector.
        output_width: of a linear bottleneck between hidden state and vocabulary; 0 for none.
        dropout: on token vectors, on outputs (also as fed back), and after the bottleneck.
        input_feeding: whether a step reads the previous output.
        initial_state: `projected`: h and c from one linear map D -> 2 · width, equal to two maps
            D -> width; `sentence`: h is the sentence vector, c is 0.
        language_at: `every_step` (a vector of `language_width` at each step, initialized as
            N(0, 1)) or `first_token` (the first input is a token that names the language, instead
            of </s>).
        published_parameters: two bias vectors per gate.
        init_scale: as in the encoder.
    """

    embedding_width: int = 512
    width: int = 2048
    output_width: int = 0
    input_feeding: bool = True
    initial_state: str = "projected"
    language_at: str = "every_step"
    init_scale: float = 0.1

    @nn.compact
    def __call__(
        self,
        sentence: jax.Array,
        language: jax.Array,
        previous: jax.Array,
        deterministic: bool = True,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Runs the decoder; see `layers.SentenceDecoder`."""
        check_choice("language_at", self.language_at, ("every_step", "first_token"))
        check_choice("initial_state", self.initial_state, ("projected", "sentence"))
        if self.initial_state == "sentence" and self.sentence_width != self.width:
            raise ValueError(
                f"initial_state='sentence' needs a decoder as wide as the sentence vector; "
                f"found width={self.width} and a vector of {self.sentence_width}"
            )
        init = uniform_init(self.init_scale)
        drop = Dropout(self.dropout, self.dropout_generator)
        rows = padded_vocab_size(self.vocab_size, self.vocab_multiple)
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

        dense = lambda width, name: Dense(
            width, kernel_init=init, bias_init=init, dtype=self.dtype, name=name
        )
        constant = self._project(sentence, "sentence", bias=True)
        if at_every_step:
            constant += self._project(languages.astype(self.dtype), "language")
        projected = self._project(tokens, "token")
        hidden, cell = sentence, jnp.zeros_like(sentence)
        if self.initial_state == "projected":
            both = dense(2 * self.width, "initial_state_projection")(sentence)
            hidden, cell = jnp.split(both, 2, -1)
        states = drop_mask = None
        if self.dropout and not deterministic:
            ones = jnp.ones((*previous.T.shape, self.width), self.dtype)
            drop_mask = drop(ones, deterministic)
        states = self._recur(projected, constant, hidden, cell, drop_mask)
        hidden = jnp.swapaxes(states if drop_mask is None else states * drop_mask, 0, 1)
        if self.output_width:
            hidden = drop(dense(self.output_width, "bottleneck")(hidden), deterministic)
        output_width = self.output_width or self.width
        return (
            hidden,
            self.param("output_embedding", init, (rows, output_width)),
            self.param("output_bias", init, (rows,)),
        )

    def _project(self, inputs: jax.Array, name: str, bias: bool = False) -> jax.Array:
        """The contribution of `inputs` to the gates, [..., 4 · width]."""
        init = uniform_init(self.init_scale)
        kernel = self.param(f"{name}_kernel", init, (inputs.shape[-1], 4 * self.width))
        projected = project(inputs, halve_sigmoid_gates(kernel).astype(self.dtype))
        if bias:
            offset = self.param("bias", init, (4 * self.width,))
            if self.published_parameters:
                offset = offset + self.param("recurrent_bias", init, (4 * self.width,))
            projected += halve_sigmoid_gates(offset).astype(self.dtype)
        return projected

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
                # The output is the state, so both matrices act as their sum. The first step has no
                # previous output.
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
