"""Documents of two collections to aligned pairs: options, LAWDR vectors, and pairs by URL."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

import numpy as np

from xling_jax.align import knn, matching, urls
from xling_jax.align.mining import MARGIN_NEIGHBORS, MinedPairs
from xling_jax.documents import debias
from xling_jax.documents.lawdr import DENSITY_INPUTS, WEIGHTINGS, Lawdr
from xling_jax.documents.records import Documents
from xling_jax.options import OptionError, option
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
    center: bool = option(False, "remove the mean of each language too")
    density_on: str = option("raw", "vectors whose density weights sentences", DENSITY_INPUTS)
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
    seed: int = option(
        0, "of the samples of sentences, the split, the SVM and the cross-validation"
    )
    memory_mb: float = option(512, "memory for the search, besides vectors", positive=True)
    backend: str = option(
        "auto", "of the search; auto: JAX where it has an accelerator, else NumPy", knn.BACKENDS
    )

    def __post_init__(self):
        check_splitter(self.splitter)
        if self.debias == 0 and self.center:
            raise OptionError("center requires debiasing; leave out center or debias=0")
        if self.debias == 0 and self.density_on == "debiased":
            raise OptionError("density_on=debiased requires debiasing; leave out debias=0")


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
    raw_products: bool = option(
        False, "compute margins from inner products, as equation 4 is written, not from cosines"
    )

    def __post_init__(self):
        super().__post_init__()
        if self.raw_products and self.similarity == "cosine":
            raise OptionError("raw_products requires similarity=margin")

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
            normalize=not self.raw_products,
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
        debiased, with a warning.

        Args:
            sides: source and target.
            vectors: their sentence vectors, [n, dim] and [m, dim], at least one each; may be
                memory-mapped.

        Raises:
            TooFewSentencesError: if a side has too few for the rank given as `debias`.
        """
        try:
            return self._fit(vectors, self._rank(sides, vectors))
        except (debias.TooFewSentencesError, debias.NoRankError) as error:
            if self.debias != AUTO:
                raise
            _logger.warning("no debiasing: %s", error)
            return self._fit(vectors, 0)

    def _rank(self, sides: Sequence[Documents], vectors: Sequence[np.ndarray]) -> int:
        """The components to remove, as given or by the rule."""
        if self.debias != AUTO:
            return self.debias
        named = {f"{side.name} ({side.language})": a for side, a in zip(sides, vectors)}
        rank = debias.choose_rank(named, seed=self.seed, center=self.center).rank
        _logger.info("debiasing: %d components of each language", rank)
        return rank

    def _fit(self, vectors: Sequence[np.ndarray], rank: int) -> list[Lawdr]:
        settings = {name: getattr(self, name) for name in ("weighting", "density_on", "seed")}
        settings |= {"rank": rank or None, "center": self.center and rank > 0}
        return [Lawdr(**settings).fit(array) for array in vectors]


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
            [side.urls[row] if side.lengths[row] else None for row in places.tolist()]
            for side, places in zip((source, target), rows)
        ]
        for column, places, matched in zip(found, rows, urls.match_urls(*given, *codes)):
            column += places[matched].tolist()
    return tuple(np.array(column, np.int64) for column in found)
