"""What several tests of training start from."""

from pathlib import Path

import pytest

from tests.train.synthetic import write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Token shards of a few hundred made-up pairs, and of some that are held out."""
    directory = tmp_path_factory.mktemp("corpus")
    write_corpus(directory)
    write_corpus(directory / "validation", rows=37, seed=1)
    return directory
