"""Held-out text: what training rows may not repeat, so that evaluation data stays unseen.

Texts are compared by their letters and digits alone, case-folded: a copy is found whatever its
punctuation, spacing and case.
"""

import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from xling_jax.files.json_text import parse_json
from xling_jax.files.lines import BrokenLine, read_line_blocks

# Fields of evaluation files that hold no text.
_NOT_TEXT = frozenset({"id", "ids", "sentence_id", "label", "lang", "language", "domain", "url"})
_HEADER_CELL = re.compile(r"[A-Za-z]{2,12}([_-][A-Za-z0-9]{2,8})*")


def content_hash(text: str) -> int:
    """64-bit hash of the case-folded letters and digits of a text; 0 if it has none."""
    content = "".join(filter(str.isalnum, text.casefold()))
    if not content:
        return 0
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "little")


def held_out_files(specs: Iterable[str]) -> list[str]:
    """The files of `data.exclude`, sorted: paths, globs, or directories with all files below them.

    Raises:
        ValueError: if one matches nothing: its text would silently not be held out.
    """
    files: set[str] = set()
    for spec in specs:
        found = [
            os.path.join(directory, name)
            for top in glob.glob(spec, recursive=True)
            for directory, _, names in (os.walk(top) if os.path.isdir(top) else [("", [], [top])])
            for name in names
        ]
        if not found:
            raise ValueError(
                f"data.exclude: {spec}: no such file; its text could not be held out of training"
            )
        files.update(found)
    return sorted(files)


def held_out_hashes(files: Iterable[str]) -> np.ndarray:
    """Reads evaluation files into the sorted hashes of their texts.

    Args:
        files: TSV (with or without a header of languages), JSON lines (documents with `text` or
            `sentences`, or a field per language), or plain text with one sentence per line; may be
            compressed.

    Returns:
        [n] uint64, sorted, unique, without the hash of an empty text.

    Raises:
        ValueError: if a line is not UTF-8, or should be JSON and is not; names the line.
    """
    hashes = {content_hash(text) for file in files for text in _texts(file)}
    hashes.discard(0)
    return np.sort(np.fromiter(hashes, np.uint64, len(hashes)))


def _texts(path: str) -> Iterator[str]:
    is_json = ".json" in "".join(Path(path).suffixes[-2:])
    skipped: set[int] = set()
    lines = (line for block in read_line_blocks(path) for line in block)
    for number, line in enumerate(lines, start=1):
        if isinstance(line, BrokenLine):
            raise ValueError(
                f"{path}:{number}: held-out text must be readable; found {line.problem}; fix the "
                "line"
            )
        if is_json:
            if line.strip():
                yield from _strings(parse_json(line, f"{path}:{number}"))
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
