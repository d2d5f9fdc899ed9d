"""FLOPs of a step, counted from its trace, and peaks of devices."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jax_core

# Dense bfloat16 peak of one device in FLOP/s, from data sheets.
_PEAKS = {
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5p": 459e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "Tesla T4": 65e12,
    "NVIDIA L4": 121e12,
}


def matmul_flops(function: Callable, *arguments: Any) -> int:
    """Floating-point operations of all matrix products in one call, 2 · m · n · k each.

    Nothing runs: the function is traced on arrays or shapes. Loop bodies count once per iteration.
    """
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


class FlopsByShape:
    """FLOPs of the forward and backward pass by batch shape, each traced once.

    Args:
        loss_fn: (params, batch, key, train) -> (loss, sums).
        params: arrays or shapes.
    """

    def __init__(self, loss_fn: Callable, params: Any):
        self._gradient = jax.grad(lambda p, b, k: loss_fn(p, b, k, True)[0])
        self._params = params
        self._known: dict[Any, int] = {}

    def __call__(self, batch: Mapping[str, Any]) -> int:
        """FLOPs of the gradient on a batch of arrays or shapes."""
        shape = tuple((name, array.shape) for name, array in batch.items())
        if shape not in self._known:
            key = jax.eval_shape(lambda: jax.random.key(0))
            self._known[shape] = matmul_flops(self._gradient, self._params, batch, key)
        return self._known[shape]


def _count(jaxpr: jax_core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracting, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            contracted = math.prod(left[axis] for axis in contracting)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * contracted
            continue
        repeat = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if isinstance(inner, jax_core.Jaxpr):
                total += repeat * _count(inner)
    return total


def _matmul_rate(size: int = 1536) -> float:
    """FLOP/s of a float32 matrix product on the default device, best of three."""
    matrix = jnp.ones((size, size), jnp.float32) / size
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        product(matrix, matrix).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def peak_flops(device: jax.Device) -> float:
    """Peak of one device in FLOP/s: from data sheets, otherwise its measured matmul rate.

    CPU devices of a process share its cores and so their rate.
    """
    for name, peak in _PEAKS.items():
        if device.device_kind.startswith(name):
            return peak
    rate = _matmul_rate()
    return rate / jax.local_device_count() if device.platform == "cpu" else rate
