"""What determines the vectors of `bert.BertEncoder`, and their computation in NumPy."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from xling_jax.models.forms import Shapes, check_length, dense_shapes, norm_shapes
from xling_jax.models.packed import Packed, Params, Sees, attend, dense, feed_forward, layer_norm
from xling_jax.models.published_form import PublishedForm

# MPNet's, whatever the number of rows in a published table: distances below a quarter of the
# buckets have one each, longer ones share them by their logarithm, to this distance.
POSITION_BUCKETS, FARTHEST = 32, 128


@dataclasses.dataclass(frozen=True)
class BertForm(PublishedForm):
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
        super().__post_init__()
        if self.width % self.heads:
            raise ValueError(f"encoder.heads={self.heads} must divide encoder.width={self.width}")

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
        return shapes | self._projection_shapes()

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
            states = self._pool(packed, states)
        return self._project(params, states)

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
