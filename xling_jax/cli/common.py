"""What the commands share: errors of use, configs, outputs."""

import argparse
import difflib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict, config_flags

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


def load_config(path: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """A config from its file, with command-line overrides.

    Args:
        path: a Python file with `get_config(arg)`; `FILE.py:ARG` passes ARG.
        overrides: `--config.a.b=value`; of several for one key the last counts.

    Raises:
        UsageError: for a missing file, an unknown key or a value of the wrong type.
    """
    file = path.split(":")[0]
    if not Path(file).is_file():
        raise UsageError(f"--config {file}: no such file; configs/ holds those of the papers")
    # Given twice, a tuple would be joined to the one before.
    overrides = list({word.split("=", 1)[0]: word for word in overrides}.values())
    try:
        config = _parse_flags(config_flags.DEFINE_config_file, path, [f"--config={path}"])
        for word in overrides:
            _check_key(config, word.split("=", 1)[0])
        return _parse_flags(config_flags.DEFINE_config_dict, config, overrides)
    except UsageError:
        raise
    except Exception as error:  # a config file is a program of the user's
        # str() of a KeyError is the repr of its message.
        text = " ".join(str(error.args[0] if error.args else error).split())
        if isinstance(error, SyntaxError):
            text = f"line {error.lineno}: {error.msg}"
        known = isinstance(error, (flags.Error, AttributeError, KeyError, TypeError, ValueError))
        text = text if known else f"{type(error).__name__}: {text}"
        raise UsageError(f"--config {path}: {text}") from error


def _parse_flags(define: Callable, config: str | ConfigDict, words: Sequence[str]) -> ConfigDict:
    """A config as ml_collections reads it, with the words of a command line applied."""
    words = ["xling", *words]
    values = flags.FlagValues()
    define("config", config, lock_config=True, flag_values=values, sys_argv=words)
    values(words)
    return values.config


def _check_key(config: ConfigDict, option: str) -> None:
    """Raises `UsageError` if a config lacks the key of `--config.a.b`; names the near ones."""
    section, where = config, "config"
    for name in option.split(".")[1:]:
        if not isinstance(section, ConfigDict):
            raise UsageError(f"{option}: {where} is a value and has no keys; set {where} itself")
        if name not in section:
            near = difflib.get_close_matches(name, section, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(section)}"
            raise UsageError(f"{option}: {where} has no key {name}; {hint}")
        section, where = section[name], f"{where}.{name}"


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--config` and `--workdir`."""
    parser.add_argument(
        "--config",
        required=True,
        metavar="FILE[:ARG]",
        help="config file, e.g. configs/ct_laser.py:small; any key can be changed by "
        "--config.SECTION.KEY=VALUE",
    )
    parser.add_argument(
        "--workdir", required=True, help="directory of the run; a run that is there is continued"
    )
