"""Mining hard negatives with the encoder that is being trained."""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from xling_jax.align.knn import top_k
from xling_jax.losses.contrastive import normalized
from xling_jax.train.batches import TranslationBatches
from xling_jax.train.hard_negatives import REMEMBERED, RowNeighbors
from xling_jax.train.mesh import batch_sharding, replicated, state_sharding, to_global
from xling_jax.train.terms.term import Setting, interleave

_logger = logging.getLogger(__name__)


class Miner:
    """Finds the hard negatives of all training rows.

    The rows of a pair of languages are encoded once and searched in groups of about `pool` rows of
    similar length, which differ at every step, so memory and time per row do not depend on the size
    of the text. The search is exact. Its result is a function of the parameters, the step and the
    batching settings, the same in all processes.

    Args:
        setting: with the model.
        batches: of the run.
        mesh: of the run.
        params: shapes of the model's parameters.
        pool: rows of a group.
        margin: see `find_neighbors`.
    """

    def __init__(
        self,
        setting: Setting,
        batches: TranslationBatches,
        mesh: Mesh,
        params: Any,
        *,
        pool: int,
        margin: float,
    ):
        self._batches, self._mesh, self._pool, self._margin = batches, mesh, pool, margin
        everywhere = replicated(mesh)

        def encode(params: Any, source: jax.Array, target: jax.Array) -> jax.Array:
            # As in `train.step`: devices exchange parameters, never activations.
            params = jax.lax.with_sharding_constraint(params, everywhere)
            tokens = interleave(source, target)
            vectors = setting.model.apply({"params": params}, tokens, True, method="encode")
            vectors = normalized(vectors.astype(jnp.float32))
            return vectors.reshape(len(source), 2, -1)

        rows = batch_sharding(mesh)
        self._encode = jax.jit(
            encode,
            in_shardings=(state_sharding(mesh, params), rows, rows),
            out_shardings=everywhere,
        )

    def __call__(self, params: Any, step: int) -> dict[str, RowNeighbors]:
        """Pair -> the neighbors of its rows.

        Args:
            params: of the model, after `step` updates.
            step: which also draws the groups.
        """
        started, found = time.monotonic(), {}
        for number, pair in enumerate(self._batches.pair_names):
            if pair not in found:
                found[pair] = self._mine(params, step, number)
        with_any = sum(int((n.negatives[:, 0] >= 0).sum()) for n in found.values())
        rows = sum(len(neighbors.negatives) for neighbors in found.values())
        seconds = time.monotonic() - started
        _logger.info(
            "step %d: hard negatives for %d of %d rows, %.1f s", step, with_any, rows, seconds
        )
        return found

    def _mine(self, params: Any, step: int, number: int) -> RowNeighbors:
        """The neighbors of one pair; each process searches every so many groups."""
        texts = self._batches.texts[number]
        found = [np.full((len(texts), REMEMBERED), -1, np.int32) for _ in RowNeighbors._fields]
        index, count = jax.process_index(), jax.process_count()
        groups = self._groups(params, step, number)
        while turn := [group for _, group in zip(range(count), groups)]:
            largest = max(len(rows) for rows, _ in turn)
            own = np.full((len(found), largest, REMEMBERED), -1, np.int32)
            if index < len(turn):
                rows, vectors = turn[index]
                neighbors = find_neighbors(vectors, texts[rows], self._margin)
                for part, local in zip(own, neighbors):
                    part[: len(rows)] = np.where(local >= 0, rows[local], -1)
            shared = multihost_utils.process_allgather(own) if count > 1 else own[None]
            for (rows, _), parts in zip(turn, shared):
                for whole, part in zip(found, parts):
                    whole[rows] = part[: len(rows)]
        return RowNeighbors(*found)

    def _groups(
        self, params: Any, step: int, number: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows [n] and their vectors [n, 2, dim], in groups of at least `pool` but for the last."""
        rows, vectors, size = [], [], 0
        entries = self._batches.plan.one_pass(number, step)
        # Long sentences are contrasted with long ones. Otherwise most negatives would be short.
        for entry in sorted(entries, key=lambda entry: entry.bucket.length):
            batch = to_global(self._mesh, self._batches.read(entry))
            encoded = self._encode(params, batch["source_tokens"], batch["target_tokens"])
            real = entry.rows >= 0
            rows.append(entry.rows[real])
            vectors.append(np.asarray(encoded)[real])
            size += len(rows[-1])
            if size >= self._pool:
                yield np.concatenate(rows), np.concatenate(vectors)
                rows, vectors, size = [], [], 0
        if rows:
            yield np.concatenate(rows), np.concatenate(vectors)


def find_neighbors(vectors: np.ndarray, texts: np.ndarray, margin: float) -> RowNeighbors:
    """Tells hard negatives from translations among the nearest pairs of each pair.

    Two pairs are as similar as the source of one and the target of the other, whichever is more. A
    similar pair counts as a translation if it shares a text, or if its cosine exceeds that of the
    pair itself minus the margin (Moreira et al. 2024, positive-aware mining).

    Args:
        vectors: [n, 2, dim] float32, unit vectors of sources and targets.
        texts: [n, 2] uint64, equal for equal texts of one side.
        margin: cosine.

    Returns:
        For each pair the first `REMEMBERED` of either kind, as numbers from 0 to n - 1.
    """
    source, target = vectors[:, 0], vectors[:, 1]
    positive = (source * target).sum(1)
    scores, found = top_k(source, target, 2 * REMEMBERED + 1, backend="auto")
    back = np.stack([(target * source[column]).sum(1) for column in found.T], axis=1)
    similar = np.maximum(scores, back) > positive[:, None] - margin
    translations = similar | (texts[found] == texts[:, None]).any(2)
    other = found != np.arange(len(found))[:, None]
    return RowNeighbors(_first(found, other & ~translations), _first(found, other & translations))


def _first(found: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The first `REMEMBERED` chosen columns of each row, -1 where there are fewer; int32."""
    order = np.argsort(~chosen, axis=1, kind="stable")[:, :REMEMBERED]
    first = np.where(
        np.take_along_axis(chosen, order, 1), np.take_along_axis(found, order, 1), -1
    ).astype(np.int32)
    return np.pad(first, ((0, 0), (0, REMEMBERED - first.shape[1])), constant_values=-1)


def to_arrays(neighbors: Mapping[str, RowNeighbors]) -> dict[str, dict[str, np.ndarray]]:
    """As a checkpoint holds it."""
    return {pair: found._asdict() for pair, found in neighbors.items()}


def from_arrays(arrays: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, RowNeighbors]:
    """The inverse of `to_arrays`."""
    return {pair: RowNeighbors(**found) for pair, found in arrays.items()}
