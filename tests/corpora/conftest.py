"""Settings of preparation for tiny corpora."""

import pytest

from xling_jax.corpora import pair_text, pair_tokens


@pytest.fixture
def small_chunks(monkeypatch):
    """Few rows make several chunks and shards."""
    monkeypatch.setattr(pair_text, "CHUNK_ROWS", 40)
    monkeypatch.setattr(pair_tokens, "SHARD_ROWS", 90)
