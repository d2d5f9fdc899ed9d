"""`xling COMMAND`: imports the command, runs it, turns its errors into one line."""

from __future__ import annotations

import _thread
import argparse
import logging
import os
import platform
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

from xling_jax.cli.options import LazyParser, add_subcommands, flag
from xling_jax.files import progress
from xling_jax.files.leaving import leave
from xling_jax.files.untrusted import printable
from xling_jax.options import OptionError
from xling_jax.registry import Registry
from xling_jax.version import __version__

COMMANDS = Registry(
    "command",
    prepare=("xling_jax.cli.prepare_data", "clean corpora, train the vocabulary, write tokens"),
    train=("xling_jax.cli.train", "train an encoder from a config, or continue a run"),
    embed=("xling_jax.cli.embed", "turn text into vectors"),
    evaluate=("xling_jax.cli.evaluate", "measure an encoder"),
    mine=("xling_jax.cli.mine", "find translations in two texts, or score given pairs"),
    calibrate=("xling_jax.cli.calibrate", "measure what the scores of mined pairs mean"),
    align=("xling_jax.cli.align", "pair translated documents"),
    **{"align-sentences": ("xling_jax.cli.align_sentences", "align the sentences of documents")},
    export=("xling_jax.cli.export", "write a smaller model, ONNX or other formats"),
    reproduce=("xling_jax.cli.reproduce", "train and measure the tables of the papers"),
    report=("xling_jax.cli.report", "write one HTML page from runs and results"),
    convert=("xling_jax.cli.convert", "turn a published checkpoint into a model directory"),
    search=("xling_jax.cli.search", "find the lines of a text by their meaning"),
    serve=("xling_jax.cli.serve", "answer over HTTP, in the API of OpenAI's embeddings"),
    quickstart=("xling_jax.cli.quickstart", "see an encoder at work, then train a small one"),
)

EPILOG = """\
example:
  xling train --config ct_laser:small --workdir runs/ct_laser \\
      --config.data.corpora="('tsv:corpora/*.tsv.gz',)"
  xling embed --model runs/ct_laser --input text.de --output text.de.npy

Inputs, outputs and the workdirs of prepare and train may be at gs://BUCKET/PATH
(pip install 'xling_jax[gcs]'); copies are cached in $XDG_CACHE_HOME/xling_jax, or else
~/.cache/xling_jax.
"""

# Commands that spend their time in XLA.
_COMPUTING = {"train", "embed", "align", "align-sentences", "quickstart", "reproduce"}
# Commands that keep what is done and go on from there.
_CONTINUING = {"prepare", "train", "mine", "quickstart", "reproduce"}

# How an error of the library names an argument and its value, and further ones.
_KEYWORD = re.compile("^[a-z_]+(?==| must be )|(?<= )[a-z_]+(?==')")
# How it names an option of a config.
_CONFIG_OPTION = re.compile(
    r"((data|cleaning|vocab|encoder|decoder|head|objective|optimizer|schedule"
    r"|train|evaluation|mesh)(\.[a-z]\w*)+)(?=[:= ])"
)


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = LazyParser(
        prog="xling",
        description="Cross-lingual sentence and document embeddings.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument(
        "--quiet", action="store_true", help="log warnings and errors only, and show no progress"
    )
    add_subcommands(parser, COMMANDS, _fill, dest="command")
    return parser


def _fill(name: str, parser: argparse.ArgumentParser) -> None:
    """Imports a command, whose docstring is the description, and adds its arguments."""
    command = COMMANDS[name]
    parser.description, parser.epilog = command.__doc__, command.EXAMPLES
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _set_up(quiet: bool) -> None:
    """Configures logging, and what libraries leave alone."""
    level = logging.WARNING if quiet else logging.INFO
    handlers = [progress.LogHandler(sys.stderr)]
    logging.basicConfig(
        level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", handlers=handlers
    )
    progress.hide_bars(quiet)
    for noisy in ("jax", "orbax", "tensorflow", "fsspec", "gcsfs", "datasets"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # It warns that it builds its font cache, at the first picture after an installation.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # orbax logs tracebacks of errors that it also raises, and warns about checkpoints without
    # metrics; asyncio logs those of reads and writes of which another has already failed.
    for noisy in ("absl", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    # TensorFlow would announce oneDNN with each process; it only reads files here.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    # Checkpoints at URLs go through etils, which uses TensorFlow wherever that is installed unless
    # told otherwise before its first path.
    os.environ.setdefault("EPATH_USE_TF", "0")
    # gcsfs would ask another service for the kind of bucket, for a minute where it may not.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # A compiled program that is not cached, on a full disk say, only costs time at the next start.
    warnings.filterwarnings("ignore", message=".*persistent compilation cache")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status: 0 done, 1 failed, 2 wrong use."""
    if sys.stdout is None:  # a file that is opened later would take its place
        print("xling: error: stdout is closed; redirect it, say to /dev/null", file=sys.stderr)
        return 1
    parser, words = make_parser(), sys.argv[1:] if argv is None else [*argv]
    # The shell leaves alone the ~ of `--input=~/text.de`.
    whole = [re.sub(r"^(--[\w-]+=)~/", rf"\1{os.path.expanduser('~/')}", word) for word in words]
    args, rest = parser.parse_known_args(whole)
    args.words = words  # for what records its command
    for name in ("debug", "quiet"):  # after the command as well
        if f"--{name}" in rest:
            rest.remove(f"--{name}")
            setattr(args, name, True)
    overrides = [word for word in rest if word.startswith("--config.")]
    unknown = [word for word in rest if word not in overrides]
    if bare := [word for word in overrides if "=" not in word]:
        args.parser.error(f"{bare[0]} needs a value: {bare[0]}=VALUE")
    if unknown or (overrides and not hasattr(args, "config")):
        args.parser.refuse((unknown or overrides)[0])
    args.config_overrides = overrides
    _set_up(args.quiet)
    from xling_jax.cli.arguments import local_arguments
    from xling_jax.cli.shards import name_output

    try:
        name_output(args)
        with local_arguments(args):
            status = args.run(args) or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        then = "; run the same command to resume" if args.command in _CONTINUING else ""
        print(f"xling {args.command}: interrupted{then}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of stdout has closed it, which is no failure of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        if args.debug:
            print(printable(traceback.format_exc()), end="", file=sys.stderr)
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            text = f"{error.filename2 or error.filename}: {error.strerror}"
        text = " ".join(text.split())
        text = _KEYWORD.sub(lambda m: flag(m[0]) if hasattr(args, m[0]) else m[0], text)
        option = _CONFIG_OPTION.match(text) if hasattr(args, "config") else None
        if option and not os.path.exists(option[1]):
            text = f"--config.{text}"
        print(f"xling {args.command}: error: {printable(text)}", file=sys.stderr)
        return 2 if isinstance(error, OptionError) else 1


def _use_large_pages() -> None:
    """Restarts this process with memory in large pages.

    XLA allocates the buffers of every step anew, and on a CPU the kernel then spends up to half of
    the time handing out small pages. glibc reads its settings only when a process starts. Settings
    of the user's own are respected.
    """
    if platform.libc_ver()[0] == "glibc" and "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    """Handles an exception where none can be raised, such as in a callback of the collector.

    A Ctrl-C that comes there is sent again. Other exceptions, which Python would ignore anyway
    (those of the remaining reads of a damaged checkpoint, for one), are shown with `--debug` only.
    """
    if args.exc_type is KeyboardInterrupt:
        # Not `threading`, whose locks the interrupted code may hold.
        _thread.start_new_thread(_interrupt_soon, ())
    elif "--debug" in sys.argv:
        sys.__unraisablehook__(args)


def _interrupt_soon() -> None:
    time.sleep(0.05)  # until the callback has ended
    os.kill(os.getpid(), signal.SIGINT)


def entry() -> NoReturn:
    """The console script."""
    sys.unraisablehook = _unraisable
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # not stdout
    if sys.stdout is not None:
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    try:
        if _COMPUTING.intersection(sys.argv[1:2]):
            _use_large_pages()
        status = main()
    except KeyboardInterrupt:  # while modules are imported
        print("xling: interrupted", file=sys.stderr)
        status = 130
    # All outputs are settled. Taking the interpreter down would destroy the devices of JAX under
    # threads that still compute, which has ended in segmentation faults.
    leave(status)


if __name__ == "__main__":
    entry()
