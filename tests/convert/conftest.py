"""Text that the encoders of these tests read."""

from tests.encode.conftest import sentences

__all__ = ["sentences"]
