"""The distance constraint of cT-LASER and cLASER (Li and Mak 2020, Eq. 7 to 10)."""

import dataclasses

import jax

from xling_jax.losses.distance import distance_constraint
from xling_jax.train.terms.nested import NestedTerm
from xling_jax.train.terms.term import Context, Inputs, Sums, per_sentence


@dataclasses.dataclass(frozen=True)
class Distance(NestedTerm):
    """Keeps translations closer than random sentences; options of `losses.distance`.

    The weight is β in the paper.
    """

    passes_to = (distance_constraint,)
    reads = frozenset({"target"})
    logged = "distance_loss"
    contrasts = True

    def compare(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Sum over pairs."""
        value, metrics = distance_constraint(
            inputs.source, inputs.target, inputs.mask, inputs.key, **self.passed
        )
        return value, per_sentence(inputs, distance_loss=value, **metrics)
