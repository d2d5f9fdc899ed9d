"""Turns a published encoder into a model directory that gives the same vectors.

Text preprocessing is included. Supported: BERT, RoBERTa, XLM-R, CamemBERT, XLM, DistilBERT, MPNet,
ModernBERT, Qwen3, EmbeddingGemma, GTE and what sentence-transformers makes of them, static encoders
of model2vec and sentence-transformers, and LASER's BiLSTM (of 2018, or LASER2).
"""

import argparse
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from xling_jax.cli.arguments import add_output, refuse_existing
from xling_jax.cli.options import flag, words
from xling_jax.models.dtypes import DTYPES
from xling_jax.options import OptionError, require_file
from xling_jax.text.languages import is_code, to_iso639_1

_logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  xling convert --from huggingface DIR/LaBSE --output models/labse
  xling convert --from huggingface DIR/multilingual-e5-small --output models/e5 --prefix "query: "
  xling convert --from huggingface DIR/xlm-roberta-base --output models/xlmr --layer 8
  xling convert --from huggingface DIR/mmBERT-base --output models/mmbert --pooling mean
  xling convert --from sentence-transformers DIR/bge-m3 --output models/bge
  xling convert --from model2vec DIR/potion-multilingual-128M --output models/potion
  xling convert --from laser laser2.pt --output models/laser2
  xling convert --from laser bilstm.93langs.2018-12-26.pt --output models/laser --language de

huggingface, sentence-transformers: a directory on disk, as `hf download NAME --local-dir DIR` makes
it; nothing is downloaded here. The modules after the transformer (modules.json), prompts and the
width to keep are kept, unless --pooling or --layer is given; what cannot be kept is refused. XLM
texts begin with <s> as in transformers; --first-token "</s>" begins them as in training. PyTorch is
needed only if the weights are in pytorch_model.bin.

model2vec: a directory of StaticModel.save_pretrained, of any precision. sentence-transformers reads
such a directory too, but counts unknown tokens; --from says whose vectors you get.

laser: laser2.spm, or 93langs.fcodes and 93langs.fvocab, must be next to the checkpoint or named by
--vocabulary. Reading the checkpoint needs PyTorch (pip install torch); the model does not.
"""

SOURCES = ("huggingface", "sentence-transformers", "model2vec", "laser")
# Of a static encoder, no argument of its own.
_TRANSFORMERS = ("huggingface", "sentence-transformers")
# Source -> its arguments, named as those of its function.
_ARGUMENTS = {
    "laser": {
        "vocabulary": {
            "metavar": "FILE",
            "help": "its .spm or .fcodes file (default: the one next to the checkpoint)",
        },
    },
    "huggingface": {
        "pooling": {
            "choices": ("mean", "first", "max", "last", "pooler"),
            "help": "how token states become a vector; last is the last token; pooler is BERT's "
            "dense layer on the first (default: as modules.json says, mean without it)",
        },
        "layer": {
            "type": int,
            "metavar": "N",
            "help": "pool the states of layer N; 0 is the embeddings (default: the last)",
        },
        "without_specials": {
            "dest": "pool_specials",
            "action": "store_false",
            "help": "leave the special tokens around a text out of the mean or max",
        },
        "compute_dtype": {
            "choices": DTYPES,
            "help": "of the layers, recorded in the model directory; float16 and bfloat16 are for "
            "GPU and TPU (default: none, the device decides, see xling embed --dtype)",
        },
        "prefix": {
            "metavar": "TEXT",
            "help": "put in front of every text, such as e5's 'query: ' or 'passage: ' (default: "
            "the default prompt of sentence-transformers, mostly none)",
        },
        "base": {
            "metavar": "DIR",
            "help": "the model that a LoRA adapter (adapter_config.json) was made for (default: "
            "the directory that the adapter names)",
        },
        "first_token": {
            "metavar": "TOKEN",
            "help": "special token in front (default: the tokenizer's)",
        },
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        choices=SOURCES,
        help="format of the published model",
    )
    parser.add_argument("checkpoint", metavar="PATH", help="model directory, or LASER's .pt file")
    add_output(parser, "model directory to write")
    parser.add_argument(
        "--language",
        metavar="CODE",
        default=argparse.SUPPRESS,
        help="LASER and XLM: language whose Moses rules prepare all text, one for the model; el "
        "romanizes for LASER of 2018 (default: en, as laser_encoders and transformers do for "
        "every language)",
    )
    parser.add_argument(
        "--languages",
        type=words,
        default=(),
        metavar="CODES",
        help="training languages to record: en,de,…",
    )
    parser.add_argument(
        "--max-length-tokens",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS,
        help="longer texts are truncated (default: the model's limit; 2048 for LASER, which has "
        "none)",
    )
    for source, arguments in _ARGUMENTS.items():
        names = " or ".join(_TRANSFORMERS if source == "huggingface" else (source,))
        group = parser.add_argument_group(f"with --from {names}")
        for name, settings in arguments.items():
            group.add_argument(flag(name), default=argparse.SUPPRESS, **settings)


def run(args: argparse.Namespace) -> None:
    given = {"max_length_tokens": args.max_length_tokens} if "max_length_tokens" in args else {}
    own = "huggingface" if args.source in _TRANSFORMERS else args.source
    for source, arguments in _ARGUMENTS.items():
        for name, settings in arguments.items():
            dest = settings.get("dest", name)
            if dest in args and source != own:
                raise OptionError(f"{flag(name)} goes with --from {source} alone")
            given |= {dest: getattr(args, dest)} if dest in args else {}
    if given.get("max_length_tokens", 2) < 2:
        raise OptionError(f"--max-length-tokens {args.max_length_tokens} must be at least 2")
    if "language" in args:
        given["language"] = to_iso639_1(args.language)
        if not is_code(given["language"]):
            raise OptionError(f"--language {args.language!r} must be a language code such as de")
    if args.source == "laser":
        require_file(args.checkpoint, "PATH")
        require_file(given.get("vocabulary", args.checkpoint), "--vocabulary")
    elif not os.path.isdir(args.checkpoint):
        raise OptionError(
            f"PATH {args.checkpoint}: no such directory; nothing is downloaded here: get the model "
            "with `hf download NAME --local-dir DIR` and give DIR"
        )
    refuse_existing(args.output, args.overwrite)
    convert, described = _converter(args.source, args.checkpoint)
    if described is _OF_STATIC and (wrong := sorted(given.keys() - {"max_length_tokens"})):
        raise OptionError(f"{flag(wrong[0])} is not for static encoders, which have no layers")
    given |= {"languages": args.languages, "overwrite": args.overwrite}
    recorded = convert(args.checkpoint, args.output, **given)
    facts = (f"{name.replace('_', ' ')}: {recorded[name]}" for name in described)
    _logger.info("%s: written; %s", args.output, ", ".join(facts))


_OF_STATIC = ("storage", "pooling", "unknown_tokens")


def _converter(source: str, path: str) -> tuple[Callable[..., dict[str, Any]], Sequence[str]]:
    """The function that converts a directory or file, and what to tell of its record."""
    if source == "laser":
        from xling_jax.formats.laser_checkpoint import convert_laser

        return convert_laser, ("pieces_in_dictionary", "vocabulary")
    if source == "model2vec":
        from xling_jax.formats.static_embeddings import convert_model2vec

        return convert_model2vec, _OF_STATIC
    if source == "sentence-transformers":
        from xling_jax.formats.static_embeddings import convert_static_embedding, is_static

        if not os.path.isfile(os.path.join(path, "modules.json")):
            raise OptionError(
                f"PATH {path}: has no modules.json; --from huggingface converts a transformer alone"
            )
        if is_static(path):
            return convert_static_embedding, _OF_STATIC
    from xling_jax.formats.huggingface import convert_huggingface

    return convert_huggingface, ("model_type", "layer", "pooling")
