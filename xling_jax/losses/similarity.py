"""The similarity loss of Yu, Li and Oguz (2018)."""

import jax
import jax.numpy as jnp


def squared_distance(source: jax.Array, target: jax.Array) -> jax.Array:
    """L_sim = ‖h(s) − h(t)‖² of each pair.

    Args:
        source: [batch, dim], sentence vectors.
        target: [batch, dim], vectors of their translations.

    Returns:
        [batch] float32.

    Raises:
        ValueError: if the shapes differ.
    """
    if source.shape != target.shape:
        raise ValueError(
            f"source and target must have one shape [batch, dim]; found {source.shape} and "
            f"{target.shape}"
        )
    difference = source.astype(jnp.float32) - target.astype(jnp.float32)
    return jnp.square(difference).sum(-1)
