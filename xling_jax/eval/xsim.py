"""xSIM and xSIM++: error rates of a search by margin, a proxy of bitext mining.

xSIM is LASER's `xsim.py`: of the k candidates nearest by cosine the one with the largest margin
must be the translation. xSIM++ (Chen et al. 2023) adds altered copies of the translations to the
candidates, which files hold, and counts errors by what was found instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.align import knn
from xling_jax.align import margin as margins
from xling_jax.align.mining import MARGIN_NEIGHBORS
from xling_jax.corpora.readers.tables import read_strictly
from xling_jax.corpora.specs import open_table
from xling_jax.encode.texts import encode_unique
from xling_jax.eval.matrices import Direction, LanguageMatrix, matrix_tables, metric_title
from xling_jax.eval.ranking import nearest_by_margin
from xling_jax.eval.results import Heatmap, markdown_table, percent
from xling_jax.eval.retrieval_data import (
    ParallelTask,
    RetrievalData,
    language_of_file,
    load_distractors,
)
from xling_jax.options import OptionError, option
from xling_jax.registry import check_choice

# Chen et al. (2023): a negation or an opposite, a name, a number.
KINDS = ("causality", "entity", "number")
_HEADER = ["kind", "original", "altered"]
# What is found instead of the translation: a copy of it, by kind, or another sentence.
_MISALIGNED = "misaligned"
_PLUS_PLUS = ("xsim_plus_plus", _MISALIGNED, *KINDS)


class Altered(NamedTuple):
    """An altered copy of a text: the row of the original, one of `KINDS`, and the text."""

    row: int
    kind: str
    text: str


@dataclass(frozen=True)
class Xsim(ParallelTask):
    """xSIM, the error rate of a search by margin, and xSIM++, that among altered translations.

    Every direction between all languages; xSIM++ into those with altered translations.
    """

    margin: str = option("ratio", "how cosines are compared", margins.MARGINS)
    k: int = option(MARGIN_NEIGHBORS, "neighbors, and candidates compared", positive=True)
    match: str = option(
        "text",
        "what counts as right: any row with the right text, as LASER counts, or only the query's "
        "own row",
        ("text", "index"),
    )
    altered: tuple[Path, ...] = option(
        (),
        "altered copies of sentences, for xSIM++ into their language: lines "
        "kind<TAB>original<TAB>altered below such a header, of the kinds " + ", ".join(KINDS),
        metavar="NAME.LANG.tsv[.gz]",
    )

    title = "xSIM"
    examples = """examples:
  xling evaluate xsim --model mini --data dev.tsv.gz --output results/xsim
  xling evaluate xsim --model M --data dev.tsv.gz --altered dev.altered.en.tsv --output O
"""
    columns = {"xsim": "xSIM", "xsim_plus_plus": "xSIM++"}
    primary = "xsim"
    lower_is_better = frozenset({"xsim", *_PLUS_PLUS})

    def vector_files(self, data: Sequence[RetrievalData]) -> dict[str, Sequence[str]]:
        """See `ParallelTask.vector_files`."""
        if self.altered:
            raise OptionError("altered: xSIM++ embeds altered text and needs a model")
        return super().vector_files(data)

    def measure(
        self, encoder: Any, data: RetrievalData, directory: Path | None = None
    ) -> dict[str, LanguageMatrix]:
        """All directions between the languages of a data set; each text is embedded once."""
        distractors = load_distractors(self.distractors, data.languages)
        altered = load_altered(self.altered, data)
        columns = [texts for part in data.parts for texts in part.texts.values()]
        columns += [[one.text for one in copies] for by in altered for copies in by.values()]
        vectors, ids = encode_unique(encoder.encode, [*columns, *distractors.values()])
        unit = knn.normalize(vectors)
        more = {code: ids(texts) for code, texts in distractors.items()}
        cells: dict[Direction, dict[str, float]] = {}
        for part, by in zip(data.parts, altered):
            rows = {code: ids(texts) for code, texts in part.texts.items()}
            present = {
                code: np.array([*map(bool, texts)], bool) for code, texts in part.texts.items()
            }
            copies = {code: ids([one.text for one in found]) for code, found in by.items()}
            for pair in itertools.permutations(rows, 2):
                common = present[pair[0]] & present[pair[1]]
                if not common.any():
                    continue
                source, target = (rows[code][common] for code in pair)
                index = np.cumsum(common) - 1
                kept = [common[one.row] for one in by.get(pair[1], ())]
                known = [source, np.concatenate([target, copies.get(pair[1], target)])]
                own, others = (
                    unit[np.setdiff1d(more.get(code, ()), texts).astype(np.int64)]
                    for code, texts in zip(pair, known)
                )
                cells[pair] = measure_direction(
                    unit[source],
                    unit[target],
                    text_ids=target if self.match == "text" else None,
                    altered=[
                        one._replace(row=index[one.row])
                        for one in itertools.compress(by.get(pair[1], ()), kept)
                    ],
                    altered_vectors=unit[copies[pair[1]][kept]] if any(kept) else None,
                    distractors=others,
                    source_distractors=own,
                    margin=self.margin,
                    k=self.k,
                )
        if not cells:
            listed = ", ".join(data.languages)
            raise ValueError(f"{data.path or data.name}: no row has text in two of {listed}")
        return {data.name: LanguageMatrix(data.languages, cells)}

    def options(self, encoder: Any, outcomes: Mapping[str, LanguageMatrix]) -> dict[str, Any]:
        """The options; distractors by their content."""
        return super().options(encoder, outcomes) | {
            "similarity": f"{self.margin} margin",
            "distractors": self._hashed(self.distractors),
            "altered": self._hashed(self.altered),
        }

    def tables(
        self, data: Sequence[RetrievalData], outcomes: Mapping[str, LanguageMatrix]
    ) -> list[str]:
        """A section for each data set: xSIM of every direction, then xSIM++ with its errors."""
        sections = []
        for name, matrix in outcomes.items():
            shown = LanguageMatrix(
                matrix.languages,
                {
                    pair: {name: cell[name] for name in cell if name not in _PLUS_PLUS}
                    for pair, cell in matrix.cells.items()
                },
            )
            text = matrix_tables(shown, ["xsim"], ["xsim"])
            if "xsim_plus_plus" in matrix.metrics:
                text += f"\n\nFound instead, % of the queries:\n\n{_table_of_errors(matrix)}"
            sections.append(f"## {name}: error by {self.margin} margin, k={self.k}, %\n\n{text}\n")
        return sections

    def pictures(
        self, encoder: Any, data: Sequence[RetrievalData], outcomes: Mapping[str, LanguageMatrix]
    ) -> Iterator[Heatmap]:
        """The matrix of xSIM."""
        for one in data:
            matrix = outcomes[one.name]
            mean = percent(matrix.mean("xsim"))
            if len(one.parts) == 1:
                yield Heatmap(
                    f"{one.name}.matrix",
                    matrix.array("xsim"),
                    matrix.languages,
                    matrix.languages,
                    title=f"{one.name}: xSIM, %",
                    subtitle=f"{self.margin} margin, k={self.k}; mean {mean}",
                )


def measure_direction(
    source: np.ndarray,
    target: np.ndarray,
    *,
    text_ids: np.ndarray | None = None,
    altered: Sequence[Altered] = (),
    altered_vectors: np.ndarray | None = None,
    distractors: np.ndarray | None = None,
    source_distractors: np.ndarray | None = None,
    margin: str = "ratio",
    k: int = MARGIN_NEIGHBORS,
) -> dict[str, float]:
    """Measures xSIM of one direction and, with altered copies, xSIM++.

    Args:
        source: [n, dim] normalized embeddings, the queries.
        target: [n, dim] normalized embeddings; row i is the translation of query i.
        text_ids: [n] int, equal where target texts are equal: any copy of the right text is then
            right. None: only the row itself is.
        altered: m copies of targets, by the rows of these.
        altered_vectors: [m, dim] normalized embeddings of the copies.
        distractors: [d, dim] normalized embeddings of further candidates.
        source_distractors: [e, dim] normalized embeddings among which, and the queries, candidates
            have their neighborhoods.
        margin: one of `margin.MARGINS`.
        k: neighbors, and candidates compared.

    Returns:
        Shares of the queries: `xsim` and, with copies, `xsim_plus_plus`, which is the sum of
        `misaligned` (another sentence or a copy of one was found) and the kinds of the copies of
        the right text. The counts `num_queries` and `num_candidates`, without copies.
    """
    rows = np.arange(len(source))
    ids = rows if text_ids is None else text_ids
    pool = source if source_distractors is None else np.concatenate([source, source_distractors])
    candidates = target if distractors is None else np.concatenate([target, distractors])
    options = {"margin": margin, "k": k, "source_pool": pool}
    found = nearest_by_margin(source, candidates, **options)
    answers = np.concatenate([ids, np.full(len(candidates) - len(rows), -1)])
    cell = {"xsim": float((answers[found] != ids).mean())}
    if altered:
        found = nearest_by_margin(source, np.concatenate([candidates, altered_vectors]), **options)
        # Of every candidate the right text or, of a copy, the text that it is like; and its kind.
        answers = np.concatenate([answers, ids[[one.row for one in altered]]])
        kinds = np.array([""] * len(candidates) + [one.kind for one in altered])
        is_like = answers[found] == ids
        wrong = {kind: float((is_like & (kinds[found] == kind)).mean()) for kind in KINDS}
        wrong = {_MISALIGNED: float((~is_like).mean())} | wrong
        cell |= {"xsim_plus_plus": float((~is_like | (kinds[found] != "")).mean())} | wrong
    return cell | {"num_queries": len(rows), "num_candidates": len(candidates)}


def _table_of_errors(matrix: LanguageMatrix) -> str:
    """A row for each direction with altered copies."""
    metrics = ("xsim", *_PLUS_PLUS)
    rows = [
        ["-".join(pair), *(percent(cell[name]) for name in metrics)]
        for pair, cell in matrix.cells.items()
        if "xsim_plus_plus" in cell
    ]
    if len(rows) > 1:
        cells = [c for c in matrix.cells.values() if "xsim_plus_plus" in c]
        means = (np.mean([cell[name] for cell in cells]) for name in metrics)
        rows.append([f"mean of {len(rows)}", *map(percent, means)])
    return markdown_table(["direction", *map(metric_title, metrics)], rows)


def load_altered(
    paths: Sequence[str | Path], data: RetrievalData
) -> list[dict[str, list[Altered]]]:
    """Reads altered copies of the sentences of a data set.

    Args:
        paths: files `NAME.LANG.tsv`, maybe compressed, with the header kind, original, altered. An
            original without a row in the data is skipped; one with several belongs to all of them.
        data: LANG is one of its languages or an alias.

    Returns:
        For each part of the data: language -> copies, by row.

    Raises:
        ValueError, OSError: if a name has another form, its language is not in the data, a line is
            broken, no original is in the data, or a file cannot be read.
    """
    found: list[dict[str, list[Altered]]] = [{} for _ in data.parts]
    for path in paths:
        code = language_of_file(path, "tsv", data.languages)
        copies: dict[str, list[tuple[str, str]]] = {}
        for number, (kind, original, text) in read_strictly(open_table(str(path)), _HEADER):
            check_choice(f"{path}:{number}: kind", kind, KINDS)
            copies.setdefault(original, []).append((kind, text))
        for part, by in zip(data.parts, found):
            own = [
                Altered(row, *copy)
                for row, text in enumerate(part.texts.get(code, ()))
                for copy in copies.get(text, ())
            ]
            if own:
                by[code] = by.get(code, []) + own
        if not any(code in by for by in found):
            raise ValueError(f"{path}: none of its originals is a text in {code} of {data.name}")
    return found
