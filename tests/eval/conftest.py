"""An encoder in the place of one that is loaded."""

import types

import pytest

import xling_jax


@pytest.fixture
def stand_in(monkeypatch):
    """A function that has `xling_jax.load` give an encoder of this function of texts."""

    def replace(encode):
        encoder = types.SimpleNamespace(encode=encode, fingerprint="abc", dtype="float32")
        monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: encoder)

    return replace
