"""Corpora and files at URLs, as workers read them."""

import contextlib
import io
import re
import resource
import tempfile
import types

import pytest

from xling_jax.corpora.beam import store
from xling_jax.corpora.beam.engine import copied
from xling_jax.corpora.specs import open_corpus

_LANGUAGES = ("de", "en")


def files_of(spec: str) -> list[str]:
    with copied(open_corpus(spec), 0) as (reader, name_of):
        return list(map(name_of, reader.files(_LANGUAGES)))


def test_two_stars_stand_for_no_directory_as_well(monkeypatch):
    filesystem = pytest.importorskip("apache_beam.io.filesystem")
    urls = [f"s3://b/d/{name}" for name in ("e/f/z.tsv", "e/y.tsv", "x.tsv", "x.txt")]

    class Files:
        @staticmethod
        def match(patterns):
            rule = re.compile(filesystem.FileSystem.translate_pattern(patterns[0]))
            found = [filesystem.FileMetadata(url, 1) for url in urls if rule.match(url)]
            return [filesystem.MatchResult(patterns[0], found)]

    monkeypatch.setattr(store, "_files", lambda: Files)
    for pattern in ("d/**/*.tsv", "**/d/**/*.tsv", "d/**/**/*.tsv"):
        assert store.match(f"s3://b/{pattern}") == urls[:3]
    assert files_of("tsv:s3://b/d/**/*.tsv") == urls[:3]
    assert store.match("s3://b/d/*/*.tsv") == urls[1:2]
    assert store.match("s3://b/d/**/e/*.tsv") == urls[1:2]


def test_errors_name_the_file_and_not_its_copy(monkeypatch):
    monkeypatch.setattr(store, "match", lambda pattern: ["s3://b/d/a.tsv"])
    content = types.SimpleNamespace(read=io.BytesIO(b"de\ten\n\n").read)
    monkeypatch.setattr(store, "open_at", lambda path: contextlib.nullcontext(content))
    with (
        pytest.raises(ValueError, match=r"^s3://b/d/a\.tsv: no row holds text"),
        copied(open_corpus("tsv:s3://b/d/*.tsv")) as (reader, name_of),
    ):
        rows = reader.rows(_LANGUAGES)
        assert name_of(next(rows).file) == "s3://b/d/a.tsv"
        next(rows)
    monkeypatch.setattr(store, "match", lambda pattern: [])
    with pytest.raises(FileNotFoundError, match=r"^tsv:s3://b/d/\*\.tsv: no such file"):
        files_of("tsv:s3://b/d/*.tsv")


@contextlib.contextmanager
def full_disk():
    """Files of more than a hundred bytes have no room; pytest's own output may be one, outside."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_for_temporary_files_is_named(tmp_path, monkeypatch):
    pytest.importorskip("apache_beam")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    files = types.SimpleNamespace(open=lambda *_, **__: io.BytesIO(b"x" * 5000))
    monkeypatch.setattr(store, "_files", lambda: files)
    with pytest.raises(OSError) as error, full_disk():
        store.fetch("s3://b/a.tsv", tmp_path / "temporary/a.tsv")
    assert error.value.filename == str(tmp_path / "temporary") and error.value.strerror
