"""Slopes by central differences, and the shapes of what a program computes."""

import numpy as np


def slope(function, array, step=1e-6):
    """The gradient of a function of one array, by central differences in float64."""
    gradient = np.zeros(array.shape)
    for index in np.ndindex(array.shape):
        change = np.zeros(array.shape)
        change[index] = step
        gradient[index] = (function(array + change) - function(array - change)) / (2 * step)
    return gradient


def shapes_in(jaxpr):
    """Shapes of everything a program computes, its inner programs included."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from shapes_in(inner)
