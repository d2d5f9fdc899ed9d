"""Moses files: a plain text file a language, line i of each a translation of line i of the rest."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence

from xling_jax.corpora.readers.rows import Row
from xling_jax.files.lines import COMPRESSED_SUFFIXES, read_line_blocks
from xling_jax.text import languages as languages_lib

_END = None  # Fills up the shorter files; a line is a string or a `BrokenLine`.


def find_moses_files(where: str, languages: Sequence[str]) -> dict[str, str]:
    """Finds the files `PREFIX.LANGUAGE`, plain or else compressed.

    Args:
        where: a path prefix, or `PREFIX@de-en` to take these two languages only; their files may
            then also be called `PREFIX.de-en.de` (or `PREFIX.en-de.de`) and so on.
        languages: the languages wanted.

    Returns:
        Language to path, at least two.

    Raises:
        ValueError: if the prefix has files for fewer than two of the languages.
    """
    prefix, at, pair = where.rpartition("@")
    prefixes = [where]
    if at and os.sep not in pair:
        source, target = languages_lib.parse_pair(pair)
        for code in (source, target):
            languages_lib.check_known(code, languages, f"moses:{where}")
        languages = (source, target)
        prefixes = [prefix, f"{prefix}.{source}-{target}", f"{prefix}.{target}-{source}"]
    found: dict[str, str] = {}
    for candidate in prefixes:
        files = {language: _find_file(f"{candidate}.{language}") for language in languages}
        found = {language: path for language, path in files.items() if path}
        if len(found) > 1:
            return found
    raise FileNotFoundError(
        f"moses:{where}: there must be files for at least two of {', '.join(languages)}; found "
        f"{', '.join(found.values()) or 'none'}. Expected {prefixes[0]}.{languages[0]} and "
        f"{prefixes[0]}.{languages[1]}, plain or {' '.join(COMPRESSED_SUFFIXES)}."
    )


def read_moses(paths: Mapping[str, str]) -> Iterator[Row]:
    """Reads files in lockstep.

    Args:
        paths: language to path.

    Yields:
        A row a line. Where the line of one language is broken the whole row is, with that file.

    Raises:
        ValueError: at the end, if the numbers of lines differ or a file holds no text.
    """
    languages = tuple(paths)
    first_path = paths[languages[0]]
    streams = [itertools.chain.from_iterable(read_line_blocks(path)) for path in paths.values()]
    without_text = set(languages)
    line_number = 0
    for lines in itertools.zip_longest(*streams, fillvalue=_END):
        line_number += 1
        texts = {}
        broken = None
        for language, line in zip(languages, lines):
            if type(line) is str:
                if line and not line.isspace():
                    texts[language] = line
            elif line is _END:
                raise _unequal_counts(paths, lines, line_number, streams)
            else:
                broken = broken or (language, line.problem)
        if broken:
            yield Row({}, paths[broken[0]], line_number, broken[1])
            continue
        if without_text:
            without_text.difference_update(texts)
        yield Row(texts, first_path, line_number)
    for language in languages:
        if language in without_text:
            state = "no line holds text" if line_number else "the file is empty"
            raise ValueError(f"{paths[language]}: {state}; remove it from the corpus or fill it.")


def _find_file(name: str) -> str | None:
    return next(
        (name + suffix for suffix in ("", *COMPRESSED_SUFFIXES) if os.path.isfile(name + suffix)),
        None,
    )


def _unequal_counts(
    paths: Mapping[str, str], lines: Sequence, line_number: int, streams: Sequence[Iterator]
) -> ValueError:
    """Counts what is left of the longer files, for an error with the length of each."""
    counts = [
        f"{path} has {line_number - 1 if line is _END else line_number + sum(1 for _ in stream):,}"
        for path, line, stream in zip(paths.values(), lines, streams)
    ]
    return ValueError(
        f"files of a Moses corpus must have the same number of lines; {', '.join(counts)}. "
        "Fetch them again, or align them."
    )
