"""Files of bitext mining: texts as distinct lines, given pairs, and the pairs written."""

from __future__ import annotations

import collections
import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TextIO

import numpy as np

from xling_jax.align.mining import Candidates, MinedPairs, score_pairs
from xling_jax.align.rows import AnyRows
from xling_jax.files.lines import BrokenLine, read_line_blocks, shown
from xling_jax.files.whole import whole_file

Line = str | BrokenLine
Columns = tuple[list[Line], list[Line]]


class Side:
    """The texts of one side: distinct lines that are neither blank nor broken.

    Attributes:
        name: for messages.
        vectors: path of precomputed vectors, row i for line i; None if there are none.
        texts: distinct texts, in the order of their first lines.
        num_lines: number of all lines, including blank, broken and repeated ones.
        first_lines: [texts] int64, the first line of each text, counted from 0.
    """

    def __init__(self, name: str, lines: Iterable[Line], vectors: str | None = None):
        self.name, self.vectors = name, vectors
        self.num_lines = self._num_repeated = 0
        self._place_of: dict[str, int] = {}
        self._skipped: collections.Counter[str] = collections.Counter()
        first_lines = []
        for line in lines:
            if isinstance(line, BrokenLine):
                self._skipped[line.problem] += 1
            elif not line.strip():
                self._skipped["blank"] += 1
            elif line in self._place_of:
                self._num_repeated += 1
            else:
                self._place_of[line] = len(first_lines)
                first_lines.append(self.num_lines)
            self.num_lines += 1
        self.first_lines = np.array(first_lines, np.int64)
        self.texts = list(self._place_of)

    def add(self, texts: Sequence[Line], origin: str) -> None:
        """Adds a column of the pairs read from `origin`, to be embedded with the other texts.

        Raises:
            ValueError: if there are precomputed vectors and a text has none; names its line.
        """
        for number, text in enumerate(texts, 1):
            if isinstance(text, BrokenLine) or not text.strip() or text in self._place_of:
                continue
            if self.vectors:
                raise ValueError(
                    f"{shown(origin)}:{number}: the text is not a line of {self.name} and so has "
                    f"no row in {self.vectors}; use a model, or pairs of lines"
                )
            self._place_of[text] = len(self.texts)
            self.texts.append(text)

    def places(self, texts: Sequence[Line]) -> np.ndarray:
        """Returns the index in `texts` of each text, [n] int64; -1 for blank and broken ones."""
        return np.array([self._place_of.get(text, -1) for text in texts], np.int64)

    def describe(self) -> str:
        """Counts of the lines, in one line."""
        counts = [f"{count} {problem}" for problem, count in sorted(self._skipped.items())]
        counts.append(f"{self._num_repeated} repeated")
        return (
            f"{self.name}: {self.num_lines} lines, {len(self.texts)} distinct texts; "
            f"not mined: {', '.join(counts)}"
        )


def read_sides(
    paths: Sequence[str | None],
    vectors: Sequence[str | None] = (None, None),
    pairs: Columns | None = None,
    pairs_path: str | None = None,
) -> list[Side]:
    """Reads source and target, and adds the texts of given pairs.

    Args:
        paths: maybe compressed, "-" for stdin; None takes the column of `pairs`.
        vectors: paths of their precomputed vectors, if any.
        pairs: from `read_pairs`.
        pairs_path: the file of the pairs, for messages.

    Raises:
        ValueError: as `Side.add`.
        OSError: if a file cannot be read.
    """
    sides = []
    for column, (path, given) in enumerate(zip(paths, vectors, strict=True)):
        if path is None:
            name = f"{shown(pairs_path)} ({('source', 'target')[column]})"
            sides.append(Side(name, pairs[column], given))
        else:
            sides.append(Side(shown(path), chain.from_iterable(read_line_blocks(path)), given))
            sides[-1].add(pairs[column] if pairs else (), pairs_path)
    return sides


def read_pairs(path: str) -> Columns:
    """Reads lines `source<TAB>target` into two columns; broken lines are kept in both.

    Raises:
        ValueError: if a line does not have two columns; names it.
    """
    columns: Columns = ([], [])
    for number, line in enumerate(chain.from_iterable(read_line_blocks(path)), 1):
        cells = [line, line] if isinstance(line, BrokenLine) else line.split("\t")
        if len(cells) != 2:
            raise ValueError(
                f"{shown(path)}:{number}: a pair must be source<TAB>target; found {len(cells)} "
                "columns; choose two with cut -f"
            )
        for column, cell in zip(columns, cells):
            column.append(cell)
    return columns


def score_columns(
    sides: Sequence[Side],
    rows: Sequence[AnyRows],
    pairs: Columns,
    candidates: Candidates,
    *,
    margin: str = "ratio",
    min_cosine: float | None = None,
) -> tuple[np.ndarray, int]:
    """Scores given pairs of texts against the neighborhoods of both sides, see `score_pairs`.

    Returns:
        [p] float32, minus infinity for pairs with a blank or broken side; and the number of these.
    """
    places = [side.places(texts) for side, texts in zip(sides, pairs)]
    usable = (places[0] >= 0) & (places[1] >= 0)
    scores = np.full(len(usable), -np.inf, np.float32)
    if usable.any():
        chosen = places[0][usable], places[1][usable]
        settings = {"margin": margin, "min_cosine": min_cosine}
        scores[usable] = score_pairs(*rows, chosen, candidates, **settings)
    return scores, int(np.count_nonzero(~usable))


def write_pairs(
    path: str, pairs: MinedPairs, source: Sequence[Line], target: Sequence[Line]
) -> int:
    """Writes lines `score<TAB>source<TAB>target`; the file appears whole or not at all.

    Args:
        path: the file, replaced if it exists; "-" for stdout.
        pairs: indices into `source` and `target`, in the order to write.
        source: texts or ids; tabs become spaces, broken lines become empty.
        target: likewise.

    Returns:
        The number of lines.
    """
    with open_output(path) as file:
        for score, i, j in pairs:
            file.write(f"{score:.6f}\t{_cell(source[i])}\t{_cell(target[j])}\n")
    return len(pairs)


def _cell(text: Line) -> str:
    return "" if isinstance(text, BrokenLine) else text.replace("\t", " ")


@contextlib.contextmanager
def open_output(path: str) -> Iterator[TextIO]:
    """A file that appears whole or not at all; "-" is stdout."""
    if path == "-":
        # UTF-8 whatever the locale.
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        sys.stdout.flush()
        return
    with whole_file(path, "w") as file:
        yield file
