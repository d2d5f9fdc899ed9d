"""Document alignment: which documents of two collections are translations of one another.

Scores candidates, then matches one to one, best pairs first. Works on document vectors from any
source; texts, ids and URLs are the caller's.
"""

import collections
import itertools
import logging
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from xling_jax.align import knn
from xling_jax.align.margin import MIN_DENOMINATOR, num_small, ratio_margin
from xling_jax.align.mining import MARGIN_NEIGHBORS, MinedPairs, one_to_one
from xling_jax.align.rows import Report, UnitRows, as_embeddings, check_same_dim, slices
from xling_jax.options import checks_numbers
from xling_jax.registry import check_choice

_logger = logging.getLogger(__name__)

SIMILARITIES = ("margin", "cosine")

# Choice: all pairs of a domain are candidates up to this many, as in the rules of WMT16, whose
# domains have 8.6 million on average. Limits scores, rows and their order, 28 bytes per pair, to
# 450 MiB.
ALL_PAIRS = 2**24
# Choice: in larger domains, the nearest documents by cosine. The true match is usually among the
# first four (LAWDR), but greedy matching uses up the first candidates of many documents.
DEFAULT_CANDIDATES = 16


@checks_numbers
def align_documents(
    source: np.ndarray,
    target: np.ndarray,
    *,
    similarity: str = "margin",
    k: int = MARGIN_NEIGHBORS,
    candidates: int | None = None,
    domains: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
    accepted: tuple[np.ndarray, np.ndarray] | None = None,
    memory_mb: float = 256,
    backend: str = "numpy",
    report: Report | None = None,
) -> MinedPairs:
    """Aligns documents one to one; returns the pairs, best first.

    The procedure of LAWDR (Gong et al. 2021): candidates by cosine, scores by equation 4, which is
    the ratio margin over 2k, greedy matching from the best pair down. Documents with an all-zero
    vector, such as empty ones, are never matched and nobody's neighbors.

    Memory besides `memory_mb` and the vectors, which are not copied and may be memory-mapped: 450
    MiB if all pairs of a domain are candidates; otherwise 50 bytes per document and candidate.

    Args:
        source: [n, dim] document vectors of any real number type and any length.
        target: [m, dim], likewise.
        similarity: one of `SIMILARITIES`.
        k: neighbors in the denominator of the margin. In a domain with fewer documents, their mean
            stands in for the missing ones (Choice: otherwise such documents would seem isolated).
        candidates: nearest documents by cosine to score for every document of either side. None
            scores all pairs in domains with at most `ALL_PAIRS`, else `DEFAULT_CANDIDATES`.
        domains: a value for each source and each target document; only documents with equal values
            are candidates and neighbors. None puts all into one domain.
        accepted: rows [p] and [p] of pairs known to be right, for example by their URLs. They come
            first, with score infinity, and are excluded as candidates and neighbors.
        memory_mb: see `knn.top_k`.
        backend: see `knn.top_k`.
        report: called with the number of source documents done and the total.

    Raises:
        ValueError: if shapes disagree, a value is not finite, or an argument is out of range.
    """
    check_choice("similarity", similarity, SIMILARITIES)
    for name, value in (("k", k), ("candidates", candidates)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    sides = [as_embeddings(source, "source"), as_embeddings(target, "target")]
    check_same_dim(*sides)
    usable = [_is_filled(side) for side in sides]
    columns = [np.array(rows, np.int64) for rows in accepted or ([], [])]
    for rows, mask in zip(columns, usable):
        mask[rows] = False
    found = [MinedPairs(*columns, np.full(len(columns[0]), np.inf, np.float32))]
    done, num_raised = 0, 0
    search = {"memory_mb": memory_mb, "backend": backend}
    for rows in _domains(domains or [[None] * len(side) for side in sides], usable):
        group = [UnitRows(*args) for args in zip(sides, rows, ("source", "target"))]
        within = report and (lambda part, _, done=done: report(done + part, len(source)))
        pairs, raised = _score_domain(group, similarity, k, candidates, report=within, **search)
        pairs = one_to_one(pairs, *map(len, rows))
        found.append(MinedPairs(rows[0][pairs.source], rows[1][pairs.target], pairs.scores))
        num_raised += raised
        done += len(rows[0])
        if report is not None:
            report(done, len(source))
    if num_raised:
        _logger.warning(
            "document margin: %d pairs have a mean neighborhood below %g, raised to it",
            *(num_raised, MIN_DENOMINATOR),
        )
    pairs = MinedPairs.concatenate(found)
    return pairs.take(np.argsort(-pairs.scores, kind="stable"))


def _score_domain(
    sides: list[UnitRows], similarity: str, k: int, candidates: int | None, **search: Any
) -> tuple[MinedPairs, int]:
    """Scores the candidates of one domain; arguments as `align_documents`.

    Returns those of the source documents, nearest first, then those of the target documents; and
    the number of neighborhoods raised, see `ratio_margin`.
    """
    n, m = map(len, sides)
    everything = candidates is None and n * m <= ALL_PAIRS
    count = 0 if everything else candidates or DEFAULT_CANDIDATES
    depth = max(count, k if similarity == "margin" else 0)
    lists = knn.top_k_both_ways(*sides, depth, **search) if depth else ()
    means = [cosines[:, :k].mean(axis=1) for cosines, _ in lists]
    num_raised = 0

    def score(cosines: np.ndarray, side: int, others: Any) -> np.ndarray:
        """Scores [n, c] of a side with its candidates, `others` of the other side."""
        nonlocal num_raised
        if similarity == "cosine":
            return cosines
        neighborhoods = means[side], means[1 - side][others]
        num_raised += num_small(*neighborhoods)
        # Equation 4 of LAWDR leaves out the factor 1/(2k) of the denominator.
        return ratio_margin(cosines, *neighborhoods) / np.float32(2 * k)

    if everything:
        cosines = np.empty((n, m), np.float32)
        for rows, columns in itertools.product(slices(n), slices(m)):
            cosines[rows, columns] = sides[0][rows] @ sides[1][columns].T
        scores = score(cosines, 0, np.s_[None, :])
        rows = np.repeat(np.arange(n, dtype=np.int32), m)
        columns = np.tile(np.arange(m, dtype=np.int32), n)
        return MinedPairs(rows, columns, scores.ravel()), num_raised
    found = []
    for side, (cosines, indices) in enumerate(lists):
        scores = score(cosines[:, :count], side, indices[:, :count])
        rows = np.repeat(np.arange(len(scores), dtype=np.int32), scores.shape[1])
        columns = indices[:, :count].ravel().astype(np.int32)
        pair = (columns, rows) if side else (rows, columns)
        found.append(MinedPairs(*pair, scores.ravel()))
    return MinedPairs.concatenate(found), num_raised


def _is_filled(array: np.ndarray) -> np.ndarray:
    """[n] bool, which rows are not all zero; those with NaN are refused later."""
    filled = np.empty(len(array), bool)
    for rows in slices(len(array)):
        filled[rows] = np.any(np.asarray(array[rows]) != 0, axis=1)
    return filled


def _domains(
    domains: Sequence[Sequence[Hashable]], usable: list[np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the usable rows, [p] and [q] int64, of each domain found on both sides."""
    groups = []
    for name, values, mask in zip(("source", "target"), domains, usable):
        if len(values) != len(mask):
            raise ValueError(
                f"domains must have one value per {name} document; "
                f"got {len(values)} for {len(mask)}"
            )
        rows = collections.defaultdict(list)
        for row in np.flatnonzero(mask).tolist():
            rows[values[row]].append(row)
        groups.append({value: np.array(indices) for value, indices in rows.items()})
    return ((rows, groups[1][value]) for value, rows in groups[0].items() if value in groups[1])
