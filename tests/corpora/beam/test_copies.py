"""Corpora at URLs, as workers read them."""

import fsspec
import pytest

from xling_jax.corpora.beam.engine import copied
from xling_jax.corpora.specs import open_corpus

_LANGUAGES = ("de", "en")


@pytest.fixture
def store():
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


def files_of(spec: str) -> list[str]:
    with copied(open_corpus(spec), 0) as (reader, name_of):
        return list(map(name_of, reader.files(_LANGUAGES)))


def test_errors_name_the_file_and_not_its_copy(store):
    store.pipe_file("/b/d/a.tsv", b"de\ten\n\n")
    with (
        pytest.raises(ValueError, match=r"^memory://b/d/a\.tsv: no row holds text"),
        copied(open_corpus("tsv:memory://b/d/*.tsv")) as (reader, name_of),
    ):
        rows = reader.rows(_LANGUAGES)
        assert name_of(next(rows).file) == "memory://b/d/a.tsv"
        next(rows)
    with pytest.raises(FileNotFoundError, match=r"^tsv:memory://b/e/\*\.tsv: no such file"):
        files_of("tsv:memory://b/e/*.tsv")
