"""Documents of two collections to aligned pairs: options, LAWDR vectors, and pairs by URL."""

import dataclasses
import logging
from collections.abc import Sequence

import numpy as np

from xling_jax.align import knn, matching, urls
from xling_jax.align.mining import MARGIN_NEIGHBORS, MinedPairs
from xling_jax.documents import debias
from xling_jax.documents.debias import AUTO
from xling_jax.documents.lawdr import WEIGHTINGS, Lawdr
from xling_jax.documents.records import Documents
from xling_jax.files.untrusted import named
from xling_jax.options import option
from xling_jax.text.languages import to_iso639_1
from xling_jax.text.splitting import SPLITTERS, SPLITTERS_HELP

_logger = logging.getLogger(__name__)


def read_rank(text: str) -> int | str:
    """Parses the number of components to remove, or "auto"."""
    if text == AUTO:
        return text
    if not text.isdecimal():
        raise ValueError(f"must be {AUTO} or at least 0; got {text!r}")
    return int(text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignmentOptions:
    """Options of everything that aligns documents by LAWDR; see `Lawdr` and `align_documents`."""

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

    def match(
        self,
        sides: Sequence[Documents],
        documents: Sequence[np.ndarray],
        similarity: str,
        accepted: tuple[np.ndarray, np.ndarray] | None = None,
        report: knn.Report | None = None,
    ) -> MinedPairs:
        """Matches document vectors, see `matching.align_documents`."""
        return matching.align_documents(
            *documents,
            similarity=similarity,
            k=self.k,
            candidates=self.candidates,
            domains=tuple(side.domains for side in sides) if self.domain else None,
            accepted=accepted,
            memory_mb=self.memory_mb,
            backend=self.backend,
            report=report,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentAligner(AlignmentOptions):
    """Aligns documents one to one by LAWDR, from the vectors of their sentences."""

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
        accepted: tuple[np.ndarray, np.ndarray] | None = None,
        report: knn.Report | None = None,
    ) -> MinedPairs:
        """Aligns two collections; returns the pairs, best first.

        With `debias="auto"`, sides with too little text, or whose language no rank hides, are not
        debiased, with a warning.

        Args:
            sides: source and target.
            vectors: their sentence vectors, [n, dim] and [m, dim]; may be memory-mapped.
            accepted: rows of pairs known to be right, such as from `match_urls`.
            report: called with the number of source documents done and the total.

        Raises:
            ValueError: if vectors are bad, or a side has too few for the rank given as `debias`.
        """
        documents = [np.zeros((len(s), a.shape[1]), np.float32) for s, a in zip(sides, vectors)]
        if all(map(len, vectors)):  # else nothing can be fitted to a side, or matched with it
            by_name = {f"{s.name} ({s.language})": array for s, array in zip(sides, vectors)}
            rank = debias.find_rank(self.debias, by_name, self.seed)
            options = {"rank": rank or None, "weighting": self.weighting, "seed": self.seed}
            for place, (side, array) in enumerate(zip(sides, vectors)):
                with named(side.name):
                    lawdr = Lawdr(**options).fit(array)
                    documents[place] = lawdr.transform(array, side.offsets)
                _logger.info("%s: document vectors done", side.name)
        return self.match(sides, documents, self.similarity, accepted, report)


def match_urls(
    source: Documents, target: Documents, *, use_domains: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Finds pairs with matching URLs, see `align.urls.match_urls`; never of empty documents.

    Returns source rows and target rows, [p] int64 each, with `use_domains` only of equal domains.
    """
    sides = source, target
    given = ([u if n else None for u, n in zip(side.urls, side.lengths)] for side in sides)
    rows = urls.match_urls(*given, *(to_iso639_1(side.language) for side in sides))
    if not use_domains:
        return rows
    same = np.array([source.domains[i] == target.domains[j] for i, j in zip(*rows)], bool)
    return rows[0][same], rows[1][same]
