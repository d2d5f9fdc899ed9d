"""Text for mining: columns of text, and pairs of texts to score, of any corpus; row by row."""

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from xling_jax.corpora.readers import READERS
from xling_jax.corpora.readers.delimited import DelimitedReader, DelimitedTable
from xling_jax.corpora.readers.tables import HEADER_CELL, Cells
from xling_jax.corpora.specs import names_kind, open_corpus, split_options, suffix_of, table_reader
from xling_jax.files.lines import PROBLEM_RULES, BrokenLine, Line, read_line_blocks, shown
from xling_jax.options import OptionError
from xling_jax.text.languages import is_iso639, match_code

_logger = logging.getLogger(__name__)

_SIDES = ("source", "target")
# Files of these suffixes are no plain text.
_TABLES = ("csv", "jsonl", "parquet")


class Pairs(NamedTuple):
    """The texts of either side, of a broken row `BrokenLine`; their languages, if known."""

    columns: tuple[list[Line], list[Line]]
    languages: tuple[str, str] | None


def read_text(path: str) -> Iterator[Line]:
    """The lines of a text file, or of `TABLE?columns=NAME` the cells of a column."""
    if path == "-" or not (split_options(path)[1] or suffix_of(path) in _TABLES):
        yield from itertools.chain.from_iterable(read_line_blocks(path))
        return
    reader = table_reader(path)
    for cells in reader.column(reader.path):
        yield BrokenLine(cells.problem) if cells.problem else (cells.values[0] or "")


def read_pairs(spec: str, languages: Sequence[str] = ()) -> Pairs:
    """Reads a corpus, or lines `source<TAB>target`, after a score or not, with a header or not.

    "-" is stdin; `languages` are those of source and target, where a corpus has more.
    """
    is_lines = not names_kind(spec) and (suffix_of(spec) == "tsv" or suffix_of(spec) not in READERS)
    reader = open_corpus(f"tsv:{spec}" if is_lines else spec)
    if isinstance(reader, DelimitedReader) and (is_lines or reader.kind == "tsv"):
        table, columns, codes = _find_sides(reader, languages)
        rows = table.rows([*map(table.index, columns)])
        return Pairs(_gather(shown(table.name), rows), codes)
    codes = tuple(languages) or reader.languages()
    if len(codes) != 2:
        raise OptionError(
            f"{spec}: pairs have two languages; found {', '.join(codes) or 'none named'}; name "
            "them with --languages SOURCE,TARGET, or columns of a table, ?columns=de:NAME,en:NAME"
        )
    text_of = lambda row: [row.texts.get(code, "") for code in codes]
    rows = (Cells(r.line, text_of(r), r.problem, r.detail) for r in reader.rows(codes))
    return Pairs(_gather(spec, rows), codes)


def _find_sides(
    reader: DelimitedReader, languages: Sequence[str]
) -> tuple[DelimitedTable, Sequence[str], tuple[str, str] | None]:
    """The table of a file of pairs, its columns of source and target, and their languages."""
    path = reader.path
    blocks = list(read_line_blocks(path)) if path == "-" else None
    first = next(iter(read_line_blocks(path) if blocks is None else blocks), [""])[0]
    if isinstance(first, BrokenLine) or not first.strip():
        return reader.open(path, _SIDES, blocks), _SIDES, None
    table = reader.open(path, blocks=blocks)
    given = reader.given_columns()
    codes = [code for code in given or table.columns if is_iso639(code)]
    if not given and len(codes) < 2:
        width, names = len(table.columns), _SIDES
        if width == 3:
            with contextlib.suppress(ValueError):
                float(table.columns[0])  # a score
                names = ("score", *_SIDES)
        if width != len(names):
            raise ValueError(
                f"{shown(path)}:1: a pair must be source<TAB>target; found {width} columns; say "
                f"which they are, such as {path}?columns=id,source,target"
            )
        if codes and all(map(HEADER_CELL.fullmatch, table.columns)):
            named = ",".join(name if name in codes else f"CODE:{name}" for name in table.columns)
            _logger.warning(
                "%s:1: %s is read as text; if it is a header, name the languages: %s?columns=%s",
                *(shown(path), ", ".join(table.columns), path, named),
            )
        return reader.open(path, names, blocks), _SIDES, None
    if {*_SIDES} <= given.keys() and not codes:
        return table, [given[side] for side in _SIDES], None
    chosen = [match_code(code, codes) for code in languages] or codes
    if len(chosen) != 2 or len({*chosen} - {None}) != 2:
        raise OptionError(
            f"{shown(path)}:1: pairs must be in {' and '.join(languages) or 'two languages'}; "
            f"found {', '.join(codes) or 'none'}; choose two, such as {path}?columns=de,en"
        )
    return table, [given.get(code, code) for code in chosen], tuple(chosen)


def _gather(name: str, rows: Iterable[Cells]) -> tuple[list[Line], list[Line]]:
    """The two columns; logs what is broken."""
    columns: tuple[list[Line], list[Line]] = ([], [])
    broken, first = 0, ""
    for line, texts, problem, detail in rows:
        if problem:
            broken += 1
            first = first or f"{name}:{line}: {detail or PROBLEM_RULES[problem]}"
            texts = [BrokenLine(problem)] * 2
        for column, text in zip(columns, texts, strict=True):
            column.append(text or "")
    if broken and broken == len(columns[0]):
        raise ValueError(first)
    if broken:
        _logger.warning("%s; broken rows: %d of %d", first, broken, len(columns[0]))
    return columns
