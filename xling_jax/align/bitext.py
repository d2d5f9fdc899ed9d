"""Texts of bitext mining: sides of distinct lines, and the scores of given pairs."""

import collections
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from xling_jax.align.filters import Filters, TextFilter
from xling_jax.align.mining import Candidates, score_pairs
from xling_jax.align.rows import AnyRows
from xling_jax.files.lines import PROBLEM_RULES, PROBLEMS, BrokenLine, Line, shown
from xling_jax.files.progress import counted

_logger = logging.getLogger(__name__)

# Of the lines of a side, above which there is a warning.
_MANY_BROKEN = 0.01

Columns = tuple[list[Line], list[Line]]


class Side:
    """The texts of one side: distinct lines that are neither blank, broken nor filtered out.

    Attributes:
        vectors: paths of precomputed vectors, one for each file, row i for line i; or none.
        texts: distinct texts, in the order of their first lines.
        file_lines: number of lines of each file, including those that are not mined.
        last_lines: [texts] int64, the last line of each text, counted from 0 through all files,
            whose vector counts as in LASER; -1 for texts that `add` has added.
    """

    def __init__(
        self,
        name: str,
        files: Iterable[tuple[str, Iterable[Line]]],
        vectors: Sequence[str] = (),
        text_filter: TextFilter | None = None,
    ):
        self.name, self.vectors = name, tuple(vectors)
        self.files: list[str] = []
        self.file_lines: list[int] = []
        self._num_repeated = 0
        self._row_of: dict[str, int] = {}
        self._skipped: collections.Counter[str] = collections.Counter()
        last_lines, number = [], 0
        for file, lines in files:
            start = number
            for number, line in enumerate(lines, start + 1):
                if isinstance(line, BrokenLine):
                    self._skipped[line.problem] += 1
                elif not line.strip():
                    self._skipped["blank"] += 1
                elif (row := self._row_of.get(line)) is not None:
                    self._num_repeated += 1
                    last_lines[row] = number - 1
                elif text_filter and (problem := text_filter(line)):
                    self._skipped[problem] += 1
                else:
                    self._row_of[line] = len(last_lines)
                    last_lines.append(number - 1)
            self.files.append(file)
            self.file_lines.append(number - start)
        self.last_lines = np.array(last_lines, np.int64)
        self.texts = list(self._row_of)

    @property
    def num_lines(self) -> int:
        """Lines of all files, including those that are not mined."""
        return sum(self.file_lines)

    def add(self, texts: Sequence[Line], origin: str) -> None:
        """Adds a column of the pairs read from `origin`, to be embedded with the other texts.

        ValueError names the line of a text without a vector, if there are precomputed ones.
        """
        for number, text in enumerate(texts, 1):
            if isinstance(text, BrokenLine) or not text.strip() or text in self._row_of:
                continue
            if self.vectors:
                raise ValueError(
                    f"{shown(origin)}:{number}: the text is not a line of {self.name} and so has "
                    f"no row in {', '.join(self.vectors)}; use a model, or pairs of lines"
                )
            self._row_of[text] = len(self.texts)
            self.texts.append(text)
        missing = np.full(len(self.texts) - len(self.last_lines), -1)
        self.last_lines = np.append(self.last_lines, missing)

    def rows_of(self, texts: Sequence[Line]) -> np.ndarray:
        """Returns the index in `texts` of each text, [n] int64; -1 for blank and broken ones."""
        return np.array([self._row_of.get(text, -1) for text in texts], np.int64)

    def check(self) -> None:
        """Warns of many broken lines and of no text or none left; ValueError if all are broken."""
        broken = sum(self._skipped[problem] for problem in PROBLEMS)
        with_text = self.num_lines - self._skipped["blank"]
        if broken and broken == with_text:
            most = max(PROBLEMS, key=self._skipped.__getitem__)
            raise ValueError(f"{self.describe()}; {PROBLEM_RULES[most]}")
        if broken > _MANY_BROKEN * self.num_lines:
            _logger.warning("%s: broken lines: %d of %d", self.name, broken, self.num_lines)
        elif with_text and not self.texts:
            _logger.warning("%s: the filters removed every line; relax them", self.name)
        elif not with_text:
            _logger.warning("%s: no text", self.name)

    def describe(self) -> str:
        """Counts of the lines, in one line."""
        counts = [f"{count} {problem}" for problem, count in sorted(self._skipped.items())]
        counts += [f"{self._num_repeated} repeated"] * bool(self._num_repeated)
        not_mined = f"; not mined: {', '.join(counts)}" if counts else ""
        texts = counted(len(self.texts), "distinct text")
        return f"{self.name}: {counted(self.num_lines, 'line')}, {texts}{not_mined}"


def read_sides(
    paths: Sequence[Sequence[str]],
    vectors: Sequence[Sequence[str]],
    pairs: Columns | None,
    pairs_path: str | None,
    filters: Filters | None,
    read: Callable[[str], Iterable[Line]],
) -> list[Side]:
    """Reads source and target files ("-" is stdin), and adds the texts of given pairs.

    A side without files is its column of `pairs`. Filters apply to the files alone; `read` gives
    the lines of a path.
    """
    sides = []
    for column, (files, given) in enumerate(zip(paths, vectors, strict=True)):
        if not files:
            name = f"{shown(pairs_path)} ({('source', 'target')[column]})"
            sides.append(Side(name, [(shown(pairs_path), pairs[column])], given))
            continue
        lines = ((shown(path), read(path)) for path in files)
        name = shown(files[0]) if len(files) == 1 else f"{shown(files[0])} … {shown(files[-1])}"
        text_filter = filters.of_side(column) if filters else None
        sides.append(Side(name, lines, given, text_filter))
        sides[-1].add(pairs[column] if pairs else (), pairs_path)
    return sides


def score_columns(
    sides: Sequence[Side],
    rows: Sequence[AnyRows],
    pairs: Columns,
    candidates: Candidates,
    **rule: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores given pairs of texts against the neighborhoods of both sides, see `score_pairs`.

    Returns [p] float32, minus infinity for pairs with a blank or broken side; and which these are.
    """
    chosen = [side.rows_of(texts) for side, texts in zip(sides, pairs)]
    usable = (chosen[0] >= 0) & (chosen[1] >= 0)
    scores = np.full(len(usable), -np.inf, np.float32)
    if usable.any():
        chosen = chosen[0][usable], chosen[1][usable]
        scores[usable] = score_pairs(*rows, chosen, candidates, **rule)
    return scores, ~usable
