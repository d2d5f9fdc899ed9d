"""The sides of `xling align` and `xling align-sentences`: documents, languages, vectors."""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xling_jax.cli.options import words
from xling_jax.documents.records import (
    Document,
    Documents,
    choose_language,
    folder_language,
    group_by_language,
    read_documents,
    read_folder,
)
from xling_jax.encode.mapped import encode_mapped
from xling_jax.files.progress import counted
from xling_jax.options import OptionError

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)


def add_languages(parser: argparse.ArgumentParser) -> None:
    """Adds `--languages`, see `languages_of`."""
    parser.add_argument(
        "--languages",
        type=words,
        metavar="SOURCE,TARGET",
        help="languages of the sides; not needed for JSON lines in one language and for folders "
        "named after theirs",
    )


def languages_of(args: argparse.Namespace) -> list[str | None]:
    """The languages of both sides: from `--languages`, or from the names of folders."""
    given = [None, None] if args.languages is None else args.languages
    if len(given) != 2:
        raise OptionError("--languages: must be two codes, source and target, such as fr,en")
    paths = (args.source, args.target)
    if args.source == args.target and given[0] == given[1]:
        raise OptionError("--source and --target are the same file; add --languages SOURCE,TARGET")
    named = [folder_language(path) if Path(path).is_dir() else None for path in paths]
    if args.source == args.target and Path(args.source).is_dir():
        raise OptionError(f"--source and --target are the same folder, {args.source}")
    languages = [code or name for code, name in zip(given, named)]
    for code, path in zip(languages, paths):
        if code is None and Path(path).is_dir():
            raise OptionError(
                f"{path}: give --languages, such as --languages de,en, or name folders after them"
            )
    return languages


def iterate_documents(
    path: str, name: str, language: str | None, *, splitter: str, domain: str = ""
) -> Iterable[Document]:
    """The documents of a folder, or of one language or all in JSON lines."""
    if Path(path).is_dir():
        return read_folder(path, language, splitter=splitter)
    return read_documents(path, domain=domain or None, splitter=splitter, name=name)


def read_side(
    documents: Iterable[Document], name: str, language: str | None, *, keep_sentences: bool = False
) -> Documents:
    """Gathers the documents of a side, without their text unless it is to be kept."""
    side = choose_language(group_by_language(documents, name, keep_sentences), name, language)
    _logger.info(
        "%s: %s in %s, %s; %s without text (never matched)",
        *(name, counted(len(side), "document"), side.language or "no language"),
        *(counted(sum(side.lengths), "sentence"), f"{side.num_empty:,}"),
    )
    return side


def scratch_directory(output: str) -> Path:
    """Where vectors are kept while a command runs: beside its output."""
    return Path(tempfile.gettempdir() if output == "-" else Path(output).parent)


def encode_side(
    encoder: Encoder,
    side: Documents,
    documents: Iterable[Sequence[str]],
    directory: Path,
    mode: str = "sentences",
) -> np.ndarray:
    """Encodes a side into an unnamed file in `directory`, [n, dim] float32 mapped from it.

    `mode` is what is encoded at once, whose numbers the lengths of the side become.
    """
    lengths: list[int] = []

    def texts() -> Iterator[str]:
        for inputs in encoder.document_inputs(documents, mode):
            lengths.append(len(inputs))
            yield from inputs

    vectors = encode_mapped(encoder, texts(), sum(side.lengths), directory, side.name)
    filled = iter(lengths)
    side.lengths = [next(filled) if length else 0 for length in side.lengths]
    return vectors
