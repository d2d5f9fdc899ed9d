"""Documents of two collections to aligned pairs: options, LAWDR vectors, and pairs by URL.

What is fitted to one batch of documents is kept in a file for others of the same languages.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Sequence

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from xling_jax.align import knn, matching, urls
from xling_jax.align.mining import MARGIN_NEIGHBORS, MinedPairs
from xling_jax.documents import debias
from xling_jax.documents.lawdr import WEIGHTINGS, Lawdr
from xling_jax.documents.records import Documents
from xling_jax.files.whole import write_whole
from xling_jax.options import option
from xling_jax.text.languages import to_iso639_1
from xling_jax.text.splitting import SPLITTERS, SPLITTERS_HELP, check_splitter

_logger = logging.getLogger(__name__)

AUTO = "auto"
_FORMAT = "xling_jax.lawdr_pair/1"


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


@dataclasses.dataclass(frozen=True, eq=False)
class FittedPair:
    """The estimators of two languages, and what they were fitted to.

        FittedPair(("de", "en"), tuple(aligner.fit(sides, vectors)), encoder.fingerprint).save(path)
        estimators = FittedPair.load(path).estimators_for(("de", "en"), encoder.fingerprint)

    Attributes:
        languages: of the two sides.
        estimators: fitted, one each.
        model: fingerprint of the encoder of the sentences; "" if unknown.
        document_mode: what was encoded at once, see `encode.documents`.
    """

    languages: tuple[str, str]
    estimators: tuple[Lawdr, Lawdr]
    model: str = ""
    document_mode: str = "sentences"

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return self.estimators[0].dim

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one safetensors file with options and counts as JSON in its header.

        The components take 4 bytes x dim x rank for each side; with "kde", every fitted sentence
        takes 72 bytes, because densities are counts among them.
        """
        tensors, facts = {}, []
        for side, lawdr in enumerate(self.estimators):
            arrays, facts_of_side = lawdr.state()
            tensors |= {f"{side}.{name}": array for name, array in arrays.items()}
            facts.append(facts_of_side)
        about = {name: getattr(self, name) for name in ("languages", "model", "document_mode")}
        header = {"format": _FORMAT, "about": json.dumps(about), "lawdr": json.dumps(facts)}
        write_whole(path, save(tensors, header))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FittedPair:
        """Reads a file written by `save`; executes nothing, and gives the same bits as saved.

        ValueError if the file is damaged or holds something else.
        """
        with open(path, "rb"):  # the errors of safetensors do not name the file
            pass
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != _FORMAT:
                    raise ValueError(f"it holds {metadata.get('format', 'something else')!r}")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about, facts = json.loads(metadata["about"]), json.loads(metadata["lawdr"])
            estimators = []
            for side, facts_of_side in enumerate(facts):
                begin = f"{side}."
                arrays = {k.removeprefix(begin): v for k, v in tensors.items() if k[:2] == begin}
                estimators.append(Lawdr.from_state(arrays, facts_of_side))
            first, second = map(str, about["languages"])
            if len(estimators) != 2 or estimators[0].dim != estimators[1].dim:
                raise ValueError("it must hold two estimators of one dim")
            mode = str(about["document_mode"])
            return cls((first, second), tuple(estimators), str(about["model"]), mode)
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            what = "file of xling align --save-debias of this version"
            raise ValueError(f"{path}: not a {what}: {error}") from error

    def estimators_for(
        self, languages: Sequence[str], model: str, dim: int, document_mode: str = "sentences"
    ) -> list[Lawdr]:
        """The estimators for documents in these languages, in this order.

        Raises:
            ValueError: if they were fitted to other languages, another model ("" fits any), or
                vectors of another kind.
        """
        known = dict(zip(self.languages, self.estimators))
        if sorted(languages) != sorted(self.languages):
            names = " and ".join(name or "no language" for name in self.languages)
            found = " and ".join(name or "no language" for name in languages)
            raise ValueError(f"fitted to {names}; found documents in {found}; fit them again")
        for name, fitted, found in (
            ("dim", self.dim, dim),
            ("document mode", self.document_mode, document_mode),
        ):
            if fitted != found:
                raise ValueError(f"fitted to vectors of {name} {fitted}; found {found}")
        if model and self.model and model != self.model:
            raise ValueError(
                f"fitted to vectors of another model, {self.model[:12]}; found {model[:12]}; fit "
                "again with this model"
            )
        if languages[0] == languages[1]:
            return list(self.estimators)
        return [known[language] for language in languages]


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
