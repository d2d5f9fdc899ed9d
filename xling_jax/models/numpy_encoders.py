"""The options of encoder families, and their computation in NumPy: an encoder runs without JAX.

The Linen module of a family adds the options of training, which do not change vectors, and computes
the same, up to rounding. Encoders without layers are in `numpy_static`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from xling_jax.models.numpy_layers import (
    ACTIVATIONS,
    POOLINGS,
    Packed,
    Params,
    dense,
    layer_norm,
    lstm_layer,
    padded_vocab_size,
    pool_packed,
    time_major,
    transformer_layer,
)
from xling_jax.registry import check_choice

TLASER_EPSILON = 1e-5  # of the layer norms
DUAL_EPSILON = 1e-12  # in float32

Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass
class TokenOptions:
    """Options that the encoders with a token table share.

    Token ids are below `vocab_size`; the table is padded to a multiple of `vocab_multiple`. For the
    pooling, and `attention_hops` and `attention_width` of `self_attention`, see
    `layers.SentencePooling`; `width` is that of a layer's output.
    """

    vocab_size: int
    width: int = 512
    layers: int = 1
    pooling: str = "mean"
    attention_hops: int = 1
    attention_width: int = 128
    pad_id: int = 1
    vocab_multiple: int = 128

    poolings: ClassVar[tuple[str, ...]] = (*POOLINGS, "self_attention")

    def __post_init__(self):
        check_choice("pooling", self.pooling, self.poolings)

    @property
    def dim(self) -> int:
        """Embedding size."""
        return self.width * (self.attention_hops if self.pooling == "self_attention" else 1)

    @property
    def rows(self) -> int:
        """Rows of the token table."""
        return padded_vocab_size(self.vocab_size, self.vocab_multiple)


@dataclasses.dataclass
class TransformerOptions(TokenOptions):
    """Options of encoders with transformer layers; see also `TokenOptions`."""

    heads: int = 8
    ffn_width: int = 1024

    def __post_init__(self):
        super().__post_init__()
        if self.layers and self.width % self.heads:
            raise ValueError(f"heads={self.heads} must divide width={self.width}")


@dataclasses.dataclass
class TLaserOptions(TransformerOptions):
    """Options of T-LASER encoders, by default as published; see also `TransformerOptions`."""

    width: int = 1024
    layers: int = 6
    heads: int = 16
    ffn_width: int = 4096
    pooling: str = "first"

    specials = (("bos",), ("eos",))
    norm: ClassVar[str] = "pre"
    last_norm: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if self.width % 2:
            raise ValueError(f"width={self.width} must be even: half are sines, half are cosines")


@dataclasses.dataclass
class FairseqOptions(TLaserOptions):
    """Options of encoders trained in fairseq, LASER3 and SONAR's; see also `TLaserOptions`.

    `norm` is where layers have it, `last_norm` whether there is one after the last layer, and
    `specials` name the special tokens before and after a sentence.
    """

    norm: str = "post"
    last_norm: bool = True
    specials: Sequence[Sequence[str]] = (("bos",), ("eos",))

    def __post_init__(self):
        # A config.json holds lists; a module must be hashable, and is frozen by what follows.
        self.specials = tuple(map(tuple, self.specials))
        check_choice("encoder.norm", self.norm, ("post", "pre"))
        super().__post_init__()


@dataclasses.dataclass
class DualOptions(TransformerOptions):
    """Options of lightweight dual encoders.

    Attributes (see also `TransformerOptions`):
        norm: `post` as published, or `pre`.
        max_length_tokens: rows of the position table; longer input is an error.
        pooling: `mean` over real tokens as published, `first`, `max` or `self_attention`; or
            `weighted_mean`, 1/n Σ_t a(w_t) x_t, with a learned weight a(w) for each token.
    """

    layers: int = 2
    norm: str = "post"
    max_length_tokens: int = 200
    pad_id: int = 0

    specials = ((), ())
    poolings = (*TokenOptions.poolings, "weighted_mean")

    def __post_init__(self):
        super().__post_init__()
        check_choice("encoder.norm", self.norm, ("post", "pre"))


@dataclasses.dataclass
class LaserOptions(TokenOptions):
    """Options of LSTM encoders.

    Attributes (see also `TokenOptions`):
        width: D, of a layer's output; half of it for each direction of a bidirectional layer.
        unidirectional_layers: the last layers, which read forward only.
        pooling: `max` as published, `mean`, or `self_attention`.
        published_parameters: two bias vectors per gate, see `lstm.LstmLayer`.
    """

    embedding_width: int = 512
    width: int = 1024
    unidirectional_layers: int = 0
    pooling: str = "max"
    published_parameters: bool = False

    specials = ((), ("eos",))

    def __post_init__(self):
        super().__post_init__()
        if self.pooling == "first":
            raise ValueError(
                "pooling='first' sees little but the first token of an LSTM; "
                "use 'max', 'mean' or 'self_attention'"
            )
        if not 0 <= self.unidirectional_layers <= self.layers:
            raise ValueError(
                f"unidirectional_layers={self.unidirectional_layers} must be between 0 and the "
                f"{self.layers} layers"
            )
        if self.layers > self.unidirectional_layers and self.width % 2:
            raise ValueError(f"width={self.width} must be even; each direction has half of it")


@dataclasses.dataclass
class PublishedOptions:
    """Options that published transformers share.

    Attributes:
        layers: depth; with `layers=0` the embeddings are pooled.
        max_length_tokens: longest input; longer input is an error.
        pool_specials: mean and max count the special tokens around the text; always True.
        projections: dense layers on the pooled vector, each (width, activation, use_bias).
        normalize: whether vectors are scaled to length 1.
    """

    vocab_size: int
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn_width: int = 3072
    activation: str = "gelu"
    max_length_tokens: int = 512
    pooling: str = "mean"
    pool_specials: bool = True
    projections: Sequence[tuple[int, str, bool]] = ()
    normalize: bool = False
    pad_id: int = 0

    def __post_init__(self):
        # A config.json holds lists; a module must be hashable.
        self.projections = tuple(map(tuple, self.projections))
        check_choice("encoder.pool_specials", self.pool_specials, (True,))
        check_choice("encoder.pooling", self.pooling, POOLINGS)
        check_choice("activation", self.activation, ACTIVATIONS)
        for _, activation, _ in self.projections:
            check_choice("activation", activation, ACTIVATIONS)

    @property
    def dim(self) -> int:
        """Size of the sentence vector."""
        return self.projections[-1][0] if self.projections else self.width


@dataclasses.dataclass
class BertOptions(PublishedOptions):
    """Options of BERT and its relatives.

    Attributes (see also `PublishedOptions`):
        unplaced_id: of a token that has no position and is not counted in those of others, as
            padding that is written out in a text is in RoBERTa; None for no such token.
    """

    layer_norm_epsilon: float = 1e-12
    unplaced_id: int | None = None

    specials = (("bos",), ("eos",))

    def __post_init__(self):
        super().__post_init__()
        if self.width % self.heads:
            raise ValueError(f"encoder.heads={self.heads} must divide encoder.width={self.width}")


class NumpyEncoder:
    """Computes vectors; a base of classes that are the options of a family too.

    `threads` can compute a batch together, with `batch_tokens` for each: enough rows for the matrix
    products.
    """

    threads: ClassVar[int] = 1
    batch_tokens: ClassVar[int] = 1024

    @property
    def parameters(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> shape and dtype of the parameters of the Linen module."""
        return {name: (shape, "float32") for name, shape in self._shapes().items()}

    def encode(self, params: Params, packed: Packed) -> np.ndarray:
        """Encodes sentences, special tokens included: [sentences, dim] float32.

        The result may be in the memory of `packed`, which the next sentences overwrite. ValueError
        if a sentence is longer than a table of positions.
        """
        raise NotImplementedError

    def of_nothing(self, params: Params) -> np.ndarray:
        """The vector of a sentence without tokens, [dim] float32."""
        return np.zeros(self.dim, np.float32)

    def _shapes(self) -> Shapes:
        raise NotImplementedError

    def _pooling_shapes(self) -> Shapes:
        if self.pooling != "self_attention":
            return {}
        return {
            "pooled/inner/kernel": (self.width, self.attention_width),
            "pooled/scores/kernel": (self.attention_width, self.attention_hops),
        }

    def _pool(self, params: Params, packed: Packed, states: np.ndarray) -> np.ndarray:
        if self.pooling == "first" and self.layers:
            return states
        return pool_packed(packed, states, self.pooling, params.get("pooled", {}))

    def _run_layers(
        self, params: Params, packed: Packed, states: np.ndarray, **options: Any
    ) -> np.ndarray:
        for number in range(self.layers):
            # Exact, and all that `first` needs of the last layer.
            first_only = self.pooling == "first" and number == self.layers - 1
            options |= {"heads": self.heads, "first_only": first_only}
            states = transformer_layer(packed, states, params[f"blocks_{number}"], **options)
        return states


class _NumpyTransformer(TransformerOptions, NumpyEncoder):
    """Transformer layers over a token table."""

    def _layer_shapes(self) -> Shapes:
        width, ffn_width = self.width, self.ffn_width
        shapes = {}
        for number in range(self.layers):
            block = f"blocks_{number}"
            for name in ("attention_norm", "ffn_norm"):
                shapes |= norm_shapes(f"{block}/{name}", width)
            for name in ("query", "key", "value", "output"):
                shapes |= dense_shapes(f"{block}/attention/{name}", width, width)
            shapes |= dense_shapes(f"{block}/ffn/inner", width, ffn_width)
            shapes |= dense_shapes(f"{block}/ffn/outer", ffn_width, width)
        return shapes


class NumpyTLaser(TLaserOptions, _NumpyTransformer):
    """Computes what `tlaser.TLaserEncoder` does."""

    def _shapes(self) -> Shapes:
        return {
            "embed/embedding": (self.rows, self.width),
            **self._layer_shapes(),
            **(norm_shapes("final_norm", self.width) if self.last_norm else {}),
            **self._pooling_shapes(),
        }

    def encode(self, params: Params, packed: Packed) -> np.ndarray:
        states = params["embed"]["embedding"][packed.tokens] * np.float32(np.sqrt(self.width))
        # Of few lengths, so that tables are made rarely.
        length = -(-int(packed.lengths[0]) // 128) * 128
        table = sinusoidal_positions(length, self.width, self.pad_id + 1)
        states += table[packed.positions]
        states = self._run_layers(
            params, packed, states, activation="relu", norm=self.norm, epsilon=TLASER_EPSILON
        )
        if self.last_norm:
            states = layer_norm(states, params["final_norm"], TLASER_EPSILON)
        return self._pool(params, packed, states)


class NumpyFairseq(FairseqOptions, NumpyTLaser):
    """Computes what `fairseq.FairseqEncoder` does."""


class NumpyDual(DualOptions, _NumpyTransformer):
    """Computes what `dual.DualEncoder` does."""

    def _shapes(self) -> Shapes:
        shapes = {"embedding": (self.rows, self.width)}
        if self.pooling == "weighted_mean":
            shapes["token_weight"] = (self.rows,)
        if self.layers:
            shapes["position_embedding"] = (self.max_length_tokens + 1, self.width)
            if self.norm == "post":
                shapes |= norm_shapes("embedding_norm", self.width)
        return shapes | self._layer_shapes() | self._pooling_shapes()

    def encode(self, params: Params, packed: Packed) -> np.ndarray:
        states = params["embedding"][packed.tokens]
        if self.layers:
            check_length(packed.lengths[0], self.max_length_tokens)
            # Row 0 is the published code's position of padding.
            states += params["position_embedding"][1 + packed.positions]
            if self.norm == "post":
                states = layer_norm(states, params["embedding_norm"], DUAL_EPSILON)
            states = self._run_layers(
                params, packed, states, activation="swish", norm=self.norm, epsilon=DUAL_EPSILON
            )
        if self.pooling != "weighted_mean":
            return self._pool(params, packed, states)
        states = states * params["token_weight"][packed.tokens][:, None]
        return pool_packed(packed, states, "mean", {})


class NumpyLaser(LaserOptions, NumpyEncoder):
    """Computes what `laser.LaserEncoder` does."""

    # Every step reads the whole recurrent matrix, so many sentences should share it.
    batch_tokens = 4096

    @property
    def threads(self) -> int:
        """One for each direction, unless some layers have only one."""
        return 1 if self.unidirectional_layers else 2

    def _shapes(self) -> Shapes:
        shapes, inputs = {"embedding": (self.rows, self.embedding_width)}, self.embedding_width
        for number in range(self.layers):
            directions = 1 if number >= self.layers - self.unidirectional_layers else 2
            width, name = self.width // directions, f"layers_{number}"
            shapes[f"{name}/input_kernel"] = (directions, inputs, 4 * width)
            shapes[f"{name}/recurrent_kernel"] = (directions, width, 4 * width)
            for bias in ("bias", "recurrent_bias")[: 1 + self.published_parameters]:
                shapes[f"{name}/{bias}"] = (directions, 4 * width)
            inputs = self.width
        return shapes | self._pooling_shapes()

    def encode(self, params: Params, packed: Packed) -> np.ndarray:
        order = time_major(packed)
        states = params["embedding"][packed.tokens[order]]
        for number in range(self.layers):
            # Of the layer before, while it is read, and of this one.
            outputs = packed.empty(("even", "odd")[number % 2], len(states), self.width)
            states = lstm_layer(packed, states, params[f"layers_{number}"], outputs)
        by_sentence = np.empty_like(states)
        by_sentence[order] = states
        return self._pool(params, packed, by_sentence)


class NumpyBert(BertOptions, NumpyEncoder):
    """Computes what `bert.BertEncoder` does."""

    def _shapes(self) -> Shapes:
        width, ffn_width = self.width, self.ffn_width
        shapes = {
            "embedding": (self.vocab_size, width),
            "position_embedding": (self.max_length_tokens, width),
            **norm_shapes("embedding_norm", width),
        }
        for number in range(self.layers):
            block = f"blocks_{number}"
            shapes |= dense_shapes(f"{block}/attention_input", width, 3 * width)
            shapes |= dense_shapes(f"{block}/attention_output", width, width)
            shapes |= dense_shapes(f"{block}/ffn_inner", width, ffn_width)
            shapes |= dense_shapes(f"{block}/ffn_outer", ffn_width, width)
            for name in ("attention_norm", "ffn_norm"):
                shapes |= norm_shapes(f"{block}/{name}", width)
        for number, (outputs, _, use_bias) in enumerate(self.projections):
            shapes |= dense_shapes(f"projections_{number}", width, outputs, use_bias)
            width = outputs
        return shapes

    def encode(self, params: Params, packed: Packed) -> np.ndarray:
        check_length(packed.lengths[0], self.max_length_tokens)
        states = params["embedding"][packed.tokens]
        positions, is_unplaced = packed.positions, packed.tokens == self.unplaced_id
        if has_unplaced := bool(np.any(is_unplaced)):
            before = np.cumsum(is_unplaced) - is_unplaced
            positions = positions - before + np.repeat(before[packed.starts], packed.lengths)
        states += params["position_embedding"][positions]
        if has_unplaced:
            states[is_unplaced] = params["embedding"][self.unplaced_id]
        states = layer_norm(states, params["embedding_norm"], self.layer_norm_epsilon)
        states = self._run_layers(
            params,
            packed,
            states,
            activation=self.activation,
            norm="post",
            epsilon=self.layer_norm_epsilon,
        )
        return self._project(params, self._pool(params, packed, states))

    def of_nothing(self, params: Params) -> np.ndarray:
        return self._project(params, np.zeros((1, self.width), np.float32))[0]

    def _project(self, params: Params, vectors: np.ndarray) -> np.ndarray:
        """[sentences, width] -> [sentences, dim]."""
        for number, (_, activation, _) in enumerate(self.projections):
            vectors = dense(vectors, params[f"projections_{number}"], activation)
        if self.normalize:
            squares = np.einsum("sw,sw->s", vectors, vectors)
            vectors = vectors / np.sqrt(np.maximum(squares, np.float32(1e-24)))[:, None]
        return vectors


# Families whose encoders NumPy can run.
NUMPY_ENCODERS = {
    "tlaser": NumpyTLaser,
    "dual": NumpyDual,
    "laser": NumpyLaser,
    "bert": NumpyBert,
    "fairseq": NumpyFairseq,
}


@functools.lru_cache(maxsize=8)
def sinusoidal_positions(length: int, width: int, first: int) -> np.ndarray:
    """Sinusoidal position vectors [length, width] in fairseq's layout: all sines, then all cosines.

    Row t is position p = first + t, with pad_id + 1 as `first` in fairseq; ω_i = 10000^(−i / (width
    / 2 − 1)).
    """
    half = width // 2
    frequencies = np.exp(np.arange(half) * -(np.log(10000.0) / (half - 1)))
    angles = (first + np.arange(length))[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def check_length(length: Any, longest: int) -> None:
    """Raises ValueError if sentences of a length, in tokens, exceed a table of positions."""
    if length > longest:
        raise ValueError(
            f"tokens have length {length}; encoder.max_length_tokens={longest} is the longest"
        )


def dense_shapes(name: str, inputs: int, outputs: int, use_bias: bool = True) -> Shapes:
    shapes = {f"{name}/kernel": (inputs, outputs)}
    return shapes | {f"{name}/bias": (outputs,)} if use_bias else shapes


def norm_shapes(name: str, width: int) -> Shapes:
    return {f"{name}/{part}": (width,) for part in ("scale", "bias")}
