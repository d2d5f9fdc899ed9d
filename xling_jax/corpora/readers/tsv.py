"""Tab-separated parallel text: a header of language codes, then a row of translations per line.

Cells are taken literally: there is no quoting, so a cell holds no tab and no line end. Columns of
other languages, or of ids, are ignored.
"""

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from xling_jax.corpora.readers.base import Reader, Row
from xling_jax.files.lines import BrokenLine, read_line_blocks
from xling_jax.text import languages as languages_lib

_logger = logging.getLogger(__name__)


class TsvReader(Reader):
    """`tsv:GLOB`, n-way TSV files."""

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads the files that have at least two of the languages.

        All headers are checked before the first row is read. Empty lines are rows without texts,
        broken lines are rows with a problem.

        Raises:
            ValueError: if no file has two of the languages, or a header names a language twice;
                while reading, if a row does not have as many cells as the header, or a file holds
                no text.
        """
        headers = {path: _read_header(path, languages) for path in self.files()}
        usable = _usable_files(headers, languages)
        return (row for path in usable for row in _read_file(path, headers[path], languages))

    def split(self, languages: Sequence[str]) -> list[Self]:
        """See `Reader.split`."""
        headers = {path: _read_header(path, languages) for path in self.files()}
        return [self.of_file(path) for path in _usable_files(headers, languages)]


def _usable_files(headers: Mapping[str, Sequence[str]], languages: Sequence[str]) -> list[str]:
    """Chooses the files with two of the languages; `headers` are path -> header.

    Raises:
        ValueError: if there are none.
    """
    usable = [path for path in headers if len(_columns(headers[path], languages)) > 1]
    if not usable:
        raise _missing_languages(*next(iter(headers.items())), languages)
    for path in headers:
        if path not in usable:
            _logger.info("%s: skipped: fewer than two of %s", path, ", ".join(languages))
    return usable


def _read_header(path: str, languages: Sequence[str]) -> list[str]:
    """Reads the first line of a file.

    Raises:
        ValueError: if it cannot be a header of these languages.
    """
    first = next(read_line_blocks(path), [""])[0]
    if isinstance(first, BrokenLine):
        raise ValueError(
            f"{path}:1: the header must be UTF-8 text; found {first.problem}; convert the file"
        )
    if not first.strip():
        raise ValueError(
            f"{path}:1: the first line must name the language of each column, such as "
            f"{'<TAB>'.join(languages[:2])}; found an empty {'line' if first else 'line or file'}"
        )
    header = [name.strip() for name in first.split("\t")]
    for language in languages:
        if header.count(language) > 1:
            raise ValueError(
                f"{path}:1: the header names {language!r} twice; keep one column per language"
            )
    return header


def _columns(header: Sequence[str], languages: Sequence[str]) -> list[tuple[int, str]]:
    return [(header.index(language), language) for language in languages if language in header]


def _missing_languages(path: str, header: Sequence[str], languages: Sequence[str]) -> ValueError:
    """Suggests to rename columns whose names are aliases of languages."""
    found = "<TAB>".join(header)
    shown = repr(found if len(found) <= 60 else found[:57] + "...")
    renames = [
        f"rename {name!r:.60} to {language!r}"
        for name in header
        for language in languages
        if name != language and languages_lib.to_iso639_1(name) == language
    ]
    way_out = ", ".join(renames) or "name the columns by the codes in the config"
    return ValueError(
        f"{path}:1: the header must name at least two of {', '.join(languages)}; found {shown}; "
        f"{way_out}"
    )


def _read_file(path: str, header: Sequence[str], languages: Sequence[str]) -> Iterator[Row]:
    columns = _columns(header, languages)
    has_text = False
    lines = itertools.chain.from_iterable(read_line_blocks(path))
    for number, line in enumerate(itertools.islice(lines, 1, None), 2):
        if type(line) is not str:
            yield Row({}, path, number, line.problem)
            continue
        cells = line.split("\t")
        texts = {}
        if len(cells) == len(header):
            for index, language in columns:
                cell = cells[index]
                if cell and not cell.isspace():
                    texts[language] = cell
        elif line and not line.isspace():
            rule = "; quotation marks do not keep a line break or tab inside a cell"
            hint = rule if '"' in line else ""
            raise ValueError(
                f"{path}:{number}: a row must have {len(header)} cells, as the header "
                f"({', '.join(header):.200}); found {len(cells)}; remove tabs inside texts, and "
                f"leave a cell empty where there is no translation{hint}"
            )
        has_text = has_text or bool(texts)
        yield Row(texts, path, number)
    if not has_text:
        raise ValueError(
            f"{path}: no line below the header holds text in {' or '.join(languages)}; "
            "leave the file out of the corpus"
        )
