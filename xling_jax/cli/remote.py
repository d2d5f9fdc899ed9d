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

_OUTPUTS = ("output", "save_debias")
_HAVE_WORKDIRS = ("prepare", "train")
_CHANGE_MODELS = ("calibrate",)


@contextlib.contextmanager
def local_arguments(args: argparse.Namespace) -> Iterator[None]:
    """Gives a command paths on this machine for the URLs among its arguments, during a block.

    Outputs are copied to their URLs when the block ends without an error. `args` gets `is_remote`,
    True if an output is at a URL.
    """
    if urls.is_url(getattr(args, "workdir", None)) and args.command not in _HAVE_WORKDIRS:
        raise OptionError(f"--workdir {args.workdir}: xling {args.command} needs a local directory")
    if args.command in _CHANGE_MODELS and urls.is_url(args.model):
        raise OptionError(f"--model {args.model}: xling {args.command} needs a local directory")
    given = vars(args)
    outputs = {name: given[name].rstrip("/") for name in _OUTPUTS if urls.is_url(given.get(name))}
    args.is_remote = bool(outputs)
    for name in given.keys() - {*_OUTPUTS, "words", "workdir", "config", "config_overrides"}:
        given[name] = local_names(given[name])
    with contextlib.ExitStack() as stack:
        for name, url in outputs.items():
            with wrong_use():
                is_there = not given.get("overwrite") and urls.exists(url)
            if is_there:
                raise OptionError(f"{url}: exists; choose another {flag(name)} or add --overwrite")
            local = cache_for("outputs") / url.rpartition("/")[2]
            given[name] = str(stack.enter_context(temporary_directory(local)) / local.name)
        yield
        for name, url in outputs.items():
            urls.put(Path(given[name]), url)
