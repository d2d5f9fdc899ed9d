"""The similarity loss of Yu, Li and Oguz (2018)."""

import jax
import jax.numpy as jnp


def check_pairs(source: jax.Array, target: jax.Array) -> None:
    """Raises ValueError unless both sides of a batch have the same shape."""
    if source.shape != target.shape:
        raise ValueError(
            f"source and target must have the same shape [batch, dim]; found {source.shape} and "
            f"{target.shape}"
        )


def squared_distance(source: jax.Array, target: jax.Array) -> jax.Array:
    """L_sim = ‖h(s) − h(t)‖² of each pair, [batch] float32, from vectors [batch, dim].

    Raises:
        ValueError: if the shapes differ.
    """
    check_pairs(source, target)
    difference = source.astype(jnp.float32) - target.astype(jnp.float32)
    return jnp.square(difference).sum(-1)
