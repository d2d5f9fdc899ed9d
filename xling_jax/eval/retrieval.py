"""Cross-lingual retrieval: is a sentence's translation its nearest neighbor?

`retrieval_matrix` works on embeddings of any origin.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.align import knn, margin
from xling_jax.eval.results import Heatmap, Projection, markdown_table, percent
from xling_jax.eval.retrieval_data import (
    RetrievalData,
    load_distractors,
    load_retrieval_data,
    vector_files,
)
from xling_jax.eval.tasks import Task
from xling_jax.eval.unique import Encode, encode_unique
from xling_jax.files.hashes import hash_file
from xling_jax.options import OptionError, option
from xling_jax.registry import check_choice

_logger = logging.getLogger(__name__)

MARGIN_NEIGHBORS = 4  # Artetxe and Schwenk (2019a), section 3.
CSLS_NEIGHBORS = 10  # Conneau et al. (2018), section 2.3.
SIMILARITIES = ("cosine", "margin", "csls")
MATCHES = ("index", "text")

_NUM_KEYS, _NUM_QUERIES = 200_000, 2_000  # of XSR, as published
_NUM_EXAMPLES = 5  # translations joined by lines in the projections
_MAX_HEATMAP_LANGUAGES = 30
# A matrix with fewer of its cells measured reads better as a list of pairs.
_MIN_FILLED = 0.5


@dataclass(frozen=True)
class Retrieval(Task):
    """P@k between all languages in both directions, the error rate reported for Tatoeba, xSIM."""

    similarity: str = option("cosine", "what ranks the candidates", SIMILARITIES)
    k: tuple[int, ...] = option((1, 5), "the k of P@k", positive=True, metavar="K,K")
    match: str = option(
        "index",
        "what counts as right: only the query's own row, as published, or any row with its text",
        MATCHES,
    )
    distractors: tuple[Path, ...] = option(
        (), "lines of text that are further candidates", metavar="NAME.LANG.txt[.gz]"
    )
    xsr: tuple[int, ...] | None = option(
        None,
        "draw keys and queries from each data set as MUSE does (200000,2000 if no numbers are "
        "given) and keep the rows drawn in the output directory",
        positive=True,
        nargs="?",
        const=(_NUM_KEYS, _NUM_QUERIES),
        metavar="KEYS,QUERIES",
    )
    xsr_samples: Path | None = option(
        None, "directory with the rows that an earlier --xsr drew", metavar="DIR"
    )

    title = "Retrieval"
    data_help = (
        "n-way TSV with a header of language codes, or a directory of pairs such as Tatoeba's; "
        "any number of them"
    )
    examples = """examples:
  xling evaluate retrieval --model runs/quickstart --data dev.tsv.gz --output runs/retrieval
  xling evaluate retrieval --model M --data tatoeba/ --languages en,de,fr --output O
  xling evaluate retrieval --embeddings vectors/ --data dev.tsv.gz --output O
"""
    columns = {"p_at_1": "P@1", "p_at_5": "P@5", "error": "error", "xsim": "xSIM"}
    primary = "p_at_1"
    lower_is_better = frozenset({"error", "xsim"})
    axes = ("from", "to")

    def __post_init__(self):
        super().__post_init__()
        if self.xsr and self.xsr_samples:
            raise OptionError("xsr draws rows and xsr_samples reads drawn ones; give one of them")
        if self.xsr and (len(self.xsr) != 2 or self.xsr[1] > self.xsr[0]):
            given = ",".join(map(str, self.xsr))
            raise OptionError(f"xsr={given}: must be KEYS,QUERIES, with at most as many queries")
        if self._draws_rows and (self.distractors or self.match != "index"):
            raise OptionError(
                "xsr has its own candidates and matches rows; leave out distractors and match"
            )

    @property
    def _draws_rows(self) -> bool:
        return bool(self.xsr or self.xsr_samples)

    def load(self, paths: Sequence[str], languages: Sequence[str] | None) -> list[RetrievalData]:
        """Reads parallel text, see `load_retrieval_data`."""
        sets = [load_retrieval_data(path, languages) for path in paths]
        found = dict.fromkeys(code for data in sets for code in data.languages)
        for code in languages or ():
            if code not in found:
                raise OptionError(f"languages: no text in {code}; there is some in {[*found]}")
        return sets

    def vector_files(self, data: Sequence[RetrievalData]) -> dict[str, Sequence[str]]:
        """`pud.dev.tsv.gz` has `pud.dev.en`; Tatoeba's files and distractors their own names."""
        return vector_files(data, self.distractors)

    def measure(
        self, encoder: Any, data: RetrievalData, directory: Path | None = None
    ) -> dict[str, RetrievalMatrix]:
        """All directions between the languages of a data set; each text is embedded once."""
        if self._draws_rows:
            return {data.name: self._measure_drawn(encoder.encode, data, directory)}
        distractors = load_distractors(self.distractors, data.languages)
        columns = [texts for part in data.parts for texts in part.texts.values()]
        vectors, ids = encode_unique(encoder.encode, [*columns, *distractors.values()])
        matrices = []
        for part in data.parts:
            rows = {code: ids(texts) for code, texts in part.texts.items()}
            matrix = retrieval_matrix(
                {code: vectors[own] for code, own in rows.items()},
                similarity=self.similarity,
                k_values=self._k_values,
                # Those with the text of a candidate are left out.
                distractors={
                    code: vectors[np.setdiff1d(ids(texts), rows[code])]
                    for code, texts in distractors.items()
                    if code in rows
                },
                present={c: np.array([*map(bool, texts)]) for c, texts in part.texts.items()},
                text_ids=rows if self.match == "text" else None,
            )
            matrices.append(matrix)
        return {data.name: _join(data.languages, matrices)}

    def settings(self, encoder: Any, outcomes: Mapping[str, RetrievalMatrix]) -> dict[str, Any]:
        """The options, and sizes of neighborhoods."""
        return {
            "similarity": self.similarity,
            "k_values": self._k_values,
            "match": self.match,
            "xsr": self.xsr or (str(self.xsr_samples) if self.xsr_samples else None),
            "margin_neighbors": MARGIN_NEIGHBORS,
            "csls_neighbors": CSLS_NEIGHBORS,
            "distractors": [
                {"path": str(path), "sha256": hash_file(path)} for path in self.distractors
            ],
        }

    def tables(
        self, data: Sequence[RetrievalData], outcomes: Mapping[str, RetrievalMatrix]
    ) -> list[str]:
        """A section for each data set."""
        return [retrieval_table(name, m, self.similarity) for name, m in outcomes.items()]

    def pictures(
        self, encoder: Any, data: Sequence[RetrievalData], outcomes: Mapping[str, RetrievalMatrix]
    ) -> Iterator[Heatmap | Projection]:
        """The matrix, and projections of the rows that all languages have."""
        k = min(self.k)
        for one in data if not self._draws_rows else ():
            matrix = outcomes[one.name]
            if len(matrix.languages) > _MAX_HEATMAP_LANGUAGES or len(one.parts) > 1:
                _logger.info("%s: too many files or languages to draw; see results.md", one.name)
                continue
            mean = percent(matrix.mean(f"p_at_{k}"))
            yield Heatmap(
                f"{one.name}.matrix",
                matrix.metrics[f"p_at_{k}"],
                matrix.languages,
                matrix.languages,
                title=f"{one.name}: retrieval P@{k}, %",
                subtitle=f"by {self.similarity}; mean {mean}; "
                f"{int(matrix.num_candidates.max()):,} candidates",
            )
            texts = one.parts[0].texts
            full = [row for row, cells in enumerate(zip(*texts.values())) if all(cells)]
            if len(full) < 2:
                continue
            columns = {code: [column[row] for row in full] for code, column in texts.items()}
            vectors, ids = encode_unique(encoder.encode, [*columns.values()])
            # Spread over the file: neighboring rows may be of one document.
            count = min(_NUM_EXAMPLES, len(full))
            rows = [len(full) * (2 * place + 1) // (2 * count) for place in range(count)]
            pivot = next(iter(columns.values()))
            yield Projection(
                one.name,
                {code: vectors[ids(column)] for code, column in columns.items()},
                title=f"{one.name}: translations in the plane",
                examples={row: pivot[row] for row in rows},
            )

    @classmethod
    def conditions(cls, settings: Mapping[str, Any], matrix: Mapping[str, Any]) -> str:
        """Similarity, number of languages, further candidates."""
        words = [settings.get("similarity")]
        words += [f"{len(matrix['languages'])} languages"] if matrix.get("languages") else []
        words += ["distractors"] if settings.get("distractors") else []
        words += ["XSR"] if settings.get("xsr") else []
        return ", ".join(filter(None, words))

    @property
    def _k_values(self) -> list[int]:
        return sorted(set(self.k))

    def _measure_drawn(
        self, encode: Encode, data: RetrievalData, directory: Path
    ) -> RetrievalMatrix:
        """Draws or reads the rows of a data set, keeps them in the directory, measures."""
        from xling_jax.eval import xsr

        if len(data.parts) > 1:
            raise OptionError(f"xsr: {data.name} has many files; give them one by one")
        (text,) = data.parts
        file = lambda where, pair: Path(where, f"{data.name}.xsr.{'-'.join(pair)}.json")
        pairs = itertools.permutations(text.texts, 2)
        if self.xsr:
            samples = {
                pair: xsr.draw_sample(*map(text.texts.get, pair), *self.xsr) for pair in pairs
            }
        else:
            found = {pair: file(self.xsr_samples, pair) for pair in pairs}
            samples = {k: xsr.XsrSample.load(path) for k, path in found.items() if path.exists()}
            if not samples:
                first = next(iter(found.values()))
                raise OptionError(f"xsr_samples: {first.parent} holds no {first.name}")
        for pair, sample in samples.items():
            sample.save(file(directory, pair))
        return xsr.measure_xsr(
            encode, text, samples, similarity=self.similarity, k_values=self._k_values
        )


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

    def scores(self, name: str) -> dict[str, float]:
        """`NAME/METRIC`, the mean over directions, for each metric."""
        return {f"{name}/{metric}": self.mean(metric) for metric in self.metrics}

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
) -> np.ndarray:
    """Ranks all targets for each source.

    Args:
        source: [n, dim] normalized embeddings, the queries.
        target: [m, dim] normalized embeddings, the candidates.
        k: how many to return.
        similarity: "cosine"; "margin", the ratio margin with k=4; or "csls" with k=10. The last
            two score every candidate, not only the nearest by cosine.
        source_pool: [p, dim] normalized embeddings among which candidates have their
            neighborhoods; None for the queries. Not used by cosine.

    Returns:
        [n, min(k, m)] int64 indices into target, best first.

    Raises:
        ValueError: if `similarity` is unknown, and as `knn.top_k`.
    """
    check_choice("similarity", similarity, SIMILARITIES)
    if similarity == "cosine":
        return knn.top_k(source, target, k)[1]
    rules = {
        "margin": (margin.ratio_margin, MARGIN_NEIGHBORS),
        "csls": (margin.csls, CSLS_NEIGHBORS),
    }
    rule, size = rules[similarity]
    source_mean = margin.neighbor_mean(source, target, size)
    target_mean = margin.neighbor_mean(target, source if source_pool is None else source_pool, size)

    def score(tile: np.ndarray, rows: Any, columns: Any) -> np.ndarray:
        return rule(tile, source_mean[rows], target_mean[None, columns])

    return knn.top_k(source, target, k, score_tile=score)[1]


def retrieval_matrix(
    embeddings: Mapping[str, np.ndarray],
    *,
    similarity: str = "cosine",
    k_values: Sequence[int] = (1, 5),
    distractors: Mapping[str, np.ndarray] | None = None,
    present: Mapping[str, np.ndarray] | None = None,
    text_ids: Mapping[str, np.ndarray] | None = None,
) -> RetrievalMatrix:
    """Measures retrieval between all languages, in both directions.

    Args:
        embeddings: for each language [n, dim]; row i of all is one meaning. Need not be
            normalized.
        similarity: see `retrieve`.
        k_values: the k of P@k.
        distractors: for any of the languages [m, dim] further candidates. With "margin" and "csls"
            candidates have neighbors among those of the source language too.
        present: for each language [n] bool, False where it has no translation; a direction uses
            the rows that both languages have. None: all rows.
        text_ids: for each language [n] int, equal where texts are equal; any copy of the right
            text is then right. None: only the row itself is, as published.

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
        hits = right(
            retrieve(source, pools[1], max(k_values), similarity=similarity, source_pool=pools[0])
        )
        for k in k_values:
            metrics[f"p_at_{k}"][cell] = hits[:, :k].any(axis=1).mean()
        if not extra:
            nearest, chosen = _published_choices(source, target)
            metrics["error"][cell] = 1 - right(nearest).mean()
            metrics["xsim"][cell] = 1 - right(chosen).mean()
    if not num_queries.any():
        raise ValueError(f"no row has text in two of the languages {', '.join(languages)}")
    return RetrievalMatrix(languages, metrics, num_queries, num_candidates)


def retrieval_table(name: str, matrix: RetrievalMatrix, similarity: str) -> str:
    """Returns the Markdown section of a data set: means, then every direction."""
    metrics = _ordered(matrix.metrics)
    count, size = len(matrix.directions()), len(matrix.languages)
    means = [[_metric_title(metric), percent(matrix.mean(metric))] for metric in metrics]
    if count < _MIN_FILLED * size * (size - 1):
        directions = _pair_table(matrix)
    else:
        rows = [
            [f"**{code}**", *map(percent, values), percent(_mean(values))]
            for code, values in zip(matrix.languages, matrix.metrics[metrics[0]])
        ]
        header = [f"{_metric_title(metrics[0])}, from \\ to", *matrix.languages, "mean"]
        directions = markdown_table(header, rows)
    table = markdown_table([f"mean of {count} directions", "%"], means)
    return f"## {name}: retrieval by {similarity}, %\n\n{table}\n\n{directions}\n"


def _pair_table(matrix: RetrievalMatrix) -> str:
    """One row a pair, for data of many bilingual files."""
    metrics = [m for m in _ordered(matrix.metrics) if m in ("error", "xsim")]
    metrics.insert(0, _ordered(matrix.metrics)[0])
    measured = matrix.directions()
    rows = []
    for source, target in measured:
        queries = matrix.num_queries[matrix.languages.index(source), matrix.languages.index(target)]
        back = (target, source) in measured
        if back and matrix.languages.index(source) > matrix.languages.index(target):
            continue
        cells = []
        for metric in metrics:
            cells.append(percent(matrix.value(metric, source, target)))
            cells.append(percent(matrix.value(metric, target, source)) if back else "")
        rows.append([f"{source}-{target}", *cells, f"{queries}"])
    titles = [f"{_metric_title(metric)} {arrow}" for metric in metrics for arrow in "→←"]
    return markdown_table(["pair", *titles, "rows"], rows)


def _ordered(metrics: Mapping[str, Any]) -> list[str]:
    """P@k by k, then the errors."""
    ranks = sorted((m for m in metrics if m.startswith("p_at_")), key=lambda m: int(m[5:]))
    return ranks + [metric for metric in ("error", "xsim") if metric in metrics]


def _metric_title(metric: str) -> str:
    return {"error": "error, cosine", "xsim": "xSIM"}.get(metric, metric.replace("p_at_", "P@"))


def _mean(values: np.ndarray) -> float:
    """Mean of those that are not NaN; NaN if none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


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


def _published_choices(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each source's one answer by cosine, as for Tatoeba, and by the rule of xSIM; [n, 1] each.

    xSIM takes the largest ratio margin among the four nearest by cosine, forward only.
    """
    cosine, candidates = knn.top_k(source, target, MARGIN_NEIGHBORS)
    target_mean = margin.neighbor_mean(target, source, MARGIN_NEIGHBORS)
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
