"""The similarity loss of Yu, Li and Oguz (2018)."""

import dataclasses

import jax
import jax.numpy as jnp

from xling_jax.losses.similarity import squared_distance
from xling_jax.train.terms.term import Context, Inputs, Sums, Term, of_pairs, per_sentence


@dataclasses.dataclass(frozen=True)
class Similarity(Term):
    """L_sim = ‖h(s) − h(t)‖²; see `losses.similarity`. The weight is α in the paper."""

    reads = frozenset({"target"})
    logged = "similarity_loss"
    collapses = True

    def __call__(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Sum over pairs."""
        value = jnp.where(inputs.mask, squared_distance(inputs.source, inputs.target), 0).sum()
        sums = per_sentence(inputs, similarity_loss=value)
        return of_pairs(value, context, inputs), sums
