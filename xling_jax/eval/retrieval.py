"""Cross-lingual retrieval: is a sentence's translation its nearest neighbor?"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.align import knn
from xling_jax.align.mining import MARGIN_NEIGHBORS
from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.eval import xsr
from xling_jax.eval.matrices import Direction, LanguageMatrix, matrix_tables
from xling_jax.eval.ranking import CSLS_NEIGHBORS, SIMILARITIES, nearest_by_margin, rank
from xling_jax.eval.results import Heatmap, Projection, percent
from xling_jax.eval.retrieval_data import ParallelTask, RetrievalData, load_distractors
from xling_jax.files.hashes import hash_file
from xling_jax.options import OptionError, option

_logger = logging.getLogger(__name__)

MATCHES = ("index", "text")

_NUM_KEYS, _NUM_QUERIES = 200_000, 2_000  # of XSR, as published
_NUM_EXAMPLES = 5  # translations joined by lines in the projections
_MAX_HEATMAP_LANGUAGES = 30


@dataclass(frozen=True)
class Retrieval(ParallelTask):
    """P@k between all languages in both directions, the error rate reported for Tatoeba, xSIM."""

    similarity: str = option("cosine", "how candidates are ranked", SIMILARITIES)
    k: tuple[int, ...] = option((1, 5), "the k of P@k", positive=True, metavar="K,K")
    match: str = option(
        "index",
        "what counts as right: only the query's own row, as published, or any row with its text",
        MATCHES,
    )
    diagonal: bool = option(
        True,
        "also search each language of an n-way file in itself, as Yu et al. (2018) do: the "
        "diagonal of the matrix, and the means over all of it",
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
    examples = """examples:
  xling evaluate retrieval --model runs/quickstart --data dev.tsv.gz --output runs/retrieval
  xling evaluate retrieval --model M --data tatoeba/ --languages en,de,fr --output O
  xling evaluate retrieval --embeddings vectors/ --data dev.tsv.gz --output O
"""
    columns = {
        "p_at_1": "P@1",
        "p_at_5": "P@5",
        "p_at_1_all": "all",
        "error": "error",
        "xsim": "xSIM",
    }
    primary = "p_at_1"
    lower_is_better = frozenset({"error", "xsim"})
    cheap = {"diagonal": False}

    def __post_init__(self):
        super().__post_init__()
        if self.xsr and self.xsr_samples:
            raise OptionError("xsr draws rows and xsr_samples reads drawn ones; give one of them")
        if self.xsr and (len(self.xsr) != 2 or self.xsr[1] > self.xsr[0]):
            given = ",".join(map(str, self.xsr))
            raise OptionError(f"xsr={given}: must be KEYS,QUERIES, with at most as many queries")
        if self._draws_rows and (self.distractors or self.match != "index"):
            raise OptionError("xsr has its own candidates; leave out distractors and match")

    @property
    def _draws_rows(self) -> bool:
        return bool(self.xsr or self.xsr_samples)

    def measure(
        self, encoder: Any, data: RetrievalData, directory: Path | None = None
    ) -> dict[str, LanguageMatrix]:
        """All directions between the languages of a data set; each text is embedded once."""
        if self._draws_rows:
            return {data.name: self._measure_drawn(encoder.encode, data, directory)}
        distractors = load_distractors(self.distractors, data.languages)
        columns = [texts for part in data.parts for texts in part.texts.values()]
        vectors, ids = encode_unique(encoder.encode, [*columns, *distractors.values()])
        cells: dict[Direction, dict[str, float]] = {}
        for part in data.parts:
            rows = {code: ids(texts) for code, texts in part.texts.items()}
            cells |= retrieval_matrix(
                {code: vectors[own] for code, own in rows.items()},
                similarity=self.similarity,
                k_values=self._k_values,
                # Those with the text of a candidate are left out.
                distractors={
                    code: vectors[np.setdiff1d(ids(texts), rows[code])]
                    for code, texts in distractors.items()
                    if code in rows
                },
                present={c: np.array([*map(bool, texts)], bool) for c, texts in part.texts.items()},
                text_ids=rows,
                match=self.match,
                # Bilingual files of one directory have other texts of a language each.
                diagonal=self.diagonal and len(data.parts) == 1,
            ).cells
        return {data.name: LanguageMatrix(data.languages, cells)}

    def options(self, encoder: Any, outcomes: Mapping[str, LanguageMatrix]) -> dict[str, Any]:
        """The options, and sizes of neighborhoods."""
        return {
            "similarity": self.similarity,
            "k_values": self._k_values,
            "match": self.match,
            "diagonal": self.diagonal,
            "xsr": self.xsr or (str(self.xsr_samples) if self.xsr_samples else None),
            "margin_neighbors": MARGIN_NEIGHBORS,
            "csls_neighbors": CSLS_NEIGHBORS,
            "distractors": self._hashed(self.distractors),
        } | self._drawn_settings

    @property
    def _drawn_settings(self) -> dict[str, Any]:
        """Options that determined the rows of XSR."""
        if self.xsr_samples:
            files = sorted(self.xsr_samples.glob("*.xsr.*.json"))
            return {"xsr_samples": {file.name: hash_file(file) for file in files}}
        return {"seed": xsr.SEED} if self.xsr else {}

    def tables(
        self, data: Sequence[RetrievalData], outcomes: Mapping[str, LanguageMatrix]
    ) -> list[str]:
        """A section for each data set."""
        return [
            f"## {name}: retrieval by {self.similarity}, %\n\n"
            f"{matrix_tables(m, m.metrics[:1], [m.metrics[0], 'error', 'xsim'])}\n"
            for name, m in outcomes.items()
        ]

    def pictures(
        self, encoder: Any, data: Sequence[RetrievalData], outcomes: Mapping[str, LanguageMatrix]
    ) -> Iterator[Heatmap | Projection]:
        """The matrix, and projections of the rows that all languages have."""
        k = min(self.k)
        for one in data if not self._draws_rows else ():
            matrix = outcomes[one.name]
            if len(matrix.languages) > _MAX_HEATMAP_LANGUAGES or len(one.parts) > 1:
                _logger.info("%s: too many files or languages to draw; see results.md", one.name)
                continue
            mean = percent(matrix.mean(f"p_at_{k}"))
            mean += " between two languages" if matrix.has_diagonal else ""
            yield Heatmap(
                f"{one.name}.matrix",
                matrix.array(f"p_at_{k}"),
                matrix.languages,
                matrix.languages,
                title=f"{one.name}: retrieval P@{k}, %",
                subtitle=f"by {self.similarity}; mean {mean}; "
                f"{max(cell['num_candidates'] for cell in matrix.cells.values()):,} candidates",
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
    ) -> LanguageMatrix:
        """Draws or reads the rows of a data set, keeps them in the directory, measures."""
        if len(data.parts) > 1:
            raise OptionError(f"xsr: {data.name} has many files; give them one by one")
        texts = data.parts[0].texts
        name = lambda pair: f"{data.name}.xsr.{'-'.join(pair)}.json"
        cells = {}
        for pair in itertools.permutations(texts, 2):
            sides = texts[pair[0]], texts[pair[1]]
            if self.xsr:
                sample = xsr.draw_sample(*sides, *self.xsr)
            elif (path := self.xsr_samples / name(pair)).exists():
                sample = xsr.XsrSample.load(path)
            else:
                continue
            sample.save(directory / name(pair))
            cells[pair] = xsr.measure_direction(
                encode, *sides, sample, similarity=self.similarity, k_values=self._k_values
            )
        if not cells:
            first = name(data.languages[:2])
            raise OptionError(f"xsr_samples: {self.xsr_samples} holds no {first}")
        return LanguageMatrix(data.languages, cells)


def retrieval_matrix(
    embeddings: Mapping[str, np.ndarray],
    *,
    similarity: str = "cosine",
    k_values: Sequence[int] = (1, 5),
    distractors: Mapping[str, np.ndarray] | None = None,
    present: Mapping[str, np.ndarray] | None = None,
    text_ids: Mapping[str, np.ndarray] | None = None,
    match: str = "index",
    diagonal: bool = False,
) -> LanguageMatrix:
    """Measures retrieval between all languages, in both directions.

    `p_at_k` is the share of queries whose translation is among the first k candidates. Between two
    languages there are also `error`, one minus P@1 by cosine as in the Tatoeba results of LASER,
    and `xsim`, the error by ratio margin as LASER's `xsim.py` counts it (see
    `ranking.nearest_by_margin`), for which any copy of the right text is right.

    Args:
        embeddings: for each language [n, dim]; row i of all is one meaning. Need not be
            normalized.
        similarity: see `ranking.rank`.
        k_values: the k of P@k.
        distractors: for any of the languages [m, dim] further candidates, none of which has the
            text of a row. With "margin" and "csls", and for `xsim`, candidates have neighbors
            among those of the source language too.
        present: for each language [n] bool, False where it has no translation; a direction uses
            the rows that both languages have. None: all rows.
        text_ids: for each language [n] int, equal where texts are equal; None: all differ.
        match: "index", only the row itself is right, as published; "text", any copy of its text.
        diagonal: also search each language in itself, as Yu et al. (2018) do; a row finds itself
            unless it has copies.

    Raises:
        ValueError: if sizes disagree, there are fewer than two languages, no direction has a row,
            or a value is not finite.
    """
    languages = tuple(embeddings)
    counts = {code: len(rows) for code, rows in embeddings.items()}
    if len(languages) < 2:
        raise ValueError(f"retrieval needs at least two languages; got {list(languages)}")
    if len(set(counts.values())) > 1:
        raise ValueError(f"row i must be one meaning in all languages; got row counts {counts}")
    if not k_values or min(k_values) < 1:
        raise ValueError(f"k_values must be at least 1; got {list(k_values)}")
    unit = {code: knn.normalize(rows) for code, rows in embeddings.items()}
    extra = {code: knn.normalize(rows) for code, rows in (distractors or {}).items()}

    cells: dict[Direction, dict[str, float]] = {}
    pairs = itertools.product(languages, repeat=2)
    for pair in (pair for pair in pairs if diagonal or pair[0] != pair[1]):
        common = np.ones(counts[pair[0]], bool)
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
        answers = ids if match == "text" else rows
        ranked = rank(source, pools[1], max(k_values), similarity=similarity, source_pool=pools[0])
        hits = _is_right(ranked, answers)
        cell = {f"p_at_{k}": float(hits[:, :k].any(axis=1).mean()) for k in k_values}
        if pair[0] != pair[1]:
            nearest = ranked if similarity == "cosine" else knn.top_k(source, pools[1], 1)[1]
            by_margin = nearest_by_margin(source, pools[1], source_pool=pools[0])
            cell["error"] = float(1 - _is_right(nearest[:, :1], answers).mean())
            cell["xsim"] = float(1 - _is_right(by_margin[:, None], ids).mean())
        cells[pair] = cell | {"num_queries": len(source), "num_candidates": len(pools[1])}
    if all(source == target for source, target in cells):
        raise ValueError(f"no row has text in two of the languages {', '.join(languages)}")
    return LanguageMatrix(languages, cells)


def _is_right(found: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """True where candidates [n, k] have the id of the query's own row; [n, k] bool.

    Candidates from n on are distractors, which are never right.
    """
    inside = found < len(ids)
    return inside & (ids[np.where(inside, found, 0)] == ids[:, None])
