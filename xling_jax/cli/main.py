"""`xling COMMAND`: finds the command, turns its errors into one line."""

import argparse
import importlib
import logging
import os
import platform
import sys
import traceback
import warnings
from collections.abc import Sequence

import xling_jax
from xling_jax.cli.common import UsageError
from xling_jax.cli.remote import local_arguments

COMMANDS = (
    "prepare_data",
    "train",
    "embed",
    "evaluate",
    "mine",
    "align",
    "report",
    "convert",
    "quickstart",
)

EPILOG = """\
example:
  xling train --config configs/ct_laser.py:small --workdir runs/ct_laser \\
      --config.data.corpora="('tsv:corpora/*.tsv.gz',)"
  xling embed --model runs/ct_laser --input text.de --output text.de.npy

Inputs, outputs and the workdirs of prepare and train may be at gs://BUCKET/PATH
(pip install 'xling_jax[gcs]'); copies are kept in $XDG_CACHE_HOME/xling_jax or ~/.cache/xling_jax.
"""


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="xling",
        description="Cross-lingual sentence and document embeddings.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=xling_jax.__version__)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"xling_jax.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status: 0 done, 1 failed, 2 called wrongly."""
    parser = make_parser()
    args, rest = parser.parse_known_args(argv)
    overrides = [word for word in rest if word.startswith("--config.")]
    unknown = [word for word in rest if word not in overrides]
    if unknown or (overrides and not hasattr(args, "config")):
        parser.error(f"{args.command}: unknown argument {(unknown or overrides)[0]}")
    args.config_overrides = overrides
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    for noisy in ("jax", "orbax", "tensorflow", "fsspec", "gcsfs"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # orbax logs tracebacks of errors that it also raises, and warns of checkpoints without metrics.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Checkpoints at URLs go through etils, which takes TensorFlow wherever that is installed, and
    # decides when it is first asked for any path.
    os.environ.setdefault("EPATH_USE_TF", "0")
    # gcsfs would ask another service for the kind of bucket, for a minute where it may not.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # A compiled program that is not kept, on a full disk say, costs time at the next start only.
    warnings.filterwarnings("ignore", message=".*persistent compilation cache")
    try:
        with local_arguments(args):
            return args.run(args) or 0
    except KeyboardInterrupt:
        print(f"xling {args.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of stdout went away; nothing is wrong with us
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        if args.debug:
            traceback.print_exc()
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            text = f"{error.filename}: {error.strerror}"
        text = " ".join(text.split())
        print(f"xling {args.command}: error: {text}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


# Commands whose time goes into XLA.
_COMPUTING = {"train", "embed", "align", "quickstart"}


def _use_large_pages() -> None:
    """Starts this process anew with memory in large pages.

    XLA allocates the buffers of a step anew each time, and on a CPU the kernel then spends up to
    half of the time on handing out small pages. glibc reads its settings at the start of a process
    only. A user's own settings are respected.
    """
    if platform.libc_ver()[0] == "glibc" and "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def entry() -> None:
    """The console script."""
    if _COMPUTING.intersection(sys.argv[1:2]):
        _use_large_pages()
    sys.exit(main())


if __name__ == "__main__":
    entry()
