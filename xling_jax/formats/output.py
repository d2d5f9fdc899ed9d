"""The directory of an export, whole or never in place of something else, and the files in it."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from xling_jax.files.whole import naming_errors, whole_directory
from xling_jax.formats.huggingface_modules import MODULES_FILE


@contextlib.contextmanager
def export_directory(path: str | os.PathLike[str], marker: str, overwrite: bool) -> Iterator[Path]:
    """Gives a directory to fill that takes its name only when the block ends without an error.

    Args:
        path: where to write.
        marker: name of a file that every export of this format has.
        overwrite: replace an earlier export; other directories are never replaced.

    Raises:
        ValueError: if `path` is something else than an export of this format.
        FileExistsError: if it exists, is not empty and `overwrite` is False.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path}: is a file; choose a directory for the export")
    if path.is_dir() and any(path.iterdir()):
        if not overwrite:
            raise FileExistsError(f"{path}: already exists; pass overwrite=True to replace it")
        if not (path / marker).is_file():
            raise ValueError(
                f"{path}: only an earlier export or an empty directory is replaced; this one has "
                f"no {marker}; choose another"
            )
    with whole_directory(path) as fresh, naming_errors(path):
        yield fresh


def write_modules(directory: Path, kinds: Sequence[str]) -> list[Path]:
    """Writes the `modules.json` of sentence-transformers.

    Args:
        directory: of the export.
        kinds: names of the modules' classes, in their order.

    Returns:
        The directory of each module, made; that of the first is `directory`.
    """
    paths = [f"{i}_{kind}" if i else "" for i, kind in enumerate(kinds)]
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths))
    ]
    write_json(directory / MODULES_FILE, rows)
    folders = [directory / path for path in paths]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return folders


def write_json(path: Path, value: Any) -> None:
    """Writes JSON indented as those of Hugging Face are, in the order of its keys."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
