"""What tests of several commands begin with."""

from pathlib import Path

import pytest

import xling_jax
from tests.cli.documents_for_cli import make_encoder, write_files
from tests.cli.encoder_for_cli import write_encoder


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model directory with a small encoder."""
    return write_encoder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def document_encoder():
    """An encoder of the documents of `files`."""
    return make_encoder()


@pytest.fixture
def encoder(document_encoder, monkeypatch):
    """The same, loaded whatever model is named."""
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: document_encoder)
    return document_encoder


@pytest.fixture
def files(tmp_path, caplog) -> Path:
    """A directory of documents in two languages."""
    caplog.set_level("INFO")
    write_files(tmp_path)
    return tmp_path


@pytest.fixture
def fails(capsys):
    """Checks a status and that the error is one line; returns the line."""

    def fails(status: int, expected: int) -> str:
        assert status == expected
        lines = capsys.readouterr().err.splitlines()
        (line,) = [line for line in lines if line.startswith("xling ")]
        assert line.partition(": ")[2].startswith("error: ")
        return line

    return fails
