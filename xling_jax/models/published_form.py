"""What the forms of published transformers share: pooling, and the layers on the pooled vector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xling_jax.models.forms import Form, Shapes, dense_shapes, norm_shapes
from xling_jax.models.packed import ACTIVATIONS, POOLINGS, Packed, Params, dense, layer_norm, pool
from xling_jax.registry import check_choice

# In place of an activation: a norm on the pooled vector, with PyTorch's epsilon.
LAYER_NORM, NORM_EPSILON = "layer_norm", 1e-5


class PublishedForm(Form):
    """A form with these attributes, which are fields of its subclasses.

    Attributes:
        width: of the states.
        activation: of the layers.
        pooling: `first`, `mean`, `max` or `last`.
        pool_specials: whether mean and max count the special tokens around the text.
        projections: dense layers on the pooled vector, each (width, activation, use_bias), or
            norms, with `LAYER_NORM` in place of the activation.
        normalize: whether vectors are scaled to length 1.
    """

    width: int
    activation: str
    pooling: str
    pool_specials: bool
    projections: Sequence[tuple[int, str, bool]]
    normalize: bool

    def __post_init__(self):
        # A config.json holds lists.
        object.__setattr__(self, "projections", tuple(map(tuple, self.projections)))
        check_choice("encoder.pooling", self.pooling, POOLINGS)
        check_choice("activation", self.activation, ACTIVATIONS)
        for _, activation, _ in self.projections:
            check_choice("activation", activation, (*ACTIVATIONS, LAYER_NORM))

    @property
    def dim(self) -> int:
        """Size of the sentence vector."""
        return self.projections[-1][0] if self.projections else self.width

    def of_nothing(self, params: Params) -> np.ndarray:
        """See `forms.Form.of_nothing`."""
        return self._project(params, np.zeros((1, self.width), np.float32))[0]

    def _projection_shapes(self) -> Shapes:
        shapes, width = {}, self.width
        for number, (outputs, activation, use_bias) in enumerate(self.projections):
            name = f"projections_{number}"
            if activation == LAYER_NORM:
                shapes |= norm_shapes(name, width)
                continue
            shapes |= dense_shapes(name, width, outputs, use_bias)
            width = outputs
        return shapes

    def _pool(self, packed: Packed, states: np.ndarray) -> np.ndarray:
        """[tokens, width] -> [sentences, width]."""
        if self.pool_specials or self.pooling in ("first", "last"):
            return pool(packed, states, self.pooling, {})
        before, after = map(len, self.specials)
        lengths = np.maximum(packed.lengths - before - after, 0)
        ends = np.repeat(packed.lengths, packed.lengths) - after
        is_text = (packed.positions >= before) & (packed.positions < ends)
        some = np.count_nonzero(lengths)  # the longest come first
        pooled = np.zeros((len(lengths), self.width), np.float32)
        text = Packed(packed.tokens[is_text], lengths[:some])
        pooled[:some] = pool(text, states[is_text], self.pooling, {})
        return pooled

    def _project(self, params: Params, vectors: np.ndarray) -> np.ndarray:
        """[sentences, width] -> [sentences, dim]."""
        for number, (_, activation, _) in enumerate(self.projections):
            of_layer = params[f"projections_{number}"]
            if activation == LAYER_NORM:
                vectors = layer_norm(vectors, of_layer, NORM_EPSILON)
            else:
                vectors = dense(vectors, of_layer, activation)
        if self.normalize:
            squares = np.einsum("sw,sw->s", vectors, vectors)
            vectors = vectors / np.sqrt(np.maximum(squares, np.float32(1e-24)))[:, None]
        return vectors
