"""Tables of text: TSV, whose cells are literal, and CSV, whose cells may be in quotation marks.

A literal cell holds no tab and no line end. pandas, R and spreadsheets also put cells of a TSV in
quotation marks, where one holds such a character; such a file is recognized by its beginning.
"""

import collections
import csv
import functools
import io
import itertools
import logging
from collections.abc import Iterator, Sequence

from xling_jax.corpora.readers.tables import Cells, Table, TableReader, wrong_row
from xling_jax.files.lines import BrokenLine, Line, read_line_blocks
from xling_jax.registry import check_choice

_logger = logging.getLogger(__name__)

_QUOTES = ("auto", "yes", "no")
_DELIMITERS = ",;\t|"
# In which quotation marks are looked for: about a megabyte.
_HEAD_BLOCKS = 4


class DelimitedReader(TableReader):
    """Files of lines with a delimiter, "" for the most frequent of `,;|` and tab in the first."""

    delimiter: str

    def open(
        self, path: str, names: Sequence[str] = (), blocks: Sequence[list[Line]] | None = None
    ) -> "DelimitedTable":
        """See `TableReader.open`.

        `names` are those of a file without any, besides `columns`; `blocks` is what was read of
        stdin.
        """
        quotes = self.options["quotes"]
        check_choice(f"{self.spec}: quotes", quotes, _QUOTES)
        given = self.given_columns()
        if given and all(code == name for code, name in given.items()):
            names = list(given)
        return DelimitedTable(path, self.delimiter, quotes, names, blocks)


class TsvReader(DelimitedReader):
    """`tsv:GLOB[?columns=…&quotes=yes]`, n-way TSV files with a header of language codes.

    `quotes=no` reads quotation marks as text, whatever the file looks like.
    """

    defaults = {**TableReader.defaults, "quotes": "auto"}
    delimiter = "\t"


class CsvReader(DelimitedReader):
    """`csv:GLOB[?columns=…]`, separated by commas, or what else separates the names of a header."""

    defaults = {**TableReader.defaults, "quotes": "yes"}
    delimiter = ""


class DelimitedTable(Table):
    """A file of lines, or the `blocks` that have been read of it.

    A `delimiter` of "" is found; `quotes` says whether cells may be in quotation marks: yes, no, or
    auto, if they are; `given` are the names of columns, if the first line does not have all.
    """

    def __init__(
        self,
        path: str,
        delimiter: str,
        quotes: str,
        given: Sequence[str],
        blocks: Sequence[list[Line]] | None = None,
    ):
        self.name, self.heading = path, f"{path}:1: the header"
        self._blocks = lambda: iter(read_line_blocks(path) if blocks is None else blocks)
        head = list(itertools.chain(*itertools.islice(self._blocks(), _HEAD_BLOCKS)))
        first = head[0] if head else ""
        if isinstance(first, BrokenLine):
            if not given:
                raise ValueError(
                    f"{self.heading} must be UTF-8 text; found {first.problem}; convert the file"
                )
            first = ""
        if not (first.strip() or given):
            raise ValueError(
                f"{path}:1: the first line must name the columns, such as de<TAB>en; found an "
                f"empty {'line' if first else 'line or file'}"
            )
        self._delimiter = delimiter or max(_DELIMITERS, key=first.count)
        self._is_quoted = quotes == "yes"
        if quotes == "auto" and _looks_quoted(head, self._delimiter):
            self._is_quoted = True
            _warn_of_quotes(str(path))
        cells = list(map(str.strip, self._split(first))) if first.strip() else list(given)
        self.has_header = bool(first.strip()) and (not given or {*given} <= {*cells})
        if not self.has_header and len(given) != len(cells):
            raise ValueError(
                f"{path}:1: a header must name the columns {', '.join(given)}; without one, a row "
                f"must have these {len(given)} cells; found {len(cells)}"
            )
        self.columns = cells if self.has_header else list(given)

    def _split(self, line: str) -> list[str]:
        """The cells of a line by itself, even where it breaks the rules of CSV."""
        if not self._is_quoted:
            return line.split(self._delimiter)
        try:
            return next(csv.reader([line.replace("\r", " ")], delimiter=self._delimiter), [])
        except csv.Error:  # a cell of 128 KiB
            return [line]

    def rows(self, columns: Sequence[int]) -> Iterator[Cells]:
        lines = itertools.chain.from_iterable(self._blocks())
        lines = itertools.islice(enumerate(lines, 1), self.has_header, None)
        width, delimiter = len(self.columns), self._delimiter
        literal = ((n, line.split(delimiter) if type(line) is str else line) for n, line in lines)
        for line, cells in self._quoted(lines) if self._is_quoted else literal:
            if isinstance(cells, BrokenLine):
                yield Cells(line, (), cells.problem)
            elif len(cells) == width:
                yield Cells(line, [cells[index] for index in columns])
            elif any(map(str.strip, cells)):
                hint = ""
                if self._is_quoted and len(cells) < width:
                    hint = "; if quotation marks are text, add ?quotes=no to the path"
                elif not self._is_quoted and any('"' in cell for cell in cells):
                    hint = "; if cells are in quotation marks, add ?quotes=yes to the path"
                yield wrong_row(
                    line,
                    f"a row must have {width} cells ({', '.join(self.columns):.200}); found "
                    f"{len(cells)}{hint}",
                )
            else:
                yield Cells(line, [""] * len(columns))

    def _quoted(
        self, lines: Iterator[tuple[int, Line]]
    ) -> Iterator[tuple[int, list[str] | BrokenLine]]:
        """Rows with the number of their first line; a row may go over several.

        Where a quotation mark is text, the rows after it would become one cell. Such a row breaks
        the rules of CSV where that cell ends; then its first line stands for itself, and the
        others are read again.
        """
        waiting: collections.deque[tuple[int, Line]] = collections.deque()
        taken: list[tuple[int, str]] = []
        broken: list[tuple[int, BrokenLine]] = []

        def texts() -> Iterator[str]:
            while found := waiting.popleft() if waiting else next(lines, None):
                number, line = found
                if type(line) is str:
                    taken.append(found)
                    yield line.replace("\r", " ") + "\n"
                else:
                    broken.append((number, line))

        read = lambda: csv.reader(texts(), delimiter=self._delimiter, strict=True)
        rows = read()
        while True:
            taken.clear()
            try:
                row = next(rows, None)
                if row and broken and broken[-1][0] > taken[0][0]:  # a line of one of its cells
                    row = broken.pop()[1]
            except csv.Error:
                row = self._split(taken[0][1])
                waiting.extendleft(reversed(taken[1:]))
                rows = read()
            yield from broken
            broken.clear()
            if row is None:
                return
            yield taken[0][0], row


@functools.cache
def _warn_of_quotes(path: str) -> None:
    """Once for a file, which evaluation and preparation may open several times."""
    _logger.warning(
        "%s: cells are in quotation marks, which are not read as text; ?quotes=no after the path "
        "reads them as text",
        path,
    )


def _looks_quoted(head: Sequence[Line], delimiter: str) -> bool:
    """True if a CSV writer would write the beginning of a file just so, and with quotation marks.

    Where quotation marks are text, some line has them where no writer puts them. The last row may
    go on beyond the beginning.
    """
    text = "".join(f"{line}\n" for line in head if isinstance(line, str))
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter)) if '"' in text else []
    except csv.Error:
        return False
    for quoting, kept in itertools.product((csv.QUOTE_MINIMAL, csv.QUOTE_ALL), (rows, rows[:-1])):
        file = io.StringIO()
        writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator="\n")
        writer.writerows(kept)
        if '"' in file.getvalue() and text.startswith(file.getvalue()):
            return True
    return False
