"""What a new run begins with in place of random parameters: word vectors, a trained encoder."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict


def put_word_vectors(params: Any, vectors: np.ndarray, found: np.ndarray) -> Any:
    """Parameters whose input token tables start from word vectors.

    Args:
        params: nested dict; tables are its leaves named `embedding`.
        vectors: [vocab, width] float32.
        found: [vocab] bool; other rows, and tables of another width, stay as they are.

    Raises:
        ValueError: if no table is that wide.
    """
    flat = flatten_dict(params)
    tables = [
        path
        for path, leaf in flat.items()
        if path[-1] == "embedding" and leaf.shape[1] == vectors.shape[1]
    ]
    if not tables:
        raise ValueError(f"train.word_vectors: no token table is {vectors.shape[1]} wide")

    def put(table: jax.Array) -> jax.Array:
        known = np.zeros((table.shape[0], 1), bool)
        known[: len(found), 0] = found
        rows = np.zeros(table.shape, np.float32)
        rows[: len(vectors)] = vectors
        mixed = jax.jit(lambda table, known, rows: jnp.where(known, rows, table))
        return jax.device_put(mixed(table, known, rows), table.sharding)

    return unflatten_dict(flat | {path: put(flat[path]) for path in tables})


def put_encoder(params: Any, encoder: Any) -> tuple[Any, int]:
    """Parameters whose encoder begins with another's, where names and shapes agree.

    Args:
        params: nested dict with an `encoder`.
        encoder: parameters of a trained encoder; arrays that this one lacks are left out.

    Returns:
        The parameters, and how many of the encoder's arrays were taken.

    Raises:
        ValueError: if none could be.
    """
    flat, found = flatten_dict(params), flatten_dict({"encoder": encoder})
    taken = {
        path: jax.device_put(jnp.asarray(found[path], leaf.dtype), leaf.sharding)
        for path, leaf in flat.items()
        if path in found and found[path].shape == leaf.shape
    }
    if not taken:
        raise ValueError(
            "train.model_init: no array of its encoder has the name and shape of one here; "
            "are family and width the same?"
        )
    return unflatten_dict(flat | taken), len(taken)
