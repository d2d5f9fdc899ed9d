"""Corpora by name: a config writes `KIND:WHERE`, this module finds the files and reads the rows.

    tsv:GLOB         n-way TSV with a header of language codes (readers/tsv.py)
    moses:PREFIX     PREFIX.de, PREFIX.en, ... (readers/moses.py); PREFIX@de-en takes one pair
    tmx:GLOB         translation memories (readers/tmx.py)
    gettext:PATH     catalogues of software messages (gettext_catalogs.py)
    tfds:NAME        a TensorFlow dataset, NAME[/config][:version][:split] (readers/tfds.py)

Files may be compressed (.gz .xz .zst .bz2). Reading streams; nothing is cleaned here.
"""

import glob
import os
from collections.abc import Callable, Iterator, Sequence

from xling_jax.corpora.readers.moses import find_moses_files, read_moses
from xling_jax.corpora.readers.rows import Row
from xling_jax.corpora.readers.tsv import read_tsv
from xling_jax.files.lines import COMPRESSED_SUFFIXES, MAX_LINE_BYTES, PROBLEMS
from xling_jax.text import languages as languages_lib

__all__ = [
    "KINDS",
    "MAX_LINE_BYTES",
    "PROBLEMS",
    "Row",
    "corpus_files",
    "hashed_files",
    "read_corpus",
]

KINDS = ("tsv", "moses", "tmx", "gettext", "tfds")


def read_corpus(spec: str, languages: Sequence[str]) -> Iterator[Row]:
    """Reads a corpus.

    What can be checked without reading the texts (the spec, missing files, headers) is checked by
    the call, before the first row is asked for.

    Args:
        spec: `KIND:WHERE`, or the path of a .tsv or .tmx file.
        languages: the languages wanted, at least two.

    Returns:
        Rows in the order of the corpus, with the languages of each that are wanted and there.

    Raises:
        ValueError: if the spec or the corpus breaks a rule of its kind, in the call or while
            reading; the message names the file and, where there is one, the line.
        OSError: if a file is missing or cannot be read.
    """
    languages = languages_lib.check_languages(languages)
    if len(languages) < 2:
        raise ValueError(f"{spec}: parallel text needs two languages; found {list(languages)}.")
    kind, where = _parse(spec)
    if kind == "tsv":
        return read_tsv(_expand(kind, where), languages)
    if kind == "moses":
        return read_moses(find_moses_files(where, languages))
    if kind == "tmx":
        from xling_jax.corpora.readers.tmx import read_tmx

        return read_tmx(_expand(kind, where), languages)
    if kind == "gettext":
        from xling_jax.corpora.readers.gettext import read_gettext

        return read_gettext(where, languages)
    from xling_jax.corpora.readers.tfds import read_tfds

    return read_tfds(where, languages)


def corpus_files(spec: str, languages: Sequence[str] | None = None) -> list[str]:
    """Lists the files whose content makes a corpus, for fingerprints.

    Args:
        spec: as `read_corpus`.
        languages: the languages wanted; only a Moses corpus depends on them. None: every file
            `PREFIX.CODE` there is.

    Returns:
        Sorted paths; none for a TFDS dataset, which its name and version define.

    Raises:
        ValueError, OSError: if the spec is malformed or a file is missing.
    """
    kind, where = _parse(spec)
    if kind in ("tsv", "tmx"):
        return _expand(kind, where)
    if kind == "moses":
        if languages is None:
            languages = _moses_languages(where)
        return sorted(find_moses_files(where, languages).values())
    if kind == "gettext":
        from xling_jax.corpora.readers.gettext import gettext_files

        return sorted(gettext_files(where))
    return []


def hashed_files(
    spec: str, languages: Sequence[str], hash_file: Callable[[str], str]
) -> list[tuple[str, str]]:
    """Lists what the files of a corpus are called, below the directory of all, and hold.

    Args:
        spec: as `read_corpus`.
        languages: the languages wanted.
        hash_file: gives a hash of the content of a path.

    Returns:
        (name, hash) of each; none for a TFDS dataset.

    Raises:
        ValueError, OSError: as `corpus_files`.
    """
    paths = [os.path.abspath(path) for path in corpus_files(spec, languages)]
    if not paths:
        return []
    top = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [(os.path.relpath(path, top), hash_file(path)) for path in paths]


def _parse(spec: str) -> tuple[str, str]:
    """Splits a spec into its kind and where the corpus lies."""
    kind, colon, where = spec.partition(":")
    if colon and where and kind in KINDS:
        return kind, os.path.expanduser(where)
    name = spec
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    for kind in ("tsv", "tmx"):
        if name.endswith("." + kind):
            return kind, os.path.expanduser(spec)
    raise ValueError(
        f"corpus {spec!r} must be KIND:WHERE with a kind of {', '.join(KINDS)} "
        "(tsv:data/*.tsv.gz, moses:data/europarl.de-en), or a .tsv or .tmx file."
    )


def _expand(kind: str, where: str) -> list[str]:
    """Returns the sorted files a glob names."""
    paths = sorted(glob.glob(where, recursive=True))
    if not paths:
        raise FileNotFoundError(f"{kind}:{where}: no such file; check the path or the pattern.")
    for path in paths:
        if os.path.isdir(path):
            raise IsADirectoryError(
                f"{path}: is a directory; name the files in it: {kind}:{path}/*.{kind}*."
            )
    return paths


def _moses_languages(where: str) -> list[str]:
    """Returns the codes that follow the prefix in file names."""
    prefix, at, pair = where.rpartition("@")
    if at and os.sep not in pair:
        return list(languages_lib.parse_pair(pair))
    codes = set()
    for path in glob.glob(glob.escape(where) + ".*"):
        code = path[len(where) + 1 :].split(".")[0]
        if languages_lib.is_code(code):
            codes.add(code)
    return sorted(codes)
