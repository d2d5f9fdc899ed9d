"""What the commands share: errors of use, configs, progress, outputs."""

import argparse
import contextlib
import difflib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict, config_flags
from tqdm import tqdm

logger = logging.getLogger(__name__)


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
    """Has JAX keep compiled programs in the user's cache directory, for the next start.

    In `$XDG_CACHE_HOME/xling_jax`, else `~/.cache/xling_jax`. Does nothing where that cannot be
    written, or where JAX_COMPILATION_CACHE_DIR or this process has already chosen a directory.
    """
    import jax

    if "JAX_COMPILATION_CACHE_DIR" in os.environ or jax.config.jax_compilation_cache_dir:
        return
    caches = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification has relative paths ignored.
        directory = Path(caches if os.path.isabs(caches) else Path.home() / ".cache", "xling_jax")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home.
        return
    if os.access(directory, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(directory))
        # Encoders compile one program a length; JAX keeps only those that took a second.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@contextlib.contextmanager
def progress(total: int, description: str, unit: str = "step") -> Iterator[tqdm]:
    """A progress bar with rate and time left on a terminal; silent elsewhere (logs tell there)."""
    with tqdm(
        total=total, desc=description, unit=unit, disable=not sys.stderr.isatty(), leave=False
    ) as bar:
        yield bar


class PlainProgress:
    """Progress lines for logs: at most one every `interval_s`, with rate and time left."""

    def __init__(self, description: str, unit: str, interval_s: float = 30.0):
        self._description, self._unit, self._interval = description, unit, interval_s
        self._started = self._last = time.monotonic()
        self._first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Reports `done` of `total`."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._started, self._last = done, now, now
        if now - self._last < self._interval or sys.stderr.isatty():
            return
        self._last = now
        rate = (done - self._first) / max(now - self._started, 1e-9)
        left = (total - done) / rate if rate else float("inf")
        logger.info(
            "%s %d/%d, %.2f %s/s, %.0f s left",
            self._description,
            done,
            total,
            rate,
            self._unit,
            left,
        )


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
