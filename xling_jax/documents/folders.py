"""Folders of documents: a text file each, as vecalign, bertalign and most exports have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from xling_jax.documents.records import Document, number_sentences
from xling_jax.files.lines import COMPRESSED, iterate_lines
from xling_jax.text import languages as languages_lib


def folder_language(path: str | Path) -> str | None:
    """The language that a folder is named after, such as `corpus/de`; None if it is not."""
    name = Path(path).resolve().name
    return name if languages_lib.is_iso639(name) else None


def read_folder(path: str | Path, language: str, *, splitter: str = "rule") -> Iterator[Document]:
    """Reads the documents of a folder one by one, in the order of their names.

    Every file in the folder and in folders inside it is a document, except hidden ones. Its id is
    its path inside the folder without `.gz` (`.xz`, `.zst`, `.bz2`), `.txt` and the language:
    `2024/note.de.txt.gz` is `2024/note`, so that translations may have the same.

    Args:
        path: the folder.
        language: of all documents.
        splitter: finds the sentences, see `split_sentences`; "lines" for a sentence a line.

    Raises:
        ValueError: if there are no files, two have the same id, or one is not UTF-8 text.
        OSError: if one cannot be read.
    """
    suffixes = re.compile(rf"(\.txt)?({COMPRESSED})?$", re.IGNORECASE)
    code = languages_lib.to_iso639_1(language)
    files: dict[str, Path] = {}
    for file in sorted(Path(path).rglob("*")):
        inside = file.relative_to(path)
        if not file.is_file() or any(part.startswith(".") for part in inside.parts):
            continue
        name = suffixes.sub("", inside.as_posix()).removesuffix(f".{language}")
        if any(mark in name for mark in "\t\r\n"):
            raise ValueError(f"{file}: a file name with tabs or line ends cannot be an id")
        if (first := files.setdefault(name, file)) != file:
            raise ValueError(f"{file}: the same document, {name!r:.80}, as {first}; rename one")
    if not files:
        raise ValueError(f"{path}: must hold text files, one document each; found none")
    for number, (name, file) in enumerate(files.items(), 1):
        text = "\n".join(iterate_lines(file))
        numbered = number_sentences(text, splitter, code)
        yield Document(number, name, language, *numbered, None, None)
