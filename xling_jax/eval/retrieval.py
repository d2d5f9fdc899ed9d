"""Cross-lingual retrieval: is a sentence's translation its nearest neighbor?

Works on embeddings of any origin (`retrieval_matrix`) and, through an `encode` function, on texts
(`evaluate_retrieval`, cheap enough to run while training). Writes and prints nothing.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xling_jax.align import knn, margin
from xling_jax.eval.retrieval_data import RetrievalData, load_distractors, load_retrieval_data

__all__ = [
    "MARGIN_NEIGHBORS",
    "CSLS_NEIGHBORS",
    "SIMILARITIES",
    "RetrievalMatrix",
    "encode_unique",
    "evaluate_retrieval",
    "load_distractors",
    "load_retrieval_data",
    "measure_retrieval",
    "retrieval_matrix",
    "retrieve",
]

Encode = Callable[[list[str]], np.ndarray]

MARGIN_NEIGHBORS = 4  # Artetxe and Schwenk (2019a), section 3.
CSLS_NEIGHBORS = 10  # Conneau et al. (2018), section 2.3.
SIMILARITIES = ("cosine", "margin", "csls")


@dataclass(frozen=True)
class RetrievalMatrix:
    """Scores of every direction between languages; NaN where nothing was measured.

    Attributes:
        languages: names of rows (queries) and columns (candidates).
        metrics: name to [languages, languages] float64 in [0, 1]. `p_at_k` is the share of queries
            whose translation is among the first k candidates. `error` (one minus P@1 by cosine,
            as in the Tatoeba results of LASER) and `xsim` (the error when the four nearest by
            cosine are compared by ratio margin) are there when there are no distractors.
        num_queries: [languages, languages] int64.
        num_candidates: [languages, languages] int64, distractors included.
    """

    languages: tuple[str, ...]
    metrics: dict[str, np.ndarray]
    num_queries: np.ndarray
    num_candidates: np.ndarray

    def directions(self) -> list[tuple[str, str]]:
        """The directions measured, (source, target), row by row."""
        rows, columns = np.nonzero(self.num_queries)
        return [(self.languages[row], self.languages[column]) for row, column in zip(rows, columns)]

    def value(self, metric: str, source: str, target: str) -> float:
        """One score of one direction."""
        row, column = self.languages.index(source), self.languages.index(target)
        return float(self.metrics[metric][row, column])

    def mean(self, metric: str) -> float:
        """Mean over the directions measured, each counting the same."""
        return float(np.nanmean(self.metrics[metric]))

    def to_dict(self) -> dict:
        """As plain numbers for JSON: directions that were not measured are left out."""

        def nested(values: np.ndarray) -> dict[str, dict[str, float]]:
            rows: dict[str, dict[str, float]] = {}
            for source, target in self.directions():
                value = values[self.languages.index(source), self.languages.index(target)]
                rows.setdefault(source, {})[target] = value.item()
            return rows

        return {
            "languages": list(self.languages),
            "mean": {metric: self.mean(metric) for metric in self.metrics},
            **{metric: nested(values) for metric, values in self.metrics.items()},
            "num_queries": nested(self.num_queries),
            "num_candidates": nested(self.num_candidates),
        }


def retrieve(
    source: np.ndarray,
    target: np.ndarray,
    k: int,
    *,
    similarity: str = "cosine",
    source_pool: np.ndarray | None = None,
    memory_mb: float = 256,
) -> np.ndarray:
    """Ranks all targets for each source.

    Args:
        source: [n, dim] normalized embeddings, the queries.
        target: [m, dim] normalized embeddings, the candidates.
        k: how many to return.
        similarity: "cosine"; "margin", the ratio margin with k=4; or "csls" with k=10. The last
            two score every candidate, not only the nearest by cosine.
        source_pool: [p, dim], the text in which candidates have their neighborhoods; the queries
            when None. Cosine does not use it.
        memory_mb: see `knn.top_k`.

    Returns:
        [n, min(k, m)] int64 indices into target, best first.

    Raises:
        ValueError: if `similarity` is unknown, and as `knn.top_k`.
    """
    if similarity == "cosine":
        return knn.top_k(source, target, k, memory_mb=memory_mb)[1]
    rules = {
        "margin": (margin.ratio_margin, MARGIN_NEIGHBORS),
        "csls": (margin.csls, CSLS_NEIGHBORS),
    }
    if similarity not in rules:
        raise ValueError(f"similarity must be one of {', '.join(SIMILARITIES)}; got {similarity!r}")
    score, size = rules[similarity]
    source_pool = source if source_pool is None else source_pool
    source_mean = margin.neighbor_mean(source, target, size, memory_mb=memory_mb)
    target_mean = margin.neighbor_mean(target, source_pool, size, memory_mb=memory_mb)
    return knn.top_k(
        source,
        target,
        k,
        memory_mb=memory_mb,
        score_tile=lambda tile, rows, columns: score(
            tile, source_mean[rows], target_mean[None, columns]
        ),
    )[1]


def retrieval_matrix(
    embeddings: Mapping[str, np.ndarray],
    *,
    similarity: str = "cosine",
    k_values: Sequence[int] = (1, 5),
    distractors: Mapping[str, np.ndarray] | None = None,
    present: Mapping[str, np.ndarray] | None = None,
    text_ids: Mapping[str, np.ndarray] | None = None,
    memory_mb: float = 256,
) -> RetrievalMatrix:
    """Measures retrieval between all languages, in both directions.

    Args:
        embeddings: for each language [n, dim]; row i of all is one meaning. Need not be
            normalized.
        similarity: see `retrieve`.
        k_values: the k of P@k.
        distractors: for any of the languages [m, dim] further candidates. With "margin" and "csls"
            those of the source language are part of the text in which candidates have their
            neighborhoods.
        present: for each language [n] bool, False where it has no translation; a direction uses
            the rows that both languages have. None: all rows.
        text_ids: for each language [n] int, equal where texts are equal; then any copy of the
            right text is right. None: only the row itself is.
        memory_mb: see `knn.top_k`.

    Returns:
        The scores; the diagonal is not measured.

    Raises:
        ValueError: if sizes disagree, there are fewer than two languages, no direction has a row,
            or a value is not finite.
    """
    languages = _check_embeddings(embeddings, k_values)
    unit = {code: knn.normalize(rows) for code, rows in embeddings.items()}
    extra = {code: knn.normalize(rows) for code, rows in (distractors or {}).items()}

    shape = (len(languages), len(languages))
    names = [f"p_at_{k}" for k in k_values] + ([] if extra else ["error", "xsim"])
    metrics = {name: np.full(shape, np.nan) for name in names}
    num_queries, num_candidates = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for cell in itertools.permutations(range(len(languages)), 2):
        codes = [languages[place] for place in cell]
        common = np.ones(len(unit[codes[0]]), bool)
        if present is not None:
            common = np.asarray(present[codes[0]]) & np.asarray(present[codes[1]])
        if not common.any():
            continue
        source, target = (unit[code][common] for code in codes)
        pools = [
            np.concatenate([own, extra[code]]) if code in extra else own
            for own, code in zip((source, target), codes)
        ]
        num_queries[cell], num_candidates[cell] = len(source), len(pools[1])
        right = _right_answers(None if text_ids is None else text_ids[codes[1]][common])
        ranked = retrieve(
            source,
            pools[1],
            max(k_values),
            similarity=similarity,
            source_pool=pools[0],
            memory_mb=memory_mb,
        )
        hits = right(ranked)
        for k in k_values:
            metrics[f"p_at_{k}"][cell] = hits[:, :k].any(axis=1).mean()
        if not extra:
            nearest, chosen = _published_choices(source, target, memory_mb)
            metrics["error"][cell] = 1 - right(nearest).mean()
            metrics["xsim"][cell] = 1 - right(chosen).mean()
    if not num_queries.any():
        raise ValueError(f"no row has text in two of the languages {', '.join(languages)}")
    return RetrievalMatrix(languages, metrics, num_queries, num_candidates)


def measure_retrieval(
    encode: Encode,
    data: RetrievalData,
    *,
    similarity: str = "cosine",
    k_values: Sequence[int] = (1, 5),
    match: str = "index",
    distractors: Mapping[str, Sequence[str]] | None = None,
    memory_mb: float = 256,
) -> RetrievalMatrix:
    """Embeds parallel text and measures retrieval.

    Args:
        encode: texts to [n, dim] embeddings; called once, with each text once.
        data: parallel text.
        similarity: see `retrieve`.
        k_values: the k of P@k.
        match: "index", only the query's own row is right, as published; or "text", every
            candidate with the right text is. They differ where the data holds duplicates.
        distractors: for any language texts to be found wrongly; those equal to a candidate of the
            data are left out.
        memory_mb: see `knn.top_k`.

    Returns:
        The scores over all languages of the data.

    Raises:
        ValueError: as `retrieval_matrix`, or if `match` is unknown.
    """
    if match not in ("index", "text"):
        raise ValueError(f"match must be index or text; got {match!r}")
    distractors = distractors or {}
    columns = [texts for part in data.parts for texts in part.texts.values()]
    vectors, ids = encode_unique(encode, [*columns, *distractors.values()])
    matrices = []
    for part in data.parts:
        part_ids = {code: ids(texts) for code, texts in part.texts.items()}
        matrices.append(
            retrieval_matrix(
                {code: vectors[rows] for code, rows in part_ids.items()},
                similarity=similarity,
                k_values=k_values,
                distractors={
                    code: vectors[np.setdiff1d(ids(distractors[code]), rows)]
                    for code, rows in part_ids.items()
                    if code in distractors
                },
                present={
                    code: np.array([*map(bool, column)]) for code, column in part.texts.items()
                },
                text_ids=part_ids if match == "text" else None,
                memory_mb=memory_mb,
            )
        )
    return _join(data.languages, matrices)


def evaluate_retrieval(encode: Encode, data: RetrievalData, **settings) -> dict[str, float]:
    """Measures retrieval as named numbers, for training loops and tables.

    Args:
        encode: texts to [n, dim] embeddings.
        data: parallel text.
        **settings: see `measure_retrieval`.

    Returns:
        `NAME/METRIC`, the mean over directions, and `NAME/METRIC_SOURCE_TARGET`, each direction;
        all in [0, 1]. The primary one is `NAME/p_at_1`.

    Raises:
        ValueError: as `measure_retrieval`.
    """
    matrix = measure_retrieval(encode, data, **settings)
    scores = {f"{data.name}/{metric}": matrix.mean(metric) for metric in matrix.metrics}
    for metric, (source, target) in itertools.product(matrix.metrics, matrix.directions()):
        name = f"{data.name}/{metric}_{source}_{target}"
        scores[name] = matrix.value(metric, source, target)
    return scores


def encode_unique(
    encode: Encode, columns: Sequence[Sequence[str]]
) -> tuple[np.ndarray, Callable[[Sequence[str]], np.ndarray]]:
    """Embeds every distinct text once, in one call.

    Args:
        encode: texts to [n, dim] embeddings.
        columns: lists of texts.

    Returns:
        Embeddings [distinct, dim] and the function from texts to their rows, int64.

    Raises:
        ValueError: if `encode` returns another number of rows or not a matrix.
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(itertools.chain(*columns)))}
    vectors = knn.as_embeddings(encode(list(row_of)), "the result of encode")
    if len(vectors) != len(row_of):
        raise ValueError(
            f"encode must return one row a text; got {len(vectors)} rows for {len(row_of)} texts"
        )
    return vectors, lambda texts: np.array([row_of[text] for text in texts], np.int64)


def _check_embeddings(
    embeddings: Mapping[str, np.ndarray], k_values: Sequence[int]
) -> tuple[str, ...]:
    """Returns the languages if they are two or more with as many rows each."""
    if len(embeddings) < 2:
        raise ValueError(f"retrieval needs at least two languages; got {list(embeddings)}")
    counts = {code: len(rows) for code, rows in embeddings.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"row i must be one meaning in all languages; got row counts {counts}")
    if not k_values or min(k_values) < 1:
        raise ValueError(f"k_values must be at least 1; got {list(k_values)}")
    return tuple(embeddings)


def _published_choices(
    source: np.ndarray, target: np.ndarray, memory_mb: float
) -> tuple[np.ndarray, np.ndarray]:
    """Each source's one answer by cosine, as for Tatoeba, and by the rule of xSIM; [n, 1] each.

    xSIM takes the largest ratio margin among the four nearest by cosine, forward only.
    """
    cosine, candidates = knn.top_k(source, target, MARGIN_NEIGHBORS, memory_mb=memory_mb)
    target_mean = margin.neighbor_mean(target, source, MARGIN_NEIGHBORS, memory_mb=memory_mb)
    scores = margin.ratio_margin(cosine, cosine.mean(axis=1), target_mean[candidates])
    chosen = np.take_along_axis(candidates, scores.argmax(axis=1)[:, None], axis=1)
    return candidates[:, :1], chosen


def _right_answers(text_ids: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray]:
    """The function from ranked candidates [n, k] of all n queries to whether each is right."""
    if text_ids is None:
        return lambda ranked: ranked == np.arange(len(ranked))[:, None]

    def right(ranked: np.ndarray) -> np.ndarray:
        # Distractors lie behind the targets and never have the text of one.
        is_target = ranked < len(text_ids)
        return is_target & (text_ids[np.where(is_target, ranked, 0)] == text_ids[:, None])

    return right


def _join(languages: Sequence[str], matrices: Sequence[RetrievalMatrix]) -> RetrievalMatrix:
    """One matrix over all languages from matrices that share no direction."""
    if len(matrices) == 1:
        return matrices[0]
    shape = (len(languages), len(languages))
    # Distractors of some languages only leave `error` and `xsim` to some of the parts.
    names = list(dict.fromkeys(name for matrix in matrices for name in matrix.metrics))
    metrics = {name: np.full(shape, math.nan) for name in names}
    num_queries, num_candidates = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for matrix in matrices:
        places = [languages.index(code) for code in matrix.languages]
        cells = np.ix_(places, places)
        measured = matrix.num_queries > 0
        for name, values in matrix.metrics.items():
            metrics[name][cells] = np.where(measured, values, metrics[name][cells])
        num_queries[cells] += matrix.num_queries
        num_candidates[cells] += matrix.num_candidates
    return RetrievalMatrix(tuple(languages), metrics, num_queries, num_candidates)
