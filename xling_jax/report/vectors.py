"""Vectors in a report: texts projected to the plane, and the worst retrieval errors."""

import itertools
import logging
from collections import Counter
from collections.abc import Sequence
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

_logger = logging.getLogger(__name__)

# Points in a projection: more would hide each other, and t-SNE is slow.
MAX_POINTS = 1000
MAX_LANGUAGES = 7  # As many as there are different colors and marks.
MAX_LABELS = 7
OTHER_LABEL = "other labels"
MAX_QUERIES = 2000
NUM_RETRIEVED = 3
_MAX_CHARACTERS = 280  # of a text that the pointer shows
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


class RunVectors(NamedTuple):
    """Drawings for the template, and retrieval errors, by data set, of the encoder of one run."""

    run: str
    drawings: list[dict[str, Any]]
    errors: list[ErrorList]


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
    run: str, encode: Encode, data: Sequence[ClassificationData | RetrievalData]
) -> RunVectors:
    """Embeds data sets of `load_data` for the run of a name, and finds what to show of them."""
    section = RunVectors(run, [], [])
    for one in data:
        _logger.info("%s: embedding %s", run, one.name)
        if isinstance(one, ClassificationData):
            drawing = draw_classification(encode, one)
        else:
            section.errors.append(worst_errors(encode, one))
            drawing = draw_retrieval(encode, one)
        if drawing:
            section.drawings.append(drawing)
    return section


def draw_retrieval(encode: Encode, data: RetrievalData) -> dict[str, Any] | None:
    """Draws rows that all of the first languages have; None if too few, or of many files."""
    if len(data.parts) > 1:
        return None
    columns = dict(itertools.islice(data.parts[0].texts.items(), MAX_LANGUAGES))
    full = [row for row, cells in enumerate(zip(*columns.values())) if all(cells)]
    count = min(MAX_POINTS // len(columns), len(full))
    if count < 2:
        return None
    rows = [full[len(full) * place // count] for place in range(count)]  # all over the file
    texts = [column[row] for column in columns.values() for row in rows]
    return _draw(data.name, encode, texts, [code for code in columns for _ in rows])


def draw_classification(encode: Encode, data: ClassificationData) -> dict[str, Any] | None:
    """Draws test texts, equally many of each language; None if there are too few."""
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
    return _draw(data.name, encode, texts, languages, labels)


def _draw(
    name: str,
    encode: Encode,
    texts: list[str],
    languages: list[str],
    labels: list[str] | None = None,
) -> dict[str, Any]:
    """Texts in the plane by language, and by class if they have one."""
    vectors, ids = encode_unique(encode, [texts])
    vectors = vectors[ids(texts)]
    codes, classes = list(dict.fromkeys(languages)), sorted(set(labels or ()))
    of_class = map(classes.index, labels) if labels else itertools.repeat(None)
    colors = [*zip(map(codes.index, languages), of_class)]
    points = {}
    for method in PROJECTIONS:
        plane = project(vectors, method)
        low, high = plane.min(axis=0), plane.max(axis=0)
        # Both axes have the same scale, so that distances mean something.
        scale = min(np.array(_SIZE) * 0.95 / np.maximum(high - low, 1e-9))
        spots = (np.array(_SIZE) / 2 + (plane - (low + high) / 2) * scale).round(1).tolist()
        points[method] = [(x, y, *color) for (x, y), color in zip(spots, colors)]
    cut = [t if len(t) <= _MAX_CHARACTERS else t[: _MAX_CHARACTERS - 1] + "…" for t in texts]
    return {
        "name": name,
        "width": _SIZE[0],
        "height": _SIZE[1],
        "marks": _MARKS,
        "languages": codes,
        "labels": classes,
        "points": points,
        "texts": [*zip(cut, languages, *([labels] if labels else []))],
    }


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
