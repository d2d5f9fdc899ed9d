"""Held-out text: what training rows may not repeat, so that evaluation data stays unseen.

Texts are compared by their letters and digits alone, case-folded: a copy is found whatever its
punctuation, spacing and case.
"""

import dataclasses
import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from xling_jax.files.json_text import parse_json
from xling_jax.files.lines import BrokenLine, read_line_blocks

# Fields of evaluation files that hold no text.
_NOT_TEXT = frozenset({"id", "ids", "sentence_id", "label", "lang", "language", "domain", "url"})
_HEADER_CELL = re.compile(r"[A-Za-z]{2,12}([_-][A-Za-z0-9]{2,8})*")


@dataclasses.dataclass(frozen=True)
class HeldOutText:
    """Text that training may not repeat.

    Attributes:
        name: the path of a file, or a corpus as the config names it.
        key: fingerprint of its content.
        excluded: whether `data.exclude` names it.
        read: gives the hashes of its texts.
    """

    name: str
    key: str
    excluded: bool
    read: Callable[[], set[int]]


def content_hash(text: str) -> int:
    """64-bit hash of the case-folded letters and digits of a text; 0 if it has none."""
    content = "".join(filter(str.isalnum, text.casefold()))
    if not content:
        return 0
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "little")


def held_out_files(specs: Iterable[str], setting: str = "data.exclude") -> list[str]:
    """The files of a setting, sorted: paths, globs, or directories with all files below them.

    Args:
        specs: values of the setting.
        setting: its name, for errors.

    Raises:
        ValueError: if one matches nothing: its text would silently not be held out.
    """
    files: set[str] = set()
    for spec in specs:
        found = [
            os.path.join(directory, name)
            for top in ([spec] if os.path.exists(spec) else glob.glob(spec, recursive=True))
            for directory, _, names in (os.walk(top) if os.path.isdir(top) else [("", [], [top])])
            for name in names
        ]
        if not found:
            raise ValueError(
                f"{setting}: {spec}: no such file; its text could not be held out of training"
            )
        files.update(found)
    return sorted(files)


def file_hashes(file: str, *, strict: bool = True) -> set[int]:
    """Reads a file into the hashes of its texts, without that of an empty text.

    Args:
        file: TSV (with or without a header of languages), JSON lines (documents with `text` or
            `sentences`, or a field per language), or plain text with one sentence per line; may be
            compressed.
        strict: whether a line that cannot be read is an error. Otherwise it is skipped: beside
            the text of an evaluation lie pictures and archives.

    Raises:
        ValueError: if a line is not UTF-8, or should be JSON and is not; names the line.
    """
    return _hashes(_texts(file, strict))


def row_hashes(rows: Iterable[Mapping[str, str]]) -> set[int]:
    """The hashes of all texts of rows, language -> text."""
    return _hashes(text for row in rows for text in row.values())


def _hashes(texts: Iterable[str]) -> set[int]:
    return {content_hash(text) for text in texts} - {0}


def _texts(path: str, strict: bool) -> Iterator[str]:
    is_json = ".json" in "".join(Path(path).suffixes[-2:])
    skipped: set[int] = set()
    lines = (line for block in read_line_blocks(path) for line in block)
    for number, line in enumerate(lines, start=1):
        if isinstance(line, BrokenLine):
            if not strict:
                continue
            raise ValueError(
                f"{path}:{number}: held-out text must be readable; found {line.problem}; fix the "
                "line"
            )
        if is_json:
            try:
                value = parse_json(line, f"{path}:{number}") if line.strip() else None
            except ValueError:
                if strict:
                    raise
                continue
            yield from _strings(value)
            continue
        cells = line.split("\t")
        if number == 1 and len(cells) > 1 and all(map(_HEADER_CELL.fullmatch, cells)):
            skipped = {i for i, cell in enumerate(cells) if cell.lower() in _NOT_TEXT}
            continue
        yield from (cell for i, cell in enumerate(cells) if i not in skipped)


def _strings(value: object) -> Iterator[str]:
    """All strings in a JSON value; the lines of a text with several lines as well."""
    if isinstance(value, str):
        yield value
        if "\n" in value:
            yield from value.splitlines()
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key.lower() not in _NOT_TEXT:
                yield from _strings(item)
