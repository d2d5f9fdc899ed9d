"""Slopes by differences, the softmax in float64, and the shapes of what a program computes."""

import numpy as np


def slope(function, array, step=1e-6):
    """The gradient of a function of one array, by central differences in float64."""
    gradient = np.zeros(array.shape)
    for index in np.ndindex(array.shape):
        change = np.zeros(array.shape)
        change[index] = step
        gradient[index] = (function(array + change) - function(array - change)) / (2 * step)
    return gradient


def softmax_cross_entropy(hidden, table, bias, target, weights, vocab_size):
    """log p, and gradients of -Σ weights target log p by hidden, table and bias, in float64."""
    hidden, real = hidden.astype(np.float64), table[:vocab_size].astype(np.float64)
    logits = hidden @ real.T + bias[:vocab_size].astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    slope = weights[..., None] * (target.sum(-1, keepdims=True) * np.exp(log_p) - target)
    gradients = [slope @ real, np.zeros(table.shape), np.zeros(len(table))]
    flat = slope.reshape(-1, vocab_size)
    gradients[1][:vocab_size] = flat.T @ hidden.reshape(len(flat), -1)
    gradients[2][:vocab_size] = flat.sum(0)
    return log_p, gradients


def shapes_in(jaxpr):
    """Shapes of everything a program computes, its inner programs included."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from shapes_in(inner)
