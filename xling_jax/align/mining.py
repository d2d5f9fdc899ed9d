"""Bitext mining: which rows of two collections are translations of one another.

The procedure of LASER's `mine_bitexts` (Artetxe and Schwenk 2019a) on embeddings; `bitext` handles
texts and files. Neighbors are found once (`find_candidates`); choosing pairs and scoring given ones
both start from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xling_jax.align import knn
from xling_jax.align.margin import MARGINS, warn_of_raised
from xling_jax.align.rows import AnyRows, UnitRows, normalize
from xling_jax.files.embeddings import JoinedRows
from xling_jax.options import checks_numbers
from xling_jax.registry import check_choice

MARGIN_NEIGHBORS = 4  # Artetxe and Schwenk (2019a), section 3.
RETRIEVALS = ("max", "intersect", "fwd", "bwd")

# Pairs whose vectors are gathered at a time.
_BLOCK_PAIRS = 8192
# Pairs that greedy matching filters at a time.
_BLOCK_MATCHED = 2**16


@dataclass(frozen=True)
class RunnersUp:
    """Scores of the second-best candidates of all rows: what wrong candidates score in two texts.

    A sentence has at most one translation, so that its second candidate is wrong whether or not the
    first is right. What a score means depends on them: sentences of one text resemble each other
    more than those of another, and more of them are alike in a larger text.

    They are by a `margin`, of k candidates a row; `spread` is their standard deviation, above 0.
    """

    margin: str
    k: int
    mean: float
    spread: float

    def standardize(self, scores: np.ndarray) -> np.ndarray:
        """Scores in spreads above the mean, float64."""
        return (np.asarray(scores, np.float64) - self.mean) / self.spread


@dataclass(frozen=True)
class MinedPairs:
    """Pairs of rows, best first.

    Attributes:
        source: [p] int64, rows of the first side.
        target: [p] int64, rows of the second side.
        scores: [p] float32.
        runners_up: of the texts they were mined from, for `Calibration.precisions`; None if rows
            had a single candidate.
    """

    source: np.ndarray
    target: np.ndarray
    scores: np.ndarray
    runners_up: RunnersUp | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[tuple[float, int, int]]:
        """Yields (score, source, target)."""
        return zip(self.scores.tolist(), self.source.tolist(), self.target.tolist(), strict=True)

    def take(self, places: np.ndarray) -> MinedPairs:
        """Selects pairs by position or mask."""
        columns = (self.source[places], self.target[places], self.scores[places])
        return MinedPairs(*columns, self.runners_up)

    @staticmethod
    def concatenate(parts: Sequence[MinedPairs]) -> MinedPairs:
        """Joins lists of pairs in the given order, without their runners-up."""
        columns = zip(*((part.source, part.target, part.scores) for part in parts), strict=True)
        return MinedPairs(*map(np.concatenate, columns))


@dataclass(frozen=True)
class Candidates:
    """For every row of either side, its nearest rows on the other.

    Attributes:
        forward_cosines: [n, min(k, m)] float32, of each source row and its neighbors, best first.
        forward: [n, min(k, m)] int64, rows of the target side.
        backward_cosines, backward: [m, min(k, n)], likewise for each target row.
    """

    forward_cosines: np.ndarray
    forward: np.ndarray
    backward_cosines: np.ndarray
    backward: np.ndarray

    @property
    def source_means(self) -> np.ndarray:
        """[n] float32, mean cosine of each source row to its neighbors."""
        return _row_means(self.forward_cosines)

    @property
    def target_means(self) -> np.ndarray:
        """[m] float32, mean cosine of each target row to its neighbors."""
        return _row_means(self.backward_cosines)

    def scores(self, margin: str = "ratio") -> tuple[np.ndarray, np.ndarray]:
        """Scores all candidates by a margin, [n, min(k, m)] and [m, min(k, n)] float32."""
        check_choice("margin", margin, MARGINS)
        source, target, score = self.source_means, self.target_means, MARGINS[margin]
        forward = score(self.forward_cosines, source, target[self.forward])
        backward = score(self.backward_cosines, target, source[self.backward])
        return forward, backward

    def runners_up(
        self, margin: str = "ratio", scores: tuple[np.ndarray, np.ndarray] | None = None
    ) -> RunnersUp | None:
        """The second-best candidates of the smaller side; None without any, or if all are alike.

        Of both sides if they have equally many rows. The pairs are at most as many as the smaller
        side has rows, and a wrong one is the best of all candidates on the larger side. Rows of the
        larger side choose among fewer candidates, and theirs score lower. `scores` are those of the
        margin, if they are at hand.
        """
        sides = [side for side in scores or self.scores(margin) if side.shape[1] > 1 and len(side)]
        if not sides:
            return None
        fewest = min(map(len, sides))
        sides = [side for side in sides if len(side) == fewest]
        second = np.concatenate([np.partition(side, -2, axis=1)[:, -2] for side in sides])
        mean, spread = second.mean(dtype=np.float64), second.std(dtype=np.float64)
        k = max(side.shape[1] for side in sides)
        return RunnersUp(margin, k, float(mean), float(spread)) if spread > 0 else None


@checks_numbers
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
    index: str = "exact",
) -> MinedPairs:
    """Mines pairs of rows that are likely translations.

    Args:
        source: [n, dim] embeddings from any encoder, one row per distinct text; need not be
            normalized; may be memory-mapped.
        target: [m, dim], likewise.
        k: size of the neighborhoods, and number of candidates per row.
        margin: a key of `margin.MARGINS`: "ratio", "distance" or "absolute".
        retrieval: see `choose_pairs`.
        threshold: keep only pairs that score more than this; None is LASER's: 0 with "max", none
            with the others.
        min_cosine: drop pairs with a lower cosine, for unrelated collections, where the best of
            bad candidates stands out from its neighborhood.
        memory_mb: see `knn.top_k`.
        backend: see `knn.top_k`.
        index: see `knn.top_k`; "ivf" for millions of rows.

    Returns:
        The pairs, best first; none if a side is empty. Iteration yields (score, source, target).
    """
    check_choice("margin", margin, MARGINS)  # before the search
    check_choice("retrieval", retrieval, RETRIEVALS)
    candidates = find_candidates(
        source, target, k, memory_mb=memory_mb, backend=backend, index=index
    )
    return choose_pairs(
        candidates, margin=margin, retrieval=retrieval, threshold=threshold, min_cosine=min_cosine
    )


@checks_numbers
def find_candidates(
    source: AnyRows,
    target: AnyRows,
    k: int = MARGIN_NEIGHBORS,
    **search: Any,
) -> Candidates:
    """Finds the k nearest rows by cosine, both ways.

    Args:
        source: [n, dim] embeddings. Arrays in memory are copied to normalize them; arrays mapped
            from a file are normalized as they are read.
        target: [m, dim], likewise.
        k: number of neighbors.
        **search: see `knn.top_k`; `memory_mb` excludes the normalized copies.

    Returns the candidates; empty arrays if a side is empty. ValueError if shapes disagree or a
    value is not finite.
    """
    source, target = unit_rows(source, "source"), unit_rows(target, "target")
    if not len(source) or not len(target):
        sizes, dtypes = (len(source), len(target)), (np.float32, np.int64)
        return Candidates(*(np.empty((size, 0), dtype) for size in sizes for dtype in dtypes))
    forward, backward = knn.top_k_both_ways(source, target, k, **search)
    return Candidates(*forward, *backward)


def unit_rows(embeddings: AnyRows, name: str) -> AnyRows:
    """Embeddings with rows of unit length: a copy; of mapped arrays a view."""
    if isinstance(embeddings, UnitRows):
        return embeddings
    if isinstance(embeddings, (np.memmap, JoinedRows)):
        return UnitRows(embeddings, name=name)
    return normalize(embeddings, name)


@checks_numbers
def choose_pairs(
    candidates: Candidates,
    *,
    margin: str = "ratio",
    retrieval: str = "max",
    threshold: float | None = None,
    min_cosine: float | None = None,
) -> MinedPairs:
    """Chooses among candidates as LASER's `mine_bitexts` does; arguments and errors as `mine`.

    Retrieval "fwd" pairs every source row with its best candidate; "bwd", every target row with its
    best; "intersect" keeps the pairs found both ways; "max", greedily the best of the forward and
    backward pairs, each row in one pair at most.

    Returns:
        The pairs, best first; equal scores in the order forward pairs, backward pairs.
    """
    check_choice("retrieval", retrieval, RETRIEVALS)
    forward_scores, backward_scores = candidates.scores(margin)
    if margin == "ratio":
        source, target = candidates.source_means, candidates.target_means
        warn_of_raised((source, target[candidates.forward]), (target, source[candidates.backward]))
    runners_up = candidates.runners_up(margin, (forward_scores, backward_scores))
    if min_cosine is not None:
        forward_scores[candidates.forward_cosines < min_cosine] = -np.inf
        backward_scores[candidates.backward_cosines < min_cosine] = -np.inf
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
        pairs = MinedPairs.concatenate([forward, backward])
    pairs = pairs.take(np.argsort(-pairs.scores, kind="stable"))
    if retrieval == "max":
        pairs = one_to_one(pairs, len(candidates.forward), len(candidates.backward))
        threshold = 0.0 if threshold is None else threshold
    pairs = dataclasses.replace(pairs, runners_up=runners_up)
    return pairs if threshold is None else pairs.take(pairs.scores > threshold)


@checks_numbers
def score_pairs(
    source: AnyRows,
    target: AnyRows,
    pairs: tuple[np.ndarray, np.ndarray],
    candidates: Candidates,
    *,
    margin: str = "ratio",
    min_cosine: float | None = None,
) -> np.ndarray:
    """Scores given pairs against the neighborhoods of their rows; minus infinity below a cosine.

    Returns [p] float32 for `pairs`, source rows [p] and target rows [p], of the embeddings that
    `find_candidates` got.
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
    if margin == "ratio":
        warn_of_raised((means[0], means[1][:, None]))
    if min_cosine is not None:
        scores[cosines < min_cosine] = -np.inf
    return scores


def one_to_one(pairs: MinedPairs, num_source: int, num_target: int) -> MinedPairs:
    """Keeps the best pairs such that no row occurs twice, best first.

    Greedy: from the best score down, a pair is kept if neither of its rows is in a pair already
    kept. Equal scores are taken in the given order.
    """
    order = np.argsort(-pairs.scores, kind="stable")
    free_source, free_target = np.ones(num_source, bool), np.ones(num_target, bool)
    kept: list[int] = []
    for start in range(0, len(order), _BLOCK_MATCHED):
        places = order[start : start + _BLOCK_MATCHED]
        # Drops most pairs at once: far down the list one of the two rows is taken.
        places = places[free_source[pairs.source[places]] & free_target[pairs.target[places]]]
        rows = zip(places.tolist(), pairs.source[places].tolist(), pairs.target[places].tolist())
        for place, i, j in rows:
            if free_source[i] and free_target[j]:
                free_source[i] = free_target[j] = False
                kept.append(place)
        if len(kept) == min(num_source, num_target):
            break
    return pairs.take(np.array(kept, np.int64))


def _row_means(cosines: np.ndarray) -> np.ndarray:
    return cosines.mean(axis=1) if cosines.size else np.zeros(len(cosines), np.float32)


def _best(neighbors: np.ndarray, scores: np.ndarray) -> MinedPairs:
    """The best candidate of every row that has one; ties go to the larger cosine."""
    rows = np.arange(len(scores) if scores.size else 0)
    best = scores.argmax(axis=1) if scores.size else rows
    pairs = MinedPairs(rows, neighbors[rows, best], scores[rows, best])
    return pairs.take(pairs.scores > -np.inf)
