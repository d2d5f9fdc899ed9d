"""An L2 penalty on the encoder's parameters, the ablation of Yu, Li and Oguz (2018)."""

import dataclasses

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict

from xling_jax.models.numpy_static import NOT_TRAINED
from xling_jax.train.terms.term import Context, Inputs, Sums, Term, once_per_update


@dataclasses.dataclass(frozen=True)
class EncoderL2(Term):
    """‖θ‖² of the encoder."""

    logged = "encoder_l2"
    collapses = True

    def __call__(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Counted once per update."""
        params = flatten_dict(inputs.params["encoder"])
        leaves = [leaf for path, leaf in params.items() if path[-1] not in NOT_TRAINED]
        penalty = sum(jnp.square(leaf.astype(jnp.float32)).sum() for leaf in leaves)
        return once_per_update(penalty, context, inputs, self.logged)
