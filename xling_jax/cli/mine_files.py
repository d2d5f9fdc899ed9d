"""The text files of `xling mine`: lines to distinct texts, given pairs, and the pairs written."""

from __future__ import annotations

import collections
import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from xling_jax.files.lines import BrokenLine, read_line_blocks
from xling_jax.files.whole import whole_file

if TYPE_CHECKING:
    import numpy as np

    from xling_jax.align.mining import MinedPairs


class Side:
    """One text: its distinct lines that can be mined, and where they come from.

    Attributes:
        name: for messages.
        vectors: path of its ready vectors, or None.
        texts: distinct texts, in the order of their first lines.
        num_lines: all lines, blank, broken and repeated ones included.
    """

    def __init__(self, name: str, vectors: str | None):
        self.name, self.vectors = name, vectors
        self.texts: list[str] = []
        self.num_lines = 0
        self._lines: list[int] = []
        self._place_of: dict[str, int] = {}
        self._skipped: collections.Counter[str] = collections.Counter()
        self._num_repeated = 0

    @property
    def lines(self) -> np.ndarray:
        """The number of the first line of each text, [texts] int64, counted from 0."""
        import numpy as np

        return np.array(self._lines, np.int64)

    def read(self, lines: Iterable[str | BrokenLine]) -> None:
        """Takes the lines of the text."""
        for line in lines:
            if isinstance(line, BrokenLine):
                self._skipped[line.problem] += 1
            elif not line.strip():
                self._skipped["blank"] += 1
            elif line in self._place_of:
                self._num_repeated += 1
            else:
                self._place_of[line] = len(self.texts)
                self.texts.append(line)
                self._lines.append(self.num_lines)
            self.num_lines += 1

    def add(self, texts: Sequence[str | BrokenLine], origin: str) -> None:
        """Adds texts of given pairs, which are embedded with the others.

        Raises:
            ValueError: if the vectors are ready and a text has none; its line is named.
        """
        for number, text in enumerate(texts, 1):
            if isinstance(text, BrokenLine) or not text.strip() or text in self._place_of:
                continue
            if self.vectors:
                raise ValueError(
                    f"{shown(origin)}:{number}: the text is no line of {self.name}, so it has no "
                    f"row in {self.vectors}; give --model, or pairs of the lines"
                )
            self._place_of[text] = len(self.texts)
            self.texts.append(text)

    def places(self, texts: Sequence[str | BrokenLine]) -> np.ndarray:
        """The place in `texts` of each of these, [n] int64; -1 for blank and broken ones."""
        import numpy as np

        return np.array([self._place_of.get(text, -1) for text in texts], np.int64)

    def describe(self) -> str:
        """One line of counts."""
        counts = [f"{count} {problem}" for problem, count in sorted(self._skipped.items())]
        counts.append(f"{self._num_repeated} repeated")
        return (
            f"{self.name}: {self.num_lines} lines, {len(self.texts)} distinct texts; "
            f"not mined: {', '.join(counts)}"
        )


@dataclass(frozen=True)
class Pairs:
    """Given pairs: the columns, in the order of the file."""

    columns: tuple[list[str | BrokenLine], list[str | BrokenLine]]


def unify(lines: Iterable[str | BrokenLine], name: str, vectors: str | None) -> Side:
    """A side from its lines."""
    side = Side(name, vectors)
    side.read(lines)
    return side


def read_lines(path: str) -> Iterator[str | BrokenLine]:
    """Yields the lines of a text file; - is stdin."""
    for block in read_line_blocks("/dev/stdin" if path == "-" else path):
        yield from block


def read_pairs(path: str) -> Pairs:
    """Reads `source<TAB>target` lines.

    Raises:
        ValueError: if a line has not two columns; it is named. Broken lines are kept as such.
    """
    columns: tuple[list, list] = ([], [])
    for number, line in enumerate(read_lines(path), 1):
        cells = [line, line] if isinstance(line, BrokenLine) else line.split("\t")
        if len(cells) != 2:
            raise ValueError(
                f"{shown(path)}:{number}: a pair must be source<TAB>target; found {len(cells)} "
                "columns; choose two with cut -f"
            )
        for column, cell in zip(columns, cells):
            column.append(cell)
    return Pairs(columns)


def write_pairs(path: str, pairs: MinedPairs, source: Sequence[str], target: Sequence[str]) -> int:
    """Writes `score<TAB>source<TAB>target` lines; the file appears whole or not at all, and
    replaces one of its name.

    Args:
        path: the file; - is stdout.
        pairs: places in `source` and `target`, in the order to write.
        source: texts.
        target: texts.

    Returns:
        The number of lines.

    Raises:
        OSError: if writing fails; nothing is left then.
    """
    with _output(path) as file:
        for score, i, j in pairs:
            x, y = (text.replace("\t", " ") for text in (source[i], target[j]))
            file.write(f"{score:.6f}\t{x}\t{y}\n")
    return len(pairs)


def shown(path: str) -> str:
    """How messages name an input."""
    return "<stdin>" if path == "-" else path


@contextlib.contextmanager
def _output(path: str) -> Iterator[TextIO]:
    if path == "-":
        # Texts are UTF-8 whatever the locale.
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
        sys.stdout.flush()
        return
    with whole_file(path, "w") as file:
        yield file
