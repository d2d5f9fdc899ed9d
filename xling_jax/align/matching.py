"""Document alignment: which documents of two collections are translations of one another.

Scored candidates, then one partner a document, the best pairs first. Works on document vectors of
any origin; texts, ids and URLs are the caller's.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from xling_jax.align import knn
from xling_jax.align.margin import MIN_DENOMINATOR
from xling_jax.align.mining import MARGIN_NEIGHBORS, MinedPairs, check_choice

_logger = logging.getLogger(__name__)

SIMILARITIES = ("margin", "cosine")

# Choice: in a domain of at most this many pairs all of them are candidates, as in the rules of
# WMT16, whose domains have 8.6 million on average. It bounds scores, rows and their order, 28
# bytes a pair, to 450 MiB.
ALL_PAIRS = 2**24
# Choice: in larger domains the nearest by cosine of every document. The true match is usually
# among the first four (LAWDR); greedy matching uses up the first ones of many documents.
DEFAULT_CANDIDATES = 16

# Pairs whose documents are looked up together.
_BLOCK_PAIRS = 2**16
_BLOCK_ROWS = 8192


def document_margin(
    product: np.ndarray, source_sum: np.ndarray, target_sum: np.ndarray, k: int
) -> np.ndarray:
    """Scores candidate pairs by their inner product relative to their neighborhoods.

    Equation 4 of LAWDR (Gong et al. 2021): the ratio margin of Artetxe and Schwenk (2019a) without
    the factor 1/(2k) of its denominator, so that it ranks alike and is 2k times smaller.
    Denominators below 2k times `margin.MIN_DENOMINATOR` are raised to it, as there: where vectors
    were debiased, neighbors can have negative cosines.

    Args:
        product: [n, k] float, inner product of document i with each of its candidates.
        source_sum: [n] float, sum of the inner products of document i with its k neighbors.
        target_sum: [n, k] float, the same for each candidate; [1, k] where all documents have the
            same candidates.
        k: size of the neighborhoods.

    Returns:
        [n, k] float32 scores; above 1 / (2k) means closer than the neighborhood.
    """
    return _document_margin(product, source_sum, target_sum, k)[0]


def align_documents(
    source: np.ndarray,
    target: np.ndarray,
    *,
    similarity: str = "margin",
    k: int = MARGIN_NEIGHBORS,
    candidates: int | None = None,
    domains: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
    accepted: tuple[np.ndarray, np.ndarray] | None = None,
    normalize: bool = True,
    memory_mb: float = 256,
    backend: str = "numpy",
    report: knn.Report | None = None,
) -> MinedPairs:
    """Aligns documents one to one.

    The procedure of LAWDR: candidates by cosine, scores by equation 4, the best pair first as long
    as neither of its documents is used. Documents with an all-zero vector, such as empty ones,
    are nobody's neighbor and are never matched.

    Memory beyond `memory_mb` and the vectors, which are not copied and may be memory-mapped: 450
    MiB where all pairs of a domain are candidates; else about 50 bytes a document and candidate,
    0.75 GiB for 500k x 500k documents with 16 candidates. Their vectors of 1024 are 3.8 GiB.

    Args:
        source: [n, dim] document vectors of any real number type, of any length.
        target: [m, dim], the same.
        similarity: "margin", or "cosine".
        k: neighbors that make the denominator of the margin. A domain with fewer documents gives
            fewer; their mean stands for the missing ones (Choice: else a document with few
            neighbors would seem to live in an empty place).
        candidates: how many of the nearest by cosine of every document, of either side, are
            scored. None scores all pairs of domains with at most `ALL_PAIRS` of them and
            `DEFAULT_CANDIDATES` a document elsewhere.
        domains: for each source and each target document a value; only documents of equal values
            are candidates and neighbors. None puts all into one domain.
        accepted: rows [p] and [p] of pairs that are right already, by their URLs for example.
            They are returned first with score infinity, and are no candidates or neighbors.
        normalize: whether inner products are cosines. False takes those of the vectors as they
            are, as equation 4 is written; the neighbors are still the nearest by cosine.
        memory_mb: see `knn.top_k`.
        backend: see `knn.top_k`.
        report: called with the numbers of source documents done and of all as it goes.

    Returns:
        The pairs, best first; none if a side is empty.

    Raises:
        ValueError: if shapes disagree, a value is not finite, or an argument is out of range.
    """
    check_choice("similarity", similarity, SIMILARITIES)
    if not normalize and similarity == "cosine":
        raise ValueError("normalize=False goes with similarity='margin' only; a cosine is of both")
    for name, value in (("k", k), ("candidates", candidates)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    sides = [knn.as_embeddings(source, "source"), knn.as_embeddings(target, "target")]
    if sides[0].shape[1] != sides[1].shape[1]:
        raise ValueError(
            "source and target must have the same dim; got "
            f"{sides[0].shape[1]} and {sides[1].shape[1]}; were they made by the same model?"
        )
    norms = [_norms(side) for side in sides]
    usable = [length > 0 for length in norms]
    fixed = _check_accepted(accepted, usable)
    scorer = _Scorer(similarity, k, candidates, normalize, memory_mb, backend)
    found, done = [fixed], 0
    for rows in _domains(domains, usable):
        group = [knn.UnitRows(*args) for args in zip(sides, rows, ("source", "target"))]
        lengths = [length[places] for length, places in zip(norms, rows)]
        pairs = scorer.score(group, lengths, _shifted(report, done, len(source)))
        pairs = one_to_one(pairs, *map(len, rows))
        found.append(MinedPairs(rows[0][pairs.source], rows[1][pairs.target], pairs.scores))
        done += len(rows[0])
        if report is not None:
            report(done, len(source))
    if scorer.num_small:
        _logger.warning(
            "document margin: %d pairs have neighborhoods with a mean below %g, taken as %g",
            *(scorer.num_small, MIN_DENOMINATOR, MIN_DENOMINATOR),
        )
    pairs = _concatenate(found)
    return pairs.take(np.argsort(-pairs.scores, kind="stable"))


def one_to_one(pairs: MinedPairs, num_source: int, num_target: int) -> MinedPairs:
    """Keeps the best pairs such that no row occurs twice.

    Greedy: from the best score down, a pair is kept if neither of its rows is in a pair kept
    before. Equal scores are taken in the order given.

    Args:
        pairs: in any order; a pair may occur more than once.
        num_source: rows that the source side has.
        num_target: rows that the target side has.

    Returns:
        The pairs kept, best first; at most as many as the smaller side has rows.
    """
    order = np.argsort(-pairs.scores, kind="stable")
    free_source, free_target = np.ones(num_source, bool), np.ones(num_target, bool)
    kept: list[int] = []
    left = min(num_source, num_target)
    for start in range(0, len(order), _BLOCK_PAIRS):
        places = order[start : start + _BLOCK_PAIRS]
        # Most pairs go here, at once: far down the list one of the two is used.
        places = places[free_source[pairs.source[places]] & free_target[pairs.target[places]]]
        rows = zip(places.tolist(), pairs.source[places].tolist(), pairs.target[places].tolist())
        for place, i, j in rows:
            if free_source[i] and free_target[j]:
                free_source[i] = free_target[j] = False
                kept.append(place)
        if len(kept) == left:
            break
    return pairs.take(np.array(kept, np.int64))


@dataclass
class _Scorer:
    """Scores the candidates of one domain after another; the attributes are those settings of
    `align_documents`, and the number of denominators that were raised so far.
    """

    similarity: str
    k: int
    candidates: int | None
    normalize: bool
    memory_mb: float
    backend: str
    num_small: int = 0

    def score(
        self, sides: list[knn.UnitRows], norms: list[np.ndarray], report: knn.Report | None
    ) -> MinedPairs:
        """The scored candidates of one domain, in the order of its source documents and of
        their nearness; then those of its target documents.
        """
        n, m = map(len, sides)
        everything = self.candidates is None and n * m <= ALL_PAIRS
        count = 0 if everything else (self.candidates or DEFAULT_CANDIDATES)
        depth = max(count, self.k if self.similarity == "margin" else 0)
        lists = ()
        if depth:
            lists = knn.top_k_both_ways(
                *sides, depth, memory_mb=self.memory_mb, backend=self.backend, report=report
            )
        # Only ratios of products matter, so norms of about 1 leave the floor its meaning.
        scale = [None, None] if self.normalize else [(x / x.mean())[:, None] for x in norms]
        sums = self._neighborhoods(lists, scale)
        if everything:
            cosines = sides[0][:] @ sides[1][:].T
            columns = None if scale[1] is None else scale[1][:, 0]
            scores = self._margins(cosines, scale[0], columns, *sums, np.s_[None, :])
            rows = np.repeat(np.arange(n, dtype=np.int32), m), _tile(m, n)
            return MinedPairs(*rows, scores.ravel())
        found = []
        for side, (cosines, indices) in enumerate(lists):
            cosines, indices = cosines[:, :count], indices[:, :count]
            own, other = scale[side], scale[1 - side]
            columns = None if other is None else other[indices, 0]
            scores = self._margins(cosines, own, columns, sums[side], sums[1 - side], indices)
            rows = np.repeat(np.arange(len(indices), dtype=np.int32), indices.shape[1])
            rows = (rows, indices.ravel().astype(np.int32))
            found.append(MinedPairs(*(rows[::-1] if side else rows), scores.ravel()))
        return _concatenate(found)

    def _neighborhoods(self, lists: tuple, scale: list) -> list[np.ndarray | None]:
        """The sums in the denominator of equation 4 for every document of either side."""
        if self.similarity == "cosine":
            return [None, None]
        sums = []
        for side, (cosines, indices) in enumerate(lists):
            products = cosines[:, : self.k]
            if not self.normalize:
                products = products * scale[side] * scale[1 - side][indices[:, : self.k], 0]
            sums.append(self.k * products.mean(axis=1))
        return sums

    def _margins(self, cosines, own, other, own_sum, other_sum, places) -> np.ndarray:
        """Scores of candidates, [n, c]; `other_sum[places]` broadcasts to them."""
        if self.similarity == "cosine":
            return cosines
        products = cosines if own is None else cosines * own * other
        scores, num_small = _document_margin(products, own_sum, other_sum[places], self.k)
        self.num_small += num_small
        return scores


def _document_margin(
    product: np.ndarray, source_sum: np.ndarray, target_sum: np.ndarray, k: int
) -> tuple[np.ndarray, int]:
    """See `document_margin`; also how many denominators were raised."""
    neighborhood = (source_sum[:, None] + target_sum).astype(np.float32, copy=False)
    floor = 2 * k * MIN_DENOMINATOR
    num_small = int(np.count_nonzero(neighborhood < floor))
    np.maximum(neighborhood, floor, out=neighborhood)
    return np.divide(product, neighborhood, out=neighborhood), num_small


def _norms(array: np.ndarray) -> np.ndarray:
    """Lengths of the rows, [n] float64; those of broken rows are positive, to be found later."""
    norms = np.empty(len(array))
    for start in range(0, len(array), _BLOCK_ROWS):
        block = np.asarray(array[start : start + _BLOCK_ROWS])
        norms[start : start + len(block)] = np.einsum("nd,nd->n", block, block, dtype=np.float64)
    return np.where(np.isnan(norms), np.inf, np.sqrt(norms))


def _domains(
    domains: tuple[Sequence[Hashable], Sequence[Hashable]] | None, usable: list[np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Usable rows [p] and [q] int64 of each domain that both sides have some in."""
    if domains is None:
        groups = [{None: np.flatnonzero(mask)} if mask.any() else {} for mask in usable]
    else:
        groups = []
        for name, values, mask in zip(("source", "target"), domains, usable):
            if len(values) != len(mask):
                raise ValueError(
                    f"domains must have a value for each {name} document; "
                    f"got {len(values)} for {len(mask)}"
                )
            rows: dict[Hashable, list[int]] = {}
            for row in np.flatnonzero(mask).tolist():
                rows.setdefault(values[row], []).append(row)
            groups.append({value: np.array(places) for value, places in rows.items()})
    for value, rows in groups[0].items():
        if value in groups[1]:
            yield rows, groups[1][value]


def _check_accepted(
    accepted: tuple[np.ndarray, np.ndarray] | None, usable: list[np.ndarray]
) -> MinedPairs:
    """The accepted pairs as such; their rows are no longer usable."""
    columns = [np.array(rows, np.int64) for rows in accepted or ([], [])]
    for name, rows, mask in zip(("source", "target"), columns, usable):
        if len(np.unique(rows)) < len(rows):
            raise ValueError(f"accepted must have each {name} row once; one occurs more often")
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(mask):
            raise ValueError(f"accepted must be rows of {name}, below {len(mask)}")
        mask[rows] = False
    return MinedPairs(*columns, np.full(len(columns[0]), np.inf, np.float32))


def _concatenate(found: Sequence[MinedPairs]) -> MinedPairs:
    return MinedPairs(
        np.concatenate([pairs.source for pairs in found]),
        np.concatenate([pairs.target for pairs in found]),
        np.concatenate([pairs.scores for pairs in found]),
    )


def _tile(m: int, n: int) -> np.ndarray:
    return np.tile(np.arange(m, dtype=np.int32), n)


def _shifted(report: knn.Report | None, done: int, total: int) -> knn.Report | None:
    """A report of one domain as one of all."""
    return None if report is None else lambda part, whole: report(done + part, total)
