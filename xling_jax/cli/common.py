"""What the commands share: errors of use, configs, progress, outputs."""

import argparse
import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ml_collections import ConfigDict
from tqdm import tqdm

from xling_jax import config as config_lib

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
