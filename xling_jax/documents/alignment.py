"""Documents of two collections to aligned pairs: options, LAWDR vectors, and pairs by URL."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

import numpy as np

from xling_jax.align import knn, matching, urls
from xling_jax.align.mining import MARGIN_NEIGHBORS, MinedPairs
from xling_jax.documents import debias
from xling_jax.documents.lawdr import WEIGHTINGS, Lawdr
from xling_jax.documents.records import Documents
from xling_jax.options import option
from xling_jax.text.languages import to_iso639_1
from xling_jax.text.splitting import SPLITTERS, SPLITTERS_HELP, check_splitter

_logger = logging.getLogger(__name__)

AUTO = "auto"


def read_rank(text: str) -> int | str:
    """Parses the number of components to remove, or "auto"."""
    if text == AUTO:
        return text
    if not text.isdecimal():
        raise ValueError(f"must be {AUTO} or at least 0; got {text!r}")
    return int(text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignmentOptions:
    """Options of everything that aligns documents by LAWDR; see `Lawdr` and `align_documents`.

    Raises:
        OptionError: if they are inconsistent.
    """

    debias: int | str = option(
        AUTO,
        "components of each language to remove; 0 for none; auto: the fewest, of 0 and powers of "
        "two, after which a linear classifier cannot identify the language; none if a side has too "
        "few sentences, or if no number brings the accuracy of the classifier below 55 %",
        type=read_rank,
        metavar="N",
    )
    splitter: str = option("rule", SPLITTERS_HELP, SPLITTERS)
    k: int = option(MARGIN_NEIGHBORS, "neighbors in the margin", positive=True)
    candidates: int | None = option(
        None,
        "nearest documents to score for each document; by default all pairs in domains of at most "
        "16.8 million, otherwise 16",
        positive=True,
        metavar="N",
    )
    domain: str = option(
        "", "align only documents with equal values of this field", metavar="FIELD"
    )
    url_matching: bool = option(
        False, "first accept the pairs whose URLs differ only in the name of the language (WMT16)"
    )
    memory_mb: float = option(512, "memory for the search, besides vectors", positive=True)
    backend: str = option(
        "auto", "search backend; auto: JAX on an accelerator, otherwise NumPy", knn.BACKENDS
    )
    seed: int = 0  # of the samples of sentences, the split, the SVM and the cross-validation

    def __post_init__(self):
        check_splitter(self.splitter)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentAligner(AlignmentOptions):
    """Aligns documents one to one by LAWDR, from the vectors of their sentences.

    Raises:
        OptionError: if options are inconsistent.
    """

    weighting: str = option(
        "kde",
        "kde: down-weight common sentences, by density; none: mean of the sentences",
        WEIGHTINGS,
    )
    similarity: str = option("margin", "scores pairs of documents", matching.SIMILARITIES)

    def align(
        self,
        sides: Sequence[Documents],
        vectors: Sequence[np.ndarray],
        *,
        estimators: Sequence[Lawdr] | None = None,
        accepted: tuple[np.ndarray, np.ndarray] | None = None,
        report: knn.Report | None = None,
    ) -> MinedPairs:
        """Aligns two collections; returns the pairs, best first.

        Args:
            sides: source and target.
            vectors: their sentence vectors, [n, dim] and [m, dim]; may be memory-mapped.
            estimators: from `fit`, of these or other documents; None to fit them to these.
            accepted: rows of pairs known to be right, such as from `match_urls`.
            report: called with the number of source documents done and the total.

        Raises:
            ValueError: if vectors are bad.
        """
        return matching.align_documents(
            *self.document_vectors(sides, vectors, estimators),
            similarity=self.similarity,
            k=self.k,
            candidates=self.candidates,
            domains=tuple(side.domains for side in sides) if self.domain else None,
            accepted=accepted,
            memory_mb=self.memory_mb,
            backend=self.backend,
            report=report,
        )

    def document_vectors(
        self,
        sides: Sequence[Documents],
        vectors: Sequence[np.ndarray],
        estimators: Sequence[Lawdr] | None = None,
    ) -> list[np.ndarray]:
        """Makes the document vectors of each side, [docs, dim] float32; arguments as `align`."""
        if not all(map(len, vectors)):
            # Nothing can be fitted to, or matched with, a side without sentences.
            return [
                np.zeros((len(side), array.shape[1]), np.float32)
                for side, array in zip(sides, vectors)
            ]
        estimators = self.fit(sides, vectors) if estimators is None else estimators
        documents = []
        for lawdr, side, array in zip(estimators, sides, vectors, strict=True):
            documents.append(lawdr.transform(array, side.offsets))
            _logger.info("%s: document vectors done", side.name)
        return documents

    def fit(self, sides: Sequence[Documents], vectors: Sequence[np.ndarray]) -> list[Lawdr]:
        """Fits an estimator to the sentences of each side, for these and for later documents.

        With `debias="auto"`, sides with too little text, or whose language no rank hides, are not
        debiased, with a warning. Vectors, at least one a side, may be memory-mapped.

        Raises:
            ValueError: if a side has too few for the rank given as `debias`.
        """
        rank = self.debias
        if rank == AUTO:
            named = {f"{side.name} ({side.language})": a for side, a in zip(sides, vectors)}
            rank = debias.automatic_rank(named, self.seed)
        options = {"rank": rank or None, "weighting": self.weighting, "seed": self.seed}
        return [Lawdr(**options).fit(array) for array in vectors]


def match_urls(
    source: Documents, target: Documents, *, use_domains: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Finds pairs with matching URLs, see `align.urls.match_urls`; never of empty documents.

    Returns source rows and target rows, [p] int64 each, with `use_domains` only of equal domains.
    """
    groups: list[dict[str | None, list[int]]] = [{}, {}]
    for group, side in zip(groups, (source, target)):
        for row, domain in enumerate(side.domains):
            group.setdefault(domain if use_domains else None, []).append(row)
    codes = [to_iso639_1(side.language) for side in (source, target)]
    found: list[list[int]] = [[], []]
    for domain in (domain for domain in groups[0] if domain in groups[1]):
        rows = [np.array(group[domain]) for group in groups]
        given = [
            [side.urls[row] if side.lengths[row] else None for row in chosen.tolist()]
            for side, chosen in zip((source, target), rows)
        ]
        for column, chosen, matched in zip(found, rows, urls.match_urls(*given, *codes)):
            column += chosen[matched].tolist()
    return tuple(np.array(column, np.int64) for column in found)
