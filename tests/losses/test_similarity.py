import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from xling_jax.losses.similarity import squared_distance


def test_values_by_hand():
    source = jnp.array([[1.0, 2, 3], [0, 0, 0], [-1, 5, 2]])
    target = jnp.array([[1.0, 0, 6], [0, 0, 0], [1, 5, 2]])
    assert jax.jit(squared_distance)(source, target).tolist() == [13, 0, 4]


def test_gradient_is_twice_the_difference_and_pulls_both_sides():
    random = np.random.default_rng(0)
    source, target = random.normal(size=(2, 4, 6)).astype(np.float32)
    loss = lambda source, target: squared_distance(source, target).sum()
    gradients = jax.jit(jax.grad(loss, (0, 1)))(source, target)
    np.testing.assert_allclose(gradients[0], 2 * (source - target), rtol=1e-6)
    np.testing.assert_allclose(gradients[1], 2 * (target - source), rtol=1e-6)
    check_grads(jax.jit(loss), (source, target), 1, ["rev"], atol=2e-2, rtol=2e-2)


def test_vectors_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"found \(2, 3\) and \(3,\)"):
        squared_distance(jnp.ones((2, 3)), jnp.ones(3))
