r"""Kernels for NVIDIA GPUs: attention of short sentences and layer norm, each one pass over memory.

XLA computes either in several kernels, which write what lies between them to memory and read it
again: with 32 tokens to a sentence, attention took 4.7 times and a layer norm 2.6 times as long
(docs/h200.md). The kernels are written in Pallas and compiled by Triton. JAX has announced to
remove that compiler; without it, and on every other device, XLA computes both.

`products.kernels_for` says where they are used. Where there is no GPU they run in Pallas's
interpreter, which is slow and for tests.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.typing import DTypeLike

# Longest sentences: scores of a head are held in registers.
LONGEST = 64
# A program's share of a layer norm: rows held at a time, and threads in groups of 32.
_ROWS, _NORM_WARPS = 4, 4
_ATTENTION_WARPS = 2
# Programs of the gradient of a layer norm, each with sums of its own for scale and bias.
_PROGRAMS = 1024
_MASKED = -1e9  # as in `layers.Attention`


def _power_of_two(number: int) -> int:
    """The smallest power of two from `number`; 16 at least, as a tensor core multiplies."""
    return max(16, 1 << (number - 1).bit_length())


def _call(kernel: Any, warps: int, **options: Any) -> Any:
    interpret = jax.default_backend() != "gpu"
    params = None if interpret else triton.CompilerParams(num_warps=warps, num_stages=1)
    return pl.pallas_call(kernel, compiler_params=params, interpret=interpret, **options)


def _inside(shape: tuple[int, ...], *limits: int) -> jax.Array:
    """[shape] bool: whether an element's index is below the limit of each axis."""
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
    of_scores = weights * (of_weights - (weights * of_weights).sum(1, keepdims=True)) * scale
    of_scores = jnp.where(allowed, of_scores, 0).astype(query.dtype)
    _store(of_query, _product(of_scores, key, (1, 0)), num_queries, width)
    _store(of_key, _product(of_scores, query, (0, 0)), num_keys, width)


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
    sizes = {"num_queries": num_queries, "num_keys": num_keys, "scale": 1 / math.sqrt(head_width)}
    return _call(
        functools.partial(kernel, **sizes),
        _ATTENTION_WARPS,
        grid=(batch, heads),
        in_specs=[queries, keys, keys, masks] + [queries] * len(gradient),
        out_specs=[queries, keys, keys][: len(outputs)],
        out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in outputs],
    )(query, key, value, mask.astype(jnp.int8), *gradient)


def fits_attention(query: jax.Array, key: jax.Array, heads: int) -> bool:
    """Whether `attention` takes these: sentences up to `LONGEST`, heads 16, 32, 64 or 128 wide."""
    longest = max(query.shape[1], key.shape[1])
    return longest <= LONGEST and query.shape[2] // heads in (16, 32, 64, 128)


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
        mask: bool, broadcastable to [batch, queries, keys].
        heads: see `fits_attention`.
    """
    return _call_attention(_attention_kernel, heads, query, key, value, mask)[0]


def _attention_backward(heads: int, saved: tuple[jax.Array, ...], gradient: jax.Array) -> tuple:
    return *_call_attention(_attention_gradient_kernel, heads, *saved, gradient), None


attention.defvjp(
    lambda query, key, value, mask, heads: (
        attention(query, key, value, mask, heads),
        (query, key, value, mask),
    ),
    _attention_backward,
)


@jax.custom_vjp
def relu(inputs: jax.Array) -> jax.Array:
    """max(x, 0), whose gradient looks at the result instead of x.

    So nothing else needs x, and cuBLAS computes product, bias and ReLU in one kernel.
    """
    return jnp.maximum(inputs, 0)


def _relu_forward(inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    outputs = relu(inputs)
    return outputs, outputs


relu.defvjp(_relu_forward, lambda outputs, gradient: (jnp.where(outputs > 0, gradient, 0),))


def _normalize(inputs: jax.Array, width: int, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """(x − mean) / √(variance + ε) of rows that zeros pad beyond `width`, and 1 / √(…)."""
    centered = inputs - inputs.sum(1, keepdims=True) / width
    centered = jnp.where(_inside(inputs.shape, inputs.shape[0], width), centered, 0)
    inverse = jax.lax.rsqrt((centered * centered).sum(1, keepdims=True) / width + epsilon)
    return centered * inverse, inverse


def _norm_kernel(inputs, scale, bias, outputs, *, num_rows, width, epsilon):
    left = num_rows - pl.program_id(0) * _ROWS
    normed, _ = _normalize(_load(inputs, left, width).astype(jnp.float32), width, epsilon)
    result = normed * _load(scale, width)[None] + _load(bias, width)[None]
    _store(outputs, result, left, width)


def _norm_gradient_kernel(
    inputs, scale, gradient, of_inputs, of_scale, of_bias, *, num_rows, width, epsilon
):
    scale = _load(scale, width)
    first = pl.program_id(0) * inputs.shape[0]

    def add(step: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rows, left = pl.ds(step * _ROWS, _ROWS), num_rows - first - step * _ROWS
        of_outputs = _load(gradient.at[rows, :], left, width).astype(jnp.float32)
        block = _load(inputs.at[rows, :], left, width).astype(jnp.float32)
        normed, inverse = _normalize(block, width, epsilon)
        of_normed = of_outputs * scale[None]
        mean = of_normed.sum(1, keepdims=True) / width
        along = (of_normed * normed).sum(1, keepdims=True) / width
        _store(of_inputs.at[rows, :], inverse * (of_normed - mean - normed * along), left, width)
        return sums[0] + (of_outputs * normed).sum(0), sums[1] + of_outputs.sum(0)

    none = jnp.zeros(scale.shape, jnp.float32)
    sums = jax.lax.fori_loop(0, inputs.shape[0] // _ROWS, add, (none, none))
    for ref, total in zip((of_scale, of_bias), sums, strict=True):
        _store(ref, total, width)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def layer_norm(
    inputs: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float, dtype: DTypeLike
) -> jax.Array:
    """Layer norm over the last axis, computed in float32: s · (x − mean) / √(variance + ε) + b.

    Args:
        inputs: [..., width].
        scale: [width] float32, s.
        bias: [width] float32, b.
        epsilon: ε.
        dtype: of the result.
    """
    width = inputs.shape[-1]
    rows = inputs.reshape(-1, width)
    block, vector = _blocks(_ROWS, width)
    outputs = _call(
        functools.partial(_norm_kernel, num_rows=len(rows), width=width, epsilon=epsilon),
        _NORM_WARPS,
        grid=(pl.cdiv(len(rows), _ROWS),),
        in_specs=[block, vector, vector],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(rows.shape, dtype),
    )(rows, scale, bias)
    return outputs.reshape(inputs.shape)


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
    width = inputs.shape[-1]
    rows = inputs.reshape(-1, width)
    share = pl.cdiv(pl.cdiv(len(rows), _ROWS), _PROGRAMS) * _ROWS
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
    return of_inputs.reshape(inputs.shape), of_scale.sum(0), of_bias.sum(0)


layer_norm.defvjp(
    lambda inputs, scale, bias, epsilon, dtype: (
        layer_norm(inputs, scale, bias, epsilon, dtype),
        (inputs, scale),
    ),
    _norm_backward,
)
