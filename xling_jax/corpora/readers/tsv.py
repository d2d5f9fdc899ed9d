"""Tab-separated parallel text: a header of language codes, then one row of translations a line.

Cells are taken as they are: there is no quoting, so a cell holds no tab and no line end. Columns
of other languages, or of ids, are ignored.
"""

import logging
from collections.abc import Iterator, Sequence

from xling_jax.corpora.readers.rows import Row
from xling_jax.files.lines import BrokenLine, read_line_blocks
from xling_jax.text import languages as languages_lib

_logger = logging.getLogger(__name__)


def read_tsv(paths: Sequence[str], languages: Sequence[str]) -> Iterator[Row]:
    """Reads n-way TSV files; all headers are checked before the first row is read.

    Args:
        paths: files, see `lines.read_chunks` for compression.
        languages: the languages wanted.

    Returns:
        Rows in file order. An empty line is a row without texts; broken lines are rows with a
        problem.

    Raises:
        ValueError: if no file has two of the languages, or a header names a language twice; while
            reading, if a row has not as many cells as the header, or a file holds no text.
    """
    headers = {path: _read_header(path, languages) for path in paths}
    usable = [path for path in paths if len(_columns(headers[path], languages)) > 1]
    if not usable:
        raise _missing_languages(paths[0], headers[paths[0]], languages)
    for path in paths:
        if path not in usable:
            _logger.info("%s: skipped, has fewer than two of %s", path, ", ".join(languages))
    return (row for path in usable for row in _read_file(path, headers[path], languages))


def _read_header(path: str, languages: Sequence[str]) -> list[str]:
    first = next(read_line_blocks(path), [""])[0]
    if isinstance(first, BrokenLine):
        raise ValueError(
            f"{path}:1: the header must be UTF-8 text; found {first.problem}. "
            "Convert the file to UTF-8."
        )
    if not first.strip():
        raise ValueError(
            f"{path}:1: the first line must name the columns by language; found an empty "
            f"{'line' if first else 'line or file'}. Write a header such as "
            f"{'<TAB>'.join(languages[:2])}."
        )
    header = [name.strip() for name in first.split("\t")]
    for language in languages:
        if header.count(language) > 1:
            raise ValueError(
                f"{path}:1: the header names {language!r} twice; keep one column a language."
            )
    return header


def _columns(header: Sequence[str], languages: Sequence[str]) -> list[tuple[int, str]]:
    return [(header.index(language), language) for language in languages if language in header]


def _missing_languages(path: str, header: Sequence[str], languages: Sequence[str]) -> ValueError:
    """Explains a missing column, by an alias in the header where there is one."""
    found = "\t".join(header)
    shown = ascii(found if len(found) <= 60 else found[:57] + "...")
    renames = [
        f"rename {name!r} to {language!r}"
        for name in header
        for language in languages
        if name != language and languages_lib.to_iso639_1(name) == language
    ]
    way_out = ", ".join(renames) or "name the columns by the codes of the config"
    return ValueError(
        f"{path}:1: the header must name at least two of {', '.join(languages)}; found {shown}; "
        f"{way_out}."
    )


def _read_file(path: str, header: Sequence[str], languages: Sequence[str]) -> Iterator[Row]:
    columns = _columns(header, languages)
    width = len(header)
    line_number = 0
    has_text = False
    for block in read_line_blocks(path):
        for line in block:
            line_number += 1
            if line_number == 1:
                continue
            if type(line) is not str:
                yield Row({}, path, line_number, line.problem)
                continue
            cells = line.split("\t")
            texts = {}
            if len(cells) == width:
                for index, language in columns:
                    cell = cells[index]
                    if cell and not cell.isspace():
                        texts[language] = cell
                        has_text = True
            elif line and not line.isspace():
                raise ValueError(
                    f"{path}:{line_number}: a row must have {width} cells, one for each column of "
                    f"the header ({', '.join(header)}); found {len(cells)}. Remove tabs inside "
                    "texts, or leave a cell empty where there is no translation."
                )
            yield Row(texts, path, line_number)
    if not has_text:
        raise ValueError(
            f"{path}: no line below the header holds text in {' or '.join(languages)}; "
            "remove the file from the corpus or fill it."
        )
