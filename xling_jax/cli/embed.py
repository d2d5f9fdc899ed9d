"""Turns each line of a UTF-8 file into a vector, in bounded memory.

Row i of the output is line i of the input; a blank line gets the vector of an empty sentence.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from xling_jax.cli import distributed
from xling_jax.cli.arguments import (
    MODEL_HELP,
    add_output,
    add_vector_options,
    check_output,
    load_encoder,
    refuse_existing,
)
from xling_jax.cli.options import flag
from xling_jax.documents.records import read_texts
from xling_jax.encode.documents import MODES, MODES_HELP
from xling_jax.encode.process_shares import share_of, write_embeddings_together
from xling_jax.encode.texts import EncodeStats
from xling_jax.files.embeddings import FORMATS, meaning_path, read_quantizer, write_embeddings
from xling_jax.files.leaving import dying_of_sigterm
from xling_jax.files.lines import iterate_lines
from xling_jax.files.processes import Processes
from xling_jax.files.progress import track
from xling_jax.files.quantization import PRECISIONS, Quantizer, learn_ranges
from xling_jax.options import OptionError, require_file, wrong_use
from xling_jax.text.splitting import SPLITTERS, SPLITTERS_HELP, check_splitter

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)

# Lines of a sample from which the ranges of int8 are learned.
_SAMPLE_LINES = 10_000

# Roughly. Processes take turns by windows with this many times fewer documents than sentences.
_SENTENCES_OF_A_DOCUMENT = 16

EXAMPLES = """examples:
  xling embed --model runs/quickstart --input europarl.de.gz --output europarl.de.npy
  zcat news.en.gz | xling embed --model runs/quickstart --input - --output news.en.npy
  xling embed --model mini --input news.en.gz --output news.en.npy --precision int8

On a CPU, most encoders compile nothing. Where JAX computes, compiled programs are cached for the
next start in JAX_COMPILATION_CACHE_DIR, otherwise in $XDG_CACHE_HOME/xling_jax or
~/.cache/xling_jax; the directory can be removed at any time.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True, help=MODEL_HELP)
    add_vector_options(parser)
    add(
        "--input",
        required=True,
        help="text, one sentence per line; may be .gz .xz .zst .bz2; - for stdin",
    )
    add_output(parser, "embedding file; - for stdout")
    add(
        "--format",
        choices=FORMATS,
        default="npy",
        help="laser: float32 without a header (default: npy)",
    )
    add(
        "--documents",
        action="store_true",
        help="each line is a document: JSON with 'text' or 'sentences' if the input is .jsonl or "
        "begins with '{', otherwise plain text; its vector is the mean over its sentences",
    )
    add("--document-mode", choices=MODES, help=f"{MODES_HELP} (default: sentences)")
    add("--splitter", choices=SPLITTERS, help=f"{SPLITTERS_HELP} (default: rule)")
    add("--normalize", action="store_true", help="scale vectors to length 1")
    add(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="of the vectors in the file; int8 and packed bits (binary, ubinary) come with "
        "OUTPUT.json, which says what they mean (default: float32)",
    )
    add(
        "--ranges-from",
        metavar="FILE",
        help="for int8: text, on whose first 10,000 lines the range of each dimension is learned, "
        "or an int8 .npy file written before, whose ranges are taken (default: the input)",
    )
    add(
        "--prompt-name",
        metavar="NAME",
        help="name of the model's prompt to put before every line, such as query",
    )
    add("--prompt", metavar="TEXT", help="text before every line, instead of the model's default")
    add("--batch-size", type=int, help="sentences in a full batch; fewer need less memory")
    distributed.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    with distributed.joined(args) as processes, dying_of_sigterm():
        _check_arguments(args)
        if processes.count > 1:
            distributed.check_shared_paths(input=args.input, output=args.output)
        _embed(args, processes)


def _check_arguments(args: argparse.Namespace) -> None:
    """Refuses what can be refused before the model is loaded."""
    if args.batch_size is not None and args.batch_size < 1:
        raise OptionError(f"--batch-size {args.batch_size} must be at least 1")
    for option in ("document_mode", "splitter"):
        if getattr(args, option) and not args.documents:
            raise OptionError(f"{flag(option)}: requires --documents")
    if args.splitter:
        check_splitter(args.splitter)
    is_stored = bool(args.ranges_from) and args.ranges_from.endswith(".npy")
    if args.ranges_from and args.precision != "int8":
        raise OptionError(f"--ranges-from {args.ranges_from}: requires --precision int8")
    if args.ranges_from and not os.path.isfile(args.ranges_from):
        raise OptionError(f"--ranges-from {args.ranges_from}: no such file")
    if args.precision == "int8" and args.documents and not is_stored:
        raise OptionError(
            "--precision int8: ranges are learned on sentences, not --documents; take those of a "
            "file, --ranges-from FILE.npy, or use another precision"
        )
    if args.precision in ("int8", "binary", "ubinary"):
        if args.output == "-" or getattr(args, "store", None):
            raise OptionError(
                f"--precision {args.precision}: is written with a second file beside it; choose "
                "a local --output, or float16"
            )
        beside = meaning_path(args.output)
        if os.path.isdir(beside):
            raise OptionError(f"--output {args.output}: {beside} is a directory; choose another")
        for name in ("input", "ranges_from"):
            if os.path.realpath(beside) == os.path.realpath(getattr(args, name) or ""):
                raise OptionError(
                    f"--output {args.output}: {beside}, which is written with it, is also "
                    f"{flag(name)}; choose another"
                )
        refuse_existing(beside, args.overwrite)
    if args.precision != "float32" and args.format != "npy":
        raise OptionError(f"--format {args.format}: is float32 only; leave out --precision")
    if args.prompt is not None and args.prompt_name is not None:
        raise OptionError("--prompt and --prompt-name: give only one of them")
    if args.input != "-" and require_file(args.input, "--input").is_dir():
        raise OptionError(f"--input {args.input}: is a directory; name a file")
    if args.precision == "int8" and not args.ranges_from and not os.path.isfile(args.input):
        raise OptionError(
            f"--precision int8: --input {args.input} is read only once; add --ranges-from FILE"
        )
    check_output(args, others=("input", "ranges_from"))


def _embed(args: argparse.Namespace, processes: Processes) -> None:
    encoder = load_encoder(args.model, args)
    if args.prompt is not None or args.prompt_name is not None:
        with wrong_use(f"--prompt-name {args.prompt_name}"):
            encoder = encoder.with_prompt(args.prompt, args.prompt_name)
    quantizer = _quantizer(args, encoder)
    window = encoder.window_sentences
    if args.documents:
        window = max(1, window // _SENTENCES_OF_A_DOCUMENT)
    splitter = args.splitter or "rule"
    unit = "document" if args.documents else "sentence"
    stats = EncodeStats()

    def texts() -> Iterator[Any]:
        if args.documents:
            return read_texts(args.input, splitter=splitter)
        return iterate_lines(args.input)

    def encode(own: Iterable[Any]) -> Iterator[Any]:
        settings = {"batch_size": args.batch_size, "normalize": args.normalize, "stats": stats}
        if args.documents:
            # With sentencex, texts come split by their own languages.
            split = "rule" if splitter == "sentencex" else splitter
            own = encoder.document_inputs(own, args.document_mode or "sentences", splitter=split)
            chunks = encoder.encode_document_stream(own, **settings)
        else:
            chunks = encoder.encode_stream(own, **settings)
        return track(chunks, "embed", total, unit, len)

    # Reading the file twice is cheap compared to encoding it: a broken line is found before hours
    # of work, and the time left is known. A pipe can be read only once.
    total = None
    if os.path.isfile(args.input):
        total = sum(1 for _ in share_of(texts(), window, processes))
    start = time.perf_counter()
    file = {"dim": encoder.dim, "format": args.format, "overwrite": args.overwrite}
    file["quantizer"] = quantizer
    if processes.count > 1:
        file |= {"window": window, "processes": processes}
        rows = write_embeddings_together(args.output, texts(), encode, **file)
    else:
        rows = write_embeddings(args.output, encode(texts()), **file)
    seconds = time.perf_counter() - start
    _logger.info(
        "%s: %d rows of %d, computed in %s; %s%d sentences, %d without text, %d truncated to "
        "%d tokens; %.1f s, %.0f sentences/s, %.0f%% padding",
        *(args.output, rows, encoder.dim, encoder.dtype),
        "" if processes.count == 1 else "of them here ",
        *(stats.num_sentences, stats.num_empty),
        *(stats.num_truncated, encoder.max_length_tokens, seconds),
        stats.num_sentences / max(seconds, 1e-9),
        100 * (stats.num_padded_tokens - stats.num_tokens) / max(stats.num_padded_tokens, 1),
    )


def _quantizer(args: argparse.Namespace, encoder: Encoder) -> Quantizer:
    """What turns vectors into those of the file; for int8 with ranges, learned or read."""
    if args.precision != "int8":
        return Quantizer(args.precision, encoder.dim)
    path = args.ranges_from or args.input
    if path.endswith(".npy"):
        if not os.path.isfile(meaning_path(path)):
            raise OptionError(
                f"--ranges-from {path}: must be an int8 file of xling embed, with "
                f"{meaning_path(path)} beside it, which is missing; or name a text"
            )
        quantizer = read_quantizer(path)
        if (quantizer.precision, quantizer.dim) != ("int8", encoder.dim):
            raise OptionError(
                f"--ranges-from {path}: must be int8 of {encoder.dim} dimensions; found "
                f"{quantizer.precision} of {quantizer.dim}"
            )
        return quantizer
    sample = list(itertools.islice(iterate_lines(path), _SAMPLE_LINES))
    try:
        ranges = learn_ranges(encoder.encode_stream(sample, normalize=args.normalize))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Quantizer("int8", encoder.dim, ranges, f"first {_SAMPLE_LINES} lines of {path}")
