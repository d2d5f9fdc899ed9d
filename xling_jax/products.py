"""Products and sums in the form that is fastest, or most precise, on the device."""

import contextlib
import contextvars
import functools
import logging
from collections.abc import Iterator
from types import ModuleType

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from xling_jax.sharding import num_devices

_logger = logging.getLogger(__name__)

_WITHOUT_KERNELS = contextvars.ContextVar("without_kernels", default=False)


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Within it, XLA computes everything: `kernels_for` and `attention_implementation` are None.

    For functions that are traced within it; what `jit` has traced before keeps its kernels.
    """
    token = _WITHOUT_KERNELS.set(True)
    try:
        yield
    finally:
        _WITHOUT_KERNELS.reset(token)


def kernels_for(dtype: DTypeLike, rows: int = 0) -> ModuleType | None:
    """`xling_jax.kernels` where computation in `dtype` uses them, else None.

    That is in bfloat16 and float16 on NVIDIA GPUs, Ampere or newer: Triton multiplies float32 in
    TF32 and needs compute capability 8. XLA does not know how to split a kernel over several
    devices: with more than one, the batch must be theirs (`rows_over`) and they must share its
    `rows` evenly.
    """
    if not _in_half_on_ampere(dtype) or not _kernels_compile():
        return None
    if num_devices() != len(jax.devices()) or rows % num_devices():
        return None
    from xling_jax import kernels  # importing Pallas takes 0.1 s

    return kernels


# Sentences up to here have a kernel of their own, heads up to there one of cuDNN.
_SHORT, _WIDEST_HEAD = 64, 128


def attention_implementation(query: jax.Array, key: jax.Array) -> str | None:
    """`cudnn` where its fused attention is the fastest for [batch, length, heads, width], or None.

    That is beyond 64 tokens in bfloat16 and float16 on NVIDIA GPUs, Ampere or newer
    (lab/gpu/h200.md); it never writes the weights [queries, keys] to memory.
    """
    if not _in_half_on_ampere(query.dtype):  # asked first: an exported length is symbolic
        return None
    fits = max(query.shape[1], key.shape[1]) > _SHORT
    fits = fits and query.shape[3] % 8 == 0 and query.shape[3] <= _WIDEST_HEAD
    return "cudnn" if fits else None


def _in_half_on_ampere(dtype: DTypeLike) -> bool:
    elsewhere = jax.config.jax_default_device is not None  # such as a CPU for comparison
    if _WITHOUT_KERNELS.get() or elsewhere or jnp.dtype(dtype).itemsize != 2:
        return False
    return jax.default_backend() == "gpu" and all(
        "NVIDIA" in device.device_kind and float(device.compute_capability) >= 8
        for device in jax.devices()
    )


@functools.cache
def _kernels_compile() -> bool:
    # A version of JAX without Triton, and a card that its compiler does not know, raise any error.
    try:
        from xling_jax import kernels

        kernels.compile_all()
    except Exception as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        message = "%s: the kernels do not compile (%s); XLA computes instead, which is slower"
        _logger.warning(message, jax.devices()[0].device_kind, *reason)
        return False
    _logger.info("attention, layer norms and softmax by kernels for GPUs")
    return True


def kernel_gradient(inputs: jax.Array, gradient: jax.Array) -> jax.Array:
    """Gradient [in, out] of a kernel, float32, from [..., in] and the output's gradient [..., out].

    A product of two matrices: summing over two axes, as autodiff does, makes a CPU transpose the
    larger operand first. XLA's fast product for CPUs (YNNPACK) does not take a transposed first
    operand, so the narrower of the two is transposed in memory (lab/performance). Over several
    devices [batch, length] must stay two axes: merged, they hide which device holds which rows,
    and each device would fetch all of them.
    """
    if jax.device_count() > 1:
        axes = tuple(range(inputs.ndim - 1))
        return jax.lax.dot_general(
            inputs, gradient, ((axes, axes), ((), ())), preferred_element_type=jnp.float32
        )
    rows = lambda array: array.reshape(-1, array.shape[-1])
    product = functools.partial(jnp.matmul, preferred_element_type=jnp.float32)
    if jax.default_backend() != "cpu":
        return product(rows(inputs).T, rows(gradient))
    # XLA recognizes a transposed matrix behind a barrier, and then converts bfloat16 to float32;
    # with a third axis it does not. The barrier around the result keeps a later transpose out of
    # the product, which fails in bfloat16.
    in_memory = jax.lax.optimization_barrier
    columns = lambda array: in_memory(jnp.moveaxis(array, -1, 0)).reshape(array.shape[-1], -1)
    if inputs.shape[-1] <= gradient.shape[-1]:
        return in_memory(product(columns(inputs), rows(gradient)))
    return in_memory(product(columns(gradient), rows(inputs))).T


def _product(left: jax.Array, right: jax.Array, axis: int = 0) -> jax.Array:
    """[..., in] times [in, out], or [out, in] with `axis` 1, in the dtype of the first.

    XLA's fast product for CPUs takes bfloat16 only with a float32 result (lab/performance).
    """
    axes = ((left.ndim - 1,), (axis,)), ((), ())
    dtype = jnp.float32 if jax.default_backend() == "cpu" else None
    return jax.lax.dot_general(left, right, axes, preferred_element_type=dtype).astype(left.dtype)


@jax.custom_vjp
def project(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    """[..., in] · [in, out], with `kernel_gradient` as the kernel's gradient."""
    return _product(inputs, kernel)


def _project_backward(
    saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    inputs, kernel = saved
    of_kernel = kernel_gradient(inputs, gradient).astype(kernel.dtype)
    return _product(gradient, kernel, 1), of_kernel


project.defvjp(lambda *arrays: (_product(*arrays), arrays), _project_backward)


@jax.custom_vjp
def add_bias(outputs: jax.Array, bias: jax.Array) -> jax.Array:
    """[..., out] + [out], in the dtype of the outputs.

    The bias's gradient, a sum over all tokens, is float32; autodiff would sum it in that dtype.
    """
    return outputs + bias.astype(outputs.dtype)


def _add_bias_backward(bias: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    axes = tuple(range(gradient.ndim - 1))
    return gradient, gradient.sum(axes, dtype=jnp.float32).astype(bias.dtype)


add_bias.defvjp(lambda outputs, bias: (add_bias(outputs, bias), bias), _add_bias_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def scores(subscripts: str, queries: jax.Array, keys: jax.Array) -> jax.Array:
    """`einsum` of two arrays of one dtype with a float32 result, for attention.

    Its gradient is rounded to that dtype before it is multiplied. Autodiff would multiply it in
    float32, and convert the arrays to that as well.
    """
    return jnp.einsum(subscripts, queries, keys, preferred_element_type=jnp.float32)


def _scores_backward(
    subscripts: str, saved: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    queries, keys = saved
    gradient = gradient.astype(queries.dtype)
    of_queries = jax.linear_transpose(lambda q: jnp.einsum(subscripts, q, keys), queries)
    of_keys = jax.linear_transpose(lambda k: jnp.einsum(subscripts, queries, k), keys)
    return *of_queries(gradient), *of_keys(gradient)


scores.defvjp(
    lambda subscripts, queries, keys: (scores(subscripts, queries, keys), (queries, keys)),
    _scores_backward,
)
