"""What a report shows of the vectors themselves: projections, and the worst retrieval errors."""

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from xling_jax.align import knn
from xling_jax.eval.classification_data import (
    ClassificationData,
    list_languages,
    load_classification_data,
)
from xling_jax.eval.retrieval_data import ParallelText, RetrievalData, load_retrieval_data
from xling_jax.eval.unique import Encode, encode_unique
from xling_jax.report.pictures import PROJECTIONS, project

_logger = logging.getLogger(__name__)

# Points in a projection: more would hide each other, and t-SNE is slow.
MAX_POINTS = 1000
MAX_LANGUAGES = 7  # As many as there are different colors and marks.
MAX_LABELS = 7
OTHER_LABEL = "other labels"
MAX_QUERIES = 5000
NUM_RETRIEVED = 3
_BLOCK_QUERIES = 512
_SEED = 0


@dataclass(frozen=True)
class Projection:
    """Texts in the plane.

    Attributes:
        name: of the data.
        points: "pca" and "tsne" to [n, 2].
        texts: n texts.
        languages: the language of each, n.
        labels: the class of each, n; None where the data has none.
    """

    name: str
    points: dict[str, np.ndarray]
    texts: list[str]
    languages: list[str]
    labels: list[str] | None


@dataclass(frozen=True)
class Candidate:
    """A text that could be the answer to a query.

    Attributes:
        text: the candidate.
        rank: 1 for the nearest.
        cosine: with the query.
    """

    text: str
    rank: int
    cosine: float


@dataclass(frozen=True)
class RetrievalError:
    """A query whose translation is not its nearest neighbor.

    Attributes:
        source: language of the query.
        target: language of the candidates.
        query: the text.
        right: its translation.
        retrieved: the nearest candidates, best first.
    """

    source: str
    target: str
    query: str
    right: Candidate
    retrieved: tuple[Candidate, ...]

    @property
    def direction(self) -> str:
        """Both languages."""
        return f"{self.source} → {self.target}"


@dataclass(frozen=True)
class ErrorList:
    """Retrieval errors of one data set.

    Attributes:
        data: its name.
        errors: worst first.
        num_errors: how many there are in all.
        num_queries: of how many queries.
    """

    data: str
    errors: Sequence[RetrievalError]
    num_errors: int
    num_queries: int

    @property
    def directions(self) -> list[str]:
        """Those of the errors, sorted."""
        return sorted({error.direction for error in self.errors})


@dataclass
class VectorSection:
    """What the vectors of one run show.

    Attributes:
        run: its name.
        projections: texts in the plane.
        errors: one list for each retrieval data set.
    """

    run: str
    projections: list[Projection] = field(default_factory=list)
    errors: list[ErrorList] = field(default_factory=list)


def load_data(
    path: str | Path, languages: Sequence[str] | None = None
) -> ClassificationData | RetrievalData:
    """Reads labelled text where a directory holds such files, else parallel text.

    Args:
        path: see `load_classification_data` and `load_retrieval_data`.
        languages: those to show; None for all.
    """
    if Path(path).is_dir() and (known := list_languages(path)):
        chosen = known if languages is None else [code for code in languages if code in known]
        return load_classification_data(path, chosen)
    return load_retrieval_data(path, languages)


def vector_section(
    run: str, encode: Encode, data: Sequence[ClassificationData | RetrievalData]
) -> VectorSection:
    """Embeds data sets and finds what is to be shown of them.

    Args:
        run: its name.
        encode: texts to [n, dim] embeddings.
        data: as `load_data` returns it.
    """
    section = VectorSection(run)
    for one in data:
        _logger.info("%s: embedding %s", run, one.name)
        if isinstance(one, ClassificationData):
            projection = project_classification(encode, one)
        else:
            section.errors.append(worst_errors(encode, one))
            projection = project_retrieval(encode, one)
        section.projections += [projection] if projection else []
    return section


def project_retrieval(encode: Encode, data: RetrievalData) -> Projection | None:
    """Projects rows that all of the first languages have.

    Returns:
        The projection; None if there are too few rows, or many files.
    """
    if len(data.parts) > 1:
        return None
    columns = dict(itertools.islice(data.parts[0].texts.items(), MAX_LANGUAGES))
    full = [row for row, cells in enumerate(zip(*columns.values())) if all(cells)]
    rows = _spread(full, MAX_POINTS // len(columns))
    if len(rows) < 2:
        return None
    texts = [column[row] for column in columns.values() for row in rows]
    languages = [code for code in columns for _ in rows]
    return _project(encode, data.name, texts, languages, None)


def project_classification(encode: Encode, data: ClassificationData) -> Projection | None:
    """Projects test texts, equally many of each language; None if there are too few."""
    parts = dict(itertools.islice(data.splits[data.test_split].items(), MAX_LANGUAGES))
    texts, languages, labels = [], [], []
    for code, part in parts.items():
        rows = np.random.default_rng(_SEED).permutation(len(part.texts))
        for row in sorted(rows[: MAX_POINTS // len(parts)]):
            texts.append(part.texts[row])
            languages.append(code)
            labels.append(part.labels[row])
    if len(texts) < 2:
        return None
    counts = {label: labels.count(label) for label in sorted(set(labels))}
    if len(counts) > MAX_LABELS:
        kept = sorted(counts, key=counts.get, reverse=True)[: MAX_LABELS - 1]
        labels = [label if label in kept else OTHER_LABEL for label in labels]
    return _project(encode, data.name, texts, languages, labels)


def worst_errors(
    encode: Encode, data: RetrievalData, *, per_direction: int = 3, limit: int = 40
) -> ErrorList:
    """Finds the queries whose translation ranks lowest by cosine.

    A candidate with the same text as the translation is right too.

    Args:
        encode: texts to [n, dim] embeddings; called once for each file of the data.
        data: parallel text; only the first rows of long files are used.
        per_direction: errors kept of each direction.
        limit: errors kept in all, those with the lowest rank of the translation.

    Raises:
        ValueError: if `encode` returns another number of rows.
    """
    errors: list[RetrievalError] = []
    num_errors = num_queries = 0
    for part in data.parts:
        vectors, ids = encode_unique(encode, [_first(column) for column in part.texts.values()])
        vectors = knn.normalize(vectors)
        for source, target in itertools.permutations(part.texts, 2):
            found, wrong, count = _errors(part, source, target, vectors, ids, per_direction)
            errors += found
            num_errors += wrong
            num_queries += count
    errors.sort(key=lambda error: -error.right.rank)
    return ErrorList(data.name, errors[:limit], num_errors, num_queries)


def _errors(
    part: ParallelText,
    source: str,
    target: str,
    vectors: np.ndarray,
    ids: Callable,
    per_direction: int,
) -> tuple[list[RetrievalError], int, int]:
    columns = _first(part.texts[source]), _first(part.texts[target])
    pairs = [(query, right) for query, right in zip(*columns) if query and right]
    if not pairs:
        return [], 0, 0
    queries, answers = (list(column) for column in zip(*pairs))
    candidates = list(dict.fromkeys(answers))
    row_of = {text: row for row, text in enumerate(candidates)}
    right = np.array([row_of[text] for text in answers])
    target_vectors, source_vectors = vectors[ids(candidates)], vectors[ids(queries)]
    ranks = np.empty(len(queries), np.int64)
    for start in range(0, len(queries), _BLOCK_QUERIES):
        block = slice(start, start + _BLOCK_QUERIES)
        cosines = source_vectors[block] @ target_vectors.T
        own = np.take_along_axis(cosines, right[block, None], axis=1)
        before = np.arange(len(candidates)) < right[block, None]
        ranks[block] = 1 + ((cosines > own) | ((cosines == own) & before)).sum(axis=1)
    wrong = np.flatnonzero(ranks > 1)
    errors = []
    for row in wrong[np.argsort(-ranks[wrong], kind="stable")][:per_direction]:
        cosines = (target_vectors @ source_vectors[row]).tolist()
        nearest = np.argsort(-np.array(cosines), kind="stable")[:NUM_RETRIEVED].tolist()
        answer = Candidate(answers[row], int(ranks[row]), cosines[right[row]])
        retrieved = [
            Candidate(candidates[place], rank, cosines[place])
            for rank, place in enumerate(nearest, start=1)
        ]
        errors.append(RetrievalError(source, target, queries[row], answer, tuple(retrieved)))
    return errors, len(wrong), len(queries)


def _project(
    encode: Encode,
    name: str,
    texts: list[str],
    languages: list[str],
    labels: list[str] | None,
) -> Projection:
    vectors, ids = encode_unique(encode, [texts])
    vectors = vectors[ids(texts)]
    points = {method: project(vectors, method) for method in PROJECTIONS}
    return Projection(name, points, texts, languages, labels)


def _spread(rows: Sequence[int], count: int) -> list[int]:
    """At most `count` of the rows, from all over the file."""
    count = min(count, len(rows))
    return [rows[len(rows) * place // count] for place in range(count)]


def _first(column: Sequence[str]) -> list[str]:
    return list(column[:MAX_QUERIES])
