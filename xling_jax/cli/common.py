"""What the commands share: errors of use, configs, outputs."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from ml_collections import ConfigDict

from xling_jax import config as config_lib
from xling_jax.files.cache import cache_directory


class UsageError(ValueError):
    """The command was called wrongly; exit status 2."""


def refuse_existing(path: str | os.PathLike, overwrite: bool) -> None:
    """Raises `UsageError` if an output exists and may not be replaced."""
    if str(path) != "-" and Path(path).exists() and not overwrite:
        raise UsageError(f"{path}: exists; choose another --output or add --overwrite")


def require_file(path: str | os.PathLike, argument: str) -> Path:
    """Returns an input path that exists, or raises `UsageError` naming the argument."""
    if not Path(path).exists():
        raise UsageError(f"{argument} {path}: no such file or directory")
    return Path(path)


def keep_compiled_programs() -> None:
    """Makes JAX keep compiled programs in the user's cache directory, for the next start.

    Does nothing if that cannot be written, or if JAX_COMPILATION_CACHE_DIR or this process has
    already chosen a directory.
    """
    import jax

    if "JAX_COMPILATION_CACHE_DIR" in os.environ or jax.config.jax_compilation_cache_dir:
        return
    directory = cache_directory(os.environ)
    try:
        if directory:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return
    if directory and os.access(directory, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(directory))
        # Encoders compile a program for each length; JAX keeps only those that took a second.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def load_config(path: str, overrides: Sequence[str] = (), *, training: bool = True) -> ConfigDict:
    """A config with command-line overrides, see `xling_jax.config.load_config`.

    Args:
        path: of the file, or name of a packaged config.
        overrides: `--config.a.b=value`.
        training: whether it is one of training, to be completed; others are taken as they are.

    Raises:
        UsageError: for a missing file, an unknown key or a value of the wrong type.
    """
    try:
        return config_lib.load_config(path, overrides, None if training else lambda config: None)
    except config_lib.ConfigError as error:
        raise UsageError(str(error)) from error


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--config` and `--workdir`."""
    parser.add_argument(
        "--config",
        required=True,
        metavar="NAME[:ARG]",
        help="name of a packaged config, or a config file, e.g. ct_laser:small; any key can be "
        "changed by --config.SECTION.KEY=VALUE",
    )
    parser.add_argument(
        "--workdir", required=True, help="directory of the run; a run that is there is continued"
    )
