"""FLOPs of a step, counted from its trace, and peaks of devices.

XLA's own `cost_analysis` counts the body of a loop once: of an LSTM's update it misses a fifth.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.extend import core as jax_core

from xling_jax import products

# Dense peaks of one device in TFLOP/s for products in bfloat16, float16 and float32, from data
# sheets; None where it has no units for them. At JAX's default precision, float32 products are
# computed in bfloat16 on a TPU and in TF32 on NVIDIA GPUs since A100. Products of float16
# are summed in float32, which a Titan does at half its rate.
_PEAKS: dict[str, tuple[float | None, float | None, float]] = {
    "TPU v4": (275, None, 275),
    "TPU v5 lite": (197, None, 197),
    "TPU v5e": (197, None, 197),
    "TPU v5p": (459, None, 459),
    "TPU v5": (459, None, 459),
    "TPU v6 lite": (918, None, 918),
    "A100": (312, 312, 156),
    "H100 PCIe": (756, 756, 378),
    "H100": (989, 989, 495),
    "H200": (989, 989, 495),
    "L4": (121, 121, 60),
    "Tesla T4": (None, 65, 8.1),
    "Tesla V100-SXM2": (None, 125, 15.7),
    "Tesla V100-PCIE": (None, 112, 14),
    "TITAN RTX": (None, 65, 16.3),
}


def matmul_flops(function: Callable, *arguments: Any) -> int:
    """Floating-point operations of all matrix products in one call, 2 · m · n · k each.

    Nothing runs: the function is traced on arrays or shapes. Loop bodies count once per iteration.
    """
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


class FlopsByShape:
    """FLOPs of the forward and backward pass by batch shape, each traced once.

    The loss is (params, batch, key, train) -> (loss, sums).
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
            # What kernels multiply is not seen, and they multiply some of it twice.
            with products.without_kernels():
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


def peak_flops(device: jax.Device, dtype: str = "float32") -> float:
    """Peak of one device in FLOP/s for products in a dtype, from data sheets; 0 if unknown."""
    column = ("bfloat16", "float16", "float32").index(dtype)
    for name, peaks in _PEAKS.items():
        if re.match(rf"(NVIDIA )?{name}\b", device.device_kind):
            return (peaks[column] or 0) * 1e12
    return 0.0
