"""Low-rank adaptation (LoRA, Hu et al. 2022): an encoder stays as it is, small matrices are added.

    W' = W + α / r · A B        A [inputs, r] random, B [r, outputs] zero

The matrices are parameters beside the encoder, under `lora` and the paths of what they are added
to. The sum is made in each update, and once for an export.
"""

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

ALPHA = 16.0


def add_matrices(params: Any, rank: int, targets: str, key: jax.Array) -> Any:
    """Adds matrices for the arrays of the encoder whose path matches.

    `targets` is a regular expression that is found in a path such as `blocks_0/ffn_inner/kernel`.
    The leading axes of an array of more than two, such as the directions of an LSTM, have matrices
    each. Choice: A is uniform within ±1/√inputs, as in the published code.
    """
    arrays = {p: v for p, v in flatten_dict(params["encoder"]).items() if v.ndim > 1}
    found = {p: v for p, v in sorted(arrays.items()) if re.search(targets, "/".join(p))}
    if not found:
        known = ", ".join(map("/".join, list(arrays)[:12]))
        raise ValueError(f"train.lora_targets={targets!r} matches no array; there are {known}")
    added = {}
    for number, (path, array) in enumerate(found.items()):
        *leading, inputs, outputs = array.shape
        shape, bound = (*leading, inputs, rank), 1 / math.sqrt(inputs)
        own = jax.random.fold_in(key, number)
        added[(*path, "a")] = jax.random.uniform(own, shape, jnp.float32, -bound, bound)
        added[(*path, "b")] = jnp.zeros((*leading, rank, outputs), jnp.float32)
    return {**params, "lora": unflatten_dict(added)}


def merged(params: Any) -> Any:
    """The parameters of the model, with the products of the matrices, if it has any, in them."""
    if "lora" not in params:
        return params
    encoder, added = flatten_dict(params["encoder"]), flatten_dict(params["lora"])
    for path in {path[:-1] for path in added}:
        a, b = added[(*path, "a")], added[(*path, "b")]
        product = jnp.matmul(a, b, precision="highest")
        encoder[path] = encoder[path] + ALPHA / a.shape[-1] * product
    rest = {name: value for name, value in params.items() if name != "lora"}
    return {**rest, "encoder": unflatten_dict(encoder)}
