"""How well a classifier tells the language of sentence vectors, of the part that LAWDR removes, and
of the rest: Tables 1 and 6 of Gong et al. (2021).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.documents import debias
from xling_jax.documents.alignment import AUTO, read_rank
from xling_jax.documents.records import AlignmentData, Documents, group_by_language, read_documents
from xling_jax.eval.results import Projection, markdown_table, percent
from xling_jax.eval.tasks import Task
from xling_jax.files.lines import metric_name
from xling_jax.options import OptionError, option

PARTS = ("v", "v_lang", "v_sem")


@dataclass(frozen=True, kw_only=True)
class LanguageIdentification(Task):
    """Accuracy of a linear SVM that tells the language of vectors, before and after debiasing.

    Of v, of the components of its language v_lang = U U^T v, and of the rest v_sem = v - v_lang.
    Documents are split 8:2; U is of the training part.
    """

    debias: int | str = option(
        AUTO, "components of each language; auto: see `xling align`", type=read_rank, metavar="N"
    )
    site: str | None = option(None, "only documents whose field `domain` is this", metavar="NAME")
    seed: int = option(0, "of the split and the SVM")

    title = "Language identification"
    data_help = 'JSON lines {"id", "lang", "text" or "sentences"}; all files are one data set'
    examples = """example:
  xling evaluate language --model M --data docs.jsonl.gz --languages en,fr --debias 64 --output O
"""
    columns = {"v": "v", "v_lang": "v_lang", "v_sem": "v_sem"}
    primary = "v_sem"
    lower_is_better = frozenset({"v_sem"})

    def __post_init__(self):
        super().__post_init__()
        if self.debias == 0:
            raise OptionError("debias=0 removes nothing; give a number of components, or auto")

    def load(self, paths: Sequence[str], languages: Sequence[str] | None) -> list[AlignmentData]:
        """Reads documents of two or more languages, of one site if asked."""
        field = "domain" if self.site else None
        documents = itertools.chain.from_iterable(read_documents(p, domain=field) for p in paths)
        name = " ".join(map(str, paths))
        kept = (one for one in documents if one.domain == self.site)
        found = group_by_language(kept, name)
        sides = {c: found[c] for c in languages or found if c in found}
        if len(sides) < 2 or any(len(side) < 2 for side in sides.values()):
            where = f" of the site {self.site}" if self.site else ""
            raise OptionError(
                f"--data: needs two documents{where} in each of two languages; found "
                f"{', '.join(f'{len(side)} in {code}' for code, side in found.items()) or 'none'}"
            )
        return [AlignmentData(metric_name(str(paths[0])), sides, {})]

    def measure(
        self, encoder: Any, data: AlignmentData, directory: Path | None = None
    ) -> dict[str, LanguageScores]:
        """The three accuracies."""
        debias.check_rank(self.debias, encoder)
        vectors = {c: encoder.encode(side.sentences) for c, side in data.documents.items()}
        rank = debias.find_rank(self.debias, vectors, self.seed)
        split = {c: self._test_rows(side) for c, side in data.documents.items()}
        parts = {part: ([], []) for part in PARTS}
        for code, array in vectors.items():
            test = split[code]
            statistics = debias.gram_matrix(array[~test])
            rest = debias.remove_components(array, debias.language_components(statistics, rank))
            for part, values in zip(PARTS, (array, array - rest, rest)):
                for side, rows in zip(parts[part], (~test, test)):
                    side.append(values[rows])
        accuracies = {
            part: debias.language_accuracy(train, test, self.seed)
            for part, (train, test) in parts.items()
        }
        num_test = {code: int(rows.sum()) for code, rows in split.items()}
        return {data.name: LanguageScores(accuracies, rank, num_test, parts)}

    def _test_rows(self, side: Documents) -> np.ndarray:
        """[sentences] bool, True for those of a fifth of the documents."""
        rng = np.random.default_rng(self.seed)
        chosen = np.zeros(len(side), bool)
        chosen[rng.permutation(len(side))[: max(1, len(side) // 5)]] = True
        return np.repeat(chosen, side.lengths)

    def tables(
        self, data: Sequence[AlignmentData], outcomes: Mapping[str, LanguageScores]
    ) -> list[str]:
        """One table."""
        rows = [[n, str(s.rank), *map(percent, s.accuracies.values())] for n, s in outcomes.items()]
        table = markdown_table(["documents", "components", *PARTS], rows)
        return [f"## Accuracy of language identification, %\n\n{table}\n"]

    def pictures(
        self, encoder: Any, data: Sequence[AlignmentData], outcomes: Mapping[str, LanguageScores]
    ) -> Iterator[Projection]:
        """Vectors by language, before and after debiasing."""
        for name, scores in outcomes.items():
            for part in ("v", "v_sem"):
                train, _ = scores.parts[part]
                count = min(map(len, train))
                shown = {code: side[:count] for code, side in zip(scores.num_test, train)}
                yield Projection(f"{name}.{part}", shown, f"{name}: {part} by language")


@dataclass(frozen=True)
class LanguageScores:
    """Accuracies by part, in [0, 1], components removed, test sentences by language, and vectors.

    `parts` has for each part the vectors of the training and of the test sentences by language.
    """

    accuracies: dict[str, float]
    rank: int
    num_test: dict[str, int]
    parts: dict[str, tuple[list[np.ndarray], list[np.ndarray]]]

    def scores(self) -> dict[str, float]:
        """`v`, `v_lang`, `v_sem`."""
        return self.accuracies

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {k: v for k, v in vars(self).items() if k != "parts"}
