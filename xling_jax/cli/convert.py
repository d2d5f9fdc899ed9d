"""`xling convert`: a published checkpoint into a model directory."""

import argparse
import logging
from typing import Any

from xling_jax.cli.common import UsageError, refuse_existing, require_file
from xling_jax.data.languages import is_code, to_iso639_1

logger = logging.getLogger(__name__)

_EXAMPLE = """example:
  xling convert --from laser laser2.pt --output models/laser2
  xling convert --from laser bilstm.93langs.2018-12-26.pt --output models/laser --language de

The checkpoint's laser2.spm, or 93langs.fcodes and 93langs.fvocab, lie beside it or are named by
--vocabulary. PyTorch reads the checkpoint (pip install torch); the model needs it no more.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the parser of `xling`."""
    parser = subparsers.add_parser(
        "convert",
        help="turn a published checkpoint into a model directory",
        description="Turns a published LASER encoder (a BiLSTM: LASER of 2018, or LASER2) into a "
        "model directory that gives the same vectors, text preprocessing included.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from", dest="source", required=True, choices=("laser",), help="who published it"
    )
    parser.add_argument("checkpoint", metavar="PATH", help="checkpoint file (.pt)")
    parser.add_argument("--output", required=True, help="model directory to write")
    parser.add_argument(
        "--vocabulary",
        metavar="FILE",
        help="its .spm or .fcodes file; by default the one beside the checkpoint",
    )
    parser.add_argument(
        "--language",
        default="en",
        metavar="CODE",
        help="language whose Moses rules prepare all text, one for the model; el romanises for "
        "the encoder of 2018 (default: en, as laser_encoders does for every language)",
    )
    parser.add_argument(
        "--languages", default="", metavar="CODES", help="training languages to record: en,de,…"
    )
    parser.add_argument(
        "--max-length-tokens",
        type=int,
        default=2048,
        metavar="N",
        help="longer texts are cut (default: 2048; LASER has no limit)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing model")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
        UsageError: if an input is missing, the output exists or an option is out of range.
        ImportError: without PyTorch.
        ValueError, OSError: if a file is not what it should be, or writing fails.
    """
    require_file(args.checkpoint, "PATH")
    if args.vocabulary is not None:
        require_file(args.vocabulary, "--vocabulary")
    if args.max_length_tokens < 2:
        raise UsageError(f"--max-length-tokens {args.max_length_tokens} must be at least 2")
    language = to_iso639_1(args.language)
    if not is_code(language):
        raise UsageError(f"--language {args.language!r} must be a language code such as de")
    refuse_existing(args.output, args.overwrite)

    from xling_jax.encode.laser_checkpoint import convert_laser

    recorded = convert_laser(
        args.checkpoint,
        args.output,
        vocabulary=args.vocabulary,
        language=language,
        languages=[code for code in args.languages.split(",") if code],
        max_length_tokens=args.max_length_tokens,
        overwrite=args.overwrite,
    )
    logger.info(
        "%s: written; the dictionary holds %s pieces of %s",
        *(args.output, recorded["pieces_in_dictionary"], recorded["vocabulary"]),
    )
