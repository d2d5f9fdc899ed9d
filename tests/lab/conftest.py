"""Text and a vocabulary for the encoders of these tests."""

from tests.encode.conftest import sentences, vocab

__all__ = ["sentences", "vocab"]
