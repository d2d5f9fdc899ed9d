"""Turns a published encoder into a model directory that gives the same vectors.

Text preprocessing is included. Supported: BERT, RoBERTa, XLM-R, CamemBERT, XLM, DistilBERT,
ModernBERT, Qwen3, EmbeddingGemma and what sentence-transformers makes of them, static encoders of
model2vec and sentence-transformers, LASER, LASER2, LASER3 and SONAR's text encoder.
"""

import argparse
import inspect
import logging
import os
from pathlib import Path

from xling_jax.cli.arguments import add_output, refuse_existing
from xling_jax.cli.options import flag, words
from xling_jax.formats.published import RECOGNIZED, fetch_from_hub, importer, readers_of
from xling_jax.formats.registry import IMPORTERS
from xling_jax.models.numpy_layers import POOLINGS
from xling_jax.options import OptionError, require_file
from xling_jax.text.languages import is_code, to_iso639_1

_logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  xling convert hf:sentence-transformers/LaBSE --output models/labse
  xling convert --from huggingface DIR/multilingual-e5-small --output models/e5 --prefix "query: "
  xling convert --from huggingface DIR/mmBERT-base --output models/mmbert --pooling mean
  xling convert --from sentence-transformers DIR/bge-m3 --output models/bge
  xling convert --from model2vec DIR/potion-multilingual-128M --output models/potion
  xling convert --from laser laser2.pt --output models/laser2 --language de

huggingface, sentence-transformers: a directory on disk, or hf:ORG/NAME of the Hugging Face hub (pip
install 'xling_jax[hub]'). The modules after the transformer (modules.json), prompts and
truncate_dim are kept, unless --pooling is given; what cannot be kept is refused.
PyTorch is needed only if the weights are in pytorch_model.bin.

model2vec: a directory of StaticModel.save_pretrained, of any precision.

laser, sonar: laser2.spm, the .spm and .cvocab of LASER3, or NLLB's SentencePiece model must be next
to the checkpoint or named by --vocabulary. Reading the checkpoint needs PyTorch (pip install
torch); the model does not.
"""

# Arguments that only some of the functions that convert take.
_OPTIONS = ("language", "vocabulary", "pooling", "prefix", "max_length_tokens")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "checkpoint",
        metavar="PATH",
        help="directory of the files, LASER's .pt file, or hf:ORG/NAME",
    )
    add(
        "--from",
        choices=tuple(IMPORTERS),
        help="whose vectors are wanted (default: those of the library that the files are for)",
    )
    add_output(parser, "model directory to write")
    add("--languages", type=words, default=(), metavar="CODES", help="to record: en,de,…")
    add(
        "--max-length-tokens",
        type=int,
        metavar="N",
        help="longer texts are truncated (default: the model's limit; 2048 for LASER)",
    )
    add(
        "--language",
        metavar="CODE",
        help="LASER and XLM: language whose Moses rules prepare all text, one for the model "
        "(default: en, as laser_encoders and transformers do for every language). SONAR: NLLB's "
        "code of the language of all text (default: eng_Latn)",
    )
    add(
        "--vocabulary",
        metavar="FILE",
        help="LASER, SONAR: the .spm or .model file (default: the one next to the checkpoint)",
    )
    add(
        "--pooling",
        choices=POOLINGS,
        help="transformers: how token states become a vector; last is the last token (default: "
        "as modules.json says, mean without it)",
    )
    add(
        "--prefix",
        metavar="TEXT",
        help="transformers: put in front of every text, such as e5's 'query: ' or 'passage: ' "
        "(default: the default prompt of sentence-transformers, mostly none)",
    )


def run(args: argparse.Namespace) -> None:
    given = {name: value for name in _OPTIONS if (value := getattr(args, name)) is not None}
    if given.get("max_length_tokens", 2) < 2:
        raise OptionError(f"--max-length-tokens {args.max_length_tokens} must be at least 2")
    path, kind = args.checkpoint, vars(args)["from"]
    if "language" in given and kind != "sonar":
        given["language"] = to_iso639_1(args.language)
        if not is_code(given["language"]):
            raise OptionError(f"--language {args.language!r} must be a language code such as de")
    if path.startswith("hf:"):
        path = fetch_from_hub(path)
    elif not os.path.exists(path):
        raise OptionError(
            f"PATH {path}: no such file or directory; a model of the Hugging Face hub is "
            "hf:ORG/NAME"
        )
    kinds = readers_of(Path(path))
    if not kinds and kind is None:
        raise OptionError(f"PATH {path}: not recognized as a published encoder; choose a --from")
    if kinds and kind in RECOGNIZED and kind not in kinds:
        raise OptionError(f"PATH {path}: is not for --from {kind}; use --from {kinds[0]}")
    kind = kind or kinds[0]
    refuse_existing(args.output, args.overwrite)
    convert = importer(kind, Path(path))
    known = inspect.signature(convert).parameters
    if wrong := [name for name in given if name not in known]:
        kind = "static encoders" if "static" in convert.__name__ else f"--from {kind}"
        raise OptionError(f"{flag(wrong[0])} does not apply to {kind}")
    if "vocabulary" in given:
        require_file(given["vocabulary"], "--vocabulary")
    given |= {"languages": args.languages, "overwrite": args.overwrite}
    recorded = convert(path, args.output, **given)
    facts = (f"{k.replace('_', ' ')}: {v}" for k, v in recorded.items() if isinstance(v, str))
    _logger.info("%s: written; %s", args.output, "; ".join(facts))
