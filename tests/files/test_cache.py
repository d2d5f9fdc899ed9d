"""The cache directory."""

from pathlib import Path

from xling_jax.files.cache import cache_directory


def test_it_follows_the_xdg_specification(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    at_home = Path("/home/me/.cache/xling_jax")
    assert cache_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/xling_jax")
    for ignored in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_directory(ignored) == at_home


def test_without_a_home_there_is_none(monkeypatch):
    def no_home():
        raise RuntimeError

    monkeypatch.setattr(Path, "home", no_home)
    assert cache_directory({}) is None
