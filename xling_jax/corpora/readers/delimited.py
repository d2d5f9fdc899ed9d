"""Tables of text: TSV, whose cells are literal, and CSV, whose cells may be in quotation marks.

A literal cell holds no tab and no line end. pandas, R and spreadsheets also put cells of a TSV in
quotation marks, where one holds such a character; such a file is recognized by its beginning.
"""

import csv
import io
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence

from xling_jax.corpora.readers.tables import Cells, Table, TableReader, wrong_row
from xling_jax.files.lines import LINE_TOO_LONG, BrokenLine, Line, read_line_blocks
from xling_jax.registry import check_choice

_logger = logging.getLogger(__name__)

_QUOTES = ("auto", "yes", "no")
_DELIMITERS = ",;\t|"
# In which quotation marks are looked for: about a megabyte.
_HEAD_BLOCKS = 4


class DelimitedReader(TableReader):
    """Files of lines with a delimiter, "" for that of the first line."""

    delimiter: str

    def open(
        self, path: str, names: Sequence[str] = (), blocks: Sequence[list[Line]] | None = None
    ) -> "DelimitedTable":
        """See `TableReader.open`.

        `names` are those of a file without any, besides `columns`; `blocks` is what was read of
        stdin.
        """
        quotes = self.options.get("quotes", "yes")
        check_choice(f"{self.spec}: quotes", quotes, _QUOTES)
        return DelimitedTable(path, self.delimiter, quotes, self._names() or names, blocks)


class TsvReader(DelimitedReader):
    """`tsv:GLOB[?columns=…&quotes=yes]`, n-way TSV files with a header of language codes.

    `quotes=no` reads quotation marks as text, whatever the file looks like.
    """

    defaults = {**TableReader.defaults, "quotes": "auto"}
    delimiter = "\t"


class CsvReader(DelimitedReader):
    """`csv:GLOB[?columns=…]`, separated by commas, or what else separates the names of a header."""

    delimiter = ""


class DelimitedTable(Table):
    """A file of lines.

    Args:
        path: of the file.
        delimiter: between cells; "" for the most frequent of `,;|` and tab in the first line.
        quotes: whether cells may be in quotation marks: yes, no, or auto, if they are.
        given: names of the columns, if the first line does not have all of these.
        blocks: the lines, if they have been read.

    Attributes:
        has_header: whether it has.

    Raises:
        ValueError: if the first line is blank or broken.
    """

    def __init__(
        self,
        path: str,
        delimiter: str,
        quotes: str,
        given: Sequence[str],
        blocks: Sequence[list[Line]] | None = None,
    ):
        self.name = path
        self._blocks = lambda: iter(read_line_blocks(path) if blocks is None else blocks)
        self.heading = f"{path}:1: the header"
        head = list(itertools.chain(*itertools.islice(self._blocks(), _HEAD_BLOCKS)))
        first = head[0] if head else ""
        if isinstance(first, BrokenLine) and not given:
            raise ValueError(
                f"{path}:1: the header must be UTF-8 text; found {first.problem}; convert the file"
            )
        first = "" if isinstance(first, BrokenLine) else first
        if not (first.strip() or given):
            raise ValueError(
                f"{path}:1: the first line must name the columns, such as de<TAB>en; found an "
                f"empty {'line' if first else 'line or file'}"
            )
        self._delimiter = delimiter or max(_DELIMITERS, key=first.count)
        self._is_quoted = quotes == "yes"
        if quotes == "auto" and _looks_quoted(head, self._delimiter):
            self._is_quoted = True
            _logger.warning(
                "%s: cells are in quotation marks, which are not read as text; ?quotes=no after "
                "the path reads them as text",
                path,
            )
        cells = self._split(first) if first.strip() else list(given)
        self.has_header = bool(first.strip()) and (not given or {*given} <= {*cells})
        if not self.has_header and len(given) != len(cells):
            raise ValueError(
                f"{path}:1: a header must name the columns {', '.join(given)}; without one, a row "
                f"must have these {len(given)} cells; found {len(cells)}"
            )
        self.columns = cells if self.has_header else list(given)

    def _split(self, first: str) -> list[str]:
        cells = next(csv.reader([first], delimiter=self._delimiter)) if self._is_quoted else None
        return [cell.strip() for cell in cells or first.split(self._delimiter)]

    def rows(self, columns: Sequence[int]) -> Iterator[Cells]:
        """See `Table.rows`."""
        lines = itertools.chain.from_iterable(self._blocks())
        lines = itertools.islice(enumerate(lines, 1), self.has_header, None)
        width, is_quoted = len(self.columns), self._is_quoted
        for line, cells in self._quoted(lines) if is_quoted else self._literal(lines):
            if isinstance(cells, BrokenLine):
                yield Cells(line, (), cells.problem)
            elif len(cells) == width:
                yield Cells(line, [cells[index] for index in columns])
            elif any(map(str.strip, cells)):
                hint = ""
                if not is_quoted and any('"' in cell for cell in cells):
                    hint = "; if cells are in quotation marks, add ?quotes=yes to the path"
                yield wrong_row(
                    line,
                    f"a row must have {width} cells ({', '.join(self.columns):.200}); found "
                    f"{len(cells)}{hint}",
                )
            else:
                yield Cells(line, [""] * len(columns))

    def _literal(
        self, lines: Iterable[tuple[int, Line]]
    ) -> Iterator[tuple[int, list[str] | BrokenLine]]:
        delimiter = self._delimiter
        for number, line in lines:
            yield number, line.split(delimiter) if type(line) is str else line

    def _quoted(
        self, lines: Iterable[tuple[int, Line]]
    ) -> Iterator[tuple[int, list[str] | BrokenLine]]:
        """As `_literal`; a row may go over several lines."""
        broken: list[tuple[int, BrokenLine]] = []
        last = int(self.has_header)

        def texts() -> Iterator[str]:
            nonlocal last
            for last, line in lines:
                if type(line) is str:
                    yield line.replace("\r", " ") + "\n"
                else:
                    broken.append((last, line))

        rows = csv.reader(texts(), delimiter=self._delimiter)
        while True:
            first = last + 1
            try:
                row = next(rows, None)
            except csv.Error:  # a cell of 128 KiB: its end is missing
                row = BrokenLine(LINE_TOO_LONG)
            yield from broken
            broken.clear()
            if row is None:
                return
            yield first, row


def _looks_quoted(head: Sequence[Line], delimiter: str) -> bool:
    """True if a CSV writer would write the beginning of a file just so, and with quotation marks.

    Where quotation marks are text, some line has them where no writer puts them. The last row may
    go on beyond the beginning.
    """
    text = "".join(f"{line}\n" for line in head if isinstance(line, str))
    if '"' not in text:
        return False
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return False
    for quoting, (kept, is_all) in itertools.product(
        (csv.QUOTE_MINIMAL, csv.QUOTE_ALL), ((rows, True), (rows[:-1], False))
    ):
        written = io.StringIO()
        csv.writer(written, delimiter=delimiter, quoting=quoting, lineterminator="\n").writerows(
            kept
        )
        again = written.getvalue()
        if '"' in again and (again == text if is_all else text.startswith(again)):
            return True
    return False
