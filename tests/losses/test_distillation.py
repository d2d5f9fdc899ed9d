import functools

import jax
import numpy as np
import pytest

from tests.losses.helpers import slope
from xling_jax.losses.distillation import distillation_loss

BATCH, DIM = 6, 5
VALID = np.array([True, True, False, True, True, True])
OPTIONS = {
    "mse": {},
    "cosine": {"form": "cosine"},
    "similarity": {"form": "similarity", "temperature": 0.3},
}


def by_hand(u, v, x, y, rows, form="mse", temperature=0.05):
    """The loss sentence by sentence in float64."""
    cosine = lambda a, b: a @ b / np.sqrt(a @ a * (b @ b))
    if form == "mse":
        return sum(((u[j] - x[j]) ** 2).sum() + ((v[j] - y[j]) ** 2).sum() for j in rows)
    if form == "cosine":
        return sum(2 - cosine(u[j], x[j]) - cosine(v[j], y[j]) for j in rows)
    total = 0.0
    for j in rows:
        for student, teacher in (
            ([cosine(u[j], v[k]) for k in rows], [x[j] @ y[k] for k in rows]),
            ([cosine(u[k], v[j]) for k in rows], [x[k] @ y[j] for k in rows]),
        ):
            q, p = (np.exp(np.array(s) / temperature) for s in (student, teacher))
            q, p = q / q.sum(), p / p.sum()
            total += (p * np.log(p / q)).sum()
    return total


@pytest.fixture(scope="module")
def arrays():
    random = np.random.default_rng(0)
    unit = lambda a: a / np.linalg.norm(a, axis=1, keepdims=True)
    student = [random.normal(size=(BATCH, DIM)) for _ in range(2)]
    return *student, *(unit(random.normal(size=(BATCH, DIM))) for _ in range(2))


@jax.jit
def compute(arrays, mask):
    """Form -> ((loss, agreement), gradients of both sides)."""

    def run(options):
        call = lambda u, v: distillation_loss(u, v, *arrays[2:], mask, **options)
        return jax.value_and_grad(call, argnums=(0, 1), has_aux=True)(*arrays[:2])

    return {name: run(options) for name, options in OPTIONS.items()}


def computed(arrays, mask=VALID):
    return jax.device_get(compute([np.asarray(a, np.float32) for a in arrays], mask))


@pytest.mark.parametrize("name", OPTIONS)
def test_loss_and_gradients_equal_the_hand_loop(arrays, name):
    (loss, _), gradients = computed(arrays)[name]
    reference = functools.partial(by_hand, rows=np.flatnonzero(VALID), **OPTIONS[name])
    np.testing.assert_allclose(loss, reference(*arrays), rtol=1e-5)
    student, teacher = arrays[:2], arrays[2:]
    slopes = (
        slope(lambda u: reference(u, student[1], *teacher), student[0]),
        slope(lambda v: reference(student[0], v, *teacher), student[1]),
    )
    for gradient, expected in zip(gradients, slopes):
        np.testing.assert_allclose(gradient, expected, atol=2e-5)


def test_what_masked_rows_hold_changes_nothing(arrays):
    filled = [np.where(VALID[:, None], a, 1e3) for a in arrays]
    jax.tree.map(np.testing.assert_array_equal, computed(arrays), computed(filled))


def test_a_student_equal_to_the_teacher_has_no_loss(arrays):
    teacher = arrays[2:]
    for name, ((loss, agreement), gradients) in computed((*teacher, *teacher)).items():
        np.testing.assert_allclose([loss, agreement], [0, VALID.sum()], atol=1e-5, err_msg=name)
        assert max(np.abs(g).max() for g in gradients) < 1e-5


def test_wrong_options_are_refused(arrays):
    with pytest.raises(ValueError, match="form 'l2' must be|form='l2'"):
        distillation_loss(*arrays, VALID, form="l2")
    with pytest.raises(ValueError, match="temperature=0 must be positive"):
        distillation_loss(*arrays, VALID, form="similarity", temperature=0)
