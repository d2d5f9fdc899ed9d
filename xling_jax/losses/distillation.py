"""Losses that fit sentence vectors to those of a frozen teacher."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from xling_jax.losses.contrastive import EXCLUDED, inner_products, normalized, valid_rows
from xling_jax.losses.distance import check_pairs, squared_distance
from xling_jax.registry import check_choice


def distillation_loss(
    source: jax.Array,
    target: jax.Array,
    source_teacher: jax.Array,
    target_teacher: jax.Array,
    mask: ArrayLike,
    *,
    form: str = "mse",
    temperature: float = 0.05,
) -> tuple[jax.Array, jax.Array]:
    """Fits both sides of a batch of translations to vectors of a teacher.

    With vectors u, v of the student and x, y of the teacher, x and y of length 1:

        mse           Σ_j ‖u_j − x_j‖² + ‖v_j − y_j‖²
        cosine        Σ_j 2 − cos(u_j, x_j) − cos(v_j, y_j)
        similarity    Σ_j KL(softmax_k(x_j · y_k / τ) ‖ softmax_k(cos(u_j, v_k) / τ)) + the same
                      with the sides exchanged

    `mse` with y = x is Equation 1 of Reimers and Gurevych (2020). `similarity` asks only that
    sentences are as near to each other as the teacher finds them, so teacher and student may differ
    in width; a translation that the teacher confuses with other sentences counts less.

    Choice: `mse` sums over dimensions (the paper averages), so that its size does not depend on the
    width.

    Args:
        source: [batch, dim], vectors u of the student.
        target: [batch, dim], vectors v of their translations.
        source_teacher: [batch, width], unit vectors x; width must be dim unless `similarity`.
        target_teacher: [batch, width], unit vectors y.
        mask: [batch] bool; False rows are ignored.
        form: `mse`, `cosine` or `similarity`.
        temperature: τ of `similarity`.

    Returns:
        The loss summed over valid rows and both sides (float32), and, as a metric, the cosine of
        student and teacher, summed over rows and averaged over sides (`similarity`: of the two
        rows' similarities to the batch).

    Raises:
        ValueError: for an unknown form, a temperature of 0 or less, or unequal shapes.
    """
    check_choice("form", form, ("mse", "cosine", "similarity"))
    if temperature <= 0:
        raise ValueError(f"temperature={temperature} must be positive")
    check_pairs(source, target)
    mask = jnp.asarray(mask, bool)
    sides = [source, target, source_teacher, target_teacher]
    source, target, *teachers = (valid_rows(vectors, mask) for vectors in sides)
    unit = normalized(source), normalized(target)
    if form == "similarity":
        return _similarity(unit, teachers, mask, temperature)
    cosines = [(u * normalized(x)).sum(1) for u, x in zip(unit, teachers, strict=True)]
    agreement = (cosines[0] + cosines[1]).sum() / 2
    if form == "cosine":
        return 2 * mask.sum() - 2 * agreement, agreement
    value = squared_distance(source, teachers[0]) + squared_distance(target, teachers[1])
    return value.sum(), agreement


def _similarity(
    student: tuple[jax.Array, jax.Array],
    teacher: list[jax.Array],
    mask: jax.Array,
    temperature: float,
) -> tuple[jax.Array, jax.Array]:
    # A padding row is compared with itself only: its divergence and gradient are 0.
    compared = mask[:, None] & mask | jnp.eye(mask.shape[0], dtype=bool)
    found, wanted = inner_products(*student), inner_products(*teacher)
    loss = 0.0
    for axis in (1, 0):
        logits = [jnp.where(compared, p / temperature, EXCLUDED) for p in (found, wanted)]
        log_q, log_p = (jax.nn.log_softmax(values, axis=axis) for values in logits)
        loss += jnp.where(compared, jnp.exp(log_p) * (log_p - log_q), 0).sum()
    rows = [jnp.where(mask[:, None] & mask, p, 0) for p in (found, wanted)]
    agreement = (normalized(rows[0]) * normalized(rows[1])).sum()
    return loss, agreement
