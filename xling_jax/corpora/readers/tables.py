"""Tables: rows of cells in named columns, of which some are languages.

A format says what the columns are called and gives the cells of its rows; which column is which
language, and what becomes of wrong rows, is the same for all.
"""

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from xling_jax.corpora.readers.base import Reader, Row
from xling_jax.files.lines import PROBLEM_RULES, WRONG_ROW
from xling_jax.options import OptionError
from xling_jax.text import languages as languages_lib

_logger = logging.getLogger(__name__)

# A cell that may name a column.
HEADER_CELL = re.compile(r"[A-Za-z]{2,12}([_-][A-Za-z0-9]{2,8})*")
# A first column of row names, as in Parallel Universal Dependencies; Indonesian if asked for.
_ID_COLUMN = "id"
# The side that is not English in data sets of sentence-transformers.
_OTHER = "non_english"


class Cells(NamedTuple):
    """The wanted cells of a row, in the order of the columns asked for; "" or None where empty.

    Attributes:
        line: its number in the file, from 1.
        values: the cells, of text or not; none if there is a problem.
        problem, detail: see `Row`.
    """

    line: int
    values: Sequence[Any]
    problem: str | None = None
    detail: str = ""


def wrong_row(line: int, detail: str) -> Cells:
    """A row that breaks the rules of its format."""
    return Cells(line, (), WRONG_ROW, detail)


class Table:
    """One file, or one data set. A subclass reads one format.

    Attributes:
        name: the path, for messages.
        columns: names of the columns.
        heading: what has these names, for messages.
    """

    name: str
    columns: Sequence[str]
    heading: str

    def index(self, name: str) -> int:
        """The index of a column that the option `columns` names; OptionError if there is none."""
        if name not in self.columns:
            raise OptionError(
                f"{self.name}: has no column {name!r:.60}; found {', '.join(self.columns):.200}; "
                "correct ?columns="
            )
        return list(self.columns).index(name)

    def rows(self, columns: Sequence[int]) -> Iterator[Cells]:
        """The rows, with the cells of these columns; what cannot be read has a problem."""
        raise NotImplementedError


class TableReader(Reader):
    """Tables that a pattern matches, with the option `columns`.

    `columns=de,en` reads the columns of these names and, of a table without names, gives its
    columns these; `columns=de:german,en:text.english` says which column is which language. Without
    it, a column is a language by its name or by what follows the last point in it
    (`translation.de`): a code, or the only name of that language (`deu_Latn`, `german`).
    """

    defaults = {"columns": ""}

    def open(self, path: str) -> Table:
        """Opens a file, as far as the names of its columns."""
        raise NotImplementedError

    def tables(self) -> list[Table]:
        """All tables of the corpus, opened."""
        return [self.open(path) for path in self.files()]

    def languages(self) -> tuple[str, ...]:
        is_code, meant = languages_lib.is_code, languages_lib.to_iso639_1
        if given := self.given_columns():
            return tuple(filter(is_code, given))
        found: dict[str, None] = {}
        for table in self.tables():
            columns = list(table.columns)
            if len(columns) > 2 and columns[0].lower() == _ID_COLUMN:
                del columns[0]
            names = [_last(name) for name in columns if _last(name) != _OTHER]
            codes = (name if is_code(name) else meant(name) for name in names)
            found |= dict.fromkeys(filter(is_code, codes))
        return tuple(found)

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads the tables that have at least two of the languages.

        All are opened before the first row is read. A row without text has no texts; one that is
        broken, or has too many or too few cells, has a problem.
        """
        usable = self._usable(languages)
        return (row for table, columns in usable for row in _read(table, columns))

    def texts(self, but: Collection[str]) -> Iterator[str]:
        """All texts, also of a first line that names no columns; none in columns of some names."""
        for table in self.tables():
            names = [*map(_last, table.columns)]
            if not all(map(HEADER_CELL.fullmatch, names)):
                yield from table.columns
            for cells in table.rows([i for i, name in enumerate(names) if name.lower() not in but]):
                yield from (cell for cell in cells.values if isinstance(cell, str) and cell)

    def column(self, path: str) -> Iterator[Cells]:
        """Reads a column of text: the one that `columns` names, or the only one."""
        table = self.open(path)
        wanted = [*self.given_columns().values()] or list(table.columns)
        if len(wanted) != 1 or wanted[0] not in table.columns:
            raise OptionError(
                f"{path}: name the column of the text, as {path}?columns=NAME; found "
                f"{', '.join(table.columns):.200}"
            )
        return map(_checked, table.rows([table.columns.index(wanted[0])]))

    def given_columns(self) -> dict[str, str]:
        """The option `columns`: language -> name of its column."""
        given = {}
        for item in filter(str.strip, self.options["columns"].split(",")):
            code, _, name = map(str.strip, item.partition(":"))
            if languages_lib.is_iso639(name) and not languages_lib.is_iso639(code):
                code, name = name, code
            given[code] = name or code
        return given

    def _usable(self, languages: Sequence[str]) -> list[tuple[Table, dict[str, int]]]:
        """The tables with two of the languages, and the index of the column of each."""
        chosen = [(table, self._choose(table, languages)) for table in self.tables()]
        usable = [(table, columns) for table, columns in chosen if len(columns) > 1]
        if not usable:
            raise _missing_languages(chosen[0][0], languages)
        if left := [f"{t.name} ({', '.join(t.columns):.60})" for t, c in chosen if len(c) < 2]:
            _logger.info(
                "%s: %d of %d files skipped, with fewer than two of %s: %s",
                *(self.name, len(left), len(chosen), ", ".join(languages)),
                ", ".join(left[:3]) + ", …" * (len(left) > 3),
            )
        readings = {(t.columns[i], code) for t, columns in usable for code, i in columns.items()}
        for name, code in sorted(readings):
            if not self.given_columns() and _last(name) != code:
                _logger.info("%s: column %s is read as %s", self.name, name, code)
        return usable

    def _choose(self, table: Table, languages: Sequence[str]) -> dict[str, int]:
        """Language -> index of its column, of those that the table has."""
        given, names = self.given_columns(), list(table.columns)
        chosen = {}
        for language in languages:
            name = given.get(language) if given else _find(language, languages, names)
            if name is None:
                continue
            if names.count(name) > 1:
                raise ValueError(
                    f"{table.heading} names {name!r} twice; keep one column per language"
                )
            chosen[language] = table.index(name)
        return chosen


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _find(language: str, languages: Sequence[str], names: Sequence[str]) -> str | None:
    """The column of a language."""
    if language in names:
        return language
    if exact := [name for name in names if _last(name) == language]:
        return exact[0]
    free = [name for name in names if _last(name) not in languages]
    meant = languages_lib.to_iso639_1
    same = [name for name in free if meant(_last(name)) == meant(language)]
    if len(same) == 1 and "_" not in language:
        return same[0]
    if len(languages) == 2 and "en" in languages and language != "en":
        return next((name for name in names if _last(name) == _OTHER), None)
    return None


def _missing_languages(table: Table, languages: Sequence[str]) -> ValueError:
    found = "<TAB>".join(table.columns)
    shown = repr(found if len(found) <= 60 else found[:57] + "...")
    some = languages[:2]
    named = ",".join(f"{code}:NAME" for code in some)
    return ValueError(
        f"{table.heading} must name at least two of {', '.join(languages)}; found {shown}; without "
        f"a header, name all columns in order, {table.name}?columns={','.join(some)}; with one, "
        f"name them by the codes in the config or say which they are, ?columns={named}"
    )


def _checked(cells: Cells) -> Cells:
    """Cells, or a wrong row if one is not text."""
    for value in cells.values:
        if value is not None and not isinstance(value, str):
            return wrong_row(cells.line, f"a text must be a string; found {value!r:.40}")
    return cells


def _read(table: Table, columns: dict[str, int]) -> Iterator[Row]:
    languages, has_text, path, first = list(columns), False, table.name, ""
    for line, values, problem, detail in table.rows(list(columns.values())):
        texts = {}
        for language, text in zip(languages, values):
            if type(text) is str:
                if text and not text.isspace():
                    texts[language] = text
            elif text is not None:
                _, _, problem, detail = _checked(Cells(line, [text]))
        if problem:
            first = first or f"{path}:{line}: {detail or PROBLEM_RULES[problem]}"
            yield Row({}, path, line, problem, detail=detail)
            continue
        has_text = has_text or bool(texts)
        yield Row(texts, path, line)
    if not has_text:
        nothing = (
            f"{path}: no row holds text in {' or '.join(languages)}; leave it out of the corpus"
        )
        raise ValueError(first or nothing)


def read_strictly(table: Table, names: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Reads columns of a table in which every row counts, numbers included.

    Yields:
        Line, and the cells of these columns without surrounding white space.
    """
    for name in names:
        if name not in table.columns:
            found = ", ".join(table.columns)
            raise ValueError(f"{table.heading} must name {name}; found {found:.200}; rename it")
    for line, values, *problem in table.rows([table.columns.index(name) for name in names]):
        values = [str(value) if isinstance(value, int | float) else value for value in values]
        _, values, problem, detail = _checked(Cells(line, values, *problem))
        if problem:
            raise ValueError(f"{table.name}:{line}: {detail or PROBLEM_RULES[problem]}")
        yield line, [(value or "").strip() for value in values]
