"""Transformers with rotary positions in NumPy: the form of `rotary.RotaryEncoder`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from xling_jax.models.forms import (
    Shapes,
    check_length,
    dense_shapes,
    norm_shapes,
    rows_of_positions,
)
from xling_jax.models.packed import (
    Packed,
    Params,
    attend,
    dense,
    gated,
    layer_norm,
    rms_norm,
    rotate,
)
from xling_jax.models.published_form import PublishedForm
from xling_jax.options import check_number
from xling_jax.registry import check_choice

# Kind of scaling -> how many numbers follow it.
ROPE_SCALINGS = {"linear": 1, "llama3": 4, "yarn": 5}


def rope_frequencies(rope: Sequence[Any], head_width: int) -> tuple[np.ndarray, float]:
    """Angles of a rotation per position, ω_i = θ^(−2i / d), i < d / 2, and a factor of the result.

    Equation 15 of Su et al. (2021). Scaled, ω_i ← m_i ω_i + (1 − m_i) ω_i / s: `linear` has m = 0
    (Chen et al. 2023); for `yarn`, m falls from 1 to 0 between the i that turn β_fast and β_slow
    times in the original length, and rotated vectors are multiplied by a factor (Peng et al. 2023,
    section 3.2); for `llama3`, m rises with the number of turns in the original length, from 0 at
    `low` to 1 at `high`.

    Args:
        rope: (θ,), (θ, "linear", s), (θ, "yarn", s, β_fast, β_slow, original length, factor) or
            (θ, "llama3", s, low, high, original length).
        head_width: d, even.

    Returns:
        [head_width / 2] float32, and the factor, 1 except for yarn.

    Raises:
        ValueError: for another `rope`.
    """
    theta, kind, *numbers = *rope, *([None] if len(rope) == 1 else [])
    # The exponents of the original are float32, and so are its frequencies.
    exponents = np.arange(0, head_width, 2, dtype=np.float32) / np.float32(head_width)
    frequencies = 1 / (float(theta) ** exponents.astype(np.float64)).astype(np.float32)
    if kind is None:
        return frequencies, 1.0
    check_choice("encoder.rope", kind, ROPE_SCALINGS)
    if len(numbers) != ROPE_SCALINGS[kind]:
        raise ValueError(
            f"encoder.rope={tuple(rope)}: {kind} takes {ROPE_SCALINGS[kind]} numbers; "
            f"found {len(numbers)}"
        )
    scale, *numbers = numbers
    kept, factor = np.zeros(len(frequencies)), 1.0
    if kind == "yarn":
        *turns, original, factor = numbers
        places = (
            head_width * np.log(original / (2 * np.pi * turn)) / (2 * np.log(theta))
            for turn in turns
        )
        low, high = max(np.floor(next(places)), 0), min(np.ceil(next(places)), head_width - 1)
        high = high + 0.001 if low == high else high
        kept = 1 - np.clip((np.arange(len(frequencies)) - low) / (high - low), 0, 1)
    elif kind == "llama3":
        low, high, original = numbers
        turns = original * frequencies.astype(np.float64) / (2 * np.pi)
        kept = np.clip((turns - low) / (high - low), 0, 1)
    return (frequencies * (kept + (1 - kept) / scale)).astype(np.float32), float(factor)


def rope_table(rope: Sequence[Any], head_width: int, length: int) -> np.ndarray:
    """Cosines and sines of the angles at positions 0, 1, …: [2, length, head_width / 2] float32."""
    frequencies, factor = rope_frequencies(rope, head_width)
    # The original multiplies in float32, too, which counts at high positions.
    angles = (np.arange(length, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    return (factor * np.stack([np.cos(angles), np.sin(angles)])).astype(np.float32)


def _check_rope(rope: Sequence[Any], where: str) -> None:
    """Raises ValueError unless a `rope` is a number, or a number, a name and numbers."""
    kinds = [isinstance(value, str) for value in rope]
    if not all(isinstance(value, (int, float, str)) for value in rope) or kinds not in (
        [False],
        [False, True] + [False] * (len(rope) - 2),
    ):
        raise ValueError(f"{where}={tuple(rope)!r:.100} must be (θ,) or (θ, scaling, numbers …)")


_rope_table = functools.lru_cache(maxsize=8)(rope_table)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotaryForm(PublishedForm):
    """The form of `rotary.RotaryEncoder`, with its attributes."""

    vocab_size: int
    width: int = 768
    layers: int = 22
    heads: int = 12
    ffn_width: int = 1152
    kv_heads: int = 0
    head_width: int = 0
    activation: str = "gelu"
    norm: str = "layer"
    norm_bias: bool = False
    norm_epsilon: float = 1e-5
    norm_placement: str = "pre"
    query_key_norm: bool = False
    attention_bias: bool = False
    ffn_inner_bias: bool = False
    ffn_outer_bias: bool = False
    query_scale: float = 0.0
    causal: bool = False
    window: int = 65
    embedding_scale: float = 1.0
    embedding_norm: bool = True
    final_norm: bool = True
    local_layers: Sequence[int] = ()
    rope: Sequence[Any] = (160000.0,)
    local_rope: Sequence[Any] = (10000.0,)
    max_length_tokens: int = 8192
    pooling: str = "mean"
    pool_specials: bool = True
    projections: Sequence[tuple[int, str, bool]] = ()
    normalize: bool = False
    specials: Sequence[Sequence[str]] = (("bos",), ("eos",))
    pad_id: int = 0

    def __post_init__(self):
        # A config.json holds lists.
        for name in ("local_layers", "rope", "local_rope"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "specials", tuple(map(tuple, self.specials)))
        super().__post_init__()
        check_choice("encoder.norm", self.norm, ("layer", "rms"))
        check_choice("encoder.norm_placement", self.norm_placement, ("pre", "post", "both"))
        for name, least in (("heads", 1), ("window", 1), ("kv_heads", 0), ("head_width", 0)):
            check_number(getattr(self, name), f"encoder.{name}", least)
        if len(self.specials) != 2:
            raise ValueError(
                f"encoder.specials={self.specials} must be the names before and after a sentence"
            )
        if not self.head_width and self.width % self.heads:
            raise ValueError(
                f"encoder.heads={self.heads} must divide encoder.width={self.width}, unless "
                "encoder.head_width is given"
            )
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(
                f"encoder.kv_heads={self.kv_heads} must divide encoder.heads={self.heads}"
            )
        if self.size_of_head % 2:
            raise ValueError(
                f"encoder.head_width={self.size_of_head} must be even, for rotary positions"
            )
        for name in ("rope", "local_rope"):
            _check_rope(getattr(self, name), f"encoder.{name}")
            rope_frequencies(getattr(self, name), self.size_of_head)

    @property
    def size_of_head(self) -> int:
        """Width of the queries, keys and values of a head."""
        return self.head_width or self.width // self.heads

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    def _shapes(self) -> Shapes:
        width, of_head, ffn_width = self.width, self.size_of_head, self.ffn_width
        of_heads, of_groups = self.heads * of_head, self.groups * of_head
        norm = functools.partial(norm_shapes, use_bias=self.norm == "layer" and self.norm_bias)
        shapes = {"embedding": (self.vocab_size, width)}
        for name in ("embedding_norm", "final_norm"):
            shapes |= norm(name, width) if getattr(self, name) else {}
        for number in range(self.layers):
            block = f"blocks_{number}"
            for name, inputs, outputs, use_bias in (
                ("attention_input", width, of_heads + 2 * of_groups, self.attention_bias),
                ("attention_output", of_heads, width, self.attention_bias),
                ("ffn_inner", width, 2 * ffn_width, self.ffn_inner_bias),
                ("ffn_outer", ffn_width, width, self.ffn_outer_bias),
            ):
                shapes |= dense_shapes(f"{block}/{name}", inputs, outputs, use_bias)
            norms = ["ffn_norm"] + ["attention_norm"] * (not self._is_normed(number))
            if self.norm_placement == "both":
                norms += ["attention_output_norm", "ffn_output_norm"]
            for name in norms:
                shapes |= norm(f"{block}/{name}", width)
            for name in ("query_norm", "key_norm") if self.query_key_norm else ():
                shapes |= norm(f"{block}/{name}", of_head)
        return shapes | self._projection_shapes()

    def _is_normed(self, number: int) -> bool:
        """Whether the input of a layer's first block is normalized already."""
        return number == 0 and self.embedding_norm and self.norm_placement != "post"

    def encode(self, params: Params, packed: Packed) -> np.ndarray:
        """See `forms.Form.encode`."""
        check_length(packed, self.max_length_tokens)
        states = params["embedding"][packed.tokens]
        states *= np.float32(self.embedding_scale)
        if self.embedding_norm:
            self._norm(states, params["embedding_norm"], states)
        for number in range(self.layers):
            states = self._run_layer(params[f"blocks_{number}"], packed, states, number)
        if self.final_norm:
            self._norm(states, params["final_norm"], states)
        return self._project(params, self._pool(packed, states))

    def _norm(self, states: np.ndarray, params: Params, out: np.ndarray) -> np.ndarray:
        if self.norm == "rms":
            return rms_norm(states, params, self.norm_epsilon, out=out)
        return layer_norm(states, params, self.norm_epsilon, out=out)

    def _run_layer(
        self, params: Params, packed: Packed, states: np.ndarray, number: int
    ) -> np.ndarray:
        """`rotary.RotaryLayer`: [tokens, width] -> the same, in the memory of `packed`."""
        is_local = number in self.local_layers
        inputs = states
        if self.norm_placement != "post" and not self._is_normed(number):
            normed = packed.empty("normed", *states.shape)
            inputs = self._norm(states, params["attention_norm"], normed)
        attended = self._attend(params, packed, inputs, is_local)
        states = self._add("attention", "attention_output", params, packed, attended, states)
        inputs = states
        if self.norm_placement != "post":
            normed = packed.empty("normed", *states.shape)
            inputs = self._norm(states, params["ffn_norm"], normed)
        hidden = gated(packed, inputs, params["ffn_inner"], self.activation)
        return self._add("ffn", "ffn_outer", params, packed, hidden, states)

    def _add(
        self,
        name: str,
        last: str,
        params: Params,
        packed: Packed,
        inputs: np.ndarray,
        states: np.ndarray,
    ) -> np.ndarray:
        """The last product of a block, added to the block's input, with the norms after it.

        Args:
            name: of the block, `attention` or `ffn`.
            last: of the layer with the product.
            params: of the layer.
            packed: the sentences.
            inputs: of the product, [tokens, any].
            states: the input of the block, [tokens, width].

        Returns:
            [tokens, width], in the memory of `packed`.
        """
        out = packed.empty(f"states after {name}", *states.shape)
        if self.norm_placement == "both":
            dense(inputs, params[last], out=out)
            self._norm(out, params[f"{name}_output_norm"], out)
            out += states
            return out
        dense(inputs, params[last], residual=states, out=out)
        if self.norm_placement == "post":
            self._norm(out, params[f"{name}_norm"], out)
        return out

    def _attend(
        self, params: Params, packed: Packed, inputs: np.ndarray, is_local: bool
    ) -> np.ndarray:
        """[tokens, width] -> [tokens, heads · head_width], before the last product of the block."""
        tokens, of_head, heads = len(inputs), self.size_of_head, self.heads
        ends = np.cumsum([heads, self.groups, self.groups]) * of_head
        joined = packed.empty("joined", tokens, ends[-1])
        dense(inputs, params["attention_input"], out=joined)
        queries, keys, values = np.split(joined, ends[:2], axis=1)
        if self.query_key_norm:
            for name, array in (("query_norm", queries), ("key_norm", keys)):
                by_head = array.reshape(tokens, -1, of_head)
                self._norm(by_head, params[name], by_head)
        rope = self.local_rope if is_local else self.rope
        table = _rope_table(rope, of_head, rows_of_positions(packed))
        # The queries and the keys, which stand before the values.
        rotate(joined[:, : ends[1]].reshape(tokens, -1, of_head), table, packed.positions)
        sees = None
        if self.causal or is_local:
            sees = functools.partial(self._sees, is_local=is_local)
        scale = self.query_scale or None
        return attend(packed, queries, keys, values, heads, self.groups, scale, sees)

    def _sees(self, some: slice, length: int, is_local: bool) -> tuple[slice, np.ndarray]:
        """The range of the keys that some queries see, and what hides others in that range."""
        first, end = 0, some.stop if self.causal else length
        if is_local:
            first = max(0, some.start - self.window + 1)
            end = min(end, some.stop + self.window - 1)
        distance = np.arange(some.start, some.stop)[:, None] - np.arange(first, end)
        hidden = np.zeros(distance.shape, bool)
        if self.causal:
            hidden |= distance < 0
        if is_local:
            hidden |= abs(distance) >= self.window
        return slice(first, end), hidden * np.float32(-1e9)
