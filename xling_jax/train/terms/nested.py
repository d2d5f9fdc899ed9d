"""Terms that can also be applied to the first dimensions of the vectors."""

import dataclasses

import jax

from xling_jax.options import check_number
from xling_jax.train.terms.term import Context, Inputs, Sums, Term, of_pairs


@dataclasses.dataclass(frozen=True)
class NestedTerm(Term):
    """A term that compares sentence vectors, of one width or several nested ones.

        L = Σ_w c_w · L(first w dimensions)            (Kusupati et al. 2022, Eq. 1)

    The first dimensions then suffice where space is short (`Encoder.truncated`). A cosine is that
    of the truncated vectors, so of length 1; dot products and distances take them as they are.

    `sums_pairs`, a class attribute, says whether `compare` gives a sum over pairs, which a batch of
    both directions counts twice, or has its own count.

    Attributes:
        widths: w, ascending, the last that of the encoder; empty for whole vectors only.
        width_weights: c_w; empty for 1 each.
    """

    widths: tuple[int, ...] = ()
    width_weights: tuple[float, ...] = ()

    sums_pairs = True

    def __post_init__(self):
        widths, weights = tuple(self.widths), tuple(self.width_weights)
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "width_weights", weights or (1.0,) * len(widths))
        if any(not 0 < low < high for low, high in zip((0.5, *widths), widths)):
            raise ValueError(f"widths={widths} must be positive and ascending")
        if len(self.width_weights) != len(widths):
            raise ValueError(f"width_weights={weights} must be one for each of widths={widths}")
        for weight in weights:
            check_number(weight, "width_weights", at_least=0)

    def __call__(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """See `Term`; the metrics are those of the whole vectors."""
        if not self.widths:
            value, sums = self.compare(context, inputs)
            return self._counted(value, context, inputs), sums
        dim = inputs.source.shape[-1]
        if self.widths[-1] != dim:
            raise ValueError(
                f"widths={self.widths} must end with the {dim} dimensions of the encoder"
            )
        total = 0.0
        for width, weight in zip(self.widths, self.width_weights):
            source, target = inputs.source[:, :width], inputs.target[:, :width]
            cut = dataclasses.replace(inputs, source=source, target=target)
            value, sums = self.compare(context, cut)
            total += weight * value
        return self._counted(total, context, inputs), sums

    def compare(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """The sum over pairs and the metrics at one width, as `Term`."""
        raise NotImplementedError

    def _counted(self, value: jax.Array, context: Context, inputs: Inputs) -> jax.Array:
        return of_pairs(value, context, inputs) if self.sums_pairs else value
