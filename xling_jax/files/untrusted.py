"""JSON and zip files of unknown origin: whatever is wrong with one is one line that names it."""

import contextlib
import json
import os
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from xling_jax.options import OptionError

_MAYBE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
# A member that claims to be larger is a bomb: catalogs, tables and news are below 10 MB.
_MAX_MEMBER_BYTES = 64 << 20


def one_line(error: BaseException, most: int | None = None) -> str:
    """The message of an error in one line, without what follows `most` characters."""
    # str() of a KeyError is the repr of its message.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return " ".join(str(text).split())[:most]


@contextlib.contextmanager
def in_one_line(name: str, way_out: str) -> Iterator[None]:
    """Turns what other libraries raise for damaged files, of many kinds, into one ValueError."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{name}: cannot be read: {one_line(error, 300)}; {way_out}") from error


@contextlib.contextmanager
def named(where: str | os.PathLike[str]) -> Iterator[None]:
    """Puts the name of a file in front of the message of a ValueError or OptionError."""
    try:
        yield
    except ValueError as error:
        kind = OptionError if isinstance(error, OptionError) else ValueError
        raise kind(f"{os.fspath(where)}: {error}") from error


def printable(text: str) -> str:
    r"""Text of any origin for a terminal: what it might obey, but line feeds, as `\x1b` and so on.

    Names of files, columns and languages may hold sequences that clear the screen or set its title.
    """
    shown = lambda c: c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
    return text if text.isprintable() else "".join(map(shown, text))


def parse_json(
    text: str | bytes, where: str, *, allow_surrogates: bool = False, way_out: str = ""
) -> Any:
    r"""Returns the value of a JSON text, which errors call `where`; they end with `way_out`.

    `allow_surrogates` accepts strings with lone surrogates (`"\ud800"`). They cannot be encoded in
    UTF-8, so only what cleans its strings before they are used may ask for them. ValueError if it
    is not JSON, not UTF-8, nested too deeply, or has a number of thousands of digits.
    """
    try:
        value = json.loads(text)
        if not allow_surrogates:
            _refuse_surrogates(text, value)
        return value
    except (ValueError, RecursionError) as error:
        then = f"; {way_out}" if way_out else ""
        raise ValueError(f"{where}: not valid JSON: {error}{then}") from error


def _refuse_surrogates(text: str | bytes, value: Any) -> None:
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if not _MAYBE_SURROGATE.search(raw):
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        found = error.object[error.start]
        raise ValueError(
            f"a string holds the lone surrogate {found!r}, which is not text"
        ) from None


def open_archive(path: str | os.PathLike[str]) -> zipfile.ZipFile:
    """Opens a zip file; OSError without one, ValueError if it is cut off or damaged."""
    with open(path, "rb"):  # an error of the system names the file
        pass
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # zipfile raises many kinds for damaged files
        raise ValueError(f"{path}: not a valid wheel or zip ({error}); fetch it again") from error


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Reads a member of an archive whole; ValueError if it is missing, damaged or far too large."""
    where = f"{archive.filename}!{name}"
    try:
        size = archive.getinfo(name).file_size
        if size <= _MAX_MEMBER_BYTES:
            return archive.read(name)
    except Exception as error:  # as above, and NotImplementedError, RuntimeError, zlib.error
        raise ValueError(f"{where}: {one_line(error, 200)}; fetch it again") from error
    raise ValueError(f"{where}: {size:,} bytes; must be at most {_MAX_MEMBER_BYTES:,}")
