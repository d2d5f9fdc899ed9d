"""Where the user's cache is, and what JAX keeps there."""

import contextlib
import os
from pathlib import Path


def cache_is_chosen() -> bool:
    """True if JAX_COMPILATION_CACHE_DIR is set, if only to nothing, which keeps no programs."""
    return "JAX_COMPILATION_CACHE_DIR" in os.environ


def keeps_collectives() -> bool:
    """False on CPU devices that compute together, whose programs must not come from a cache.

    Devices must meet in the same order of collectives. In a program for CPUs, one resource orders
    all of them; when XLA reads the program from a cache, those in a loop or branch get a resource
    of their own (`ThunkSequenceSerDesProtobuf` in XLA) and may overtake the others. Two processes
    then abort. GPUs and TPUs run collectives in the order in which they were compiled, read from a
    cache or not: the first process writes them, and all have the same key.
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
    directory = cache_directory()
    with contextlib.suppress(OSError):
        if directory:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory and os.access(directory, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(directory))
        # Encoders compile a program for each length; JAX keeps only those that took a second.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def cache_directory() -> Path | None:
    """`$XDG_CACHE_HOME/xling_jax`, else `~/.cache/xling_jax`; None without a home directory."""
    top = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG Base Directory Specification says to ignore relative paths.
        return Path(top if os.path.isabs(top) else Path.home() / ".cache", "xling_jax")
    except RuntimeError:
        return None
