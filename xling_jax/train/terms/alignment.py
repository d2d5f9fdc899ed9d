"""In-batch contrast of translations (Mao et al. 2021, Eq. 5; static and contextual encoders)."""

import dataclasses

import jax

from xling_jax.losses.contrastive import alignment_loss, equal_sentences
from xling_jax.train.terms.nested import NestedTerm
from xling_jax.train.terms.term import Context, Inputs, Sums, per_sentence


@dataclasses.dataclass(frozen=True)
class Alignment(NestedTerm):
    """Finds the translation among the sentences of a batch; options of `alignment_loss`.

    Attributes:
        ignore_equal: do not use pairs that share a sentence as negatives of each other.
    """

    ignore_equal: bool = False

    passes_to = (alignment_loss,)
    supplied = ("ignore",)
    reads = frozenset({"target"})
    logged = "alignment_loss"
    contrasts = True

    def compare(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Sum over pairs, both directions."""
        ignore = None
        if self.ignore_equal:
            tokens = (inputs.batch["source_tokens"], inputs.batch["target_tokens"])
            ignore = equal_sentences(*tokens, context.pad_id)
        value, correct = alignment_loss(
            inputs.source, inputs.target, inputs.mask, ignore=ignore, **self.passed
        )
        return value, per_sentence(inputs, alignment_loss=value, alignment_accuracy=correct)
