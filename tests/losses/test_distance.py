import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from tests.losses.helpers import slope
from xling_jax.losses import distance as module
from xling_jax.losses.distance import distance_constraint, random_partners, squared_distance

MARGIN, NEGATIVES = 0.5, 3
TO_TARGET = [[1, 2, 3, 0], [0, 3, 1, 2], [3, 2, 1, 0]]  # the second has a fixed point
TO_SOURCE = [[2, 3, 0, 1], [1, 0, 2, 3], [1, 2, 3, 0]]
OPTIONS = {
    "published": {},
    "margin": {"margin": 0.1},
}


def hand_loop(
    source,
    target,
    *,
    rows=range(4),
    to_target=TO_TARGET,
    to_source=TO_SOURCE,
    margin=MARGIN,
):
    """Dist sentence by sentence in float64."""
    rows = list(rows)

    def apart(a, b):
        return np.sqrt(((a - b) ** 2).sum())

    def size(vectors):
        return np.sqrt((np.mean([vectors[i] for i in rows], axis=0) ** 2).sum())

    v = (size(source) + size(target) + 1e-6) / 2
    total = 0.0
    for i in rows:
        positive = apart(source[i], target[i])
        total += positive / v
        for pi, sigma in zip(to_target, to_source):
            for negative in (apart(source[i], target[pi[i]]), apart(target[i], source[sigma[i]])):
                total += max(0.0, margin + (positive - negative) / v) / (2 * len(to_target))
    return total


@pytest.fixture(scope="module")
def embeddings():
    random = np.random.default_rng(1)
    source = random.normal(size=(4, 5)) + 1
    return source, source + 0.4 * random.normal(size=(4, 5))


def fixed_partners(to_target, to_source):
    return lambda *_: jnp.array([*to_target, *to_source])


@pytest.fixture(scope="module")
def results(embeddings):
    """Value, metrics and gradients of every option under the permutations above, one program."""

    def run(source, target):
        def one(options):
            call = lambda s, t: distance_constraint(
                s, t, np.ones(4), None, **{"margin": MARGIN, "num_negatives": NEGATIVES} | options
            )
            return jax.value_and_grad(call, argnums=(0, 1), has_aux=True)(source, target)

        return {name: one(options) for name, options in OPTIONS.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "random_partners", fixed_partners(TO_TARGET, TO_SOURCE))
        return jax.jit(run)(*(jnp.asarray(e, jnp.float32) for e in embeddings))


@pytest.mark.parametrize("name", OPTIONS)
def test_value_and_gradients_equal_the_hand_loop(embeddings, results, name):
    source, target = embeddings
    loop = functools.partial(hand_loop, **OPTIONS[name])
    (value, _), gradients = results[name]
    np.testing.assert_allclose(value, loop(source, target), rtol=1e-5)
    np.testing.assert_allclose(gradients[0], slope(lambda s: loop(s, target), source), atol=2e-5)
    np.testing.assert_allclose(gradients[1], slope(lambda t: loop(source, t), target), atol=2e-5)


@jax.jit
def constraint(source, target, mask, key):
    """(value, metrics), gradients; of float32 arrays."""
    call = lambda s, t: distance_constraint(s, t, mask, key, margin=MARGIN, num_negatives=NEGATIVES)
    return jax.value_and_grad(call, argnums=(0, 1), has_aux=True)(source, target)


def padded(embeddings, fill=0.0):
    """Six rows of which rows 1 and 4 are padding."""
    mask = np.array([True, False, True, True, False, True])
    out = []
    for array in embeddings:
        rows = np.full((6, array.shape[1]), fill, np.float32)
        rows[mask] = array
        out.append(rows)
    return *out, mask


def test_scaling_all_embeddings_changes_nothing(embeddings, key):
    source, target, mask = padded(embeddings)
    (value, _), _ = constraint(source, target, mask, key)
    (scaled, _), _ = constraint(64 * source, 64 * target, mask, key)
    np.testing.assert_allclose(scaled, value, rtol=1e-5)


def test_random_permutations_of_the_valid_rows_equal_the_hand_loop(embeddings, key):
    source, target, mask = padded(embeddings)
    partners = random_partners(key, mask, 2 * NEGATIVES)
    (value, _), _ = constraint(source, target, mask, key)
    expected = hand_loop(
        source.astype(np.float64),
        target.astype(np.float64),
        rows=np.flatnonzero(mask),
        to_target=partners[:NEGATIVES],
        to_source=partners[NEGATIVES:],
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_what_masked_rows_hold_changes_nothing(embeddings, key):
    (value, metrics), gradients = constraint(*padded(embeddings), key)
    (other, other_metrics), other_gradients = constraint(*padded(embeddings, fill=7.0), key)
    np.testing.assert_allclose(other, value, rtol=1e-6)
    np.testing.assert_allclose(other_metrics["scale"], metrics["scale"], rtol=1e-6)
    for gradient, other_gradient in zip(gradients, other_gradients):
        np.testing.assert_allclose(other_gradient, gradient, atol=2e-6)
        assert not other_gradient[np.array([1, 4])].any()


def test_a_fixed_point_costs_the_margin_and_has_no_gradient(embeddings, monkeypatch):
    identity = [[0, 1, 2, 3]] * NEGATIVES
    monkeypatch.setattr(module, "random_partners", fixed_partners(identity, identity))
    source, target = (jnp.asarray(e, jnp.float32) for e in embeddings)
    call = lambda source, margin: distance_constraint(
        source, target, np.ones(4), None, margin=margin, num_negatives=NEGATIVES
    )[0]
    call = jax.jit(jax.value_and_grad(call))
    without, positive_gradient = call(source, 0.0)
    value, gradient = call(source, MARGIN)
    np.testing.assert_allclose(value - without, 4 * MARGIN, rtol=1e-5)
    np.testing.assert_array_equal(gradient, positive_gradient)


def test_identical_translations_have_a_finite_gradient(embeddings, key):
    source, _, mask = padded(embeddings)
    (value, metrics), gradients = constraint(source, source, mask, key)
    assert metrics["positive_distance"] == 0
    assert np.isfinite(value)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_a_single_valid_row_is_its_own_negative(embeddings, key):
    source, target, _ = padded(embeddings)
    mask = np.arange(6) == 2
    (value, metrics), gradients = constraint(source, target, mask, key)
    np.testing.assert_allclose(value, metrics["positive_distance"] + MARGIN, rtol=1e-6)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_no_valid_row_costs_nothing(embeddings, key):
    source, target, mask = padded(embeddings)
    (value, metrics), gradients = constraint(source, target, np.zeros_like(mask), key)
    assert value == 0
    assert not any(gradient.any() for gradient in gradients)
    assert not any(metrics.values())


def test_partners_are_of_the_valid_rows_and_fresh_each_time(key):
    mask = jnp.array([True, False, True, True, True, False])
    partners = np.asarray(random_partners(key, mask, 50))
    valid = np.flatnonzero(mask)
    assert (np.sort(partners[:, valid], axis=1) == valid).all()
    assert (partners[:, ~np.asarray(mask)] == [1, 5]).all()
    different = len(np.unique(partners[:, valid], axis=0))
    assert (partners[:, valid] == valid).any() and different > 15  # of 24


def test_unequal_shapes_are_refused():
    rows, more = jnp.ones((4, 2)), (np.ones(4), jax.random.key(0))
    with pytest.raises(ValueError, match=r"\(4, 2\) and \(3, 2\)"):
        distance_constraint(rows, rows[:3], *more)


def test_the_scale_is_that_of_valid_rows():
    # The last two rows are padding. Means (3, 4) and 0.
    source = jnp.array([[6.0, 8], [0, 0], [9, 9], [9, 9]])
    target = jnp.array([[-3.0, 4], [3, -4], [9, 9], [9, 9]])
    mask = jnp.array([True, True, False, False])
    np.testing.assert_allclose(module.embedding_scale(source, target, mask), 2.5, rtol=1e-6)


def test_the_similarity_loss_by_hand():
    source = jnp.array([[1.0, 2, 3], [0, 0, 0], [-1, 5, 2]])
    target = jnp.array([[1.0, 0, 6], [0, 0, 0], [1, 5, 2]])
    assert jax.jit(squared_distance)(source, target).tolist() == [13, 0, 4]


def test_its_gradient_is_twice_the_difference_and_pulls_both_sides():
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
