"""Fits the encoder to a frozen teacher, whose vectors are computed once (`corpora.row_vectors`)."""

import dataclasses

import jax

from xling_jax.losses.distillation import distillation_loss
from xling_jax.registry import check_choice
from xling_jax.train.terms.nested import NestedTerm
from xling_jax.train.terms.term import Context, Inputs, Sums, per_sentence


@dataclasses.dataclass(frozen=True)
class Distillation(NestedTerm):
    """Learns the vectors of a teacher; options of `losses.distillation.distillation_loss`.

    Preparing the data encodes the training text with the teacher, once. Its vectors are scaled to
    length 1. One that is wider than the encoder is rotated to its principal axes on a sample of the
    text and cut at the encoder's width, so nothing of it is left in the exported encoder; one that
    is narrower needs `form="similarity"`. With `widths`, the first dimensions of the student fit
    those of the teacher, or the similarities of its whole vectors.

    Attributes:
        teacher: a model directory, workdir or shipped name; or, with `teacher_texts`, an `.npy` of
            vectors, such as `xling embed` writes.
        teacher_texts: a file with the texts of these vectors, one per line; all training text must
            be among them.
        fits: what a translation is fitted to: `source`, the vector of the source sentence (Reimers
            and Gurevych 2020), which a teacher of one language needs; or `own`, that of the
            translation itself.
    """

    teacher: str = ""
    teacher_texts: str = ""
    fits: str = "source"

    passes_to = (distillation_loss,)
    logged = "distillation_loss"

    def __post_init__(self):
        super().__post_init__()
        check_choice("objective.distillation.fits", self.fits, ("source", "own"))

    @property
    def reads(self) -> frozenset[str]:
        """Vectors of the teacher, for one side or both."""
        own = {"target_teacher"} if self.fits == "own" else set()
        return frozenset({"target", "source_teacher"} | own)

    def compare(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Sum over pairs, both sides."""
        source = inputs.batch["source_teacher"]
        target = inputs.batch["target_teacher" if self.fits == "own" else "source_teacher"]
        if self.passed["form"] != "similarity":  # of nested widths
            width = inputs.source.shape[-1]
            source, target = source[:, :width], target[:, :width]
        value, agreement = distillation_loss(
            inputs.source, inputs.target, source, target, inputs.mask, **self.passed
        )
        return value, per_sentence(inputs, distillation_loss=value, teacher_cosine=agreement)
