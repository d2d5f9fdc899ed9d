"""Token windows to vectors on the device: padded batches, compiled programs, shards."""

import collections
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xling_jax.encode.batch_plan import BatchShapes, plan_batches
from xling_jax.encode.texts import TokenWindow

# Batches handed to the device before the oldest is fetched: one runs while the next is packed.
_BATCHES_IN_FLIGHT = 2


class DeviceBatches:
    """Runs a module on token windows, batch by batch.

    Args:
        module: Linen module, `apply({"params": params}, tokens [batch, length]) -> [batch, dim]`.
        params: its parameters; batches are split over the devices of the mesh they live on.
        pad_id: token id of padding.

    Attributes:
        params: the parameters, on the device.
        num_devices: devices that share a batch.
    """

    def __init__(self, module: nn.Module, params: Any, pad_id: int | None):
        # Host arrays would be sent to the device again with every batch.
        self.params = jax.tree.map(
            lambda leaf: leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf), params
        )
        self._pad_id = pad_id
        self.num_devices = 1
        self._tokens_sharding = replicated = None
        sharding = getattr(next(iter(jax.tree.leaves(self.params)), None), "sharding", None)
        if isinstance(sharding, jax.sharding.NamedSharding) and sharding.mesh.size > 1:
            mesh = sharding.mesh
            self.num_devices = mesh.size
            rows = jax.sharding.PartitionSpec(mesh.axis_names)
            self._tokens_sharding = jax.sharding.NamedSharding(mesh, rows)
            replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self.apply = _jitted_apply(module, replicated)

    def run_window(self, window: TokenWindow, shapes: BatchShapes, embeddings: np.ndarray) -> int:
        """Fills [sentences, dim] in input order; returns the padded tokens computed."""
        padded_tokens = 0
        in_flight: collections.deque[tuple[np.ndarray, jax.Array]] = collections.deque()
        for members, (rows, length) in plan_batches(np.diff(window.offsets), shapes):
            tokens = self._pack(window, members, rows, length)
            in_flight.append((members, self.apply(self.params, tokens)))
            padded_tokens += rows * length
            if len(in_flight) == _BATCHES_IN_FLIGHT:
                _fetch(in_flight.popleft(), embeddings)
        for batch in in_flight:
            _fetch(batch, embeddings)
        return padded_tokens

    def _pack(self, window: TokenWindow, members: np.ndarray, rows: int, length: int) -> jax.Array:
        tokens = np.full((rows, length), self._pad_id, np.int32)
        starts, stops = window.offsets[members], window.offsets[members + 1]
        index = starts[:, None] + np.arange(length)
        real = index < stops[:, None]
        tokens[: len(members)][real] = window.tokens[index[real]]
        if self._tokens_sharding is None:
            return jax.device_put(tokens)
        # Works with several processes too: each holds all rows and gives its devices theirs.
        return jax.make_array_from_callback(
            tokens.shape, self._tokens_sharding, lambda index: tokens[index]
        )


def _fetch(batch: tuple[np.ndarray, jax.Array], embeddings: np.ndarray) -> None:
    members, result = batch
    embeddings[members] = np.asarray(result)[: len(members)]


@functools.lru_cache(maxsize=16)
def _jitted_apply(module: nn.Module, out_sharding: jax.sharding.Sharding | None) -> Any:
    """One jitted function per module, so that all its encoders share compiled programs."""

    def apply(params: Any, tokens: jax.Array) -> jax.Array:
        embeddings = module.apply({"params": params}, tokens, deterministic=True)
        return embeddings.astype(jnp.float32)

    return jax.jit(apply, out_shardings=out_sharding)
