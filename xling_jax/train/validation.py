"""The validation loss: the objective on held-out pairs, in the same way at every evaluation.

Without dropout, with fixed batches, masks and negatives, so that evaluations and runs are
comparable whatever their seeds. Every pair that fits a bucket counts exactly once.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from xling_jax.sharding import batch_sharding, replicated, rows_over, state_sharding, to_global
from xling_jax.train.batches import Direction, TranslationBatches
from xling_jax.train.metrics import means
from xling_jax.train.objective import Objective

NAME = "validation"
# Of batches, masks and negatives, whatever the seed of the run.
SEED = 0


class Validation:
    """Measures the objective of a run on held-out pairs, batched with the seed `SEED`."""

    def __init__(self, objective: Objective, batches: TranslationBatches, mesh: Mesh, params: Any):
        self._batches, self._mesh = batches, mesh
        everywhere = replicated(mesh)

        def sums(params: Any, batch: Mapping[str, jax.Array], number: jax.Array):
            # As in `train.step`: devices exchange parameters, never activations.
            params = jax.lax.with_sharding_constraint(params, everywhere)
            key = jax.random.fold_in(jax.random.key(SEED), number)
            with rows_over(mesh):
                return objective(params, batch, key, False)[1]

        self._sums = jax.jit(
            sums,
            in_shardings=(state_sharding(mesh, params), batch_sharding(mesh), None),
            out_shardings=everywhere,
        )

    def __call__(self, params: Any) -> dict[str, float]:
        """`validation/METRIC` over all pairs of languages, `validation/A-B/METRIC` for each."""
        total, measured = Counter(), {}
        for number, direction in enumerate(self._batches.directions):
            sums = Counter()
            for entry in self._batches.plan.one_pass(number):
                batch = to_global(self._mesh, self._batches.read(entry))
                found = jax.device_get(self._sums(params, batch, np.int32(entry.index)))
                sums.update({name: float(value) for name, value in found.items()})
            total.update(sums)
            measured |= {_name(m, direction): value for m, value in means(sums).items()}
        return {_name(m): value for m, value in means(total).items()} | measured


def _name(metric: str, direction: Direction | None = None) -> str:
    parts = [f"{direction.source}-{direction.target}"] if direction else []
    return "/".join([NAME, *parts, metric])


def is_validation(metric: str) -> bool:
    """Returns whether a metric is one of the validation loss."""
    return metric.startswith(f"{NAME}/")


def losses(objective: Objective, directions: Collection[Direction]) -> list[str]:
    """Those metrics of which lower is better: the total and each term's, over all and by pair."""
    names = ["loss", *(term.logged for term in objective.terms.values())]
    return [_name(name, direction) for direction in (None, *directions) for name in names]
