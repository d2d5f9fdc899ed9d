"""What tests of several commands begin with."""

from pathlib import Path

import pytest

from tests.cli.encoder_for_cli import write_encoder


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model directory with a small encoder."""
    return write_encoder(tmp_path_factory.mktemp("model"))
