"""Where files are kept that can be made or fetched again."""

import os
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str]) -> Path | None:
    """`$XDG_CACHE_HOME/xling_jax`, else `~/.cache/xling_jax`; None without a home directory.

    Follows the XDG Base Directory Specification. The library itself does not read `os.environ`.
    """
    top = environment.get("XDG_CACHE_HOME", "")
    try:
        # The specification says to ignore relative paths.
        return Path(top if os.path.isabs(top) else Path.home() / ".cache", "xling_jax")
    except RuntimeError:
        return None
