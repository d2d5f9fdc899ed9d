"""The cache directory."""

from pathlib import Path

import pytest

from xling_jax.files.cache import cache_directory


@pytest.mark.parametrize("top", ["", "relative", "/c"])
def test_it_follows_the_xdg_specification(monkeypatch, top):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", top)
    expected = "/c/xling_jax" if top == "/c" else "/home/me/.cache/xling_jax"
    assert cache_directory() == Path(expected)


def test_without_a_home_there_is_none(monkeypatch):
    def no_home():
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_directory() is None
