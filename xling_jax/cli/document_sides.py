"""The sides of `xling align` and `xling align-sentences`: documents, languages, vectors."""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xling_jax.documents.records import (
    Documents,
    choose_language,
    folder_language,
    group_by_language,
    read_documents,
    read_folder,
)
from xling_jax.encode.documents import encode_mapped
from xling_jax.files.lines import shown
from xling_jax.files.progress import counted
from xling_jax.options import OptionError

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)

LANGUAGES_HELP = (
    "languages of the sides; not needed for JSON lines in one language and for folders named after "
    "theirs"
)


def languages_of(args: argparse.Namespace) -> list[str | None]:
    """The languages of both sides: from `--languages`, or from the names of folders."""
    given = [None, None] if args.languages is None else args.languages
    if len(given) != 2:
        raise OptionError("--languages: must be two codes, source and target, such as fr,en")
    if args.source == args.target and (given[0] == given[1] or Path(args.source).is_dir()):
        raise OptionError("--source and --target are the same file; add --languages SOURCE,TARGET")
    languages = []
    for code, path in zip(given, (args.source, args.target)):
        if Path(path).is_dir() and not (code := code or folder_language(path)):
            raise OptionError(
                f"{path}: give --languages, such as --languages de,en, or name folders after them"
            )
        languages.append(code)
    return languages


def read_side(path: str, language: str | None, *, splitter: str, domain: str = "") -> Documents:
    """Reads the documents of a folder, or those of a language, by default the only one, of a file.

    `domain` is a field that every document must have.
    """
    name = shown(path)
    if Path(path).is_dir():
        documents = read_folder(path, language, splitter=splitter)
    else:
        documents = read_documents(path, domain=domain or None, splitter=splitter)
    side = choose_language(group_by_language(documents, name), name, language)
    _logger.info(
        "%s: %s in %s, %s; %s without text (never matched)",
        *(name, counted(len(side), "document"), side.language or "no language"),
        *(counted(sum(side.lengths), "sentence"), f"{side.num_empty:,}"),
    )
    return side


def encode_side(
    encoder: Encoder, side: Documents, output: str, mode: str = "sentences"
) -> np.ndarray:
    """Encodes a side into an unnamed file beside the output, [n, dim] float32 mapped from it.

    `mode` is what is encoded at once, whose numbers the lengths of the side become.
    """
    lengths: list[int] = []

    def texts() -> Iterator[str]:
        for inputs in encoder.document_inputs(filter(None, side.split()), mode):
            lengths.append(len(inputs))
            yield from inputs

    directory = Path(tempfile.gettempdir() if output == "-" else Path(output).parent)
    vectors = encode_mapped(encoder, texts(), sum(side.lengths), directory, side.name)
    filled = iter(lengths)
    side.lengths = [next(filled) if length else 0 for length in side.lengths]
    return vectors
