"""Turns each line of a UTF-8 file into a vector, in bounded memory.

Row i of the output is line i of the input; a blank line gets the vector of an empty sentence.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

from xling_jax.cli import distributed
from xling_jax.cli.arguments import (
    MODEL_HELP,
    add_output,
    add_vector_options,
    load_encoder,
    refuse_existing,
)
from xling_jax.cli.options import flag
from xling_jax.documents.records import read_texts
from xling_jax.encode.documents import MODES, MODES_HELP
from xling_jax.encode.process_shares import share_of, write_embeddings_together
from xling_jax.encode.texts import EncodeStats
from xling_jax.files.embeddings import FORMATS, write_embeddings
from xling_jax.files.lines import iterate_lines
from xling_jax.files.processes import Processes
from xling_jax.files.progress import track
from xling_jax.options import OptionError
from xling_jax.text.splitting import SPLITTERS, SPLITTERS_HELP, check_splitter

logger = logging.getLogger(__name__)

# Roughly. Processes take turns by windows with this many times fewer documents than sentences.
_SENTENCES_OF_A_DOCUMENT = 16

EXAMPLES = """examples:
  xling embed --model runs/quickstart --input europarl.de.gz --output europarl.de.npy
  zcat news.en.gz | xling embed --model runs/quickstart --input - --output news.en.npy

Compiled programs are cached for the next start in JAX_COMPILATION_CACHE_DIR, otherwise in
$XDG_CACHE_HOME/xling_jax or ~/.cache/xling_jax; the directory can be removed at any time.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True, help=MODEL_HELP)
    add_vector_options(parser)
    add(
        "--input",
        required=True,
        help="text, one sentence per line; may be .gz .xz .zst; - for stdin",
    )
    add_output(parser, "embedding file; - for stdout")
    add("--format", choices=FORMATS, default="npy", help="laser: float32 without a header (npy)")
    add(
        "--documents",
        action="store_true",
        help="each line is a document: JSON with 'text' or 'sentences' if the input is .jsonl or "
        "begins with '{', otherwise plain text; its vector is the mean over its sentences",
    )
    add("--document-mode", choices=MODES, help=f"{MODES_HELP} (sentences)")
    add("--splitter", choices=SPLITTERS, help=f"{SPLITTERS_HELP} (rule)")
    add("--normalize", action="store_true", help="scale vectors to length 1")
    add("--batch-size", type=int, help="sentences in a full batch; fewer need less memory")
    distributed.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    with distributed.joined(args) as processes, distributed.dying_of_sigterm():
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
    if args.input != "-" and (not os.path.exists(args.input) or os.path.isdir(args.input)):
        raise OptionError(f"--input {args.input}: no such file")
    refuse_existing(args.output, args.overwrite)


def _embed(args: argparse.Namespace, processes: Processes) -> None:
    encoder = load_encoder(args.model, args)
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
    if processes.count > 1:
        file |= {"window": window, "processes": processes}
        rows = write_embeddings_together(args.output, texts(), encode, **file)
    else:
        rows = write_embeddings(args.output, encode(texts()), **file)
    seconds = time.perf_counter() - start
    logger.info(
        "%s: %d rows of %d, computed in %s; %s%d sentences, %d without text, %d cut at %d tokens; "
        "%.1f s, %.0f sentences/s, %.0f%% padding",
        *(args.output, rows, encoder.dim, encoder.dtype),
        "" if processes.count == 1 else "of them here ",
        *(stats.num_sentences, stats.num_empty),
        *(stats.num_truncated, encoder.max_length_tokens, seconds),
        stats.num_sentences / max(seconds, 1e-9),
        100 * (1 - stats.num_tokens / max(stats.num_padded_tokens, 1)),
    )
