"""`xling convert`: a published checkpoint into a model directory."""

import argparse
import logging
import os
from typing import Any

from xling_jax.cli.common import UsageError, refuse_existing, require_file
from xling_jax.text.languages import is_code, to_iso639_1

logger = logging.getLogger(__name__)

_EXAMPLE = """example:
  xling convert --from huggingface DIR/LaBSE --output models/labse
  xling convert --from huggingface DIR/multilingual-e5-small --output models/e5 --prefix "query: "
  xling convert --from huggingface DIR/xlm-roberta-base --output models/xlmr --layer 8
  xling convert --from laser laser2.pt --output models/laser2
  xling convert --from laser bilstm.93langs.2018-12-26.pt --output models/laser --language de

huggingface: a directory on disk, as `hf download NAME --local-dir DIR` makes it; nothing is
downloaded here. What sentence-transformers put behind the transformer (modules.json) is kept,
unless --pooling or --layer is given. XLM begins a text with <s> as transformers does;
--first-token "</s>" begins it as in training. PyTorch is needed only where the weights are
pytorch_model.bin.

laser: the checkpoint's laser2.spm, or 93langs.fcodes and 93langs.fvocab, lie beside it or are named
by --vocabulary. PyTorch reads the checkpoint (pip install torch); the model needs it no more.
"""

# Options of one source: default is None, or False where they take no value.
_OPTIONS = {
    "laser": ("vocabulary",),
    "huggingface": (
        *("pooling", "layer", "without_specials", "compute_dtype", "prefix", "first_token"),
    ),
}


def add_parser(subparsers: Any) -> None:
    """Adds the command to the parser of `xling`."""
    parser = subparsers.add_parser(
        "convert",
        help="turn a published checkpoint into a model directory",
        description="Turns a published encoder into a model directory that gives the same vectors, "
        "text preprocessing included: BERT, RoBERTa, XLM-R, XLM, DistilBERT and what "
        "sentence-transformers makes of them, or LASER's BiLSTM (of 2018, or LASER2).",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from", dest="source", required=True, choices=tuple(_OPTIONS), help="who published it"
    )
    parser.add_argument("checkpoint", metavar="PATH", help="model directory, or LASER's .pt file")
    parser.add_argument("--output", required=True, help="model directory to write")
    parser.add_argument(
        "--language",
        default="en",
        metavar="CODE",
        help="LASER and XLM: language whose Moses rules prepare all text, one for the model; el "
        "romanises for LASER of 2018 (default: en, as laser_encoders and transformers do for "
        "every language)",
    )
    parser.add_argument(
        "--languages", default="", metavar="CODES", help="training languages to record: en,de,…"
    )
    parser.add_argument(
        "--max-length-tokens",
        type=int,
        metavar="N",
        help="longer texts are cut (default: the model's limit; 2048 for LASER, which has none)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing model")
    _add_laser_arguments(parser)
    _add_huggingface_arguments(parser)
    parser.set_defaults(run=run)


def _add_laser_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with --from laser")
    group.add_argument(
        "--vocabulary",
        metavar="FILE",
        help="its .spm or .fcodes file; by default the one beside the checkpoint",
    )


def _add_huggingface_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with --from huggingface")
    group.add_argument(
        "--pooling",
        choices=("mean", "first", "max", "pooler"),
        help="how token states become a vector; pooler is BERT's dense layer on the first token "
        "(default: as modules.json says, mean without it)",
    )
    group.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="pool the states of layer N; 0 is the embeddings (default: the last)",
    )
    group.add_argument(
        "--without-specials",
        action="store_true",
        help="leave the special tokens around a text out of the mean or max",
    )
    group.add_argument(
        "--compute-dtype",
        choices=("float32", "bfloat16"),
        help="of the layers; bfloat16 is for GPU and TPU (default: float32)",
    )
    group.add_argument(
        "--prefix",
        metavar="TEXT",
        help="put in front of every text, such as e5's 'query: ' or 'passage: ' (default: the "
        "default prompt of sentence-transformers, mostly none)",
    )
    group.add_argument(
        "--first-token", metavar="TOKEN", help="special token in front (default: the tokenizer's)"
    )


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
        UsageError: if an input is missing, the output exists or an option is out of range.
        ImportError: without a library that a file needs.
        ValueError, OSError: if a file is not what it should be, or writing fails.
    """
    for source, names in _OPTIONS.items():
        given = [name for name in names if getattr(args, name) not in (None, False)]
        if source != args.source and given:
            raise UsageError(f"--{given[0].replace('_', '-')} goes with --from {source} alone")
    if args.max_length_tokens is not None and args.max_length_tokens < 2:
        raise UsageError(f"--max-length-tokens {args.max_length_tokens} must be at least 2")
    args.language = to_iso639_1(args.language)
    if not is_code(args.language):
        raise UsageError(f"--language {args.language!r} must be a language code such as de")
    {"laser": _run_laser, "huggingface": _run_huggingface}[args.source](args)


def _shared(args: argparse.Namespace) -> dict[str, Any]:
    """Arguments of both conversions."""
    return {
        "language": args.language,
        "languages": [code for code in args.languages.split(",") if code],
        "overwrite": args.overwrite,
    }


def _run_laser(args: argparse.Namespace) -> None:
    require_file(args.checkpoint, "PATH")
    if args.vocabulary is not None:
        require_file(args.vocabulary, "--vocabulary")
    refuse_existing(args.output, args.overwrite)

    from xling_jax.convert.laser_checkpoint import convert_laser

    recorded = convert_laser(
        args.checkpoint,
        args.output,
        vocabulary=args.vocabulary,
        max_length_tokens=args.max_length_tokens or 2048,
        **_shared(args),
    )
    logger.info(
        "%s: written; the dictionary holds %s pieces of %s",
        *(args.output, recorded["pieces_in_dictionary"], recorded["vocabulary"]),
    )


def _run_huggingface(args: argparse.Namespace) -> None:
    if not os.path.isdir(args.checkpoint):
        raise UsageError(
            f"PATH {args.checkpoint}: no such directory; nothing is downloaded here: get the model "
            "with `hf download NAME --local-dir DIR` and give DIR"
        )
    refuse_existing(args.output, args.overwrite)

    from xling_jax.convert.huggingface import convert_huggingface

    recorded = convert_huggingface(
        args.checkpoint,
        args.output,
        pooling=args.pooling,
        layer=args.layer,
        pool_specials=not args.without_specials,
        compute_dtype=args.compute_dtype or "float32",
        prefix=args.prefix,
        first_token=args.first_token,
        max_length_tokens=args.max_length_tokens,
        **_shared(args),
    )
    logger.info(
        "%s: written; %s, layer %s, pooling %s",
        *(args.output, recorded["model_type"], recorded["layer"], recorded["pooling"]),
    )
