"""Where the user's cache is, and what JAX keeps there."""

import contextlib
import os
from pathlib import Path

from xling_jax.options import OptionError


def cache_is_chosen() -> bool:
    """True if JAX_COMPILATION_CACHE_DIR is set, if only to nothing, which keeps no programs."""
    return "JAX_COMPILATION_CACHE_DIR" in os.environ


def keeps_collectives() -> bool:
    """Returns whether programs may come from a cache: not where several CPU devices share a batch.

    Two processes that continued a run with cached programs aborted, because their collectives did
    not match. XLA orders the collectives of a program for CPUs by one resource, but gives those in
    a loop or branch a resource of their own when it reads the program from a cache
    (`ThunkSequenceSerDesProtobuf`), so they may overtake the others. That only CPUs are affected
    follows from the sources of XLA and JAX; it was not tested on GPUs or TPUs.
    """
    import jax

    return jax.default_backend() != "cpu" or jax.device_count() == 1


def keep_compiled_programs() -> None:
    """Makes JAX keep compiled programs in the user's cache directory, for the next start.

    Does nothing if that cannot be written, if JAX_COMPILATION_CACHE_DIR or this process has already
    chosen a directory, or on several CPU devices.
    """
    import jax

    if cache_is_chosen() or jax.config.jax_compilation_cache_dir or not keeps_collectives():
        return
    with contextlib.suppress(OSError, OptionError):
        directory = cache_for("")
        if os.access(directory, os.W_OK):
            jax.config.update("jax_compilation_cache_dir", str(directory))
            # Encoders compile a program for each length; JAX keeps only those that took a second.
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def cache_for(kind: str) -> Path:
    """A directory in the user's cache, made if needed; OptionError if there is no place for it.

    The cache is `$XDG_CACHE_HOME/xling_jax`, else `~/.cache/xling_jax`.
    """
    top = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG Base Directory Specification says to ignore relative paths.
        directory = Path(top if os.path.isabs(top) else Path.home() / ".cache", "xling_jax", kind)
    except RuntimeError:  # without a home directory
        message = "there is no place for a cache: set XDG_CACHE_HOME or HOME"
        raise OptionError(message) from None
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory
