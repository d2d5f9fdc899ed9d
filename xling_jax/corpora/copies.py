"""Local copies of what a config or a command names at URLs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xling_jax.corpora.readers import READERS
from xling_jax.corpora.specs import open_corpus
from xling_jax.files import urls
from xling_jax.files.cache import cache_directory
from xling_jax.options import OptionError, wrong_use


def local_names(value: Any) -> Any:
    """A value with `local_name` of all strings in it."""
    if isinstance(value, Mapping):
        return {key: local_names(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(local_names, value))
    return local_name(value) if isinstance(value, str) else value


def local_name(name: str) -> str:
    """Copies what is at a URL to this machine, and returns the name of the copy.

    The name is the URL of a file, a directory or files by a pattern, or a corpus `KIND:URL`. Of any
    other only `~/` is expanded.
    """
    if urls.is_url(name):
        with wrong_use(errors=(ValueError, FileNotFoundError)):
            urls.check(name)
            is_run = urls.exists(f"{name.rstrip('/')}/metrics.jsonl")
            without = ("checkpoints", "data", "vocab") if is_run else ()  # only training needs them
            return str(urls.fetch(name, cache_for("inputs"), without))
    if "://" in name and name.partition(":")[0] in READERS:
        return open_corpus(name).at(local_name).name
    return os.path.expanduser(name) if name.startswith("~/") else name


def cache_for(kind: str) -> Path:
    """A directory for copies."""
    directory = cache_directory()
    if directory is None:
        raise OptionError("URLs are copied to a cache directory: set XDG_CACHE_HOME or HOME")
    (directory / kind).mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory / kind
