"""Corpora by name: a config writes `KIND:WHERE`, and the reader of that kind finds and reads it.

    tsv:GLOB         n-way TSV with a header of language codes; csv:GLOB (readers/delimited.py)
    jsonl:GLOB       JSON lines (readers/jsonl.py)
    parquet:GLOB     Parquet; hf:NAME, a data set of Hugging Face (readers/arrow.py)
    moses:PREFIX     PREFIX.de, PREFIX.en, ... (readers/moses.py); PREFIX@de-en takes one pair;
                     moses:GLOB.zip, archives of OPUS
    tmx:GLOB         translation memories; xlf:GLOB, XLIFF (readers/xml_units.py)
    gettext:PATH     catalogs of software messages (readers/gettext.py)
    tfds:NAME        a TensorFlow dataset, NAME[/config][:version][:split] (readers/tfds.py)
    MODULE:CLASS:X   what a reader of your own reads, a subclass of `readers.base.Reader`

A file whose suffix is a kind needs none. `?OPTION=VALUE&…` after the path are options of the kind.
Files may be compressed (.gz .xz .zst .bz2). With `[:N]` at its end, a corpus of files is the first
N rows of each; slices of datasets are those of TFDS. Reading streams; nothing is cleaned here.
"""

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xling_jax.corpora.readers import READERS
from xling_jax.corpora.readers.base import Reader, Row, split_options
from xling_jax.corpora.readers.delimited import DelimitedReader
from xling_jax.corpora.readers.tables import Table, TableReader
from xling_jax.files import urls
from xling_jax.files.cache import cache_for
from xling_jax.files.lines import COMPRESSED_SUFFIXES
from xling_jax.options import wrong_use
from xling_jax.registry import check_choice

_LIMIT = re.compile(r"\[:([0-9_]+)\]$")
_OUTSIDE = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*):(.+)")


def open_corpus(spec: str) -> Reader:
    """The reader of `KIND:WHERE`, or of the path of a file whose suffix is a kind."""
    match, limit = _LIMIT.search(spec), None
    if match and not spec.startswith("tfds:"):
        if not (limit := int(match[1])):
            raise ValueError(f"corpus {spec!r}: [:0] would leave no rows; name at least one")
        spec = spec[: match.start()]
    kind, where = _kind_of(spec)
    found = READERS[kind] if kind in READERS else _import_reader(kind)
    reader = found(spec, os.path.expanduser(where))
    reader.kind, reader.limit = kind, limit
    return reader


def read_corpus(spec: str, languages: Sequence[str]) -> Iterator[Row]:
    """Reads a corpus, or the part it is cut to; see `Reader.rows`."""
    return open_corpus(spec).rows(languages)


def table_reader(path: str) -> TableReader:
    """The reader of a file whose suffix is a kind of table, otherwise of TSV."""
    reader = open_corpus(path if suffix_of(path) in READERS else f"tsv:{path}")
    if not isinstance(reader, TableReader):
        raise ValueError(f"{path}: must be a table: .tsv, .csv, .jsonl or .parquet")
    return reader


def open_table(path: str, names: Sequence[str] = ()) -> Table:
    """Opens a table, see `table_reader`; `names` are those of columns without a header."""
    reader = table_reader(path)
    if isinstance(reader, DelimitedReader):
        return reader.open(reader.path, names)
    return reader.open(reader.path)


def local_names(value: Any) -> Any:
    """A value with `local_name` of all strings in it."""
    if isinstance(value, Mapping):
        return {key: local_names(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(local_names, value))
    return local_name(value) if isinstance(value, str) else value


def local_name(name: str) -> str:
    """Copies what is at a URL to this machine, and returns the name of the copy.

    The name is the URL of a file, a directory or files by a pattern, or a corpus `KIND:URL`. Of any
    other only `~/` is expanded.
    """
    if urls.is_url(name):
        with wrong_use(errors=(ValueError, FileNotFoundError)):
            urls.check(name)  # so that an error names it
            is_run = urls.exists(f"{name.rstrip('/')}/metrics.jsonl")
            without = ("checkpoints", "data", "vocab") if is_run else ()  # only training needs them
            return str(urls.fetch(name, cache_for("inputs"), without))
    if "://" in name and name.partition(":")[0] in READERS:
        return open_corpus(name).at(local_name).name
    return os.path.expanduser(name) if name.startswith("~/") else name


def names_kind(spec: str) -> bool:
    """Returns whether a corpus is written as `KIND:WHERE`, and not as the path of a file."""
    kind, _, where = spec.partition(":")
    return bool(where) and (kind in READERS or bool(_OUTSIDE.fullmatch(spec)))


def names_below(paths: Sequence[str]) -> list[str]:
    """Names of files or URLs below the directory that they have in common."""
    if not paths:
        return []
    paths = [os.path.abspath(path) for path in paths]
    top = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [os.path.relpath(path, top) for path in paths]


def _kind_of(spec: str) -> tuple[str, str]:
    """KIND and WHERE of a corpus without `[:N]`."""
    kind, _, where = spec.partition(":")
    if kind not in READERS or not where:
        if not os.path.isfile(spec):
            if outside := _OUTSIDE.fullmatch(spec):
                return outside[1], outside[2]
            if where and not where.startswith("//") and kind.isidentifier():
                check_choice(f"corpus {spec!r}: its kind", kind, READERS)
        kind, where = suffix_of(spec), spec
    if kind not in READERS:
        raise ValueError(
            f"corpus {spec!r} must be KIND:WHERE, such as tsv:data/*.tsv.gz or "
            f"moses:data/europarl.de-en, where KIND is one of {', '.join(READERS)}; or the path "
            "of a file named after its kind, such as .tsv"
        )
    return "zip" if kind == "moses" and suffix_of(where) == "zip" else kind, where


def suffix_of(path: str) -> str:
    """The suffix of a path without its options and compression, in small letters: "tsv"."""
    name = split_options(path)[0]
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return os.path.splitext(name)[1][1:].lower()


def _import_reader(kind: str) -> type[Reader]:
    """The class of `module:Class`."""
    module, _, name = kind.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"corpus kind {kind}: {error}; a kind of your own is MODULE:CLASS of a module that "
            "Python can import (PYTHONPATH)"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Reader)):
        raise ValueError(f"corpus kind {kind}: must be a subclass of {Reader.__module__}.Reader")
    return found
