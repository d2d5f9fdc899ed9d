"""Where compiled programs are kept: where the user says, else in the user's cache."""

import os

import jax
import pytest

import xling_jax
from xling_jax.files.cache import cache_is_chosen, keep_compiled_programs


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home of the test's own; JAX is left as it was found."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    for name, value in before.items():
        jax.config.update(name, value)


def directory():
    keep_compiled_programs()
    return jax.config.jax_compilation_cache_dir


@pytest.mark.parametrize("caches", [None, "relative"])
def test_the_directory_is_in_the_home(caches, home, monkeypatch):
    if caches is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", caches)
    assert directory() == str(home / ".cache" / "xling_jax")
    assert (home / ".cache" / "xling_jax").stat().st_mode & 0o777 == 0o700


def test_the_choice_of_the_user_stands(home, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert directory() == str(tmp_path / "caches" / "xling_jax")
    jax.config.update("jax_compilation_cache_dir", "/workdir")
    assert directory() == "/workdir"
    jax.config.update("jax_compilation_cache_dir", None)
    for chosen in ("/elsewhere", ""):
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", chosen)
        assert cache_is_chosen() and directory() is None  # JAX reads the variable itself.
    assert not home.exists()


def test_nothing_is_kept_where_that_cannot_be_or_is_not_ours(home, monkeypatch):
    with monkeypatch.context() as several:
        several.setattr(jax, "device_count", lambda: 2)
        assert directory() is None and not home.exists()
    with monkeypatch.context() as of_others:
        of_others.setattr(os, "access", lambda path, mode: False)
        assert directory() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/caches")
    assert directory() is None


def test_programs_of_an_encoder_are_kept(model_directory, home):
    xling_jax.load("mini")
    xling_jax.load(model_directory, backend="numpy")
    assert jax.config.jax_compilation_cache_dir is None
    xling_jax.load(model_directory, backend="jax")
    assert jax.config.jax_compilation_cache_dir == str(home / ".cache" / "xling_jax")
