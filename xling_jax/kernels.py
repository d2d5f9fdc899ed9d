r"""Kernels for NVIDIA GPUs: attention of short sentences, layer norm, softmax of a vocabulary.

XLA computes each of these in several kernels, which write what lies between them to memory and read
it again: with 32 tokens to a sentence, attention took 4.7 times and a layer norm 2.6 times as long
(lab/gpu/h200.md). The kernels are written in Pallas and compiled by Triton. JAX has announced the
removal of that compiler; without it, and on every other device, XLA computes all three.

`products.kernels_for` says where they are used. On several devices each computes its own rows of a
batch (`sharding.by_device`); the softmax is part of what `losses.fused_softmax` splits. Where there
is no GPU they run in Pallas's interpreter, which is slow and for tests.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.typing import DTypeLike

from xling_jax.sharding import by_device

# The longest sentences of attention, and the most elements of a head: a program keeps all of them
# in registers and shared memory, of which some cards have 99 KB.
LONGEST, _HEAD_ELEMENTS = 64, 4096
# What a program of a layer norm holds at a time, and its threads in groups of 32.
_ELEMENTS, _NORM_WARPS = 4096, 4
# Programs of the gradient of a layer norm, each with sums of its own for scale and bias.
_PROGRAMS = 1024
_MASKED = -1e9  # as in `layers.Attention`


def _power_of_two(number: int) -> int:
    """The smallest power of two from `number`; 16 at least, as a tensor core multiplies."""
    return max(16, 1 << (number - 1).bit_length())


def interpreted() -> bool:
    """True if kernels run in Pallas's interpreter."""
    return jax.default_backend() != "gpu"


def _call(kernel: Any, warps: int, **options: Any) -> Any:
    interpret = interpreted()
    params = None if interpret else triton.CompilerParams(num_warps=warps, num_stages=1)
    return pl.pallas_call(kernel, compiler_params=params, interpret=interpret, **options)


def _inside(shape: tuple[int, ...], *limits: int) -> jax.Array:
    """[shape] bool: True if an element's index is below the limit of each axis."""
    axes = range(len(shape))
    inside = [jax.lax.broadcasted_iota(jnp.int32, shape, axis) < limits[axis] for axis in axes]
    return functools.reduce(jnp.logical_and, inside)


def _load(ref: Any, *limits: int) -> jax.Array:
    """A block, with zeros from the limits on."""
    return triton.load(ref, mask=_inside(ref.shape, *limits), other=0)


def _store(ref: Any, values: jax.Array, *limits: int) -> None:
    triton.store(ref, values.astype(ref.dtype), mask=_inside(ref.shape, *limits))


def _product(left: jax.Array, right: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Sums over an axis of each; float32."""
    dimensions = (((axes[0],), (axes[1],)), ((), ()))
    return jax.lax.dot_general(left, right, dimensions, preferred_element_type=jnp.float32)


def _weights(
    query: jax.Array, key: jax.Array, mask: Any, num_queries: int, num_keys: int, scale: float
) -> tuple[jax.Array, jax.Array]:
    """Attention weights of a head [queries, keys] float32, and where the mask is True."""
    allowed = _load(mask, num_queries, num_keys) != 0
    scores = jnp.where(allowed, _product(query, key, (1, 1)) * scale, _MASKED)
    # What pads the block, unlike what is masked, gets no weight in a row without any True.
    scores = jnp.where(_inside(scores.shape, scores.shape[0], num_keys), scores, -jnp.inf)
    exponentials = jnp.exp(scores - scores.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True), allowed


def _attention_kernel(query, key, value, mask, attended, *, num_queries, num_keys, scale):
    width = query.shape[1]
    value = _load(value, num_keys, width)
    blocks = _load(query, num_queries, width), _load(key, num_keys, width)
    weights, _ = _weights(*blocks, mask, num_queries, num_keys, scale)
    result = _product(weights.astype(value.dtype), value, (1, 0))
    _store(attended, result, num_queries, width)


def _attention_gradient_kernel(
    query, key, value, mask, gradient, of_query, of_key, of_value, *, num_queries, num_keys, scale
):
    width = query.shape[1]
    query, gradient = (_load(block, num_queries, width) for block in (query, gradient))
    key, value = (_load(block, num_keys, width) for block in (key, value))
    weights, allowed = _weights(query, key, mask, num_queries, num_keys, scale)
    result = _product(weights.astype(gradient.dtype), gradient, (0, 0))
    _store(of_value, result, num_keys, width)
    of_weights = _product(gradient, value, (1, 1))
    of_scores = weights * (of_weights - (weights * of_weights).sum(1, keepdims=True))
    of_scores = jnp.where(allowed, of_scores, 0).astype(query.dtype)
    _store(of_query, _product(of_scores, key, (1, 0)) * scale, num_queries, width)
    _store(of_key, _product(of_scores, query, (0, 0)) * scale, num_keys, width)


def _call_attention(kernel, heads, query, key, value, mask, *gradient):
    """A program for each sentence and head."""
    (batch, num_queries, width), num_keys = query.shape, key.shape[1]
    head_width = width // heads
    queries, keys = (
        pl.BlockSpec((None, _power_of_two(length), head_width), lambda row, head: (row, 0, head))
        for length in (num_queries, num_keys)
    )
    mask_rows = 1 if mask.shape[1] == 1 else _power_of_two(num_queries)
    own_mask = mask.shape[0] > 1
    masks = pl.BlockSpec(
        (None, mask_rows, _power_of_two(num_keys)), lambda row, head: (row * own_mask, 0, 0)
    )
    outputs = (query, key, value) if gradient else (query,)
    elements = _power_of_two(max(num_queries, num_keys)) * head_width
    sizes = {"num_queries": num_queries, "num_keys": num_keys, "scale": 1 / math.sqrt(head_width)}
    return _call(
        functools.partial(kernel, **sizes),
        min(8, max(2, elements // 1024)),
        grid=(batch, heads),
        in_specs=[queries, keys, keys, masks] + [queries] * len(gradient),
        out_specs=[queries, keys, keys][: len(outputs)],
        out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in outputs],
    )(query, key, value, mask.astype(jnp.int8), *gradient)


def fits_attention(query: jax.Array, key: jax.Array, heads: int) -> bool:
    """True if `attention` takes these.

    Sentences up to `LONGEST` tokens and heads 16, 32 or 64 wide; 128 up to 32 tokens.
    """
    longest, width = max(query.shape[1], key.shape[1]), query.shape[2] // heads
    if longest > LONGEST or width not in (16, 32, 64, 128):
        return False
    return _power_of_two(longest) * width <= _HEAD_ELEMENTS


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def attention(
    query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array, heads: int
) -> jax.Array:
    """softmax(Q Kᵀ / √head_width) V for each head, [batch, queries, width]; see `layers.Attention`.

    The gradient computes the weights again and keeps only its arguments.

    Args:
        query: [batch, queries, width] bfloat16 or float16.
        key: [batch, keys, width], of the same dtype.
        value: [batch, keys, width], of the same dtype.
        mask: [batch or 1, queries or 1, keys] bool.
        heads: see `fits_attention`.
    """
    return _attend(_attention_kernel, heads, query, key, value, mask)[0]


def _attend(kernel: Any, heads: int, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    call = functools.partial(_call_attention, kernel, heads)
    return by_device(call, *arrays, whole=(3,) if arrays[3].shape[0] == 1 else ())


def _attention_backward(heads: int, saved: tuple[jax.Array, ...], gradient: jax.Array) -> tuple:
    return *_attend(_attention_gradient_kernel, heads, *saved, gradient), None


attention.defvjp(
    lambda query, key, value, mask, heads: (
        attention(query, key, value, mask, heads),
        (query, key, value, mask),
    ),
    _attention_backward,
)


def _normalize(inputs: jax.Array, width: int, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """(x − mean) / √(variance + ε) of rows that zeros pad beyond `width`, and 1 / √(…)."""
    centered = inputs - inputs.sum(1, keepdims=True) / width
    centered = jnp.where(_inside(inputs.shape, inputs.shape[0], width), centered, 0)
    inverse = jax.lax.rsqrt((centered * centered).sum(1, keepdims=True) / width + epsilon)
    return centered * inverse, inverse


def _norm_kernel(inputs, scale, bias, outputs, *, num_rows, width, epsilon):
    left = num_rows - pl.program_id(0) * inputs.shape[0]
    normed, _ = _normalize(_load(inputs, left, width).astype(jnp.float32), width, epsilon)
    result = normed * _load(scale, width)[None] + _load(bias, width)[None]
    _store(outputs, result, left, width)


def _norm_gradient_kernel(
    inputs, scale, gradient, of_inputs, of_scale, of_bias, *, num_rows, width, epsilon
):
    scale = _load(scale, width)
    held, first = _rows_held(width), pl.program_id(0) * inputs.shape[0]

    def add(step: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rows, left = pl.ds(step * held, held), num_rows - first - step * held
        of_outputs = _load(gradient.at[rows, :], left, width).astype(jnp.float32)
        block = _load(inputs.at[rows, :], left, width).astype(jnp.float32)
        normed, inverse = _normalize(block, width, epsilon)
        of_normed = of_outputs * scale[None]
        mean = of_normed.sum(1, keepdims=True) / width
        along = (of_normed * normed).sum(1, keepdims=True) / width
        _store(of_inputs.at[rows, :], inverse * (of_normed - mean - normed * along), left, width)
        return sums[0] + (of_outputs * normed).sum(0), sums[1] + of_outputs.sum(0)

    none = jnp.zeros(scale.shape, jnp.float32)
    sums = jax.lax.fori_loop(0, inputs.shape[0] // held, add, (none, none))
    for ref, total in zip((of_scale, of_bias), sums, strict=True):
        _store(ref, total, width)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def layer_norm(
    inputs: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float, dtype: DTypeLike
) -> jax.Array:
    """Layer norm over the last axis, computed in float32: s · (x − mean) / √(variance + ε) + b.

    Inputs are [..., width], scale and bias [width] float32; `dtype` is that of the result.
    """
    norm = functools.partial(_norm, epsilon=epsilon, dtype=dtype)
    return by_device(norm, inputs, scale, bias, whole=(1, 2))


def _norm(
    inputs: jax.Array, scale: jax.Array, bias: jax.Array, *, epsilon: float, dtype: DTypeLike
) -> jax.Array:
    width = inputs.shape[-1]
    rows = inputs.reshape(-1, width)
    held = _rows_held(width)
    block, vector = _blocks(held, width)
    outputs = _call(
        functools.partial(_norm_kernel, num_rows=len(rows), width=width, epsilon=epsilon),
        _NORM_WARPS,
        grid=(pl.cdiv(len(rows), held),),
        in_specs=[block, vector, vector],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(rows.shape, dtype),
    )(rows, scale, bias)
    return outputs.reshape(inputs.shape)


def _rows_held(width: int) -> int:
    return max(1, _ELEMENTS // _power_of_two(width))


def _blocks(num_rows: int, width: int) -> tuple[Any, Any]:
    """Blocks of rows, one after the other, and a vector that all share."""
    width = _power_of_two(width)
    return (
        pl.BlockSpec((num_rows, width), lambda number: (number, 0)),
        pl.BlockSpec((width,), lambda number: (0,)),
    )


def _norm_backward(
    epsilon: float, dtype: DTypeLike, saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    inputs, scale = saved
    call = functools.partial(_norm_gradient, epsilon=epsilon)
    of_inputs, of_scale, of_bias = by_device(call, inputs, gradient, scale, whole=(2,))
    return of_inputs, of_scale.sum(0), of_bias.sum(0)


def _norm_gradient(
    inputs: jax.Array, gradient: jax.Array, scale: jax.Array, *, epsilon: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The gradient by the inputs, and by scale and bias those of programs, [programs, width]."""
    width = inputs.shape[-1]
    rows = inputs.reshape(-1, width)
    held = _rows_held(width)
    share = pl.cdiv(len(rows), held * _PROGRAMS) * held
    programs = pl.cdiv(len(rows), share)
    block, vector = _blocks(share, width)
    own = pl.BlockSpec((None, _power_of_two(width)), lambda number: (number, 0))
    sums = jax.ShapeDtypeStruct((programs, width), jnp.float32)
    of_inputs, of_scale, of_bias = _call(
        functools.partial(_norm_gradient_kernel, num_rows=len(rows), width=width, epsilon=epsilon),
        _NORM_WARPS,
        grid=(programs,),
        in_specs=[block, vector, block],
        out_specs=[block, own, own],
        out_shape=[jax.ShapeDtypeStruct(rows.shape, inputs.dtype), sums, sums],
    )(rows, scale, gradient.reshape(rows.shape))
    return of_inputs.reshape(inputs.shape), of_scale, of_bias


layer_norm.defvjp(
    lambda inputs, scale, bias, epsilon, dtype: (
        layer_norm(inputs, scale, bias, epsilon, dtype),
        (inputs, scale),
    ),
    _norm_backward,
)


# Logits that a program reads at a time, and as how many loads, which do not wait for one another.
_LOGITS, _LOADS, _LOGITS_WARPS = 1024, 4, 4


def _softmax_kernel(
    *refs: Any, has_bias: bool, vocab_size: int, num_rows: int, smoothing: float
) -> None:
    logits, bias, *refs = refs if has_bias else (refs[0], None, *refs[1:])
    labels, weights, gradient, log_normalizer, label_logit, mean_logit = refs
    label, weight = labels[...], weights[...]
    groups = pl.cdiv(num_rows, _LOGITS * _LOADS)

    def read(group: jax.Array) -> list[tuple[Any, jax.Array, jax.Array]]:
        """Blocks of the logits, their ids, and themselves in float32, −∞ beyond the vocabulary."""
        loads = []
        for number in range(_LOADS):
            block = pl.ds((group * _LOADS + number) * _LOGITS, _LOGITS)
            ids = block.start + jax.lax.broadcasted_iota(jnp.int32, (_LOGITS,), 0)
            real = ids < vocab_size
            loaded = triton.load(logits.at[block], mask=real, other=-jnp.inf).astype(jnp.float32)
            if has_bias:
                loaded += triton.load(bias.at[block], mask=real, other=0)
            loads.append((block, ids, loaded))
        return loads

    def add(group: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        largest, total, plain = sums
        loads = [loaded for _, _, loaded in read(group)]
        new = functools.reduce(jnp.maximum, loads, largest)
        total = total * jnp.exp(largest - new)
        for loaded in loads:
            total += jnp.exp(loaded - new)
            plain += jnp.where(loaded == -jnp.inf, 0, loaded)
        return new, total, plain

    # Each lane has a maximum and sums of its own, which are joined at the end.
    none = jnp.zeros((_LOGITS,), jnp.float32)
    lowest = jnp.full((_LOGITS,), jnp.finfo(jnp.float32).min)
    of_lanes, totals, plain = jax.lax.fori_loop(0, groups, add, (lowest, none, none))
    largest = of_lanes.max()
    normalizer = largest + jnp.log((totals * jnp.exp(of_lanes - largest)).sum())
    log_normalizer[...] = normalizer
    mean_logit[...] = plain.sum() / vocab_size

    def write(group: jax.Array, at_label: jax.Array) -> jax.Array:
        for block, ids, loaded in read(group):
            target = jnp.where(ids == label, 1 - smoothing, 0) + smoothing / vocab_size
            values = weight * (
                jnp.exp(loaded - normalizer) - jnp.where(ids < vocab_size, target, 0)
            )
            triton.store(gradient.at[block], values.astype(gradient.dtype), mask=ids < num_rows)
            at_label += jnp.where(ids == label, loaded, 0)
        return at_label

    label_logit[...] = jax.lax.fori_loop(0, groups, write, none).sum()


def softmax_gradient(
    logits: jax.Array,
    bias: jax.Array | None,
    labels: jax.Array,
    weights: jax.Array,
    *,
    vocab_size: int,
    smoothing: float,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The gradient of a label-smoothed cross-entropy by its logits, and what its value takes.

    Reads the logits twice and writes the gradient in their place. With the ε and V of
    `losses.translation.translation_loss`, weight · (p − (1 − ε) [v = label] − ε / V).

    Args:
        logits: [tokens, rows].
        bias: [rows] float32 to add to each, or None.
        labels: [tokens] int32.
        weights: [tokens] float32.
        vocab_size: V; rows from there on are padding, and their gradient is 0.
        smoothing: ε.

    Returns:
        The gradient, [tokens, rows] in the logits' dtype, and log Σ_v exp(logit_v), the label's
        logit and the mean logit, each [tokens] float32.
    """
    num_tokens, num_rows = logits.shape
    padded = pl.cdiv(num_rows, _LOGITS * _LOADS) * _LOGITS * _LOADS
    row, each = (
        pl.BlockSpec((None, padded), lambda i: (i, 0)),
        pl.BlockSpec((None,), lambda i: (i,)),
    )
    biases = [] if bias is None else [bias]
    number = jax.ShapeDtypeStruct((num_tokens,), jnp.float32)
    sizes = {"vocab_size": vocab_size, "num_rows": num_rows, "smoothing": smoothing}
    return _call(
        functools.partial(_softmax_kernel, has_bias=bool(biases), **sizes),
        _LOGITS_WARPS,
        grid=(num_tokens,),
        in_specs=[row, *(pl.BlockSpec((padded,), lambda i: (0,)) for _ in biases), each, each],
        out_specs=[row, each, each, each],
        out_shape=[jax.ShapeDtypeStruct(logits.shape, logits.dtype), number, number, number],
        input_output_aliases={0: 0},
    )(logits, *biases, labels, weights)


def compile_all() -> None:
    """Compiles every kernel for the default device, or raises what its compiler does."""
    half = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.bfloat16)
    single = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    states, mask = half((2, LONGEST, 128)), jax.ShapeDtypeStruct((2, 1, LONGEST), jnp.bool_)
    vector, labels = single((128,)), jax.ShapeDtypeStruct((2,), jnp.int32)

    def gradients(states, mask, scale, logits, labels, weights):
        def total(states, scale):
            normed = layer_norm(states, scale, scale, 1e-5, jnp.bfloat16)
            heads = states.shape[2] * LONGEST // _HEAD_ELEMENTS
            return attention(normed, normed, normed, mask, heads).astype(jnp.float32).sum()

        sizes = {"vocab_size": 100, "smoothing": 0.1}
        softmax = softmax_gradient(logits, None, labels, weights, **sizes)
        return jax.value_and_grad(total, (0, 1))(states, scale), softmax

    arguments = states, mask, vector, half((2, 128)), labels, single((2,))
    jax.jit(gradients).lower(*arguments).compile()
