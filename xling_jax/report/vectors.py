"""What a report shows of the vectors themselves: projections, and the worst retrieval errors."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xling_jax.align import knn
from xling_jax.eval.classification_data import ClassificationData
from xling_jax.eval.retrieval import Encode, encode_unique
from xling_jax.eval.retrieval_data import ParallelText, RetrievalData
from xling_jax.report.pictures import PROJECTIONS, project

# Points in all of one projection: more hide each other, and t-SNE takes its time.
MAX_POINTS = 1000
MAX_LANGUAGES = 7  # As many as there are colors and marks to tell apart.
MAX_LABELS = 7
OTHER_LABEL = "other labels"
MAX_QUERIES = 5000
NUM_RETRIEVED = 3
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


def project_retrieval(encode: Encode, data: RetrievalData) -> Projection | None:
    """Projects rows that all of the first languages have.

    Returns:
        The projection; None where there are too few rows, or bilingual files without any in common.
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
    """Projects the texts that measure, as many of each language; None where there are too few."""
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
) -> tuple[list[RetrievalError], int, int]:
    """Finds the queries whose translation ranks lowest by cosine.

    A candidate with the text of the translation is right as well: a copy is no error.

    Args:
        encode: texts to [n, dim] embeddings; called once for each file of the data.
        data: parallel text; of long files the first rows are taken.
        per_direction: errors kept of each direction.
        limit: errors returned in all.

    Returns:
        The errors, lowest rank of the translation first; how many errors there are; and how many
        queries there were.

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
    return errors[:limit], num_errors, num_queries


def _errors(
    part: ParallelText, source: str, target: str, vectors: np.ndarray, ids, per_direction: int
) -> tuple[list[RetrievalError], int, int]:
    columns = _first(part.texts[source]), _first(part.texts[target])
    pairs = [(query, right) for query, right in zip(*columns) if query and right]
    if not pairs:
        return [], 0, 0
    queries, answers = (list(column) for column in zip(*pairs))
    candidates = list(dict.fromkeys(answers))
    row_of = {text: row for row, text in enumerate(candidates)}
    target_vectors, source_vectors = vectors[ids(candidates)], vectors[ids(queries)]
    ranks = np.empty(len(queries), np.int64)
    right_rows = np.array([row_of[text] for text in answers])
    for start in range(0, len(queries), 512):
        block = slice(start, start + 512)
        cosines = source_vectors[block] @ target_vectors.T
        own = np.take_along_axis(cosines, right_rows[block, None], axis=1)
        ahead = (cosines > own) | (
            (cosines == own) & (np.arange(len(candidates)) < right_rows[block, None])
        )
        ranks[block] = 1 + ahead.sum(axis=1)
    wrong = np.flatnonzero(ranks > 1)
    worst = wrong[np.argsort(-ranks[wrong], kind="stable")][:per_direction]
    errors = []
    for row in worst:
        cosines = target_vectors @ source_vectors[row]
        nearest = np.argsort(-cosines, kind="stable")[:NUM_RETRIEVED]
        errors.append(
            RetrievalError(
                source,
                target,
                queries[row],
                Candidate(answers[row], int(ranks[row]), float(cosines[right_rows[row]])),
                tuple(
                    Candidate(candidates[place], rank, float(cosines[place]))
                    for rank, place in enumerate(nearest, start=1)
                ),
            )
        )
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
