import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.losses.helpers import slope
from xling_jax.losses.contrastive import (
    alignment_loss,
    equal_sentences,
    similarity_distribution_loss,
)

BATCH, DIM = 8, 5
VALID = np.array([True, False, True, True, True, False, True, True])
# Rows 0 and 3 share their source, 4 and 7 their target.
EQUAL = np.zeros((BATCH, BATCH), bool)
EQUAL[[0, 3, 4, 7], [3, 0, 7, 4]] = True
ALIGNMENTS = {
    "published": {},
    "cosine": {"similarity": "cosine", "scale": 10.0},
    "margin": {"similarity": "cosine", "scale": 10.0, "margin": 0.3},
    "ignore": {"ignore": EQUAL},
    "own_side_cosine": {"similarity": "cosine", "scale": 10.0, "margin": 0.3, "own_side": True},
    "own_side_ignore": {"own_side": True, "ignore": EQUAL},
    "own_side_ignore_everything": {"own_side": True, "ignore": np.ones_like(EQUAL)},
}
SIMILARITIES = {"published": {"reduction": "sum"}, "normalized": {}}


def align_by_hand(
    source, target, rows, similarity="dot", scale=1.0, margin=0.0, own_side=False, ignore=None
):
    """ALIGN and the share of best candidates, sentence by sentence in float64."""

    def similar(first, second):
        value = first @ second
        if similarity == "cosine":
            value /= np.sqrt(first @ first * (second @ second))
        return value

    compare = lambda j, k: similar(source[j], target[k])

    negative = lambda j, k: j != k and not (ignore is not None and ignore[j, k])
    total, correct = 0.0, 0.0
    for j in rows:
        positive = compare(j, j)
        to_target = [compare(j, k) for k in rows if negative(j, k)]
        to_source = [compare(k, j) for k in rows if negative(k, j)]
        for side, others in ((source, to_target), (target, to_source)):
            own = [similar(side[j], side[k]) for k in rows if own_side and negative(j, k)]
            logits = scale * np.array([positive - margin, *others, *own])
            total -= logits[0] - np.log(np.exp(logits).sum())
            correct += (positive >= max(others, default=-np.inf)) / 2
    return total, correct


def similarity_by_hand(source, target, rows, reduction="normalized"):
    """SIM pair by pair in float64."""
    total = 0.0
    for i in rows:
        left, right = ([vectors[i] @ vectors[j] for j in rows] for vectors in (source, target))
        first, second = (np.exp(p) / np.exp(p).sum() for p in (left, right))
        total -= np.log(np.cos(np.pi / 2 * (first - second))).sum()
    return total if reduction == "sum" else total * 128 / len(rows)


def draw_embeddings():
    """Translations near each other; small enough for softmax values between 0 and 1."""
    random = np.random.default_rng(2)
    source = random.normal(size=(BATCH, DIM)) * 0.8
    return source, source + 0.5 * random.normal(size=(BATCH, DIM))


@pytest.fixture(scope="module")
def embeddings():
    return draw_embeddings()


@jax.jit
def compute(source, target, mask):
    """(value, accuracy or nothing), gradients, of both losses with all options."""

    def run(loss, options):
        call = lambda s, t: loss(s, t, mask, **options)
        return jax.value_and_grad(call, argnums=(0, 1), has_aux=True)(source, target)

    similarity = lambda *arrays, **options: (similarity_distribution_loss(*arrays, **options), None)
    return {
        "alignment": {name: run(alignment_loss, o) for name, o in ALIGNMENTS.items()},
        "similarity": {name: run(similarity, o) for name, o in SIMILARITIES.items()},
    }


def computed(source, target, mask=VALID):
    arrays = (np.asarray(array, np.float32) for array in (source, target))
    return jax.device_get(compute(*arrays, np.asarray(mask)))


def leaves(results):
    return jax.tree.leaves(results)


def check_gradients(gradients, function, source, target):
    right = (
        slope(lambda s: function(s, target), source),
        slope(lambda t: function(source, t), target),
    )
    for gradient, expected in zip(gradients, right):
        np.testing.assert_allclose(gradient, expected, atol=1e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_alignment_and_its_gradients_equal_the_hand_loop(embeddings, name):
    (value, correct), gradients = computed(*embeddings)["alignment"][name]
    by_hand = functools.partial(align_by_hand, rows=np.flatnonzero(VALID), **ALIGNMENTS[name])
    np.testing.assert_allclose([value, correct], by_hand(*embeddings), rtol=1e-5, atol=1e-6)
    check_gradients(gradients, lambda s, t: by_hand(s, t)[0], *embeddings)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarity_and_its_gradients_equal_the_hand_loop(embeddings, name):
    (value, _), gradients = computed(*embeddings)["similarity"][name]
    by_hand = functools.partial(
        similarity_by_hand, rows=np.flatnonzero(VALID), **SIMILARITIES[name]
    )
    np.testing.assert_allclose(value, by_hand(*embeddings), rtol=1e-5)
    check_gradients(gradients, by_hand, *embeddings)


def test_alignment_has_no_branch(embeddings):
    """In one, as in `jnp.diagonal`, the order of collectives may be lost."""
    loss = lambda *sides: alignment_loss(*sides, VALID)[0]
    assert "cond[" not in str(jax.make_jaxpr(jax.grad(loss))(*embeddings))


def test_what_masked_rows_hold_changes_nothing(embeddings):
    fill = lambda array: np.where(VALID[:, None], array, 1e3)
    one, other = computed(*embeddings), computed(*map(fill, embeddings))
    for a, b in zip(leaves(one), leaves(other)):
        np.testing.assert_array_equal(a, b)
    for results in (*other["alignment"].values(), *other["similarity"].values()):
        assert not any(gradient[~VALID].any() for gradient in results[1])


def test_equal_languages_have_no_similarity_loss_and_no_gradient(embeddings):
    source, _ = embeddings
    for (value, _), gradients in computed(source, source)["similarity"].values():
        assert abs(value) < 1e-12
        assert all(np.abs(gradient).max() < 1e-5 for gradient in gradients)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_valid_rows_cost_nothing(embeddings, count):
    results = computed(*embeddings, np.arange(BATCH) < count)
    for name, ((value, correct), gradients) in results["alignment"].items():
        assert abs(value) < 1e-6, name
        assert correct == count
        assert all(np.abs(gradient).max() < 1e-6 for gradient in gradients)
    for (value, _), gradients in results["similarity"].values():
        assert value == 0
        assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3])
def test_collapsed_and_extreme_embeddings_have_finite_gradients(embeddings, scale):
    source, target = (scale * array for array in embeddings)
    for pair in ((source, target), (source, -target), (source, 0 * target)):
        assert all(np.isfinite(leaf).all() for leaf in leaves(computed(*pair)))


def test_opposite_similarities_cost_no_more_than_a_bound_with_finite_gradient():
    # S1 is the identity, S2 sees the second sentence only: differences of exactly 1 and -1.
    source = jnp.array([[9.0, 0.0], [0.0, 9.0]])
    target = jnp.array([[1.0, 0.0], [90.0, 0.0]])
    loss = lambda s, t: similarity_distribution_loss(s, t, np.ones(2, bool), reduction="sum")
    value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(source, target)
    np.testing.assert_allclose(value, -2 * np.log(np.pi / 2 * 1e-5), rtol=0.01)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_one_embedding_for_everything_costs_log_of_the_candidates():
    everything = np.ones((BATCH, DIM), np.float32)
    value, correct = alignment_loss(everything, everything, VALID)
    np.testing.assert_allclose(value, 2 * 6 * np.log(6), rtol=1e-6)
    assert correct == 0  # ties do not count


def test_equal_sentences_among_many_are_those_of_a_comparison_of_all_pairs():
    # Sentences of the same few pieces, of which a fifth occurs twice, also as shorter ones.
    tokens = np.random.default_rng(0).integers(0, 3, (2, 3000, 8))
    expected = (tokens[:, :, None] == tokens[:, None]).all(-1) & (tokens != 0).any(-1)[..., None]
    found = jax.jit(equal_sentences, static_argnums=2)(*jnp.asarray(tokens, jnp.int32), 0)
    expected = expected.any(0) & ~np.eye(3000, dtype=bool)
    assert expected.sum() > 1000 and (found == expected).all()


@pytest.mark.parametrize(
    "loss, options",
    [
        (alignment_loss, {"similarity": "l2"}),
        (similarity_distribution_loss, {"reduction": "max"}),
    ],
)
def test_unknown_options_and_unequal_shapes_are_refused(loss, options):
    pair = jnp.ones((4, 2)), jnp.ones((4, 2))
    with pytest.raises(ValueError, match=f"{next(iter(options))}='.*' must be one of"):
        loss(*pair, np.ones(4), **options)
    with pytest.raises(ValueError, match=r"\(4, 2\) and \(3, 2\)"):
        loss(jnp.ones((4, 2)), jnp.ones((3, 2)), np.ones(4))
