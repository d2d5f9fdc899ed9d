"""The worst retrieval errors of an encoder, for a report."""

import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np
from sklearn.preprocessing import normalize

from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.eval.retrieval_data import RetrievalData

# Rows of a file that are searched; queries that are shown, and texts that are shown of each.
MAX_QUERIES, NUM_SHOWN, NUM_RETRIEVED = 2000, 40, 3


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
    """Retrieval errors of a run on a data set, worst first, and how many there are in all."""

    title: str
    errors: list[RetrievalError]
    num_errors: int
    num_queries: int


def worst_errors(run: str, encode: Encode, data: RetrievalData) -> ErrorList:
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
    shown = [*worst.values()][:NUM_SHOWN]
    return ErrorList(f"{run}: {data.name}", shown, len(found), num_queries)
