"""The directory of an export: whole or not at all, and never in place of something else."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from xling_jax.files.whole import naming_errors, whole_directory


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
