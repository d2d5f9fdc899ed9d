"""Files of directories and of object stores that Beam knows: gs://, s3:// and azfs://.

Not of hdfs://, where Beam lists a directory without what is below it, and fails if it is missing.

Every function raises OSError naming the file if the store fails.
"""

import contextlib
import json
import math
import posixpath
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgpack

from xling_jax.files.untrusted import one_line
from xling_jax.files.urls import is_url
from xling_jax.files.whole import naming_errors, write_whole

_BLOCK_BYTES = 1 << 20
# Broken bytes of a text are marked, and yet: JSON and XML can name a lone surrogate.
_SURROGATES = "surrogatepass"


def use_options(options: Sequence[str]) -> None:
    """Gives the file systems the options of a pipeline, unless the worker has.

    Those that a worker pool starts do not, and `s3://` knows no way without.
    """
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    if FileSystems._pipeline_options is None:
        FileSystems.set_options(PipelineOptions(list(options)))


def check(path: str) -> None:
    """Raises ValueError if Beam has no store for a path, or one that has directories."""
    from apache_beam.io.filesystems import FileSystems

    if path.startswith("hdfs:"):
        raise ValueError(f"{path}: HDFS is not supported; mount it, or copy the text to a store")
    FileSystems.get_filesystem(path)


def exists(path: str) -> bool:
    """Returns whether there is a file."""
    with _naming(path):
        return Path(path).exists() if not is_url(path) else _files().exists(path)


def match(pattern: str) -> list[str]:
    """Lists the files whose URL matches a pattern, or that are below a URL, sorted."""
    return sorted({url for one in _variants(pattern) for url in _match(one)}) or below(pattern)


def below(directory: str) -> list[str]:
    """Lists the files below a directory, sorted; none if there is no such directory."""
    if is_url(directory):
        return _match(f"{directory.rstrip('/')}/**")
    with _naming(directory):
        return sorted(str(path) for path in Path(directory).rglob("*") if path.is_file())


def _variants(pattern: str) -> list[str]:
    """A pattern with each `**/` kept or dropped: Beam's stands for one directory at least."""
    before, found, after = pattern.partition("/**/")
    if not found:
        return [pattern]
    return [before + joint + rest for joint in ("", "/**") for rest in _variants(f"/{after}")]


def _match(pattern: str) -> list[str]:
    with _naming(pattern):
        return sorted(one.path for one in _files().match([pattern])[0].metadata_list)


def state(path: str) -> tuple[int, int]:
    """The size of a file in bytes, and a number that changes when the file does."""
    with _naming(path):
        if not is_url(path):
            status = Path(path).stat()
            return status.st_size, status.st_mtime_ns
        found = _files().match([path])[0].metadata_list[0]
        return found.size_in_bytes, int(found.last_updated_in_seconds * 1e9)


def read(path: str) -> bytes:
    """Reads a file."""
    with open_at(path) as file:
        return file.read()


@contextlib.contextmanager
def open_at(path: str, start: int = 0) -> Iterator[IO[bytes]]:
    """Opens a file to be read from a byte on, as it is stored."""
    with _naming(path):
        if not is_url(path):
            with open(path, "rb") as file:
                file.seek(start)
                yield file
            return
        from apache_beam.io.filesystem import CompressionTypes

        raw = CompressionTypes.UNCOMPRESSED
        with contextlib.closing(_files().open(path, compression_type=raw)) as file:
            if start:
                file.seek(start)
            yield file


def write(path: str, content: bytes) -> None:
    """Writes a file whole or not at all, with the directories that it needs."""
    if not is_url(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
        return
    from apache_beam.io.filesystem import CompressionTypes

    with _naming(path):  # an object appears whole
        file = _files().create(path, compression_type=CompressionTypes.UNCOMPRESSED)
        file.write(content)
        file.close()


def read_json(path: str) -> Any:
    """Reads a JSON value."""
    return json.loads(read(path))


def pack(value: Any) -> bytes:
    """Packs numbers, strings, bytes, lists and dicts."""
    return zlib.compress(msgpack.packb(value, unicode_errors=_SURROGATES), 1)


def unpack(packed: bytes) -> Any:
    """Returns what `pack` packed; tuples are lists."""
    content = zlib.decompress(packed)
    return msgpack.unpackb(content, unicode_errors=_SURROGATES, strict_map_key=False)


def read_packed(path: str) -> Any:
    """Reads what `write_packed` wrote; None if there is no such file."""
    return unpack(read(path)) if exists(path) else None


def write_packed(path: str, value: Any) -> None:
    """Writes a value that can be packed, as `write`."""
    write(path, pack(value))


def remove(paths: Iterable[str]) -> None:
    """Removes files, and on this machine the directories that they leave empty."""
    paths = list(paths)
    urls = [path for path in paths if is_url(path)]
    if urls:  # in one request for many
        with _naming(urls[0]):
            _files().delete(urls)
    for path in (Path(path) for path in paths if not is_url(path)):
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def remove_below(directory: str) -> None:
    """Removes a directory with all that is in it, if there is one."""
    if is_url(directory):
        remove(below(directory))
    else:
        shutil.rmtree(directory, ignore_errors=True)


def naming_full_disk() -> contextlib.AbstractContextManager[None]:
    """Names the directory for temporary files in errors of writing a file in it."""
    return naming_errors(tempfile.gettempdir())


def fetch(path: str, local: Path, num_bytes: int | None = None) -> None:
    """Copies a file, or its first bytes, to a temporary directory."""
    local.parent.mkdir(parents=True, exist_ok=True)
    if num_bytes == 0:
        local.touch()
        return
    left = math.inf if num_bytes is None else num_bytes
    with open_at(path) as source, naming_full_disk(), open(local, "wb") as target:
        while left > 0 and (block := source.read(min(_BLOCK_BYTES, left))):
            target.write(block)
            left -= len(block)


def upload(directory: Path, where: str, last: str) -> None:
    """Copies the files below a directory to a store, the one that says that it is whole last."""
    files = {p.relative_to(directory).as_posix(): p for p in directory.rglob("*") if p.is_file()}
    for name in sorted(files, key=lambda name: (name == last, name)):
        write(join(where, name), files[name].read_bytes())


def join(*names: str) -> str:
    """Joins names to a path or URL."""
    return posixpath.join(*names)


def _files() -> Any:
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Gives errors of the stores' clients one kind and one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        if getattr(error, "filename", None) or not is_url(path) or path in str(error):
            raise
        raise OSError(f"{path}: {one_line(error, 300)}") from error
    except Exception as error:
        raise OSError(f"{path}: {type(error).__name__}: {one_line(error, 300)}") from error
