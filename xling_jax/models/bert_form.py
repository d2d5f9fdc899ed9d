"""What determines the vectors of `bert.BertEncoder`, and their computation in NumPy."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from xling_jax.models.forms import Form, Shapes, check_length, dense_shapes, norm_shapes
from xling_jax.models.packed import (
    ACTIVATIONS,
    POOLINGS,
    Packed,
    Params,
    Sees,
    attend,
    dense,
    feed_forward,
    layer_norm,
    pool,
)
from xling_jax.registry import check_choice

# MPNet's, whatever the number of rows in a published table: distances below a quarter of the
# buckets have one each, longer ones share them by their logarithm, to this distance.
POSITION_BUCKETS, FARTHEST = 32, 128

# In place of an activation: a norm on the pooled vector, with PyTorch's epsilon.
LAYER_NORM, NORM_EPSILON = "layer_norm", 1e-5


@dataclasses.dataclass(frozen=True)
class BertForm(Form):
    """The form of `bert.BertEncoder`, with its attributes."""

    vocab_size: int
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn_width: int = 3072
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-12
    max_length_tokens: int = 512
    relative_positions: bool = False
    pooling: str = "mean"
    pool_specials: bool = True
    projections: Sequence[tuple[int, str, bool]] = ()
    normalize: bool = False
    pad_id: int = 0

    specials = (("bos",), ("eos",))

    def __post_init__(self):
        # A config.json holds lists.
        object.__setattr__(self, "projections", tuple(map(tuple, self.projections)))
        if self.width % self.heads:
            raise ValueError(f"encoder.heads={self.heads} must divide encoder.width={self.width}")
        check_choice("encoder.pooling", self.pooling, POOLINGS)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_projections(self.projections)

    @property
    def dim(self) -> int:
        """Size of the sentence vector."""
        return self.projections[-1][0] if self.projections else self.width

    def _shapes(self) -> Shapes:
        width, ffn_width = self.width, self.ffn_width
        shapes = {
            "embedding": (self.vocab_size, width),
            "position_embedding": (self.max_length_tokens, width),
            **norm_shapes("embedding_norm", width),
        }
        if self.relative_positions:
            shapes["position_bias"] = (POSITION_BUCKETS, self.heads)
        for number in range(self.layers):
            block = f"blocks_{number}"
            shapes |= dense_shapes(f"{block}/attention_input", width, 3 * width)
            shapes |= dense_shapes(f"{block}/attention_output", width, width)
            shapes |= dense_shapes(f"{block}/ffn_inner", width, ffn_width)
            shapes |= dense_shapes(f"{block}/ffn_outer", ffn_width, width)
            for name in ("attention_norm", "ffn_norm"):
                shapes |= norm_shapes(f"{block}/{name}", width)
        return shapes | projection_shapes(self.projections, width)

    def encode(self, params: Params, packed: Packed) -> np.ndarray:
        """See `forms.Form.encode`."""
        check_length(packed, self.max_length_tokens)
        states = params["embedding"][packed.tokens]
        states += params["position_embedding"][packed.positions]
        states = layer_norm(states, params["embedding_norm"], self.layer_norm_epsilon)
        sees = None
        if self.relative_positions:
            bias = params["position_bias"][_buckets(int(packed.lengths[0]))]
            bias = bias.transpose(2, 0, 1)[:, None]
            sees = lambda some, length: (slice(length), bias[:, :, some, :length])
        for number in range(self.layers):
            first_only = self.pooling == "first" and number == self.layers - 1
            states = self._run_layer(params[f"blocks_{number}"], packed, states, sees, first_only)
        if not (self.pooling == "first" and self.layers):
            states = pool_text(packed, states, self.pooling, self.pool_specials, self.specials)
        return project(states, params, self.projections, self.normalize)

    def of_nothing(self, params: Params) -> np.ndarray:
        """See `forms.Form.of_nothing`."""
        pooled = np.zeros((1, self.width), np.float32)
        return project(pooled, params, self.projections, self.normalize)[0]

    def _run_layer(
        self,
        params: Params,
        packed: Packed,
        states: np.ndarray,
        sees: Sees | None,
        first_only: bool,
    ) -> np.ndarray:
        """`bert.BertLayer`: [tokens, width] -> the same, or [sentences, width] if `first_only`."""
        # One product gives queries, keys and values.
        joined = packed.empty("joined", len(states), 3 * self.width)
        dense(states, params["attention_input"], out=joined)
        query, key, value = np.split(joined, 3, axis=1)
        if first_only:
            states, query = states[packed.starts], query[packed.starts]
        attended = attend(packed, query, key, value, self.heads, sees=sees)
        outputs = packed.empty("attended", *states.shape)
        dense(attended, params["attention_output"], residual=states, out=outputs)
        states = layer_norm(outputs, params["attention_norm"], self.layer_norm_epsilon, out=outputs)
        inner, outer = params["ffn_inner"], params["ffn_outer"]
        outputs = feed_forward(packed, states, inner, self.activation, outer, states)
        return layer_norm(outputs, params["ffn_norm"], self.layer_norm_epsilon, out=outputs)


def pool_text(
    packed: Packed,
    states: np.ndarray,
    pooling: str,
    with_specials: bool,
    specials: Sequence[Sequence[str]],
) -> np.ndarray:
    """`packed.pool`, in which `mean` and `max` may leave out the special tokens around the text.

    Args:
        packed: the sentences.
        states: [tokens, width].
        pooling: `first`, `last`, `mean` or `max`.
        with_specials: whether they count.
        specials: their names before and after a sentence.
    """
    if with_specials or pooling in ("first", "last"):
        return pool(packed, states, pooling, {})
    before, after = map(len, specials)
    lengths = np.maximum(packed.lengths - before - after, 0)
    ends = np.repeat(packed.lengths, packed.lengths) - after
    is_text = (packed.positions >= before) & (packed.positions < ends)
    some = np.count_nonzero(lengths)  # the longest come first
    pooled = np.zeros((len(lengths), states.shape[1]), np.float32)
    text = Packed(packed.tokens[is_text], lengths[:some])
    pooled[:some] = pool(text, states[is_text], pooling, {})
    return pooled


def project(
    vectors: np.ndarray,
    params: Params,
    projections: Sequence[tuple[int, str, bool]],
    normalize: bool,
) -> np.ndarray:
    """`bert.project`: [sentences, width] -> [sentences, width of the last layer]."""
    for number, (_, activation, _) in enumerate(projections):
        of_layer = params[f"projections_{number}"]
        if activation == LAYER_NORM:
            vectors = layer_norm(vectors, of_layer, NORM_EPSILON)
        else:
            vectors = dense(vectors, of_layer, activation)
    if normalize:
        squares = np.einsum("sw,sw->s", vectors, vectors)
        vectors = vectors / np.sqrt(np.maximum(squares, np.float32(1e-24)))[:, None]
    return vectors


def check_projections(projections: Sequence[tuple[int, str, bool]]) -> None:
    """Raises ValueError for an unknown activation."""
    for _, activation, _ in projections:
        check_choice("activation", activation, (*ACTIVATIONS, LAYER_NORM))


def projection_shapes(projections: Sequence[tuple[int, str, bool]], width: int) -> Shapes:
    """Shapes of the layers on pooled vectors of a width."""
    shapes = {}
    for number, (outputs, activation, use_bias) in enumerate(projections):
        name = f"projections_{number}"
        if activation == LAYER_NORM:
            shapes |= norm_shapes(name, width)
            continue
        shapes |= dense_shapes(name, width, outputs, use_bias)
        width = outputs
    return shapes


def position_buckets(distance: np.ndarray) -> np.ndarray:
    """The buckets of keys at these distances from a query, as in T5: half are for keys behind."""
    half = POSITION_BUCKETS // 2
    exact = half // 2
    far = np.maximum(np.abs(distance), exact).astype(np.float32) / exact
    # In float32, as published: the last bits decide at the border of two buckets.
    far = np.log(far) / np.float32(np.log(FARTHEST / exact)) * np.float32(half - exact)
    far = np.minimum(exact + far.astype(np.int64), half - 1)
    near = np.abs(distance)
    return np.where(near < exact, near, far) + half * (distance > 0)


@functools.lru_cache(maxsize=8)
def _buckets(length: int) -> np.ndarray:
    """[length, length]: the bucket of each key for each query."""
    place = np.arange(length)
    return position_buckets(np.clip(place - place[:, None], -FARTHEST, FARTHEST))
