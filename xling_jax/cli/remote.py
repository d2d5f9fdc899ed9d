"""Inputs and outputs of commands at URLs: copied here, and what is new copied back."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from xling_jax.cli.options import flag
from xling_jax.corpora.copies import cache_for, local_names
from xling_jax.files import urls
from xling_jax.files.whole import temporary_directory
from xling_jax.options import OptionError, wrong_use

_HAVE_WORKDIRS = ("prepare", "train")


@contextlib.contextmanager
def local_arguments(args: argparse.Namespace) -> Iterator[None]:
    """Gives a command paths on this machine for the URLs among its arguments, during a block.

    An output is copied to its URL when the block ends without an error. `args` gets `is_remote`,
    True if the output is at a URL.
    """
    local_only = {"workdir"} if args.command not in _HAVE_WORKDIRS else set()
    local_only |= {"model"} if args.command == "calibrate" else set()  # it writes into it
    given = vars(args)
    for name in local_only:
        if urls.is_url(given.get(name)):
            needs = f"xling {args.command} needs a local directory"
            raise OptionError(f"{flag(name)} {given[name]}: {needs}")
    url = given.get("output")
    args.is_remote = urls.is_url(url)
    for name in given.keys() - {"output", "words", "workdir", "config", "config_overrides"}:
        given[name] = local_names(given[name])
    if not args.is_remote:
        yield
        return
    url = url.rstrip("/")
    with wrong_use():
        is_there = not given.get("overwrite") and urls.exists(url)
    if is_there:
        raise OptionError(f"{url}: exists; choose another --output or add --overwrite")
    local = cache_for("outputs") / url.rpartition("/")[2]
    with temporary_directory(local) as directory:
        args.output = str(directory / local.name)
        yield
        urls.put(Path(args.output), url)
