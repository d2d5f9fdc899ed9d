"""Which lines of a corpus one worker reads.

Plain TSV and Moses files are split into parts of about `PART_BYTES`, wherever lines begin; an
index of each file, made in the pass that computes its hash, says where that is. Any other corpus is
read from its beginning: file by file if each is a corpus by itself, else as one part.
"""

import bisect
import contextlib
import dataclasses
import glob
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from xling_jax.corpora import specs
from xling_jax.corpora.beam import store
from xling_jax.corpora.readers import moses, tsv
from xling_jax.corpora.readers.base import Lines, Reader, Row
from xling_jax.files.lines import COMPRESSED_SUFFIXES
from xling_jax.files.urls import is_url

PART_BYTES = 1 << 25

_BLOCK_BYTES = 1 << 20
# Enough for the first line of a compressed file.
_HEAD_BYTES = 1 << 22
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class FileIndex:
    """What is known of a file after one pass over its bytes.

    Attributes:
        path: a path or URL.
        state: its size, and when it was changed last.
        sha256: of its content, in hex digits.
        header: of a TSV file.
        num_lines: of a plain text file.
        marks: byte and number of lines in it, about `PART_BYTES` apart, the first among them; none
            for other files.
    """

    path: str
    state: tuple[int, int]
    sha256: str
    header: tuple[str, ...] = ()
    num_lines: int = 0
    marks: tuple[tuple[int, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class Section:
    """Lines of a plain text file: `num_lines` of them, `skip` lines after the byte `start`."""

    path: str
    start: int
    skip: int
    num_lines: int


@dataclasses.dataclass(frozen=True)
class Part:
    """What one worker reads of a corpus.

    Attributes:
        spec: the corpus, with absolute paths.
        number: of the part, from 0.
        paths: files that are read from the beginning; none for a dataset.
        sections: lines of plain files, of one TSV file or of a Moses file for each language.
        first_line: number of the first line of the sections.
        header: of the TSV file.
        languages: of the Moses files.
    """

    spec: str
    number: int
    paths: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    first_line: int = 1
    header: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()


def list_files(spec: str, languages: Sequence[str]) -> list[str]:
    """Lists the files of a corpus as its reader does, also at URLs. Raises as `Reader.files`."""
    if "://" not in spec:
        return [os.path.abspath(path) for path in specs.open_corpus(spec).files(languages)]
    reader = specs.open_corpus(spec)
    with tempfile.TemporaryDirectory() as directory, _shown({directory: _root(reader)}):
        found = {}

        def move(pattern: str) -> str:
            # Where names are all that is looked at, empty files will do.
            for url in store.match(pattern):
                found[_below(directory, url)] = url
                if reader.finds_by_name:
                    Path(_below(directory, url)).parent.mkdir(parents=True, exist_ok=True)
                    Path(_below(directory, url)).touch()
                else:
                    store.fetch(url, Path(_below(directory, url)))
            return _below(directory, pattern)

        local = specs.moved_corpus(spec, move)
        return [found[path] for path in specs.open_corpus(local).files(languages)]


def index_file(spec: str, path: str, languages: Sequence[str]) -> FileIndex:
    """Reads a file once, for its hash and, if it is plain text, for where its lines are.

    Raises:
        ValueError: if its first line must be a header and cannot.
        OSError: if it cannot be read.
    """
    reader = specs.open_corpus(spec)
    is_tsv = isinstance(reader, tsv.TsvReader)
    digest, head, marks, num_lines = hashlib.sha256(), b"", [(0, 1)], 0
    start, last = 0, b"\n"
    state = store.state(path)
    with store.open_at(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            if len(head) < _HEAD_BYTES:
                head += block
            if start + len(block) >= marks[-1][0] + PART_BYTES and (end := block.find(b"\n")) >= 0:
                marks.append((start + end + 1, num_lines + 2))
            num_lines += block.count(b"\n")
            start, last = start + len(block), block[-1:]
    num_lines += last != b"\n"
    header: list[str] = []
    if is_tsv:
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory, os.path.basename(path))
            with store.naming_full_disk():
                copy.write_bytes(head)
            with _shown({str(copy): path}):
                header = tsv.read_header(str(copy), languages)
    splits = (is_tsv or isinstance(reader, moses.MosesReader)) and not path.endswith(
        COMPRESSED_SUFFIXES
    )
    marks = [mark for mark in marks if mark[1] <= num_lines] if splits else []
    return FileIndex(path, state, digest.hexdigest(), tuple(header), num_lines, tuple(marks))


def split(spec: str, indexes: Sequence[FileIndex], languages: Sequence[str]) -> list[Part]:
    """Splits a corpus into parts, in its order.

    Args:
        spec: the corpus.
        indexes: of its files, sorted by path.
        languages: the languages wanted.

    Raises:
        ValueError: if what the files are as a whole breaks a rule of their kind.
    """
    reader = specs.open_corpus(spec)
    known = {index.path: index for index in indexes}
    whole = spec == _without_limit(spec)  # with [:N], lines have to be counted from the first
    if isinstance(reader, tsv.TsvReader):
        headers = {path: index.header for path, index in known.items()}
        parts = []
        for path in tsv.usable_files(headers, languages):
            index = known[path]
            if not (whole and index.marks):
                parts.append(Part(spec, 0, (path,)))
            for (start, line), (_, end) in _spans(index) if whole else ():
                section = Section(path, start, 0, end - line)
                parts.append(Part(spec, 0, (), (section,), line, index.header))
    elif isinstance(reader, moses.MosesReader) and whole and all(i.marks for i in indexes):
        parts = _split_moses(spec, reader, known, languages)
    elif reader.reads_file_by_file:
        parts = [Part(spec, 0, (path,)) for path in known]
    else:
        parts = [Part(spec, 0, tuple(known))]
    return [dataclasses.replace(part, number=number) for number, part in enumerate(parts)]


def read_part(part: Part, languages: Sequence[str]) -> Iterator[Row]:
    """Reads a part; raises as `Reader.read`."""
    with tempfile.TemporaryDirectory() as directory:
        if part.sections:
            copies = {}
            for number, section in enumerate(part.sections):
                copy = f"{directory}/{number}"
                _copy_lines(section, copy, has_header=bool(part.header) and part.first_line == 1)
                copies[copy] = section.path
            first = max(2, part.first_line) if part.header else part.first_line
            if part.header:
                yield from tsv.read_tsv_lines(Lines(copies, first), part.header, languages)
            else:
                yield from moses.read_moses_lines(Lines(copies, first), part.languages)
            return
        shown = {}
        for url in filter(is_url, part.paths):
            store.fetch(url, Path(_below(directory, url)))
            shown[_below(directory, url)] = url
        with _shown(shown):
            for row in specs.read_corpus(_spec_of(part, directory), languages):
                yield row._replace(file=shown.get(row.file, row.file))


def check_text(
    parts: Sequence[Part], files: Mapping[str, Mapping], languages: Sequence[str]
) -> None:
    """Raises ValueError for a file that was read in parts and holds no text.

    Args:
        parts: of a corpus.
        files: counts of its files, see `RowCounter.files`.
        languages: the languages wanted.
    """
    for part in parts:
        names = [section.path for section in part.sections]
        found = files.get(names[0], {}).get("languages", {}) if names else {}
        if part.header and not found:
            raise tsv.no_text(names[0], languages)
        for language, name in zip(part.languages, names):
            if language not in found:
                raise moses.no_text(name, 1)


def _split_moses(
    spec: str, reader: moses.MosesReader, known: Mapping[str, FileIndex], languages: Sequence[str]
) -> list[Part]:
    by_language = _moses_files(reader, known, languages)
    counts = {path: known[path].num_lines for path in by_language.values()}
    if len({*counts.values()}) > 1:
        raise moses.unequal_counts(counts)
    longest = max(known.values(), key=lambda index: len(index.marks))
    parts = []
    for (_, line), (_, end) in _spans(longest):
        sections = []
        for path in by_language.values():
            marks = known[path].marks
            start, begin = marks[bisect.bisect([mark[1] for mark in marks], line) - 1]
            sections.append(Section(path, start, line - begin, end - line))
        parts.append(Part(spec, 0, (), tuple(sections), line, (), tuple(by_language)))
    return parts


def _moses_files(
    reader: moses.MosesReader, known: Mapping[str, FileIndex], languages: Sequence[str]
) -> dict[str, str]:
    """Language -> path, in the order in which the reader has them."""
    if not any(map(is_url, known)):
        found = reader.find(languages)
        return {code: os.path.abspath(path) for code, path in found.items()}
    with tempfile.TemporaryDirectory() as directory:
        names = {}
        for url in known:
            names[_below(directory, url)] = url
            Path(_below(directory, url)).parent.mkdir(parents=True, exist_ok=True)
            Path(_below(directory, url)).touch()
        local = specs.moved_corpus(reader.spec, lambda pattern: _below(directory, pattern))
        found = specs.open_corpus(local).find(languages)
        return {code: names[path] for code, path in found.items()}


def _spans(index: FileIndex) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Each mark of a file with the next, and the last with the end."""
    return zip(index.marks, (*index.marks[1:], (0, index.num_lines + 1)))


def _copy_lines(section: Section, copy: str, has_header: bool) -> None:
    """Copies lines to this machine, below an empty line unless they begin with the header."""
    skip, left = section.skip, section.num_lines
    with (
        store.open_at(section.path, section.start) as source,
        store.naming_full_disk(),
        open(copy, "wb") as target,
    ):
        if not has_header:
            target.write(b"\n")
        at_start = section.start == 0 and not has_header
        while left and (block := source.read(_BLOCK_BYTES)):
            if at_start:
                block, at_start = block.removeprefix(_BYTE_ORDER_MARK), False
            if skip:
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
                begin = int(ends[skip - 1]) + 1 if skip <= len(ends) else len(block)
                skip, block = max(0, skip - len(ends)), block[begin:]
            count = block.count(b"\n")
            if count >= left:
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
                block, count = block[: int(ends[left - 1]) + 1], left
            target.write(block)
            left -= count


def _spec_of(part: Part, directory: str) -> str:
    """The corpus of a part that is read from the beginning, on this machine."""
    reader = specs.open_corpus(part.spec)
    here: Callable[[str], str] = lambda path: _below(directory, path) if is_url(path) else path
    if reader.reads_file_by_file:
        return specs.moved_corpus(part.spec, lambda _: glob.escape(here(part.paths[0])))
    return specs.moved_corpus(part.spec, here)


def _without_limit(spec: str) -> str:
    return specs.split_limit(spec)[0]


def _below(directory: str, url: str) -> str:
    return f"{directory}/{url.partition('://')[2]}"


def _root(reader: Reader) -> str:
    return f"{reader.where.partition('://')[0]}:/"


@contextlib.contextmanager
def _shown(names: Mapping[str, str]) -> Iterator[None]:
    """Puts the names of files in place of those of their copies into errors."""
    try:
        yield
    except (ValueError, OSError) as error:
        text = str(error)
        for copy, name in names.items():
            text = text.replace(copy, name)
        if text == str(error):
            raise
        raise (ValueError if isinstance(error, ValueError) else type(error))(text) from error
