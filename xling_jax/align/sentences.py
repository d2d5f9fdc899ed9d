"""Aligns the sentences of two documents that are translations: groups of m and n, in order.

The algorithm of vecalign (Thompson and Koehn 2019): dynamic programming over groups of adjacent
sentences, first on documents of which neighbors were merged again and again, then in a band around
the path found there. Time and memory are linear in the length of the documents.

Two rules are ours. The cost of a group grows with m + n, not m n, plus a constant for each sentence
beyond one a side: a geometric prior, as the sizes of groups that Gale and Church (1993) counted. So
two sentences whose content is divided differently become one group, and two good pairs stay two.
And every sentence at the edge of a group must bring its sides closer. Without that, a sentence that
has no translation ends in a neighbor's group, since a cosine falls little when a sentence is added.
`lab/exams/README.md` has what each is worth.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xling_jax.align.rows import l2_normalize, slices
from xling_jax.options import OptionError, check_values, option

# Sentences of a document that is aligned without a band.
_WHOLE = 200
# Fewer sentences than this say little about random ones.
_FEW = 10
_BLOCK_CELLS = 65_536
_MOST_SENTENCES = 50  # in a group; memory grows with the square
_TINY = 1e-6


class Group(NamedTuple):
    """Sentences that are translations of one another.

    Attributes:
        source, target: their positions; one of the two is empty for a sentence without translation.
        cost: 1 - cosine, divided by its mean for random sentences: 0 for equal vectors, about 1 for
            random ones; 0 for a sentence without translation.
    """

    source: range
    target: range
    cost: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceAligner:
    """Aligns sentences; the attributes determine the result.

    `max_sentences` 4 allows groups of 1-1, 1-2, 1-3, 2-2 and their reverses. `num_samples` are
    sentences of the other side that a cost is normalized by. A larger `radius` finds longer
    insertions and takes longer.
    """

    max_sentences: int = option(6, "most sentences in both sides of a group together")
    deletion: float = option(
        0.55, "cost of a sentence without translation; random pairs cost about 1", positive=True
    )
    merging: float = option(
        0.2, "cost of each sentence of a group beyond one a side; larger finds smaller groups"
    )
    num_samples: int = 100
    radius: int = option(10, "search radius around the coarse path, in sentences")
    seed: int = 0

    def __post_init__(self):
        check_values(self)
        if not math.isfinite(self.deletion + self.merging):
            raise OptionError(
                f"deletion={self.deletion} and merging={self.merging} must be finite numbers"
            )
        at_least = {"max_sentences": 2, "merging": 0, "num_samples": 1, "radius": 1, "seed": 0}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise OptionError(f"{name}={getattr(self, name)} must be at least {least}")
        if self.max_sentences > _MOST_SENTENCES:
            raise OptionError(
                f"max_sentences={self.max_sentences} must be at most {_MOST_SENTENCES}"
            )

    @property
    def num_overlaps(self) -> int:
        """Largest number of sentences of one side in a group."""
        return self.max_sentences - 1

    def align(
        self,
        source: np.ndarray,
        target: np.ndarray,
        others: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> list[Group]:
        """Aligns two documents.

        Args:
            source: [overlaps, m, dim]: source[k, i] is the vector of the k + 1 sentences that begin
                with sentence i, see `encode.sentence_alignment.overlap_vectors`.
            target: [overlaps, n, dim].
            others: sentences of either language, [k, dim] each, that costs are normalized by if a
                document has few of its own: among those, the translation itself counts for much,
                and costs come near 1. None for the documents' own.

        Returns groups in order that cover every sentence once.
        """
        if not source.shape[1] or not target.shape[1]:
            sides = ((range(i, i + 1), range(0)) for i in range(source.shape[1]))
            others = ((range(0), range(j, j + 1)) for j in range(target.shape[1]))
            return [Group(*sides, 0.0) for sides in (*sides, *others)]
        random = np.random.default_rng(self.seed)
        levels = [(_unit(source), _unit(target))]
        while max(side.shape[1] for side in levels[-1]) > _WHOLE:
            levels.append(tuple(_merged(side) for side in levels[-1]))
        path = None
        for depth, sides in reversed([*enumerate(levels)]):
            kinds = _kinds(2 if depth else self.max_sentences)
            is_short = others is not None and min(side.shape[1] for side in sides) < _FEW
            samples = [_unit(s) for s in others] if is_short else [side[0] for side in sides]
            costs = _Costs(*sides, kinds, samples, self.num_samples, random, self.merging)
            # The path through merged sentences as one through the sentences themselves.
            center = None if path is None else np.minimum(2 * path, costs.sizes)
            # One sentence a side, compared with itself, costs 1, whatever it says.
            is_alone = all(len(side) == 1 for side in samples) and costs.sizes == (1, 1)
            deletion = np.inf if is_alone else self.deletion
            path, path_costs = _cheapest_path(costs, deletion, center, self.radius)
        begins, ends = path[:-1], path[1:]
        groups = []
        for begin, end, cost in zip(begins, ends, path_costs):
            rows, columns = map(range, begin, end)
            size = len(rows) + len(columns)
            # The cost on the path grows with the group; vecalign reports that of a pair, too.
            of_pair = max(2 * (float(cost) - self.merging * (size - 2)) / size, 0.0)
            groups.append(Group(rows, columns, of_pair if rows and columns else 0.0))
        return groups


def _kinds(max_sentences: int) -> list[tuple[int, int]]:
    """(m, n) of groups with sentences on both sides, small ones first."""
    sizes = range(1, max_sentences)
    found = [(m, n) for m in sizes for n in sizes if m + n <= max_sentences]
    return sorted(found, key=lambda kind: (sum(kind), abs(kind[0] - kind[1])))


def _unit(vectors: np.ndarray) -> np.ndarray:
    return l2_normalize(np.asarray(vectors, np.float32))  # squares of float16 overflow from 256 on


def _merged(vectors: np.ndarray) -> np.ndarray:
    """[1, ceil(n / 2), dim]: unit vectors of pairs of neighbors, of the first overlap."""
    single = vectors[0]
    if len(single) % 2:
        single = np.concatenate([single, single[-1:]])
    return _unit(single.reshape(1, -1, 2, single.shape[1]).sum(axis=2))


class _Costs:
    """Costs of groups of m and n sentences x and y.

    c(x, y) = (m + n) (1 - cos(x, y)) / (norm(x) + norm(y)) + merging (m + n - 2).
    The norm of a vector is the mean of 1 - cos to sampled vectors of the other side, of `samples`.
    """

    def __init__(
        self,
        source: np.ndarray,
        target: np.ndarray,
        kinds: Sequence[tuple[int, int]],
        samples: Sequence[np.ndarray],
        num_samples: int,
        random: np.random.Generator,
        merging: float,
    ):
        self.source, self.target, self.kinds, self.merging = source, target, kinds, merging
        self.sizes = source.shape[1], target.shape[1]
        self._norms = []
        for side, other in ((source, samples[1]), (target, samples[0])):
            sampled = other[random.integers(0, len(other), num_samples)]
            self._norms.append(1 - side @ sampled.mean(axis=0))

    def __call__(
        self, kind: tuple[int, int], i: np.ndarray, j: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Costs and cosines of groups that begin with sentences i and j, which must be inside."""
        m, n = kind
        cosines = np.empty(len(i), np.float32)
        for part in slices(len(i), _BLOCK_CELLS):
            pairs = self.source[m - 1, i[part]], self.target[n - 1, j[part]]
            cosines[part] = np.einsum("nd,nd->n", *pairs)
        norms = self._norms[0][m - 1, i] + self._norms[1][n - 1, j]
        # Never 0, or two equal sentences were as cheap in one group as in two. Norms near 0, of
        # documents of one sentence and its copy, would make these as costly as random ones.
        distances = np.maximum(1 - cosines, _TINY) / np.maximum(norms, 100 * _TINY)
        return (m + n) * distances + self.merging * (m + n - 2), cosines


def _cheapest_path(
    costs: _Costs, deletion: float, center: np.ndarray | None, radius: int
) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest sequence of groups and deletions.

    The cells of an antidiagonal, i + j = constant, do not depend on one another, so they are
    computed together. The band has the cells (i, j) with i at most `radius` from that of `center`,
    [points, 2] a path through the cells, on their antidiagonal; None computes all cells.

    Returns:
        path: [groups + 1, 2] (i, j) before the first and after each group.
        costs: [groups] of each.
    """
    num_source, num_target = costs.sizes
    last = num_source + num_target
    steps = np.arange(last + 1)
    if center is None:
        lows, highs = np.maximum(0, steps - num_target), np.minimum(steps, num_source)
    else:
        middle = np.interp(steps, center.sum(axis=1), center[:, 0]).round().astype(np.int64)
        lows = np.maximum(middle - radius, np.maximum(0, steps - num_target))
        highs = np.minimum(middle + radius, np.minimum(steps, num_source))
    width = int((highs - lows).max()) + 1
    moves = np.array([*costs.kinds, (1, 0), (0, 1)])
    prices = _band_costs(costs, deletion, lows, highs, width)
    total = np.full((last + 1, width), np.inf)
    best = np.full((last + 1, width), -1, np.min_scalar_type(-len(moves)))
    total[0, 0] = 0
    num_before, num_rows = moves.sum(axis=1), moves[:, 0]
    numbers = np.arange(len(moves))[:, None]
    for step in range(1, last + 1):
        i = np.arange(lows[step], highs[step] + 1)
        before = np.maximum(step - num_before, 0)
        column = i - (num_rows + lows[before])[:, None]
        inside = (column >= 0) & (column <= (highs - lows)[before][:, None])
        inside &= (step >= num_before)[:, None]
        before, column = before[:, None], np.where(inside, column, 0)
        sums = total[before, column] + prices[numbers, before, column]
        sums[~inside] = np.inf
        best[step, : len(i)] = sums.argmin(axis=0)  # of equal ones the first, the smallest group
        total[step, : len(i)] = sums.min(axis=0)
    i, j = costs.sizes
    path, path_costs = [(i, j)], []
    while i or j:
        number = best[i + j, i - lows[i + j]]
        i, j = (i, j) - moves[number]
        path.append((i, j))
        path_costs.append(prices[number, i + j, i - lows[i + j]])
    return np.array(path[::-1]), np.array(path_costs[::-1])


def _band_costs(
    costs: _Costs, deletion: float, lows: np.ndarray, highs: np.ndarray, width: int
) -> np.ndarray:
    """[kinds + 2, steps, width] costs of the groups that begin in each cell, deletions last.

    Infinite if they end outside the document, or if the sides are as near without the first or last
    sentence of one: it does not belong there.
    """
    step, column = np.nonzero(np.arange(width) <= (highs - lows)[:, None])
    i = lows[step] + column
    j = step - i
    prices = np.full((len(costs.kinds) + 2, len(lows), width), np.inf, np.float32)
    prices[-2:] = deletion
    nearness: dict[tuple[int, int], np.ndarray] = {}  # cosines of groups; -inf outside the band
    for number, (m, n) in enumerate(costs.kinds):
        fits = np.flatnonzero((i + m <= costs.sizes[0]) & (j + n <= costs.sizes[1]))
        cells = step[fits], column[fits]
        price, cosines = costs((m, n), i[fits], j[fits])
        parts = [((m - 1, n), 0, 0), ((m - 1, n), 1, 0), ((m, n - 1), 0, 0), ((m, n - 1), 0, 1)]
        for smaller, down, right in parts:
            if smaller in nearness:
                begin = cells[0] + down + right
                at = i[fits] + down - lows[begin]
                inside = (at >= 0) & (at < width)
                near = nearness[smaller][begin, at * inside]
                price[inside & (near >= cosines)] = np.inf
        nearness[m, n] = np.full((len(lows), width), -np.inf, np.float32)
        nearness[m, n][cells] = cosines
        prices[number][cells] = price
    return prices
