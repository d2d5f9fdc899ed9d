"""`python -m xling_jax.cli.mldoc`: builds MLDoc from the licensed Reuters corpora."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from xling_jax.cli.common import UsageError, refuse_existing, require_file
from xling_jax.cli.evaluation import words

EPILOG = """\
example:
  git clone https://github.com/facebookresearch/MLDoc
  python -m xling_jax.cli.mldoc --rcv rcv1 RCV2_Multilingual_Corpus \\
      --indices MLDoc/mldoc-indices --languages en,de,fr,es,it --output mldoc
  xling evaluate classification --model M --data mldoc --classifiers mlp --output O
"""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m xling_jax.cli.mldoc",
        description="Builds MLDoc from the Reuters corpora RCV1 and RCV2, which NIST licenses, "
        "and the published lists of documents. Writes {train,dev,test}.LANG.tsv.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rcv",
        required=True,
        nargs="+",
        metavar="DIR",
        help="directories of RCV1 and RCV2: folders or zip archives of XML files, at any depth",
    )
    parser.add_argument(
        "--indices", required=True, metavar="DIR", help="MLDoc's lists, english.train.1000 ..."
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="the directory to write")
    parser.add_argument("--languages", type=words, metavar="CODE,CODE", help="en,de ... (all)")
    parser.add_argument(
        "--train-size", type=int, default=1000, metavar="N", help="training documents (1000)"
    )
    parser.add_argument(
        "--raw", action="store_true", help="keep the copyright lines and spacing LASER removes"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output")
    return parser


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
        UsageError: if an input is missing, an argument is unknown or the output exists.
        ValueError, OSError: if the corpora are broken or incomplete, or writing fails.
    """
    from xling_jax.eval import mldoc

    refuse_existing(args.output, args.overwrite)
    for path in (*args.rcv, args.indices):
        require_file(path, "--indices" if path == args.indices else "--rcv")
    if args.train_size not in mldoc.TRAIN_SIZES:
        raise UsageError(f"--train-size {args.train_size}: must be one of {mldoc.TRAIN_SIZES}")
    for code in args.languages or ():
        if code not in mldoc.LANGUAGES.values():
            known = ", ".join(mldoc.LANGUAGES.values())
            raise UsageError(f"--languages: MLDoc has no {code}; it has {known}")
    mldoc.build_mldoc(
        args.rcv,
        args.indices,
        args.output,
        languages=args.languages,
        train_size=args.train_size,
        clean=not args.raw,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 done, 1 failed, 2 called wrongly."""
    parser = make_parser()
    args = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    try:
        run(args)
    except (ValueError, OSError) as error:
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            text = f"{error.filename}: {error.strerror}"
        print(f"{parser.prog}: error: {' '.join(text.split())}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
