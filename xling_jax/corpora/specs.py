"""Corpora by name: a config writes `KIND:WHERE`, and the reader of that kind finds and reads it.

    tsv:GLOB         n-way TSV with a header of language codes (readers/tsv.py)
    moses:PREFIX     PREFIX.de, PREFIX.en, ... (readers/moses.py); PREFIX@de-en takes one pair
    tmx:GLOB         translation memories (readers/tmx.py)
    gettext:PATH     catalogs of software messages (readers/gettext.py)
    tfds:NAME        a TensorFlow dataset, NAME[/config][:version][:split] (readers/tfds.py)

A file named .tsv or .tmx needs no kind. Files may be compressed (.gz .xz .zst .bz2). With `[:N]`
at its end, a corpus of files is the first N rows of each; slices of datasets are those of TFDS.
Reading streams; nothing is cleaned here.
"""

import collections
import os
import re
from collections.abc import Callable, Iterator, Sequence

from xling_jax.corpora.readers import READERS
from xling_jax.corpora.readers.base import Reader, Row
from xling_jax.files.lines import COMPRESSED_SUFFIXES
from xling_jax.registry import check_choice
from xling_jax.text.languages import check_languages

_LIMIT = re.compile(r"\[:([0-9_]+)\]$")


def open_corpus(spec: str) -> Reader:
    """The reader of `KIND:WHERE`, or of the path of a file whose suffix is a kind.

    Raises:
        ValueError: if it is neither.
    """
    spec, _ = split_limit(spec)
    kind, where = kind_of(spec)
    return READERS[kind](spec, os.path.expanduser(where))


def kind_of(spec: str) -> tuple[str, str]:
    """KIND and WHERE of a corpus; errors as `open_corpus`."""
    spec, _ = split_limit(spec)
    kind, _, where = spec.partition(":")
    if (
        kind not in READERS
        and where
        and not where.startswith("//")
        and kind.isidentifier()
        and not os.path.exists(spec)
    ):
        check_choice(f"corpus {spec!r}: its kind", kind, READERS)
    if kind not in READERS or not where:
        name = spec
        for suffix in COMPRESSED_SUFFIXES:
            name = name.removesuffix(suffix)
        kind, where = os.path.splitext(name)[1][1:], spec
    if kind not in READERS:
        raise ValueError(
            f"corpus {spec!r} must be KIND:WHERE, such as tsv:data/*.tsv.gz or "
            f"moses:data/europarl.de-en, where KIND is one of {', '.join(READERS)}; or the path "
            "of a .tsv or .tmx file"
        )
    return kind, where


def names_kind(spec: str) -> bool:
    """Whether a corpus is written as `KIND:WHERE`, and not as the path of a file."""
    kind, _, where = spec.partition(":")
    return kind in READERS and bool(where)


def read_corpus(spec: str, languages: Sequence[str]) -> Iterator[Row]:
    """Reads a corpus, or the part it is cut to, in at least two languages; see `Reader.read`."""
    languages = check_languages(languages)
    if len(languages) < 2:
        raise ValueError(f"{spec}: parallel text needs two languages; found {list(languages)}")
    rows = open_corpus(spec).read(languages)
    limit = split_limit(spec)[1]
    return rows if limit is None else _first_rows(rows, limit)


def check_downloaded(corpora: Sequence[str]) -> None:
    """Raises if the user has to download something first, with the command that does.

    Raises:
        FileNotFoundError: naming all files of all corpora, where they are and where they belong.
    """
    commands: dict[str, list[str]] = {}
    for spec in corpora:
        for url, path in open_corpus(spec).to_download().items():
            urls = commands.setdefault(str(path.parent), [])
            urls += [url] if url not in urls else []
    if commands:
        words = "; ".join(f"wget -P {where} {' '.join(urls)}" for where, urls in commands.items())
        raise FileNotFoundError(
            f"data.corpora: files are missing; download them with {words} (TFDS_DATA_DIR is "
            "another place), or name your own text with --config.data.corpora"
        )


def hashed_files(
    spec: str, languages: Sequence[str], hash_file: Callable[[str], str]
) -> list[tuple[str, str]]:
    """Names, below a common directory, and hashes of the files of a corpus.

    There are none for a dataset, which its name and version define. Raises as `Reader.files`.
    """
    paths = open_corpus(spec).files(languages)
    return list(zip(names_below(paths), map(hash_file, map(os.path.abspath, paths))))


def names_below(paths: Sequence[str]) -> list[str]:
    """Names of files or URLs below the directory that they have in common."""
    if not paths:
        return []
    paths = [os.path.abspath(path) for path in paths]
    top = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [os.path.relpath(path, top) for path in paths]


def moved_corpus(spec: str, move: Callable[[str], str]) -> str:
    """Returns a corpus with its path or pattern replaced by `move(path)`; datasets have none."""
    reader = open_corpus(spec)
    kind = spec.partition(":")[0]
    suffix = spec.removeprefix(split_limit(spec)[0])
    where = reader.moved(move) + suffix
    return f"{kind}:{where}" if kind in READERS else where


def split_limit(spec: str) -> tuple[str, int | None]:
    """Returns the corpus without `[:N]`, and N or None. Raises ValueError if it is 0."""
    match = _LIMIT.search(spec)
    if not match or spec.startswith("tfds:"):
        return spec, None
    if not (limit := int(match[1])):
        raise ValueError(f"corpus {spec!r}: [:0] would leave no rows; name at least one")
    return spec[: match.start()], limit


def _first_rows(rows: Iterator[Row], limit: int) -> Iterator[Row]:
    read: collections.Counter[str] = collections.Counter()
    for row in rows:
        read[row.file] += 1
        if read[row.file] <= limit:
            yield row
