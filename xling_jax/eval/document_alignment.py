"""Document alignment: which share of the gold pairs of documents is found?

The rules of WMT16 (pairs one to one, recall over the gold pairs) and, for many languages, the form
of WMT19 (all pairs of languages). Compares, from sentence vectors made once, the eight ways that
LAWDR compares: vectors biased or debiased, documents as mean or weighted sum, pairs scored by
cosine or margin. Writes and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xling_jax.align.matching import align_documents
from xling_jax.align.mining import MARGIN_NEIGHBORS, MinedPairs
from xling_jax.documents import debias, weighting
from xling_jax.documents.alignment import match_urls
from xling_jax.documents.density import TophatDensity
from xling_jax.documents.records import AlignmentData, Documents, Gold
from xling_jax.eval.retrieval import Encode

# Document vectors from sentence vectors, and how pairs are scored: the eight cells of LAWDR's
# tables, the plainest first.
REPRESENTATIONS = ("biased-mean", "biased-weighted", "debiased-mean", "debiased-weighted")
SIMILARITIES = ("cosine", "margin")
CELLS = tuple(f"{vectors}-{score}" for vectors in REPRESENTATIONS for score in SIMILARITIES)

Pair = tuple[str, str]


@dataclass(frozen=True)
class PairCounts:
    """What one cell found between two languages.

    Attributes:
        num_gold: pairs there are.
        num_correct: gold pairs found.
        num_aligned: pairs found.
    """

    num_gold: int
    num_correct: int
    num_aligned: int

    @property
    def recall(self) -> float:
        """Share of the gold pairs that was found."""
        return self.num_correct / self.num_gold


@dataclass(frozen=True)
class AlignmentResult:
    """What was measured on one data set.

    Attributes:
        counts: by cell, then by pair of languages. Beside the `CELLS` asked for there may be
            baselines, such as `document-cosine`.
        ranks: components removed from the sentence vectors, by language; 0 if none were.
        num_empty: documents without sentences, by language; they are never matched.
    """

    counts: dict[str, dict[Pair, PairCounts]]
    ranks: dict[str, int]
    num_empty: dict[str, int]

    def micro_recall(self, cell: str) -> float:
        """Share of all gold pairs that was found."""
        counts = self.counts[cell].values()
        return sum(c.num_correct for c in counts) / sum(c.num_gold for c in counts)

    def macro_recall(self, cell: str) -> float:
        """Mean over the pairs of languages of their recall."""
        return float(np.mean([counts.recall for counts in self.counts[cell].values()]))


def recall(pairs: Iterable[tuple[int, int]], gold: Gold) -> float:
    """Recall by the rules of WMT16.

    Args:
        pairs: rows of documents aligned, best first. Each document counts once: a pair with a
            document of a pair before is left out, as the task's script does.
        gold: rows of the pairs that are right.

    Returns:
        The share of the gold pairs that is among them.

    Raises:
        ValueError: if there are no gold pairs.
    """
    if not gold:
        raise ValueError("gold must hold at least one pair; got none")
    return _num_correct(pairs, gold) / len(gold)


def measure_alignment(
    encode: Encode,
    data: AlignmentData,
    *,
    cells: Sequence[str] = CELLS,
    rank: int | None = None,
    center: bool = False,
    density_on: str = "raw",
    seed: int = 0,
    baselines: Mapping[str, Encode] | None = None,
    k: int = MARGIN_NEIGHBORS,
    candidates: int | None = None,
    use_domains: bool = False,
    url_matching: bool = False,
    memory_mb: float = 256,
    backend: str = "numpy",
) -> AlignmentResult:
    """Aligns all pairs of languages that have gold pairs, in every cell.

    Args:
        encode: texts to [n, dim] embeddings; called once for each language, with its sentences.
        data: documents and gold pairs.
        cells: of `CELLS`.
        rank: components of each language to remove in the debiased cells; None for the rule of
            `debias.choose_rank`.
        center: remove the mean vector as well.
        density_on: "raw" vectors, or "debiased".
        seed: of the cross-validation of the density and of that rule.
        baselines: for each name the function from whole documents to embeddings [n, dim].
        k: see `align_documents`, as the next one.
        candidates: see there.
        use_domains: whether only documents of one domain are candidates.
        url_matching: whether pairs by `urls.match_urls` are accepted first.
        memory_mb: see `knn.top_k`.
        backend: see there.

    Returns:
        Counts by cell and pair of languages.

    Raises:
        ValueError: if a cell is unknown, there are no sentences, or vectors are not finite.
    """
    cells = _check_cells(cells)
    lawdr = {"center": center, "density_on": density_on, "seed": seed}
    documents, ranks = _represent_all(encode, data, cells, rank, lawdr)
    for name, encode_texts in (baselines or {}).items():
        documents[name] = {
            code: _encode_whole(encode_texts, side) for code, side in data.documents.items()
        }
        cells = (*cells, *(f"{name}-{score}" for score in SIMILARITIES))
    settings = {"k": k, "candidates": candidates, "memory_mb": memory_mb, "backend": backend}
    counts: dict[str, dict[Pair, PairCounts]] = {cell: {} for cell in cells}
    for (first, second), gold in data.gold.items():
        sides = data.documents[first], data.documents[second]
        accepted = match_urls(*sides, use_domains=use_domains) if url_matching else None
        domains = (sides[0].domains, sides[1].domains) if use_domains else None
        for cell in cells:
            name, _, similarity = cell.rpartition("-")
            pairs = align_documents(
                documents[name][first],
                documents[name][second],
                similarity=similarity,
                domains=domains,
                accepted=accepted,
                **settings,
            )
            counts[cell][first, second] = _count(pairs, gold)
    num_empty = {code: side.num_empty for code, side in data.documents.items()}
    return AlignmentResult(counts, ranks, num_empty)


def represent_documents(
    vectors: np.ndarray,
    offsets: np.ndarray,
    representations: Sequence[str] = REPRESENTATIONS,
    *,
    rank: int,
    center: bool = False,
    density_on: str = "raw",
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Makes document vectors of one language in several ways; what they share is done once.

    The same as `Lawdr` with the settings of each. Sums of projected vectors are projections of
    their sums, so that documents are debiased in place of sentences.

    Args:
        vectors: [n, dim] vectors of all sentences of the language; may be memory-mapped.
        offsets: [docs + 1] int, see `weighting.document_vectors`.
        representations: of `REPRESENTATIONS`.
        rank: components to remove in the debiased ones.
        center: remove the mean vector as well.
        density_on: "raw" vectors, or "debiased", for the debiased ones.
        seed: of the density's cross-validation.

    Returns:
        [docs, dim] float32 for each; all-zero for documents without sentences.

    Raises:
        ValueError: if there are no sentences, the rank is too high, or a value is not finite.
    """
    statistics = debias.gram_matrix(vectors)
    components = None
    if any(name.startswith("debiased") for name in representations):
        components = debias.language_components(statistics, rank, center)
    # By the vectors that the density is taken on; None for the mean.
    weights: dict[str | None, np.ndarray | None] = {None: None}
    pooled: dict[str | None, np.ndarray] = {}
    found: dict[str, np.ndarray] = {}
    for name in representations:
        bias, _, pooling = name.partition("-")
        key = None
        if pooling == "weighted":
            key = density_on if bias == "debiased" else "raw"
        if key not in weights:
            removed = components if key == "debiased" else None
            density = TophatDensity.fit(vectors, statistics, removed, seed=seed)
            weights[key] = weighting.sentence_weights(density.fitted_counts)
        if key not in pooled:
            pooled[key] = weighting.document_vectors(vectors, offsets, weights[key])
        found[name] = pooled[key]
        if bias == "debiased":
            if center:
                ones = np.ones((len(vectors), 1), np.float32)
                total = weighting.document_vectors(ones, offsets, weights[key])
                found[name] = found[name] - total * statistics.mean.astype(np.float32)
            found[name] = debias.remove_components(found[name], components)
    return found


def evaluate_alignment(encode: Encode, data: AlignmentData, **settings) -> dict[str, float]:
    """Measures alignment as named numbers, for training loops and tables.

    Args:
        encode: texts to [n, dim] embeddings.
        data: documents and gold pairs.
        **settings: see `measure_alignment`.

    Returns:
        See `named_metrics`.

    Raises:
        ValueError: as `measure_alignment`.
    """
    return named_metrics(data.name, measure_alignment(encode, data, **settings))


def primary_cell(result: AlignmentResult) -> str:
    """The last of the cells measured that is no baseline: LAWDR whole, if it was."""
    return [cell for cell in result.counts if cell in CELLS][-1]


def named_metrics(name: str, result: AlignmentResult) -> dict[str, float]:
    """The numbers of a result.

    Args:
        name: of the data.
        result: what was measured.

    Returns:
        `NAME/recall` (the primary one, of `primary_cell`), then `NAME/recall_CELL` and
        `NAME/macro_recall_CELL` for every cell, with "_" for "-".
    """
    metrics = {f"{name}/recall": result.micro_recall(primary_cell(result))}
    for cell in result.counts:
        key = cell.replace("-", "_")
        metrics[f"{name}/recall_{key}"] = result.micro_recall(cell)
        metrics[f"{name}/macro_recall_{key}"] = result.macro_recall(cell)
    return metrics


def _represent_all(
    encode: Encode,
    data: AlignmentData,
    cells: Sequence[str],
    rank: int | None,
    settings: dict,
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, int]]:
    """Document vectors by representation and language, and the ranks removed."""
    vectors = {code: _encode(encode, side, code) for code, side in data.documents.items()}
    ranks = dict.fromkeys(data.documents, 0)
    if any(cell.startswith("debiased") for cell in cells):
        if rank is None:
            shared = {name: settings[name] for name in ("seed", "center")}
            rank = debias.choose_rank(vectors, **shared).rank
        ranks = dict.fromkeys(data.documents, rank)
    wanted = list(dict.fromkeys(cell.rpartition("-")[0] for cell in cells))
    documents: dict[str, dict[str, np.ndarray]] = {name: {} for name in wanted}
    for code, side in data.documents.items():
        # Popped: sentence vectors are the largest thing here and no longer needed.
        found = represent_documents(
            vectors.pop(code), side.offsets, wanted, rank=ranks[code], **settings
        )
        for name, array in found.items():
            documents[name][code] = array
    return documents, ranks


def _count(pairs: MinedPairs, gold: Gold) -> PairCounts:
    rows = zip(pairs.source.tolist(), pairs.target.tolist())
    return PairCounts(len(gold), _num_correct(rows, gold), len(pairs))


def _num_correct(pairs: Iterable[tuple[int, int]], gold: Gold) -> int:
    sources, targets = set(), set()
    num_correct = 0
    for i, j in pairs:
        if i not in sources and j not in targets:
            sources.add(i)
            targets.add(j)
            num_correct += (i, j) in gold
    return num_correct


def _check_cells(cells: Sequence[str]) -> tuple[str, ...]:
    for cell in cells:
        if cell not in CELLS:
            raise ValueError(f"cells must be of {', '.join(CELLS)}; got {cell!r}")
    if not cells:
        raise ValueError(f"cells must name at least one of {', '.join(CELLS)}")
    return tuple(dict.fromkeys(cells))


def _encode(encode: Encode, side: Documents, code: str) -> np.ndarray:
    if not side.sentences:
        raise ValueError(f"{side.name}: documents in {code} must hold sentences; found none")
    return _checked_rows(encode(side.sentences), len(side.sentences))


def _encode_whole(encode: Encode, side: Documents) -> np.ndarray:
    vectors = np.array(_checked_rows(encode(side.texts), len(side)), np.float32)
    vectors[np.array(side.lengths) == 0] = 0  # Never matched.
    return vectors


def _checked_rows(vectors: np.ndarray, count: int) -> np.ndarray:
    if len(vectors) != count:
        raise ValueError(
            f"encode must return one row a text; got {len(vectors)} rows for {count} texts"
        )
    return vectors
