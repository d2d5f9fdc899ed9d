"""Held-out text: what training rows may not repeat, so that evaluation data stays unseen.

Texts are compared by their letters and digits alone, case-folded: a copy is found whatever its
punctuation, spacing and case.
"""

import contextlib
import dataclasses
import functools
import glob
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from xling_jax.corpora.options import Preparation
from xling_jax.corpora.readers import READERS
from xling_jax.corpora.readers.tables import HEADER_CELL, TableReader
from xling_jax.corpora.specs import (
    local_name,
    names_below,
    names_kind,
    open_corpus,
    split_options,
    suffix_of,
)
from xling_jax.files.hashes import content_hash, fingerprint
from xling_jax.files.lines import BrokenLine, read_line_blocks
from xling_jax.files.untrusted import parse_json
from xling_jax.text.languages import is_iso639, to_iso639_1
from xling_jax.text.splitting import split_sentences

# Fields of evaluation files that hold no text.
_NOT_TEXT = frozenset({"id", "ids", "sentence_id", "label", "lang", "language", "domain", "url"})
_LABELED = re.compile(r"(train|dev|test)\.[A-Za-z0-9_-]+\.tsv\b")  # label<TAB>text


@dataclasses.dataclass(frozen=True)
class HeldOutText:
    """Text that training may not repeat: of a file or corpus, whether `data.exclude` names it.

    `key` is the fingerprint of its content; `read` gives the hashes of its texts.
    """

    name: str
    key: str
    excluded: bool
    read: Callable[[], set[int]]


def find_held_out(preparation: Preparation, hash_file: Callable[[str], str]) -> list[HeldOutText]:
    """Text that no training row may repeat; `hash_file` gives the fingerprint of a file."""
    found, languages = [], preparation.languages  # an evaluation may have more than the pairs
    # Pictures and archives may lie beside the text of an evaluation.
    for name, paths, strict in (
        ("data.exclude", preparation.exclude, True),
        ("evaluation", preparation.evaluation, False),
    ):
        corpora = [path for path in paths if names_kind(path) or split_options(path)[1]]
        for path in held_out_files(map(local_name, (p for p in paths if p not in corpora)), name):
            read = functools.partial(file_hashes, path, languages, strict=strict)
            found.append(HeldOutText(path, hash_file(path), strict, read))
        found += [_held_out_corpus(spec, languages, hash_file, strict) for spec in corpora]
    return found


def _held_out_corpus(
    spec: str,
    languages: Sequence[str],
    hash_file: Callable[[str], str],
    excluded: bool,
) -> HeldOutText:
    reader = open_corpus(spec).at(local_name)
    paths = reader.files(languages)
    hashes = map(hash_file, map(os.path.abspath, paths))
    key = fingerprint(list(zip(names_below(paths), hashes)) or [spec])
    texts = lambda: (text for row in reader.rows(languages) for text in row.texts.values())
    read = lambda: {*map(content_hash, texts())} - {0}
    return HeldOutText(spec, key, excluded, read)


def held_out_files(paths: Iterable[str], option: str = "data.exclude") -> list[str]:
    """The files of an option, sorted: paths, globs, or directories with all files below them."""
    files: set[str] = set()
    for spec in paths:
        found = [
            os.path.join(directory, name)
            for top in ([spec] if os.path.exists(spec) else glob.glob(spec, recursive=True))
            for directory, _, names in _walk(top)
            for name in names
        ]
        if not found:
            raise FileNotFoundError(
                f"{option}: {spec}: no such file; its text could not be held out of training"
            )
        files.update(found)
    return sorted(files)


def _walk(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `os.walk`, through links too, but into each directory once; a file stands alone."""
    if not os.path.isdir(top):
        yield "", [], [top]
        return
    seen = set()
    for directory, inner, names in os.walk(top, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen:  # a link may lead back up
            inner.clear()
            continue
        seen.add(real)
        inner.sort()  # of two ways to a directory, the same is taken on all machines
        yield directory, inner, names


def file_hashes(file: str, languages: Sequence[str] = (), *, strict: bool = True) -> set[int]:
    """Reads a file into the hashes of its texts, without that of an empty text.

    It is TSV (with or without a header of languages; of a labeled file such as `test.de.tsv`, the
    first of two columns is the label), another corpus that a reader knows by its suffix, JSON lines
    (documents, whose sentences count too, or a field per language), or plain text. A column or
    field named as one of the `languages` is text, also `id`, Indonesian. Unless `strict`, what
    cannot be read is skipped: beside the text of an evaluation lie pictures and archives.
    """
    file, not_text, found = str(file), _NOT_TEXT.difference(languages), set()
    kind = suffix_of(file)
    if kind in READERS and kind != "jsonl":
        # TSV need not be a table; if it is, cells in quotation marks may hold what separates cells.
        with contextlib.suppress(*() if strict and kind != "tsv" else (ValueError,)):
            reader = open_corpus(f"{kind}:{glob.escape(file)}")
            if isinstance(reader, TableReader):
                separators = re.compile(r"[\t\n]" if kind == "tsv" else "")
                texts = filter(separators.search, reader.texts(not_text))
            else:
                texts = (text for row in reader.read(languages) for text in row.texts.values())
            found.update(map(content_hash, texts))
    if kind not in READERS or kind in ("tsv", "jsonl"):
        with contextlib.suppress(*() if strict else (ValueError,)):
            found.update(map(content_hash, _texts(file, not_text, strict)))
    return found - {0}


def _texts(path: str, not_text: Collection[str], strict: bool) -> Iterator[str]:
    """The texts of a file; columns and fields named in `not_text` hold none."""
    is_json = ".json" in "".join(Path(path).suffixes[-2:])
    is_tsv, skipped = suffix_of(path) == "tsv", set[int]()
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
            with contextlib.suppress(*() if strict else (ValueError,)):
                value = line.strip() and parse_json(line, f"{path}:{number}", allow_surrogates=True)
                yield from _strings(value, not_text)
            continue
        cells = line.split("\t")
        if number == 1 and len(cells) > 1 and _is_header(cells, not_text):
            skipped = {i for i, cell in enumerate(cells) if cell.lower() in not_text}
            continue
        if number == 1 and len(cells) == 2 and _LABELED.match(Path(path).name):
            skipped = {0}
        yield from (cell for i, cell in enumerate(cells) if i not in skipped)
        if not is_tsv:  # tabs may be white space
            yield line


def _is_header(cells: Sequence[str], not_text: Collection[str]) -> bool:
    """True if cells name columns: words of which one is a language, or of no text."""
    names = (cell.lower() in not_text or is_iso639(to_iso639_1(cell)) for cell in cells)
    return all(map(HEADER_CELL.fullmatch, cells)) and any(names)


def _strings(value: object, not_text: Collection[str]) -> Iterator[str]:
    """All strings in a JSON value; the lines and sentences of longer texts as well."""
    if isinstance(value, str):
        yield value
        if "\n" in value:
            yield from value.splitlines()
        yield from split_sentences(value)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, not_text)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key.lower() not in not_text:
                yield from _strings(item, not_text)
