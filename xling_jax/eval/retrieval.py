"""Cross-lingual retrieval: is a sentence's translation its nearest neighbor?"""

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.align import knn
from xling_jax.align.margin import csls, ratio_margin
from xling_jax.align.mining import MARGIN_NEIGHBORS
from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.eval import retrieval_data
from xling_jax.eval.matrices import Direction, LanguageMatrix, matrix_tables
from xling_jax.eval.results import Heatmap, Projection
from xling_jax.eval.retrieval_data import ALTERED_KINDS, Altered, RetrievalData
from xling_jax.eval.tasks import Task
from xling_jax.options import OptionError, option

_logger = logging.getLogger(__name__)

SIMILARITIES = ("cosine", "margin", "csls")
CSLS_NEIGHBORS = 10  # Conneau et al. (2018), section 2.3.

_BLOCK_SCORES = 2**24  # computed at a time: 64 MiB
_MAX_HEATMAP_LANGUAGES = 30
# What is found instead of the translation: a copy of it, by kind, or another sentence.
_PLUS_PLUS = ("xsim_plus_plus", "misaligned", *ALTERED_KINDS)


@dataclass(frozen=True)
class Retrieval(Task):
    """P@k between all languages in both directions, the error rate reported for Tatoeba, xSIM."""

    similarity: str = option("cosine", "how candidates are ranked", SIMILARITIES)
    k: tuple[int, ...] = option((1, 5), "the k of P@k", positive=True, metavar="K,K")
    diagonal: bool = option(
        True,
        "also search each language of an n-way file in itself, as Yu et al. (2018) do: the "
        "diagonal of the matrix, and the means over all of it",
    )
    distractors: tuple[Path, ...] = option(
        (), "additional candidates, one per line", metavar="NAME.LANG.txt"
    )
    altered: tuple[Path, ...] = option(
        (),
        "altered copies of sentences, for xSIM++ into their language: lines "
        "kind<TAB>original<TAB>altered below such a header, of the kinds "
        + ", ".join(ALTERED_KINDS),
        metavar="NAME.LANG.tsv",
    )
    xsr: tuple[int, ...] | None = option(
        None,
        "draw at most so many keys and queries from each data set as MUSE does (200000,2000 if no "
        "numbers are given)",
        positive=True,
        nargs="?",
        const=(200_000, 2_000),
        metavar="KEYS,QUERIES",
    )

    title = "Retrieval"
    data_help = (
        "n-way text: TSV with a header of language codes, any other corpus such as x.parquet or "
        "moses:data/test@de-en, or a directory of pairs such as Tatoeba's; any number of them"
    )
    examples = """examples:
  xling evaluate retrieval --model runs/quickstart --data dev.tsv.gz --output runs/retrieval
  xling evaluate retrieval --model M --data tatoeba/ --languages en,de,fr --output O
"""
    columns = {
        "p_at_1": "P@1",
        "p_at_5": "P@5",
        "p_at_1_all": "all",
        "error": "error",
        "xsim": "xSIM",
        "xsim_plus_plus": "xSIM++",
    }
    primary = "p_at_1"
    lower_is_better = frozenset({"error", "xsim", *_PLUS_PLUS})
    axes = ("from", "to")
    cheap = {"diagonal": False}

    def __post_init__(self):
        super().__post_init__()
        given = ",".join(map(str, self.xsr or ()))
        if self.xsr and (len(self.xsr) != 2 or self.xsr[1] > self.xsr[0]):
            raise OptionError(f"xsr={given}: must be KEYS,QUERIES, with at most as many queries")
        if self.xsr and (self.distractors or self.altered):
            rule = "has its own candidates; leave out distractors and altered"
            raise OptionError(f"xsr={given}: {rule}")

    def load(self, paths: Sequence[str], languages: Sequence[str] | None) -> list[RetrievalData]:
        """See `load_retrieval_data`."""
        return [retrieval_data.load_retrieval_data(path, languages) for path in paths]

    def measure(
        self, encoder: Any, data: RetrievalData, directory: Path | None = None
    ) -> dict[str, LanguageMatrix]:
        """All directions between the languages of a data set; each text is embedded once."""
        if self.xsr:
            return {data.name: self._measure_drawn(encoder.encode, data)}
        distractors = retrieval_data.load_distractors(self.distractors, data.languages)
        altered = retrieval_data.load_altered(self.altered, data)
        columns = [texts for part in data.parts for texts in part.texts.values()]
        columns += [[one.text for one in copies] for by in altered for copies in by.values()]
        vectors, ids = encode_unique(encoder.encode, [*columns, *distractors.values()])
        cells: dict[Direction, dict[str, float]] = {}
        for part, by in zip(data.parts, altered):
            rows = {code: ids(texts) for code, texts in part.texts.items()}
            copies = {code: ids([one.text for one in by.get(code, ())]) for code in rows}
            cells |= retrieval_matrix(
                {code: vectors[own] for code, own in rows.items()},
                similarity=self.similarity,
                k_values=self.k,
                # Those with the text of a candidate are left out.
                distractors={
                    code: vectors[np.setdiff1d(ids(texts), np.append(rows[code], copies[code]))]
                    for code, texts in distractors.items()
                    if code in rows
                },
                altered={code: (found, vectors[copies[code]]) for code, found in by.items()},
                present={c: np.array([*map(bool, texts)], bool) for c, texts in part.texts.items()},
                text_ids=rows,
                # Bilingual files of one directory have other texts of a language each.
                diagonal=self.diagonal and len(data.parts) == 1,
            ).cells
        return {data.name: LanguageMatrix(data.languages, cells)}

    def options(self, encoder: Any, outcomes: Mapping[str, LanguageMatrix]) -> dict[str, Any]:
        """The options, and sizes of neighborhoods."""
        sizes = {"margin_neighbors": MARGIN_NEIGHBORS, "csls_neighbors": CSLS_NEIGHBORS}
        seed = {"seed": retrieval_data.XSR_SEED} if self.xsr else {}
        return super().options(encoder, outcomes) | sizes | seed

    def tables(
        self, data: Sequence[RetrievalData], outcomes: Mapping[str, LanguageMatrix]
    ) -> list[str]:
        """A section for each data set."""
        in_pairs = ("error", "xsim", *_PLUS_PLUS)
        sections = []
        for name, m in outcomes.items():
            shown = [metric for metric in m.metrics if metric in (m.metrics[0], *in_pairs)]
            text = matrix_tables(m, shown)
            sections.append(f"## {name}: retrieval by {self.similarity}, %\n\n{text}\n")
        return sections

    def pictures(
        self, encoder: Any, data: Sequence[RetrievalData], outcomes: Mapping[str, LanguageMatrix]
    ) -> Iterator[Heatmap | Projection]:
        """The matrix, and projections of the rows that all languages have."""
        k = min(self.k)
        for one in data if not self.xsr else ():
            matrix = outcomes[one.name]
            if len(matrix.languages) > _MAX_HEATMAP_LANGUAGES or len(one.parts) > 1:
                _logger.info("%s: too many files or languages to draw; see results.md", one.name)
                continue
            yield Heatmap(
                f"{one.name}.matrix",
                matrix.array(f"p_at_{k}"),
                matrix.languages,
                matrix.languages,
                title=f"{one.name}: retrieval by {self.similarity}, P@{k}, %",
            )
            texts = one.parts[0].texts
            full = [row for row, cells in enumerate(zip(*texts.values())) if all(cells)]
            if len(full) < 2:
                continue
            columns = {code: [column[row] for row in full] for code, column in texts.items()}
            vectors, ids = encode_unique(encoder.encode, [*columns.values()])
            yield Projection(
                one.name,
                {code: vectors[ids(column)] for code, column in columns.items()},
                title=f"{one.name}: translations in the plane",
            )

    @classmethod
    def conditions(cls, settings: Mapping[str, Any], matrix: Mapping[str, Any]) -> str:
        """Similarity, number of languages, further candidates."""
        words = [settings.get("similarity")]
        words += [f"{len(matrix['languages'])} languages"] if matrix.get("languages") else []
        words += ["distractors"] if settings.get("distractors") else []
        words += ["XSR"] if settings.get("xsr") else []
        return ", ".join(filter(None, words))

    def _measure_drawn(self, encode: Encode, data: RetrievalData) -> LanguageMatrix:
        """Draws rows of a data set and measures among them; each text is embedded once."""
        if len(data.parts) > 1:
            given = ",".join(map(str, self.xsr))
            raise OptionError(f"xsr={given}: {data.name} has many files; give them one by one")
        cells = {}
        for pair in itertools.permutations(data.parts[0].texts, 2):
            source, target = (data.parts[0].texts[code] for code in pair)
            keys, queries = retrieval_data.draw_sample(source, target, *self.xsr)
            if len(keys) < self.xsr[0]:
                _logger.warning("%s: xsr draws only %d candidates", data.name, len(keys))
            columns = [[source[row] for row in keys[queries]], [target[row] for row in keys]]
            if self.similarity != "cosine":  # candidates have their neighborhoods among all keys
                columns.append([source[row] for row in keys])
            vectors, ids = encode_unique(encode, columns)
            unit = [knn.normalize(vectors[ids(column)]) for column in columns]
            pool = unit[2] if len(unit) > 2 else None
            ranked = rank(*unit[:2], max(self.k), similarity=self.similarity, source_pool=pool)
            cells[pair] = _shares(ranked == queries[:, None], self.k)
            cells[pair] |= {"num_queries": len(queries), "num_candidates": len(keys)}
        return LanguageMatrix(data.languages, cells)


def retrieval_matrix(
    embeddings: Mapping[str, np.ndarray],
    *,
    similarity: str = "cosine",
    k_values: Sequence[int] = (1, 5),
    distractors: Mapping[str, np.ndarray] | None = None,
    altered: Mapping[str, tuple[Sequence[Altered], np.ndarray]] | None = None,
    present: Mapping[str, np.ndarray] | None = None,
    text_ids: Mapping[str, np.ndarray] | None = None,
    diagonal: bool = False,
) -> LanguageMatrix:
    """Measures retrieval between all languages, in both directions.

    `p_at_k` is the share of queries whose translation is among the first k candidates. Between two
    languages there are also `error`, one minus P@1 by cosine as in the Tatoeba results of LASER,
    and `xsim`, the error by ratio margin as LASER's `xsim.py` counts it (see
    `nearest_by_margin`), for which any copy of the right text is right. For the others only
    the row itself is right, as published.

    Args:
        embeddings: for each language [n, dim]; row i of all is one meaning.
        similarity: see `rank`.
        k_values: the k of P@k.
        distractors: for any of the languages [m, dim] further candidates, none of which has the
            text of a row. With "margin" and "csls", and for `xsim`, candidates have neighbors
            among those of the source language too.
        altered: for any of the languages m altered copies of its texts, and their embeddings
            [m, dim]. Into such a language there is also `xsim_plus_plus` (Chen et al. 2023), xSIM
            with these as further candidates, and its parts: `misaligned`, another sentence or a
            copy of one was found, and by kind the copies of the right text.
        present: for each language [n] bool, False where it has no translation; None: all rows. A
            direction uses the rows that both languages have; ValueError if there is none.
        text_ids: for each language [n] int, equal where texts are equal; None: all differ.
        diagonal: also search each language in itself, as Yu et al. (2018) do.
    """
    languages = tuple(embeddings)
    unit = {code: knn.normalize(rows) for code, rows in embeddings.items()}
    extra = {code: knn.normalize(rows) for code, rows in (distractors or {}).items()}

    cells: dict[Direction, dict[str, float]] = {}
    pairs = itertools.product(languages, repeat=2)
    for pair in (pair for pair in pairs if diagonal or pair[0] != pair[1]):
        common = np.ones(len(unit[pair[0]]), bool)
        if present is not None:
            common = np.asarray(present[pair[0]]) & np.asarray(present[pair[1]])
        if not common.any():
            continue
        source, target = (unit[code][common] for code in pair)
        pools = [
            np.concatenate([own, extra[code]]) if code in extra else own
            for own, code in zip((source, target), pair)
        ]
        rows = np.arange(len(source))
        ids = rows if text_ids is None else text_ids[pair[1]][common]
        texts = np.append(ids, np.full(len(pools[1]) - len(ids), -1))  # of the candidates
        ranked = rank(source, pools[1], max(k_values), similarity=similarity, source_pool=pools[0])
        cell = _shares(ranked == rows[:, None], k_values)
        if pair[0] != pair[1]:
            nearest = ranked if similarity == "cosine" else knn.top_k(source, pools[1], 1)[1]
            by_margin = nearest_by_margin(source, pools[1], source_pool=pools[0])
            cell["error"] = float(np.mean(nearest[:, 0] != rows))
            cell["xsim"] = float(np.mean(texts[by_margin] != ids))
            copies, copy_vectors = (altered or {}).get(pair[1], ((), ()))
            if kept := [place for place, copy in enumerate(copies) if common[copy.row]]:
                found = nearest_by_margin(
                    source,
                    np.concatenate([pools[1], knn.normalize(copy_vectors[kept])]),
                    source_pool=pools[0],
                )
                number = np.cumsum(common) - 1
                like = ids[number[[copies[place].row for place in kept]]]
                texts = np.append(texts, like)
                kinds = [""] * len(pools[1]) + [copies[place].kind for place in kept]
                # Is the text found like the right one, and which kind of copy is it, if any?
                is_like, kind = texts[found] == ids, np.array(kinds)[found]
                shares = [~is_like | (kind != ""), ~is_like]
                shares += [is_like & (kind == each) for each in ALTERED_KINDS]
                cell |= {name: float(share.mean()) for name, share in zip(_PLUS_PLUS, shares)}
        cells[pair] = cell | {"num_queries": len(source), "num_candidates": len(pools[1])}
    if all(source == target for source, target in cells):
        raise ValueError(f"no row has text in two of the languages {', '.join(languages)}")
    return LanguageMatrix(languages, cells)


def _shares(hits: np.ndarray, k_values: Sequence[int]) -> dict[str, float]:
    """P@k from hits [n, k] bool."""
    return {f"p_at_{k}": float(hits[:, :k].any(axis=1).mean()) for k in sorted(set(k_values))}


def rank(
    source: np.ndarray,
    target: np.ndarray,
    k: int,
    *,
    similarity: str = "cosine",
    source_pool: np.ndarray | None = None,
) -> np.ndarray:
    """Ranks all targets for each source; returns [n, min(k, m)] int64, best first.

    Args:
        source: [n, dim] normalized embeddings, the queries.
        target: [m, dim] normalized embeddings, the candidates.
        k: how many to return.
        similarity: "cosine"; "margin", the ratio margin with k=4; or "csls" with k=10. The last
            two score every candidate, not only the nearest by cosine.
        source_pool: [p, dim] normalized embeddings among which candidates have their
            neighborhoods; None for the queries. Not used by cosine.
    """
    if similarity == "cosine":
        return knn.top_k(source, target, k)[1]
    rules = {"margin": (ratio_margin, MARGIN_NEIGHBORS), "csls": (csls, CSLS_NEIGHBORS)}
    rule, size = rules[similarity]
    source_mean = neighbor_mean(source, target, size)
    target_mean = neighbor_mean(target, source if source_pool is None else source_pool, size)

    found = np.empty((len(source), min(k, len(target))), np.int64)
    block_rows = max(1, _BLOCK_SCORES // max(len(target), 1))
    for start in range(0, len(source), block_rows):
        rows = slice(start, start + block_rows)
        scores = rule(source[rows] @ target.T, source_mean[rows], target_mean[None])
        for place in range(found.shape[1]):  # of equal scores the first
            best = scores.argmax(axis=1)
            found[rows, place] = best
            scores[np.arange(len(best)), best] = -np.inf
    return found


def neighbor_mean(queries: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
    """Mean cosine of each of normalized queries to its k nearest keys, [n] float32."""
    return knn.top_k(queries, keys, k)[0].mean(axis=1)


def nearest_by_margin(
    source: np.ndarray, target: np.ndarray, *, source_pool: np.ndarray | None = None
) -> np.ndarray:
    """Finds for each source the target that LASER's `xsim.py` finds, [n] int64.

    That is, of the 4 targets nearest by cosine the one with the largest ratio margin, the nearer
    one of equals. Neighborhoods are of 4 too, those of targets in the `source_pool`, or the queries
    as in LASER. Embeddings as of `rank`.
    """
    k = MARGIN_NEIGHBORS
    cosine, nearest = knn.top_k(source, target, k)
    used, inverse = np.unique(nearest, return_inverse=True)
    means = neighbor_mean(target[used], source if source_pool is None else source_pool, k)
    scores = ratio_margin(cosine, cosine.mean(axis=1), means[inverse.reshape(nearest.shape)])
    return np.take_along_axis(nearest, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
