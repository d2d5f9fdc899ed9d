"""Lines of text files, plain or compressed, in bounded memory and with broken lines marked.

Everything here works on blocks of lines: a block is decoded and split at once, which is what makes
reading fast, and only a block that fails is looked at line by line.
"""

import bz2
import codecs
import contextlib
import errno
import gzip
import itertools
import lzma
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

MAX_LINE_BYTES = 1_000_000

# What can be wrong with one line without making the file useless. Such a line is yielded, not
# raised, so that preparation counts it and goes on.
BROKEN_UTF8 = "broken_utf8"
NUL_BYTE = "nul_byte"
LINE_TOO_LONG = "line_too_long"
WRONG_ROW = "wrong_row"  # of a table: too many cells, or not the object that it must be
PROBLEMS = (BROKEN_UTF8, NUL_BYTE, LINE_TOO_LONG, WRONG_ROW)

COMPRESSED_SUFFIXES = (".gz", ".xz", ".zst", ".bz2")

PROBLEM_RULES = {
    BROKEN_UTF8: "text must be UTF-8; found other bytes; is it Latin-1? convert the file with "
    "iconv -f ISO-8859-1 -t UTF-8",
    NUL_BYTE: "text must not hold NUL bytes; is it UTF-16 or binary? convert it to UTF-8",
    LINE_TOO_LONG: f"a line must be below {MAX_LINE_BYTES:,} bytes; split it",
    WRONG_ROW: "a row must have the cells of the others; correct it",
}

# Endings that say how a file is written, and nothing of what is in it.
_TABLE = r"(\.tsv|\.csv|\.parquet|\.tmx|\.xlf|\.xliff|(\.txt)?\.zip)?"

XML = b"<?xml"
# What a file that is no text begins with; what it is, and what to do.
_OTHER_FORMATS = {
    b"version https://git-lfs.github.com/": (
        "a git-lfs pointer, not the file itself",
        "fetch it with git lfs pull",
    ),
    b"\x1f\x8b\x08": ("gzip, not text", "name it .gz"),
    b"\xfd7zXZ\0": ("xz, not text", "name it .xz"),
    b"\x28\xb5\x2f\xfd": ("zstd, not text", "name it .zst"),
    b"PK\3\4": ("a zip archive, not text", "unpack it; one of OPUS is read as moses:PATH.zip"),
    b"%PDF": ("PDF, not text", "write its text with pdftotext"),
    XML: (
        "XML, not text",
        "xling mine --pairs and corpora read TMX and XLIFF; for other commands, convert it to text",
    ),
    b"PAR1": (
        "Parquet, not text",
        "corpora read it as parquet:PATH, xling mine as PATH?columns=NAME; for other commands, "
        "write the column as lines of text",
    ),
}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

# The same as the inside of a regular expression's group.
COMPRESSED = "|".join(re.escape(suffix) for suffix in COMPRESSED_SUFFIXES)

# A line of a damaged file is skipped up to this size; a device without end is not text.
_ENDLESS_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 18
# Compressed bytes a step: a zstd block of a few bytes may hold 128 KiB of text.
_ZSTD_STEP_BYTES = 1 << 12
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class BrokenLine(NamedTuple):
    """A line that cannot be used; `problem` is one of `PROBLEMS`."""

    problem: str


Line = str | BrokenLine


def read_chunks(path: str, but: bytes | None = None) -> Iterator[bytes]:
    """Reads a file, or stdin for "-", in pieces of at most a few megabytes.

    Files named `.gz`, `.xz`, `.zst` and `.bz2` are decompressed, as is MEMBER of `A.zip!MEMBER`;
    ValueError if damaged or cut off, or of another format, except that of `but`.
    """
    path = str(path)
    chunks = _read_zstd_chunks(path) if path.endswith(".zst") else _read_stream(path)
    if first := next(chunks, b""):
        check_format(path, first, but)
        yield first
    yield from chunks


def check_format(path: str, head: bytes, but: bytes | None = None) -> None:
    """Raises ValueError if a file begins as those of another format do, except that of `but`."""
    if head[257:262] == b"ustar" or path.endswith(".tgz"):
        raise ValueError(f"{shown(path)}: is a tar archive, not text; unpack it with tar -xf")
    for begin, (what, way_out) in _OTHER_FORMATS.items():
        if head.removeprefix(_BYTE_ORDER_MARK).startswith(begin) and begin != but:
            raise ValueError(f"{shown(path)}: is {what}; {way_out}")


def _read_stream(path: str) -> Iterator[bytes]:
    openers = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    archive, is_member, name = path.partition(".zip!")
    with contextlib.ExitStack() as stack:
        if path == "-":
            opened = _open_stdin()
        elif is_member:
            from xling_jax.files.untrusted import open_archive

            opened = open_archive(f"{archive}.zip")
            stack.enter_context(opened)
            try:
                opened = opened.open(name)
            except Exception as error:  # KeyError, RuntimeError if encrypted, NotImplementedError
                raise _damaged(path, error) from error
        else:
            opened = openers.get(Path(path).suffix, open)(path, "rb")
        stream = stack.enter_context(opened)
        while chunk := _read_chunk(stream, path):
            yield chunk


def _open_stdin() -> BinaryIO:
    """Opens stdin at its present position; by name a file would begin anew, and a socket fail."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "is closed", "stdin")
    return open(0, "rb", closefd=False)


def read_line_blocks(path: str) -> Iterator[list[Line]]:
    r"""Yields the lines of a UTF-8 file without their ends, in lists, block by block.

    Lines end in "\n" or "\r\n"; the last may lack its end. A byte order mark at the beginning is
    dropped. Other Unicode line separators are text. A line with bytes that are not UTF-8, with a
    NUL byte, or longer than `MAX_LINE_BYTES` is a `BrokenLine`. Path and errors as `read_chunks`;
    also ValueError for a line without end, UTF-16, and a file whose lines end in "\r".
    """
    tail = b""  # The beginning of a line whose end has not been read yet.
    # Inside a line that is too long: it has been yielded, and its bytes are thrown away.
    skipping = False
    skipped = 0
    at_start = one_line = True
    for chunk in read_chunks(path):
        if at_start:
            _refuse_utf16(path, chunk)
            chunk, at_start = chunk.removeprefix(_BYTE_ORDER_MARK), False
        end = chunk.rfind(b"\n") + 1
        if not end:
            tail = b"" if skipping else tail + chunk
            skipped = skipped + len(chunk) if skipping else 0
            if skipped > _ENDLESS_BYTES:
                raise ValueError(f"{shown(path)}: no line end in {skipped:,} bytes; is it text?")
            if len(tail) > MAX_LINE_BYTES:
                yield [BrokenLine(LINE_TOO_LONG)]
                tail, skipping = b"", True
            continue
        one_line = False
        first_end = chunk.index(b"\n") + 1
        if skipping or len(tail) + first_end > MAX_LINE_BYTES + 1:
            if not skipping:
                yield [BrokenLine(LINE_TOO_LONG)]
            block = chunk[first_end:end]
        else:
            block = tail + chunk[:end]
        if block:
            yield _split_block(block)
        tail, skipping = chunk[end:], False
    if one_line and b"\r" in tail.rstrip(b"\r"):
        raise ValueError(f"{shown(path)}: lines end in CR alone; convert it with tr '\\r' '\\n'")
    if tail:
        yield _split_block(tail + b"\n")


def _refuse_utf16(path: str, head: bytes) -> None:
    """Raises ValueError if the mark says UTF-16, or nearly every other byte is NUL."""
    fewer, more = sorted(head[side::2].count(0) / len(head) for side in (0, 1))
    if head.startswith(_UTF16) or (len(head) > 8 and more > 0.4 and fewer < 0.05):
        way_out = "convert it with iconv -f UTF-16 -t UTF-8"
        raise ValueError(f"{shown(path)}: is UTF-16; text must be UTF-8; {way_out}")


def _split_block(block: bytes) -> list[Line]:
    """Splits and decodes bytes that end in a line end."""
    if b"\0" not in block and len(block) <= MAX_LINE_BYTES:
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            return (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")[:-1]
    return [decode_line(line) for line in block.split(b"\n")[:-1]]


def decode_line(line: bytes) -> Line:
    """Decodes a line without its end."""
    if len(line) > MAX_LINE_BYTES:
        return BrokenLine(LINE_TOO_LONG)
    if b"\0" in line:
        return BrokenLine(NUL_BYTE)
    try:
        return line.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError:
        return BrokenLine(BROKEN_UTF8)


def _read_chunk(stream: BinaryIO, path: str) -> bytes:
    """Reads once; what the decompressors raise becomes one kind of error that names the file."""
    try:
        return stream.read(_CHUNK_BYTES)
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, OSError) as error:
        if getattr(error, "errno", None) is not None:  # a real I/O error; damaged data has none
            raise
        raise _damaged(path, error) from error


def _read_zstd_chunks(path: str) -> Iterator[bytes]:
    """Reads a file of one or more zstd frames.

    `zstandard.open` takes a cut-off frame for the end of the file, hence the frames by hand.
    """
    import zstandard

    # What `zstd --long=31` writes at most; memory is allocated as a file needs it.
    window = 2**31
    frame = None
    with open(path, "rb") as stream:
        while data := stream.read(_ZSTD_STEP_BYTES):
            while data:
                frame = frame or zstandard.ZstdDecompressor(max_window_size=window).decompressobj()
                try:
                    text = frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise _damaged(path, error) from error
                data = b""
                if frame.eof:
                    data, frame = frame.unused_data, None
                if text:
                    yield text
    if frame is not None:
        raise _damaged(path, EOFError("the last frame is cut off"))


def _damaged(path: str, error: Exception) -> ValueError:
    reason = str(error).rstrip(".") or type(error).__name__
    return ValueError(f"{path}: damaged compressed file ({reason}); fetch or compress it again.")


def read_lines(path: str | Path) -> list[str]:
    """Reads all lines of a UTF-8 file; arguments and errors as `iterate_lines`."""
    return list(iterate_lines(path))


def iterate_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, see `read_chunks`, without their ends.

    ValueError names a line that is not UTF-8, holds a NUL byte or is too long.
    """
    lines = itertools.chain.from_iterable(read_line_blocks(str(path)))
    for number, line in enumerate(lines, 1):
        if isinstance(line, BrokenLine):
            raise ValueError(f"{shown(path)}:{number}: {PROBLEM_RULES[line.problem]}")
        yield line


def shown(path: str | Path) -> str:
    """How messages name an input: "<stdin>" for "-"."""
    return "<stdin>" if str(path) == "-" else str(path)


def metric_name(path: str | Path) -> str:
    """Turns the name of a file or directory into the beginning of metric names."""
    name = re.sub(rf"{_TABLE}({COMPRESSED})?$", "", Path(path).name)
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "data"
