"""LSTM layers: one large matmul for a layer's inputs, a scan for the recurrence.

The recurrence has its own backward pass: a scan for the gradient of the gates, then the gradients
of the weights as one large matmul over all steps. Differentiating the scan would instead add an
outer product to a weight-sized accumulator at every step.

Sequences are time-major, [length, batch, width]: a scan runs over the first axis.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from xling_jax.models.layers import Initializer
from xling_jax.products import kernel_gradient, project


def uniform_init(scale: float) -> Initializer:
    """U(−scale, scale), fairseq's initialization of LSTM models (with 0.1)."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -scale, scale)

    return init


def halve_sigmoid_gates(array: jax.Array) -> jax.Array:
    """Halves the parts of the gates i, f and o in weights [..., 4 · width]; see `recurrence`."""
    factors = np.repeat(np.array([0.5, 0.5, 1.0, 0.5], np.float32), array.shape[-1] // 4)
    return array * factors


def _cell(preactivations: jax.Array, cell: jax.Array) -> tuple[jax.Array, ...]:
    """New h, c and gates from [batch, 4 · width] and [batch, width], all float32.

    One tanh of everything, then σ(z) = (1 + tanh(z / 2)) / 2 for i, f and o.
    """
    input_gate, forget_gate, candidate, output_gate = jnp.split(jnp.tanh(preactivations), 4, -1)
    input_gate, forget_gate, output_gate = (
        0.5 * gate + 0.5 for gate in (input_gate, forget_gate, output_gate)
    )
    cell = forget_gate * cell + input_gate * candidate
    gates = jnp.concatenate([input_gate, forget_gate, candidate, output_gate], -1)
    return output_gate * jnp.tanh(cell), cell, gates


def _cell_backward(hidden_gradient, cell_gradient, gates, cell, cell_before):
    """Gradients of the preactivations and of the previous cell, for one direction."""
    input_gate, forget_gate, candidate, output_gate = jnp.split(gates.astype(jnp.float32), 4, -1)
    squashed = jnp.tanh(cell)
    cell_gradient += hidden_gradient * output_gate * (1 - squashed**2)
    # Twice: the derivative of σ(2 z') with respect to the halved z' is 2 σ (1 − σ).
    of_gate = lambda gradient, value: 2 * gradient * value * (1 - value)
    preactivations = jnp.concatenate(
        [
            of_gate(cell_gradient * candidate, input_gate),
            of_gate(cell_gradient * cell_before, forget_gate),
            cell_gradient * input_gate * (1 - candidate**2),
            of_gate(hidden_gradient * squashed, output_gate),
        ],
        -1,
    )
    return preactivations, cell_gradient * forget_gate


def _dot(states: jax.Array, kernel: jax.Array) -> jax.Array:
    """[directions, batch, a] · [directions, a, b] in float32."""
    return jnp.einsum("dba,dac->dbc", states, kernel, preferred_element_type=jnp.float32)


def _forward(projected, constant, mask, kernel, feed_kernel, feed_mask, hidden, cell):
    """States of every step, and residuals of the backward pass, each a tuple over directions."""
    dtype, directions = projected[0].dtype, range(len(projected))
    # Closed input and forget gates keep the state at 0 until the first real token, in either
    # direction, and pass no gradient.
    closed = np.repeat(np.array([-1e9, -1e9, 0, 0], np.float32), kernel.shape[1])

    def step(carry, inputs):
        hidden, cells = carry
        gates_in, real, feed = inputs
        fed_back = _dot(hidden, kernel)
        if feed_kernel is not None:
            fed_back += _dot(hidden * feed, feed_kernel)
        outputs = []
        for d in directions:
            preactivations = gates_in[d].astype(jnp.float32) + constant[d] + fed_back[d]
            if mask is not None:
                preactivations = jnp.where(real[d][:, None], preactivations, closed)
            hidden_d, cell_d, gates_d = _cell(preactivations, cells[d])
            outputs.append((hidden_d.astype(dtype), cell_d, gates_d.astype(dtype)))
        hidden, cells, gates = zip(*outputs, strict=True)
        return (jnp.stack(hidden), cells), (hidden, cells, gates)

    initial = (hidden.astype(dtype), tuple(cell.astype(jnp.float32)))
    return jax.lax.scan(step, initial, (projected, mask, feed_mask))[1]


@jax.custom_vjp
def recurrence(
    projected: tuple[jax.Array, ...],
    constant: jax.Array,
    mask: jax.Array | None,
    kernel: jax.Array,
    feed_kernel: jax.Array | None,
    feed_mask: jax.Array | None,
    hidden: jax.Array,
    cell: jax.Array,
) -> tuple[jax.Array, ...]:
    """Runs an LSTM whose inputs are already multiplied by their weights.

        z_t = x_t + k + W h_{t−1} + F (m_t ∘ h_{t−1})    gates i, f, g, o in this order
        c_t = σ(f) ∘ c_{t−1} + σ(i) ∘ tanh(g),    h_t = σ(o) ∘ tanh(c_t)

    The inputs of i, f and o come halved (`halve_sigmoid_gates`). Wherever there is padding, i and f
    are closed, so that c = h = 0 and no gradient passes.

    Args:
        projected: [length, batch, 4 · width] for each direction, x. Separate arrays, because slices
            of one would be copied before each large matrix product.
        constant: [directions, batch or 1, 4 · width], k: biases and inputs common to all steps.
        mask: [length, directions, batch] bool, False at padding; None without padding.
        kernel: [directions, width, 4 · width], W transposed.
        feed_kernel: likewise for F, the input feeding of a decoder; None without.
        feed_mask: [length, directions, batch, width], m, a dropout mask over the previous output;
            None without input feeding.
        hidden: [directions, batch, width], the initial h.
        cell: [directions, batch, width], the initial c.

    Returns:
        [length, batch, width] for each direction, h, in the dtype of `projected`; c is float32.
    """
    return _forward(projected, constant, mask, kernel, feed_kernel, feed_mask, hidden, cell)[0]


def _recurrence_forward(projected, constant, mask, kernel, feed_kernel, feed_mask, hidden, cell):
    states = _forward(projected, constant, mask, kernel, feed_kernel, feed_mask, hidden, cell)
    return states[0], (states, constant, kernel, feed_kernel, feed_mask, hidden, cell)


def _recurrence_backward(saved, cotangents):
    (states, cells, gates), constant, kernel, feed_kernel, feed_mask, hidden, cell = saved
    dtype, directions = states[0].dtype, range(len(states))

    def before(first, sequences):
        first = first.astype(sequences[0].dtype)
        return tuple(jnp.concatenate([first[d][None], sequences[d][:-1]]) for d in directions)

    def step(carry, inputs):
        hidden_gradient, cell_gradients = carry
        cotangents, gates, cells, cells_before, mask = inputs
        outputs = [
            _cell_backward(
                hidden_gradient[d] + cotangents[d].astype(jnp.float32),
                cell_gradients[d],
                gates[d],
                cells[d],
                cells_before[d],
            )
            for d in directions
        ]
        preactivations, cell_gradients = zip(*outputs, strict=True)
        preactivations = tuple(gradient.astype(dtype) for gradient in preactivations)
        stacked = jnp.stack(preactivations)
        turned = lambda kernel: jnp.einsum(
            "dbc,dac->dba", stacked, kernel, preferred_element_type=jnp.float32
        )
        hidden_gradient = turned(kernel)
        if feed_kernel is not None:
            hidden_gradient += turned(feed_kernel) * mask
        return (hidden_gradient, cell_gradients), preactivations

    zero = jnp.zeros(hidden.shape, jnp.float32)
    (hidden_gradient, cell_gradients), gradients = jax.lax.scan(
        step,
        (zero, tuple(zero)),
        (cotangents, gates, cells, before(cell, cells), feed_mask),
        reverse=True,
    )
    of_constant = jnp.stack([gradient.sum(0, dtype=jnp.float32) for gradient in gradients])
    if constant.shape[1] == 1:
        of_constant = of_constant.sum(1, keepdims=True)
    states_before = before(hidden, states)
    outer = lambda inputs: jnp.stack([kernel_gradient(inputs[d], gradients[d]) for d in directions])
    of_feed_kernel = of_feed_mask = None
    if feed_kernel is not None:
        fed = [states_before[d] * feed_mask[:, d] for d in directions]
        of_feed_kernel = outer(fed).astype(feed_kernel.dtype)
        of_feed_mask = jnp.zeros_like(feed_mask)
    return (
        gradients,
        of_constant.astype(constant.dtype),
        None,
        outer(states_before).astype(kernel.dtype),
        of_feed_kernel,
        of_feed_mask,
        hidden_gradient.astype(hidden.dtype),
        jnp.stack(cell_gradients).astype(cell.dtype),
    )


recurrence.defvjp(_recurrence_forward, _recurrence_backward)


class LstmLayer(nn.Module):
    """One LSTM layer that reads forward, or forward and backward side by side, each `width` wide.

    All parameters start as U(−init_scale, init_scale), biases included. `published_parameters` are
    two bias vectors, as in PyTorch and cuDNN; only their sum matters. Cell states are float32.
    """

    width: int
    bidirectional: bool
    init_scale: float = 0.1
    published_parameters: bool = False
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Reads sentences, [length, batch, in] -> [length, batch, directions · width].

        `mask` [length, batch] is True at real tokens, which come first: the backward direction
        starts at the last one. Padding gives zeros.
        """
        directions, gates = 1 + self.bidirectional, 4 * self.width
        init = uniform_init(self.init_scale)
        kernel = self.param("input_kernel", init, (directions, inputs.shape[-1], gates))
        recurrent = self.param("recurrent_kernel", init, (directions, self.width, gates))
        bias = self.param("bias", init, (directions, gates))
        if self.published_parameters:
            bias = bias + self.param("recurrent_bias", init, (directions, gates))
        dtype, inputs = self.dtype, inputs.astype(self.dtype)
        kernel, recurrent, bias = map(halve_sigmoid_gates, (kernel, recurrent, bias))
        # The second direction reads from the end, padding first.
        orders = (slice(None), slice(None, None, -1))[:directions]
        zero = jnp.zeros((directions, inputs.shape[1], self.width), dtype)
        states = recurrence(
            tuple(
                project(inputs[order], kernel[d].astype(dtype)) for d, order in enumerate(orders)
            ),
            bias[:, None],
            jnp.stack([mask[order] for order in orders], 1),
            recurrent.astype(dtype),
            *(None, None),
            *(zero, zero),
        )
        return jnp.concatenate([states[d][order] for d, order in enumerate(orders)], -1)
