"""Initial parameters of a new run from word vectors, a trained encoder, or its text."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from xling_jax.corpora.shards import PairTokens
from xling_jax.models.static_form import StaticForm, choose_keys


def put_word_vectors(params: Any, vectors: np.ndarray, found: np.ndarray) -> Any:
    """Puts word vectors into the input token tables of parameters.

    Args:
        params: nested dict; tables are its leaves named `embedding`.
        vectors: [vocab, width] float32.
        found: [vocab] bool; other rows, and tables of another width, are unchanged.

    Raises:
        ValueError: if no table has that width.
    """
    flat = flatten_dict(params)
    width = vectors.shape[1]
    tables = [p for p, leaf in flat.items() if p[-1] == "embedding" and leaf.shape[1] == width]
    if not tables:
        raise ValueError(f"train.word_vectors: no token table has their width, {width}")

    def put(table: jax.Array) -> jax.Array:
        known = np.zeros((table.shape[0], 1), bool)
        known[: len(found), 0] = found
        rows = np.zeros(table.shape, np.float32)
        rows[: len(vectors)] = vectors
        mixed = jax.jit(lambda table, known, rows: jnp.where(known, rows, table))
        return jax.device_put(mixed(table, known, rows), table.sharding)

    return unflatten_dict(flat | {path: put(flat[path]) for path in tables})


def put_feature_keys(
    params: Any, form: StaticForm, pairs: Iterable[PairTokens]
) -> tuple[Any, float]:
    """Gives the most frequent features of the training text a row in a static encoder.

    Args:
        params: nested dict, of a model with such an encoder.
        form: of the encoder.
        pairs: the token shards.

    Returns:
        The parameters, and the share of the features in the text that have a row.
    """

    def texts() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for pair in pairs:
            for language in pair.languages:
                yield from pair.shards(language)

    keys, share = choose_keys(form, texts())
    flat = flatten_dict(params)
    path = ("encoder", "feature_keys")
    flat[path] = jax.device_put(keys, flat[path].sharding)
    return unflatten_dict(flat), share


def put_encoder(params: Any, encoder: Any) -> tuple[Any, int]:
    """Puts the parameters of a trained encoder into a model, where names and shapes agree.

    Returns:
        The parameters, and the number of arrays taken from the encoder.

    Raises:
        ValueError: if there are none.
    """
    flat, found = flatten_dict(params), flatten_dict({"encoder": encoder})
    taken = {
        path: jax.device_put(jnp.asarray(found[path], leaf.dtype), leaf.sharding)
        for path, leaf in flat.items()
        if path in found and found[path].shape == leaf.shape
    }
    if not taken:
        raise ValueError(
            "train.model_init: its encoder has no array in common with this one; use the same "
            "family and width"
        )
    return unflatten_dict(flat | taken), len(taken)
