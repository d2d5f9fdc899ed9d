"""Terms that compare sentence vectors, each with its paper; most also take the first dimensions."""

import dataclasses

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict

from xling_jax.losses.contrastive import (
    alignment_loss,
    equal_sentences,
    similarity_distribution_loss,
)
from xling_jax.losses.distance import distance_constraint, squared_distance
from xling_jax.losses.distillation import distillation_loss
from xling_jax.models.numpy_static import NOT_TRAINED
from xling_jax.registry import check_choice
from xling_jax.train.terms.term import (
    Context,
    Inputs,
    Sums,
    Term,
    of_pairs,
    once_per_update,
    per_sentence,
)


@dataclasses.dataclass(frozen=True)
class NestedTerm(Term):
    """A term that compares sentence vectors, of one width or several nested ones.

        L = Σ_w L(first w dimensions)            (Kusupati et al. 2022, Eq. 1 with all c_w = 1)

    The first dimensions then suffice where space is short (`Encoder.truncated`). A cosine is that
    of the truncated vectors, so of length 1; dot products and distances take them as they are.

    `sums_pairs`, a class attribute, says whether `compare` gives a sum over pairs, which a batch of
    both directions counts twice, or has its own count.

    Attributes:
        widths: w, ascending, the last that of the encoder; empty for whole vectors only.
    """

    widths: tuple[int, ...] = ()

    sums_pairs = True

    def __post_init__(self):
        widths = tuple(self.widths)
        object.__setattr__(self, "widths", widths)
        if any(not 0 < low < high for low, high in zip((0.5, *widths), widths)):
            raise ValueError(f"widths={widths} must be positive and ascending")

    def __call__(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """See `Term`; the metrics are those of the whole vectors."""
        total, dim = 0.0, inputs.source.shape[-1]
        if self.widths and self.widths[-1] != dim:
            raise ValueError(
                f"widths={self.widths} must end with the {dim} dimensions of the encoder"
            )
        for width in self.widths or (dim,):
            source, target = inputs.source[:, :width], inputs.target[:, :width]
            cut = dataclasses.replace(inputs, source=source, target=target)
            value, sums = self.compare(context, cut)
            total += value
        return of_pairs(total, context, inputs) if self.sums_pairs else total, sums

    def compare(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """The sum over pairs and the metrics at one width, as `Term`."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Alignment(NestedTerm):
    """Finds the translation among the sentences of a batch (Mao et al. 2021, Eq. 5).

    Attributes:
        ignore_equal: do not use pairs that share a sentence as negatives of each other.
    """

    ignore_equal: bool = False

    passes_to = (alignment_loss,)
    supplied = ("ignore",)
    reads = frozenset({"target"})
    logged = "alignment_loss"

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


@dataclasses.dataclass(frozen=True)
class SimilarityDistribution(NestedTerm):
    """Agreement of both languages on which sentences are similar (Mao et al. 2021, Eq. 6)."""

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


@dataclasses.dataclass(frozen=True)
class Distance(NestedTerm):
    """Keeps translations closer than random sentences (Li and Mak 2020, Eq. 7 to 10).

    The weight is β in the paper.
    """

    passes_to = (distance_constraint,)
    reads = frozenset({"target"})
    logged = "distance_loss"

    def compare(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Sum over pairs."""
        value, metrics = distance_constraint(
            inputs.source, inputs.target, inputs.mask, inputs.key, **self.passed
        )
        return value, per_sentence(inputs, distance_loss=value, **metrics)


@dataclasses.dataclass(frozen=True)
class Similarity(Term):
    """L_sim = ‖h(s) − h(t)‖² (Yu, Li and Oguz 2018). The weight is α in the paper."""

    reads = frozenset({"target"})
    logged = "similarity_loss"
    collapses = True

    def __call__(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Sum over pairs."""
        value = jnp.where(inputs.mask, squared_distance(inputs.source, inputs.target), 0).sum()
        sums = per_sentence(inputs, similarity_loss=value)
        return of_pairs(value, context, inputs), sums


@dataclasses.dataclass(frozen=True)
class EncoderL2(Term):
    """‖θ‖² of the encoder, the ablation of Yu, Li and Oguz (2018)."""

    logged = "encoder_l2"
    collapses = True

    def __call__(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Counted once per update."""
        params = flatten_dict(inputs.params["encoder"])
        leaves = [leaf for path, leaf in params.items() if path[-1] not in NOT_TRAINED]
        penalty = sum(jnp.square(leaf.astype(jnp.float32)).sum() for leaf in leaves)
        return once_per_update(penalty, context, inputs, self.logged)


@dataclasses.dataclass(frozen=True)
class Distillation(NestedTerm):
    """Fits the encoder to a frozen teacher, whose vectors are computed once.

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
