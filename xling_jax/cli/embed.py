"""Turns each line of a UTF-8 file into a vector, in bounded memory.

Row i of the output is line i of the input; a blank line gets the vector of an empty sentence.
"""

import argparse
import itertools
import logging
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from xling_jax.cli import shards
from xling_jax.cli.arguments import (
    Once,
    add_model,
    add_output,
    check_output,
    check_text,
    load_encoder,
    refuse_suffix,
)
from xling_jax.cli.options import flag
from xling_jax.documents.records import read_texts
from xling_jax.encode.texts import EncodeStats, text_windows
from xling_jax.files.embeddings import FORMATS, PRECISIONS, read_embeddings, write_embeddings
from xling_jax.files.hashes import fingerprint
from xling_jax.files.lines import iterate_lines
from xling_jax.files.progress import counted, track
from xling_jax.options import OptionError, require_file, wrong_use
from xling_jax.text.splitting import SPLITTERS, SPLITTERS_HELP

_logger = logging.getLogger(__name__)

# Rows of parts that are copied at a time.
_COPIED_ROWS = 2**16

EXAMPLES = """examples:
  xling embed --model runs/quickstart --input europarl.de.gz --output europarl.de.npy
  zcat news.en.gz | xling embed --model runs/quickstart --input - --output news.en.npy
  xling embed --model mini --input news.en.gz --output news.en.npy --precision float16
  xling embed --model mini --input news.en.gz --output part.npy --shard 3/16
  xling embed --join 'part-*-of-00016.npy' --output news.en.npy

The rows of shares, joined, are those of one process to the last bit, except with --documents, where
they may differ by rounding. Parts in LASER's format are joined with cat.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_model(parser)
    add(
        "--input",
        action=Once,
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
    add("--splitter", choices=SPLITTERS, help=f"{SPLITTERS_HELP} (default: rule)")
    add("--normalize", action="store_true", help="scale vectors to length 1")
    add(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="how vectors are stored (default: float32)",
    )
    add(
        "--prompt-name",
        metavar="NAME",
        help="name of the model's prompt to put before every line, such as query",
    )
    add("--prompt", metavar="TEXT", help="text before every line, instead of the model's default")
    shards.add_arguments(parser, "their vectors")


def run(args: argparse.Namespace) -> None:
    if args.join:
        _join(args)
    else:
        _check_arguments(args)
        _embed(args)


def _check_arguments(args: argparse.Namespace) -> None:
    """Refuses what can be refused before the model is loaded."""
    if missing := [flag(name) for name in ("model", "input") if not getattr(args, name)]:
        raise OptionError(f"{missing[0]} is required, except with --join")
    if args.splitter and not args.documents:
        raise OptionError("--splitter: requires --documents")
    if args.prompt is not None and args.prompt_name is not None:
        raise OptionError("--prompt and --prompt-name: give only one of them")
    if args.precision != "float32" and args.format != "npy":
        raise OptionError(f"--format {args.format}: is float32 only; leave out --precision")
    if args.input != "-" and require_file(args.input, "--input").is_dir():
        raise OptionError(f"--input {args.input}: is a directory; name a file")
    if not args.documents:
        check_text(args.input, "--input", "add --documents")
    refuse_suffix(args.output, (".csv", ".tsv", ".npz", ".jsonl", ".parquet"), "write .npy")
    if args.format == "npy":
        refuse_suffix(args.output, (".bin",), "add --format laser, or name it .npy")
    if args.shard and not os.path.isfile(args.input):
        raise OptionError(f"--shard: --input {args.input} is read twice; write it to a file")
    check_output(args, "input")


def _embed(args: argparse.Namespace) -> None:
    encoder = load_encoder(args.model, args)
    if args.prompt is not None or args.prompt_name is not None:
        with wrong_use():
            encoder = encoder.with_prompt(args.prompt, args.prompt_name)
    read, unit = (read_texts, "document") if args.documents else (iterate_lines, "sentence")
    # Reading the file twice is cheap compared to encoding it: a broken line is found before hours
    # of work, and the time left is known. A pipe can be read only once.
    own, total = read(args.input), None
    if os.path.isfile(args.input):
        window = 1 if args.documents else encoder.backend.window_sentences
        rows = _rows_of_share(read(args.input), window, args.shard or shards.Shard(1, 1))
        own, total = itertools.islice(own, rows.start, rows.stop), rows.stop - rows.start
    stats = EncodeStats()
    options, splitter = {"normalize": args.normalize, "stats": stats}, args.splitter or "rule"
    made_with = [encoder.fingerprint, args.normalize, args.documents and splitter]
    if args.documents:
        own = encoder.document_inputs(own, "sentences", splitter=splitter)
        chunks = encoder.encode_document_stream(own, **options)
    else:
        chunks = encoder.encode_stream(own, **options)
    start = time.perf_counter()
    count = write_embeddings(
        args.output,
        track(chunks, "embed", total, unit, len),
        dim=encoder.dim,
        format=args.format,
        overwrite=args.overwrite,
        precision=args.precision,
        comment=f"# {fingerprint(made_with)[:16]}" if args.shard else "",
    )
    seconds = time.perf_counter() - start
    if not count and not args.shard:
        _logger.warning("%s: the input is empty, and so is %s", args.input, args.output)
    _logger.info(
        "%s: %s of %d, computed in %s; %s, %d without text, %d truncated to "
        "%d tokens; %.1f s, %.0f sentences/s, %.0f%% padding",
        *(args.output, counted(count, "row"), encoder.dim, encoder.dtype),
        *(counted(stats.num_sentences, "sentence"), stats.num_empty),
        *(stats.num_truncated, encoder.max_length_tokens, seconds),
        stats.num_sentences / max(seconds, 1e-9),
        100 * (stats.num_padded_tokens - stats.num_tokens) / max(stats.num_padded_tokens, 1),
    )


def _rows_of_share(texts: Iterator[Any], window: int, shard: shards.Shard) -> slice:
    """The rows of a share, which begins where one process begins a window of sentences.

    So a sentence has the same neighbors in its batch, and the same vector to the last bit.
    """
    if window == 1:
        return shard.rows(sum(1 for _ in texts))
    ends = [0, *itertools.accumulate(len(part) for part in text_windows(texts, window))]
    windows = shard.rows(len(ends) - 1)
    return slice(ends[windows.start], ends[windows.stop])


def _join(args: argparse.Namespace) -> None:
    """Writes the rows of all parts into one file."""
    if given := [flag(name) for name in ("model", "input") if getattr(args, name)]:
        raise OptionError(f"{given[0]} and --join exclude each other; parts are joined as they are")
    paths = shards.check_parts(args.join)
    if args.format != "npy" or args.output == "-":
        raise OptionError("--join: writes an .npy file; join LASER's .bin files with cat")
    parts = [read_embeddings(path) for path in paths]
    check_output(args, "join")
    for path in (path for path in paths if _form(path) != _form(paths[0])):
        rule = f"differs from {paths[0]} in model, options, dimensions or type"
        raise ValueError(f"{path}: {rule}; redo its share")
    blocks = ((part, at) for part in parts for at in range(0, len(part), _COPIED_ROWS))
    count = write_embeddings(
        args.output,
        (part[at : at + _COPIED_ROWS] for part, at in blocks),
        dim=parts[0].shape[1],
        overwrite=args.overwrite,
        precision=np.load(paths[0], mmap_mode="r", allow_pickle=False).dtype.name,
    )
    _logger.info("%s: %s from %s", args.output, counted(count, "row"), counted(len(paths), "part"))


def _form(path: str) -> bytes:
    """The header of a part without its number of rows."""
    with open(path, "rb") as file:
        return re.sub(rb"\(\d+|\s", b"", file.readline())
