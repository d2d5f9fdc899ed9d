"""Zip files of unknown origin, such as wheels: whatever is wrong with one is one line."""

import os
import zipfile

from xling_jax.files.errors import one_line

# A member that claims to be larger is a bomb: catalogs, tables and news are below 10 MB.
_MAX_MEMBER_BYTES = 64 << 20


def open_archive(path: str | os.PathLike[str]) -> zipfile.ZipFile:
    """Opens a zip file.

    Raises:
        OSError: if there is no such file, or it cannot be opened.
        ValueError: if it is not a zip file, or is cut off or damaged.
    """
    with open(path, "rb"):  # an error of the system names the file
        pass
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # zipfile raises many kinds for damaged files
        raise ValueError(f"{path}: not a valid wheel or zip ({error}); fetch it again") from error


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Reads a member of an archive whole.

    Raises:
        ValueError: if there is none, it is damaged or encrypted, or it is too large to be what any
            reader of this library expects.
    """
    where = f"{archive.filename}!{name}"
    try:
        size = archive.getinfo(name).file_size
        if size <= _MAX_MEMBER_BYTES:
            return archive.read(name)
    except Exception as error:  # as above, and NotImplementedError, RuntimeError, zlib.error
        raise ValueError(f"{where}: {one_line(error, 200)}; fetch it again") from error
    raise ValueError(f"{where}: {size:,} bytes; must be at most {_MAX_MEMBER_BYTES:,}")
