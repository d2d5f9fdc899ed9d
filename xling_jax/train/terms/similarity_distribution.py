"""Agreement of the two monolingual similarity distributions of a batch (Mao et al. 2021, Eq. 6)."""

import dataclasses

import jax

from xling_jax.losses.contrastive import similarity_distribution_loss
from xling_jax.train.terms.nested import NestedTerm
from xling_jax.train.terms.term import Context, Inputs, Sums, once_per_update


@dataclasses.dataclass(frozen=True)
class SimilarityDistribution(NestedTerm):
    """SIM; options of `losses.contrastive.similarity_distribution_loss`."""

    passes_to = (similarity_distribution_loss,)
    reads = frozenset({"target"})
    logged = "similarity_distribution_loss"
    collapses = True
    sums_pairs = False

    def compare(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Counted once per update."""
        value = similarity_distribution_loss(
            inputs.source, inputs.target, inputs.mask, **self.passed
        )
        return once_per_update(value, context, inputs, self.logged)
