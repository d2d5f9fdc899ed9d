"""Hashes that a checkpoint carries, of its arrays and of its record."""

import json
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from xling_jax.files.hashes import fingerprint
from xling_jax.losses.contrastive import murmur_mix

# Odd constants from the fractional part of the golden ratio and of the square root of 2.
_LANES = (0x9E3779B9, 0x6A09E667)


def array_hashes(tree: Any) -> dict[str, str]:
    """Hashes the arrays of a pytree by the bits of their numbers and positions: {path: hex digits}.

    The hash of an array does not depend on how it is split over devices and processes, which all
    call this: each number, of at most 32 bits, contributes a term, and terms are added modulo 2^32.
    A change of one number always changes the hash; other damage goes unnoticed with probability
    2^-64.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    # Each device sums what it holds. Sums over devices would be as many collectives as arrays.
    terms = []
    for number, (_, leaf) in enumerate(leaves):
        for shard in leaf.addressable_shards:
            if shard.replica_id == 0:
                starts = np.array([part.start or 0 for part in shard.index], np.uint32)
                shape = np.array(leaf.shape, np.uint32)
                terms.append((number, _sum_terms(shard.data, starts, shape)))
    sums = np.zeros((len(leaves), len(_LANES)), np.uint32)
    for number, term in terms:
        sums[number] += np.asarray(term)
    if jax.process_count() > 1:
        sums = multihost_utils.process_allgather(sums).sum(axis=0, dtype=np.uint32)
    paths = [jax.tree_util.keystr(path) for path, _ in leaves]
    return {path: "".join(f"{int(lane):08x}" for lane in row) for path, row in zip(paths, sums)}


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON record that `unseal` checks."""
    content = json.loads(json.dumps(content))
    return {"content": content, "fingerprint": fingerprint(content)}


def unseal(text: str) -> dict[str, Any]:
    """Reads a record; ValueError if it is damaged, or not sealed, as up to version 0.2."""
    record = json.loads(text)
    if not isinstance(record, dict) or record.keys() != {"content", "fingerprint"}:
        raise ValueError("it has no fingerprint")
    if record["fingerprint"] != fingerprint(record["content"]):
        raise ValueError("its fingerprint does not match")
    return record["content"]


@jax.jit
def _sum_terms(part: jax.Array, starts: jax.Array, shape: jax.Array) -> jax.Array:
    """uint32 [2], two independent sums over the numbers in a part of an array.

    The part begins at `starts` in an array of `shape`, uint32 [axes].
    """
    words = _words(part)
    position = jnp.zeros(words.shape, jnp.uint32)
    for axis in range(words.ndim):
        index = jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis) + starts[axis]
        position = position * shape[axis] + index
    mixed = [murmur_mix(words ^ murmur_mix(position + np.uint32(lane))) for lane in _LANES]
    return jnp.stack([jnp.sum(lane, dtype=jnp.uint32) for lane in mixed])


def _words(array: jax.Array) -> jax.Array:
    """The bits of numbers as uint32."""
    if array.dtype == jnp.bool_:
        return array.astype(jnp.uint32)
    words = jax.lax.bitcast_convert_type(array, jnp.dtype(f"uint{8 * array.dtype.itemsize}"))
    return words.astype(jnp.uint32)
