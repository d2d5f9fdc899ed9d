"""The options of `bert.BertEncoder`, and its computation in NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from xling_jax.models.numpy_encoders import (
    NumpyEncoder,
    Shapes,
    check_length,
    dense_shapes,
    norm_shapes,
)
from xling_jax.models.numpy_layers import (
    ACTIVATIONS,
    POOLINGS,
    Packed,
    Params,
    dense,
    layer_norm,
    pool_packed,
    transformer_layer,
)
from xling_jax.registry import check_choice


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
            before = np.cumsum(is_unplaced)
            positions = positions - before + np.repeat(before[packed.starts], packed.lengths)
        states += params["position_embedding"][positions]
        if has_unplaced:
            states[is_unplaced] = params["embedding"][self.unplaced_id]
        states = layer_norm(states, params["embedding_norm"], self.layer_norm_epsilon)
        for number in range(self.layers):
            first_only = self.pooling == "first" and number == self.layers - 1
            states = transformer_layer(
                packed,
                states,
                params[f"blocks_{number}"],
                heads=self.heads,
                activation=self.activation,
                norm="post",
                epsilon=self.layer_norm_epsilon,
                first_only=first_only,
            )
        if not (self.pooling == "first" and self.layers):
            states = pool_packed(packed, states, self.pooling, {})
        return self._project(params, states)

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
