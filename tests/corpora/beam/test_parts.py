"""Parts of corpora: read apart, they are the rows of the whole, with their places in the files."""

import contextlib
import gzip
import io
import itertools
import re
import resource
import tempfile
import types

import numpy as np
import pytest

from xling_jax.corpora import specs
from xling_jax.corpora.beam import parts, store

_LANGUAGES = ("de", "en", "fr")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 150)
    monkeypatch.setattr(parts, "_BLOCK_BYTES", 64)


def read_in_parts(spec: str, num_parts: int | None = None) -> list:
    files = parts.list_files(spec, _LANGUAGES)
    found = parts.split(
        spec, [parts.index_file(spec, path, _LANGUAGES) for path in files], _LANGUAGES
    )
    assert num_parts in (None, len(found))
    assert [part.number for part in found] == list(range(len(found)))
    return list(itertools.chain(*(parts.read_part(part, _LANGUAGES) for part in found)))


def line(rng, number: int) -> bytes:
    """Some text, some of it broken, blank, long, with a mark or the end of a line of Windows."""
    kinds = [b"text %d", b"", b"\xff %d", b"\0 %d", b"\xef\xbb\xbfmark %d", b"%d " + b"long " * 60]
    kind = kinds[rng.choice(len(kinds), p=(0.7, 0.06, 0.06, 0.06, 0.06, 0.06))]
    return (kind % number if b"%d" in kind else kind) + rng.choice([b"", b"\r"], p=(0.9, 0.1))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ending", [b"\n", b""])
def test_tsv_files_are_split_anywhere(tmp_path, seed, ending):
    rng = np.random.default_rng(seed)
    for name, header in (("a", b"id\tde\ten"), ("b", b"\xef\xbb\xbffr\tde")):
        cells = header.count(b"\t") + 1
        rows = [
            b"\t".join(line(rng, n).rstrip(b"\r") for _ in range(cells))
            for n in range(rng.integers(1, 90))
        ]
        (tmp_path / f"{name}.tsv").write_bytes(
            b"\n".join([header, b"\t".join([b"text"] * cells), *rows]) + ending
        )
    spec = f"tsv:{tmp_path}/*.tsv"
    whole = list(specs.read_corpus(spec, _LANGUAGES))
    assert read_in_parts(spec) == whole and len(whole) > 3


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ending", [b"\n", b""])
def test_moses_files_are_split_where_their_lines_are(tmp_path, seed, ending):
    rng = np.random.default_rng(seed)
    size = rng.integers(2, 150)
    for code, repeat in (("fr", 1), ("de", 3)):
        lines = [line(rng, n) * repeat for n in range(size)] + [b"end"]
        start = b"\xef\xbb\xbf" if seed % 2 else b""
        (tmp_path / f"text.{code}").write_bytes(start + b"\n".join(lines) + ending)
    spec = f"moses:{tmp_path}/text"
    whole = list(specs.read_corpus(spec, _LANGUAGES))
    assert read_in_parts(spec) == whole and len(whole) == size + 1


@pytest.mark.parametrize("kind", ["tsv", "moses"])
def test_what_cannot_be_split_is_read_from_the_beginning(tmp_path, kind):
    texts = {code: [f"{code} {n}" for n in range(60)] for code in ("de", "en")}
    if kind == "tsv":
        rows = ["\t".join(texts), *map("\t".join, zip(*texts.values()))]
        for name in "ab":
            with gzip.open(tmp_path / f"{name}.tsv.gz", "wt") as file:
                file.write("\n".join(rows) + "\n")
        (tmp_path / "c.tsv").write_text("\n".join(rows) + "\n")
        spec, num_parts = f"tsv:{tmp_path}/*.tsv*", 2 + 6
    else:
        for code, lines in texts.items():
            with gzip.open(tmp_path / f"x.{code}.gz", "wt") as file:
                file.write("\n".join(lines) + "\n")
        spec, num_parts = f"moses:{tmp_path}/x", 1
    assert read_in_parts(spec, num_parts) == list(specs.read_corpus(spec, _LANGUAGES))
    limited = f"{spec}[:7]"
    assert read_in_parts(limited) == list(specs.read_corpus(limited, _LANGUAGES))


def test_broken_rows_are_named_by_their_lines_in_the_file(tmp_path):
    rows = [f"de {n}\ten {n}" for n in range(100)]
    rows[80] = "one cell"
    (tmp_path / "a.tsv").write_text("\n".join(["de\ten", *rows]) + "\n")
    with pytest.raises(ValueError, match=r"a\.tsv:82: a row must have 2 cells") as error:
        read_in_parts(f"tsv:{tmp_path}/a.tsv")
    with pytest.raises(ValueError) as whole:
        list(specs.read_corpus(f"tsv:{tmp_path}/a.tsv", _LANGUAGES))
    assert str(error.value) == str(whole.value)


def test_moses_files_of_unequal_lengths_are_refused_before_they_are_read(tmp_path):
    (tmp_path / "x.de").write_text("a\n" * 70)
    (tmp_path / "x.en").write_text("a\n" * 71)
    with pytest.raises(ValueError) as error:
        read_in_parts(f"moses:{tmp_path}/x")
    with pytest.raises(ValueError) as whole:
        list(specs.read_corpus(f"moses:{tmp_path}/x", _LANGUAGES))
    assert str(error.value) == str(whole.value)


@pytest.mark.parametrize("kind", ["tsv", "moses"])
def test_a_file_without_text_is_found_when_its_parts_have_been_read(tmp_path, kind):
    if kind == "tsv":
        (tmp_path / "a.tsv").write_text("de\ten\n" + "\t\n" * 200)
        spec = f"tsv:{tmp_path}/a.tsv"
    else:
        (tmp_path / "a.de").write_text("Wort\n" * 100)
        (tmp_path / "a.en").write_text("\n" * 100)
        spec = f"moses:{tmp_path}/a"
    files = parts.list_files(spec, _LANGUAGES)
    indexes = [parts.index_file(spec, path, _LANGUAGES) for path in files]
    found = parts.split(spec, indexes, _LANGUAGES)
    counts = {files[0]: {"languages": {} if kind == "tsv" else {"de": True}}}
    with pytest.raises(ValueError) as error:
        parts.check_text(found, counts, _LANGUAGES)
    with pytest.raises(ValueError) as whole:
        list(specs.read_corpus(spec, _LANGUAGES))
    assert str(error.value) == str(whole.value)


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
    assert parts.list_files("tsv:s3://b/d/**/*.tsv", _LANGUAGES) == urls[:3]
    assert store.match("s3://b/d/*/*.tsv") == urls[1:2]
    assert store.match("s3://b/d/**/e/*.tsv") == urls[1:2]


@contextlib.contextmanager
def full_disk():
    """Files of more than a hundred bytes have no room; pytest's own output may be one, outside."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("work", ["index", "read", "fetch"])
def test_a_full_disk_for_temporary_files_is_named(tmp_path, monkeypatch, work):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "a.tsv").write_text("de\ten\n" + "ein Haus\ta house\n" * 100)
    spec, path = f"tsv:{tmp_path}/a.tsv", str(tmp_path / "a.tsv")
    part = parts.split(spec, [parts.index_file(spec, path, _LANGUAGES)], _LANGUAGES)[1]
    if work == "fetch":
        pytest.importorskip("apache_beam")
        files = types.SimpleNamespace(open=lambda *_, **__: io.BytesIO(b"x" * 5000))
        monkeypatch.setattr(store, "_files", lambda: files)
    with pytest.raises(OSError) as error, full_disk():
        if work == "index":
            parts.index_file(spec, path, _LANGUAGES)
        elif work == "read":
            list(parts.read_part(part, _LANGUAGES))
        else:
            store.fetch("s3://b/a.tsv", tmp_path / "temporary/a.tsv")
    assert error.value.filename == str(tmp_path / "temporary") and error.value.strerror
