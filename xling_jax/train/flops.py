"""FLOPs of a step, counted from its trace.

XLA's own `cost_analysis` counts the body of a loop once: of an LSTM's update it misses a fifth.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.extend import core as jax_core

from xling_jax import products


def matmul_flops(function: Callable, *arguments: Any) -> int:
    """Floating-point operations of all matrix products in one call, 2 · m · n · k each.

    Nothing runs: the function is traced on arrays or shapes. Loop bodies count once per iteration.
    """
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


def gradient_flops(loss_fn: Callable, params: Any, batch: Mapping[str, Any]) -> int:
    """FLOPs of the forward and backward pass of a loss on a batch of arrays or shapes.

    The loss is (params, batch, key, train) -> (loss, sums).
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    # What kernels multiply is not seen, and they multiply some of it twice.
    with products.without_kernels():
        gradient = jax.grad(lambda params, batch, key: loss_fn(params, batch, key, True)[0])
        return matmul_flops(gradient, params, batch, key)


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
