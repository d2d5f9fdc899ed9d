"""Bitext mining: which rows of two collections are translations of one another.

The procedure of LASER's `mine_bitexts` (Artetxe and Schwenk 2019a), on embeddings alone: texts,
duplicates among them and files are the caller's. Neighbors are found once (`find_candidates`);
choosing pairs, ranking candidates and scoring given pairs all start from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xling_jax.align import knn
from xling_jax.align.margin import MARGINS

if TYPE_CHECKING:
    import jax

MARGIN_NEIGHBORS = 4  # Artetxe and Schwenk (2019a), section 3.
RETRIEVALS = ("max", "intersect", "fwd", "bwd")

# Pairs whose vectors are gathered at a time.
_BLOCK_PAIRS = 8192


@dataclass(frozen=True)
class MinedPairs:
    """Pairs of rows, best first.

    Attributes:
        source: [p] int64, rows of the first side.
        target: [p] int64, rows of the second side.
        scores: [p] float32.
    """

    source: np.ndarray
    target: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[tuple[float, int, int]]:
        """The pairs one by one, (score, source, target)."""
        return zip(self.scores.tolist(), self.source.tolist(), self.target.tolist(), strict=True)

    def take(self, places: np.ndarray) -> MinedPairs:
        """Those at the places, or where a mask holds."""
        return MinedPairs(self.source[places], self.target[places], self.scores[places])


@dataclass(frozen=True)
class Candidates:
    """The nearest rows of the other side for every row, both ways.

    Attributes:
        forward_cosines: [n, min(k, m)] float32, of each source row with its neighbors, best first.
        forward: [n, min(k, m)] int64, rows of the target side.
        backward_cosines: [m, min(k, n)] float32, of each target row with its neighbors.
        backward: [m, min(k, n)] int64, rows of the source side.
    """

    forward_cosines: np.ndarray
    forward: np.ndarray
    backward_cosines: np.ndarray
    backward: np.ndarray

    @property
    def source_means(self) -> np.ndarray:
        """[n] mean cosine of each source row to its neighbors."""
        return _row_means(self.forward_cosines)

    @property
    def target_means(self) -> np.ndarray:
        """[m] mean cosine of each target row to its neighbors."""
        return _row_means(self.backward_cosines)

    def scores(
        self, margin: str = "ratio", min_cosine: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Margins of all candidates.

        Args:
            margin: "ratio", "distance" or "absolute".
            min_cosine: candidates below it get minus infinity.

        Returns:
            [n, min(k, m)] and [m, min(k, n)] float32.

        Raises:
            ValueError: if the margin is unknown.
        """
        check_choice("margin", margin, MARGINS)
        source, target, score = self.source_means, self.target_means, MARGINS[margin]
        forward = score(self.forward_cosines, source, target[self.forward])
        backward = score(self.backward_cosines, target, source[self.backward])
        if min_cosine is not None:
            forward[self.forward_cosines < min_cosine] = -np.inf
            backward[self.backward_cosines < min_cosine] = -np.inf
        return forward, backward


def mine(
    source: np.ndarray,
    target: np.ndarray,
    k: int = MARGIN_NEIGHBORS,
    margin: str = "ratio",
    retrieval: str = "max",
    threshold: float | None = None,
    *,
    min_cosine: float | None = None,
    memory_mb: float = 256,
    backend: str = "numpy",
) -> MinedPairs:
    """Mines pairs of rows that are likely translations.

    Args:
        source: [n, dim] embeddings of any origin, one row a distinct text; need not be normalized;
            may be memory-mapped.
        target: [m, dim], the same.
        k: size of the neighborhoods, and candidates of each row.
        margin: "ratio", "distance" or "absolute"; see `align.margin`.
        retrieval: see `choose_pairs`.
        threshold: pairs that score this or less are left out; None keeps all.
        min_cosine: pairs with a lower cosine are no candidates. Against collections that share
            nothing, where the best of bad candidates stands out from its neighborhood.
        memory_mb: see `knn.top_k`.
        backend: see `knn.top_k`.

    Returns:
        The pairs, best first; none if a side is empty. Iterating gives (score, source, target).

    Raises:
        ValueError: if shapes disagree, a value is not finite, or an argument is out of range.
    """
    check_choice("margin", margin, MARGINS)
    check_choice("retrieval", retrieval, RETRIEVALS)
    candidates = find_candidates(source, target, k, memory_mb=memory_mb, backend=backend)
    return choose_pairs(
        candidates, margin=margin, retrieval=retrieval, threshold=threshold, min_cosine=min_cosine
    )


def find_candidates(
    source: knn.AnyRows,
    target: knn.AnyRows,
    k: int = MARGIN_NEIGHBORS,
    *,
    memory_mb: float = 256,
    backend: str = "numpy",
    report: knn.Report | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Candidates:
    """Finds the k nearest rows by cosine, both ways.

    Args:
        source: [n, dim] embeddings; those in memory are copied to normalize them, those mapped
            from a file are normalized as they are read.
        target: [m, dim], the same.
        k: how many.
        memory_mb: see `knn.top_k`; the normalized copies come on top.
        backend: see `knn.top_k`.
        report: see `knn.top_k`.
        devices: see `knn.top_k`.

    Returns:
        The candidates; empty arrays if a side is empty.

    Raises:
        ValueError: if shapes disagree or a value is not finite.
    """
    source, target = unit_rows(source, "source"), unit_rows(target, "target")
    if not len(source) or not len(target):
        scores, indices = (np.empty((0, 0), dtype) for dtype in (np.float32, np.int64))
        shapes = [(len(source), 0), (len(target), 0)]
        return Candidates(*(a.reshape(shape) for shape in shapes for a in (scores, indices)))
    forward, backward = knn.top_k_both_ways(
        source, target, k, memory_mb=memory_mb, backend=backend, report=report, devices=devices
    )
    return Candidates(*forward, *backward)


def unit_rows(embeddings: knn.AnyRows, name: str) -> knn.AnyRows:
    """Embeddings with rows of unit length: a copy, or a view of what is mapped from a file."""
    if isinstance(embeddings, knn.UnitRows):
        return embeddings
    if isinstance(embeddings, np.memmap):
        return knn.UnitRows(embeddings, name=name)
    return knn.normalize(embeddings, name)


def choose_pairs(
    candidates: Candidates,
    *,
    margin: str = "ratio",
    retrieval: str = "max",
    threshold: float | None = None,
    min_cosine: float | None = None,
) -> MinedPairs:
    """Chooses among the candidates as LASER's `mine_bitexts` does.

    Args:
        candidates: from `find_candidates`.
        margin: see `mine`.
        retrieval: "fwd", every source row with its best candidate; "bwd", every target row with
            its; "intersect", the pairs that are both; or "max", of the forward and the backward
            pairs the best first, as long as neither of their rows is used.
        threshold: see `mine`. LASER's default, for "max" alone, is 0.
        min_cosine: see `mine`.

    Returns:
        The pairs, best first; equal scores in the order of the forward pairs, then the backward
        ones.

    Raises:
        ValueError: if an argument is out of range.
    """
    check_choice("retrieval", retrieval, RETRIEVALS)
    forward_scores, backward_scores = candidates.scores(margin, min_cosine)
    forward = _best(candidates.forward, forward_scores)
    backward = _best(candidates.backward, backward_scores)
    backward = MinedPairs(backward.target, backward.source, backward.scores)
    if retrieval == "fwd":
        pairs = forward
    elif retrieval == "bwd":
        pairs = backward
    elif retrieval == "intersect":
        source_of = np.full(len(candidates.backward), -1, np.int64)
        source_of[backward.target] = backward.source
        pairs = forward.take(source_of[forward.target] == forward.source)
    else:
        pairs = MinedPairs(
            np.concatenate([forward.source, backward.source]),
            np.concatenate([forward.target, backward.target]),
            np.concatenate([forward.scores, backward.scores]),
        )
    pairs = pairs.take(np.argsort(-pairs.scores, kind="stable"))
    if retrieval == "max":
        sizes = len(candidates.forward), len(candidates.backward)
        pairs = pairs.take(_one_to_one(pairs, *sizes))
    return pairs if threshold is None else pairs.take(pairs.scores > threshold)


def rank_candidates(
    candidates: Candidates, *, margin: str = "ratio", min_cosine: float | None = None
) -> MinedPairs:
    """All forward candidates: the n-best list.

    Args:
        candidates: from `find_candidates`.
        margin: see `mine`.
        min_cosine: see `mine`.

    Returns:
        Pairs by source row, best first.

    Raises:
        ValueError: if the margin is unknown.
    """
    scores, _ = candidates.scores(margin, min_cosine)
    order = np.argsort(-scores, axis=1, kind="stable")
    scores = np.take_along_axis(scores, order, axis=1).ravel()
    rows = np.repeat(np.arange(len(order)), order.shape[1])
    pairs = MinedPairs(rows, np.take_along_axis(candidates.forward, order, axis=1).ravel(), scores)
    return pairs.take(scores > -np.inf)


def score_pairs(
    source: knn.AnyRows,
    target: knn.AnyRows,
    pairs: tuple[np.ndarray, np.ndarray],
    candidates: Candidates,
    *,
    margin: str = "ratio",
    min_cosine: float | None = None,
) -> np.ndarray:
    """Scores given pairs against the neighborhoods of their rows.

    Args:
        source: [n, dim] embeddings, as given to `find_candidates`.
        target: [m, dim], the same.
        pairs: source rows [p] and target rows [p], int.
        candidates: from `find_candidates`.
        margin: see `mine`.
        min_cosine: pairs below it get minus infinity.

    Returns:
        [p] float32.

    Raises:
        ValueError: if the margin is unknown.
    """
    check_choice("margin", margin, MARGINS)
    source, target = unit_rows(source, "source"), unit_rows(target, "target")
    cosines = np.empty(len(pairs[0]), np.float32)
    for start in range(0, len(cosines), _BLOCK_PAIRS):
        block = slice(start, start + _BLOCK_PAIRS)
        x, y = (side[rows[block]] for side, rows in zip((source, target), pairs))
        cosines[block] = np.einsum("pd,pd->p", x, y)
    means = candidates.source_means[pairs[0]], candidates.target_means[pairs[1]]
    scores = MARGINS[margin](cosines[:, None], means[0], means[1][:, None])[:, 0]
    if min_cosine is not None:
        scores[cosines < min_cosine] = -np.inf
    return scores


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def _row_means(cosines: np.ndarray) -> np.ndarray:
    return cosines.mean(axis=1) if cosines.size else np.zeros(len(cosines), np.float32)


def _best(neighbors: np.ndarray, scores: np.ndarray) -> MinedPairs:
    """The best candidate of every row that has one; of equal scores the nearest by cosine."""
    if not scores.size:
        empty = np.empty(0, np.int64)
        return MinedPairs(empty, empty, np.empty(0, np.float32))
    rows, best = np.arange(len(scores)), scores.argmax(axis=1)
    pairs = MinedPairs(rows, neighbors[rows, best], scores[rows, best])
    return pairs.take(pairs.scores > -np.inf)


def _one_to_one(pairs: MinedPairs, num_source: int, num_target: int) -> np.ndarray:
    """Places of the pairs that greedy matching accepts, given the best first."""
    used_source, used_target = bytearray(num_source), bytearray(num_target)
    accepted = []
    for place, (source, target) in enumerate(zip(pairs.source.tolist(), pairs.target.tolist())):
        if not used_source[source] and not used_target[target]:
            used_source[source] = used_target[target] = 1
            accepted.append(place)
    return np.array(accepted, np.int64)
