"""Vectors in a report: texts projected to the plane, and the worst retrieval errors."""

import itertools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.preprocessing import normalize

from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.eval.classification_data import (
    ClassificationData,
    list_languages,
    load_classification_data,
)
from xling_jax.eval.retrieval_data import RetrievalData, load_retrieval_data
from xling_jax.report.pictures import PROJECTIONS, project
from xling_jax.report.runs import Origin, measured_facts

_logger = logging.getLogger(__name__)

# Points in a projection: more would hide each other, and t-SNE is slow.
MAX_POINTS = 1000
MAX_LANGUAGES = 7  # As many as there are different colors and marks.
MAX_LABELS = 7
OTHER_LABEL = "other labels"
MAX_QUERIES = 2000
NUM_RETRIEVED = 3
_SEED = 0
_SIZE = (400, 320)  # Width and height of a drawing.

# Marks around (0, 0), one for each language, so that they differ in more than color.
_MARKS = (
    "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "M0-3.6L3.4 2.6H-3.4Z",
    "M-2.7-2.7H2.7V2.7H-2.7Z",
    "M0-3.9L3.9 0L0 3.9L-3.9 0Z",
    "M0 3.6L3.4-2.6H-3.4Z",
    "M-1.2-3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6V-1.2H-1.2Z",
    "M-3-1.5L-1.5-3L0-1.5L1.5-3L3-1.5L1.5 0L3 1.5L1.5 3L0 1.5L-1.5 3L-3 1.5L-1.5 0Z",
)


class Plane(NamedTuple):
    """n texts in the plane, "pca" and "tsne" -> [n, 2], and of each the language and any class."""

    name: str
    points: dict[str, np.ndarray]
    texts: list[str]
    languages: list[str]
    labels: list[str] | None = None


class Candidate(NamedTuple):
    """A possible answer to a query, its rank from 1 for the nearest, and its cosine."""

    text: str
    rank: int
    cosine: float


class RetrievalError(NamedTuple):
    """A query whose translation (`right`) is not its nearest neighbor; `retrieved` best first.

    `row` is its file and row; it is shown in the worst of the `num_wrong` directions.
    """

    row: tuple[int, int]
    direction: str
    query: str
    right: Candidate
    retrieved: list[Candidate]
    num_wrong: int = 1


class ErrorList(NamedTuple):
    """Retrieval errors of the data set `data`, worst first, and how many there are in all."""

    data: str
    errors: list[RetrievalError]
    num_errors: int
    num_queries: int


@dataclass
class RunVectors:
    """Texts in the plane and retrieval errors, by data set, of the encoder of one run."""

    run: str
    origins: list[Origin]
    projections: list[Plane] = field(default_factory=list)
    errors: list[ErrorList] = field(default_factory=list)


def load_data(
    path: str | Path, languages: Sequence[str] | None = None
) -> ClassificationData | RetrievalData:
    """Reads labeled text where a directory holds such files, else parallel text.

    Of both the languages given, or all: see `load_classification_data`, `load_retrieval_data`.
    """
    if Path(path).is_dir() and (known := list_languages(path)):
        chosen = known if languages is None else [code for code in languages if code in known]
        return load_classification_data(path, chosen)
    return load_retrieval_data(path, languages)


def run_vectors(
    run: str,
    encode: Encode,
    data: Sequence[ClassificationData | RetrievalData],
    model: Mapping[str, Any],
) -> RunVectors:
    """Embeds data sets of `load_data` for the run of a name, and finds what to show of them.

    `model` is path and fingerprint of the encoder.
    """
    facts = measured_facts(model, [one.description for one in data])
    section = RunVectors(run, [Origin(run, (*facts, ("Seed", str(_SEED))))])
    for one in data:
        _logger.info("%s: embedding %s", run, one.name)
        if isinstance(one, ClassificationData):
            projection = project_classification(encode, one)
        else:
            section.errors.append(worst_errors(encode, one))
            projection = project_retrieval(encode, one)
        section.projections += [projection] if projection else []
    return section


def project_retrieval(encode: Encode, data: RetrievalData) -> Plane | None:
    """Projects rows that all of the first languages have; None if too few, or of many files."""
    if len(data.parts) > 1:
        return None
    columns = dict(itertools.islice(data.parts[0].texts.items(), MAX_LANGUAGES))
    full = [row for row, cells in enumerate(zip(*columns.values())) if all(cells)]
    count = min(MAX_POINTS // len(columns), len(full))
    if count < 2:
        return None
    rows = [full[len(full) * place // count] for place in range(count)]  # all over the file
    texts = [column[row] for column in columns.values() for row in rows]
    languages = [code for code in columns for _ in rows]
    return Plane(data.name, _project(encode, texts), texts, languages)


def project_classification(encode: Encode, data: ClassificationData) -> Plane | None:
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
    counts = Counter(sorted(labels)).most_common()
    if len(counts) > MAX_LABELS:
        kept = dict(counts[: MAX_LABELS - 1])
        labels = [label if label in kept else OTHER_LABEL for label in labels]
    return Plane(data.name, _project(encode, texts), texts, languages, labels)


def _project(encode: Encode, texts: list[str]) -> dict[str, np.ndarray]:
    vectors, ids = encode_unique(encode, [texts])
    return {method: project(vectors[ids(texts)], method) for method in PROJECTIONS}


def worst_errors(encode: Encode, data: RetrievalData, *, limit: int = 40) -> ErrorList:
    """Finds the queries whose translation ranks lowest by cosine, each row of the data once.

    A candidate with the same text as the translation is right too. Of long files only the first
    rows are used; texts of a file are encoded in one call.
    """
    found: list[RetrievalError] = []
    num_queries = 0
    for number, part in enumerate(data.parts):
        columns = {code: column[:MAX_QUERIES] for code, column in part.texts.items()}
        vectors, ids = encode_unique(encode, [*columns.values()])
        vectors = normalize(vectors)
        for source, target in itertools.permutations(columns, 2):
            pairs = zip(columns[source], columns[target])
            rows = [row for row, pair in enumerate(pairs) if all(pair)]
            if not rows:
                continue
            queries, answers = ([columns[code][row] for row in rows] for code in (source, target))
            texts = list(dict.fromkeys(answers))
            place_of = {text: place for place, text in enumerate(texts)}
            right = np.array([place_of[answer] for answer in answers])
            cosines = vectors[ids(queries)] @ vectors[ids(texts)].T
            order = np.argsort(-cosines, axis=1, kind="stable")
            ranks = 1 + (order == right[:, None]).argmax(axis=1)
            num_queries += len(rows)
            for at in np.flatnonzero(ranks > 1):
                places = [*enumerate(order[at, :NUM_RETRIEVED], 1), (int(ranks[at]), right[at])]
                retrieved = [Candidate(texts[j], n, float(cosines[at, j])) for n, j in places]
                direction, row = f"{source} → {target}", (number, rows[at])
                found.append(
                    RetrievalError(row, direction, queries[at], retrieved.pop(), retrieved)
                )
    found.sort(key=lambda error: -error.right.rank)
    num_wrong = Counter(error.row for error in found)
    worst: dict[tuple[int, int], RetrievalError] = {}
    for error in found:
        worst.setdefault(error.row, error._replace(num_wrong=num_wrong[error.row]))
    return ErrorList(data.name, [*worst.values()][:limit], len(found), num_queries)


def drawings(vectors: Sequence[RunVectors]) -> list[dict[str, Any]]:
    """The projections of each run, for the template."""
    numbers = itertools.count()
    return [
        {
            "run": one.run,
            "drawings": [_scatter(plane, next(numbers)) for plane in one.projections],
            "origins": one.origins,
        }
        for one in vectors
        if one.projections
    ]


def _scatter(projection: Plane, number: int) -> dict[str, Any]:
    """Texts in the plane by language or by class; the drawings of a page are numbered."""
    languages = list(dict.fromkeys(projection.languages))
    labels = sorted(set(projection.labels or ()))
    columns = [projection.languages, *([projection.labels] if labels else [])]
    classes = [labels.index(label) for label in projection.labels or ()]
    points = {}
    for method, plane in projection.points.items():
        low, high = plane.min(axis=0), plane.max(axis=0)
        # Both axes have the same scale, so that distances mean something.
        scale = min(np.array(_SIZE) * 0.95 / np.maximum(high - low, 1e-9))
        spots = (np.array(_SIZE) / 2 + (plane - (low + high) / 2) * scale).round(1).tolist()
        points[method] = [
            (x, y, languages.index(code), classes[row] if classes else None)
            for row, ((x, y), code) in enumerate(zip(spots, projection.languages))
        ]
    return {
        "number": number,
        "name": projection.name,
        "width": _SIZE[0],
        "height": _SIZE[1],
        "marks": _MARKS,
        "languages": languages,
        "labels": labels,
        "points": points,
        "texts": [
            (text if len(text) <= 280 else text[:279] + "…", *described)
            for text, *described in zip(projection.texts, *columns)
        ],
    }
