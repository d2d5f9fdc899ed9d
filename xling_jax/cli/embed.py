"""`xling embed`: a text file to an embedding file, row i for line i, in bounded memory."""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from xling_jax.cli import distributed
from xling_jax.cli.common import UsageError, keep_compiled_programs, refuse_existing
from xling_jax.documents.records import read_texts
from xling_jax.encode.documents import MODES
from xling_jax.encode.process_shares import share_of, write_embeddings_together
from xling_jax.encode.texts import EncodeStats
from xling_jax.files.embeddings import FORMATS, write_embeddings
from xling_jax.files.lines import iterate_lines
from xling_jax.files.progress import track
from xling_jax.text.splitting import SPLITTERS, check_splitter

if TYPE_CHECKING:
    from xling_jax.files.processes import Processes

logger = logging.getLogger(__name__)

# Roughly. Processes take turns by windows with this many times fewer documents than sentences.
_SENTENCES_OF_A_DOCUMENT = 16

_EXAMPLE = """example:
  xling embed --model runs/quickstart --input europarl.de.gz --output europarl.de.npy
  zcat news.en.gz | xling embed --model runs/quickstart --input - --output news.en.npy

Compiled programs are cached for the next start in JAX_COMPILATION_CACHE_DIR, otherwise in
$XDG_CACHE_HOME/xling_jax or ~/.cache/xling_jax; the directory can be removed at any time.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the parser of `xling`."""
    parser = subparsers.add_parser(
        "embed",
        help="turn text into vectors",
        description="Turns each line of a UTF-8 file into a vector. Row i of the output is line i "
        "of the input; a blank line gets the vector of an empty sentence.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, help="model directory, workdir, or name of a shipped encoder"
    )
    parser.add_argument(
        "--input",
        required=True,
        help="text, one sentence per line; may be .gz .xz .zst; - for stdin",
    )
    parser.add_argument("--output", required=True, help="embedding file; - for stdout")
    parser.add_argument(
        "--format", choices=FORMATS, default="npy", help="laser: float32 without a header (npy)"
    )
    parser.add_argument(
        "--documents",
        action="store_true",
        help="each line is a document: JSON with 'text' or 'sentences' if the input is .jsonl or "
        "begins with '{', otherwise plain text; its vector is the mean over its sentences",
    )
    parser.add_argument(
        "--document-mode",
        choices=MODES,
        help="what is encoded at once: a sentence (default); as many as the model takes; all of "
        "the document, cut where the model ends; or windows of 128 words, every 64",
    )
    parser.add_argument(
        "--splitter",
        choices=SPLITTERS,
        help="finds sentences in 'text': by punctuation (rule, the default), by the rules of the "
        "language in 'lang' (sentencex, pip install sentencex), or at each separate '.' of "
        "tokenized text (laser)",
    )
    parser.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    parser.add_argument(
        "--batch-size", type=int, help="sentences in a full batch; fewer need less memory"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output")
    distributed.add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
        UsageError: if the input is missing, the output exists or an option is out of range.
        ValueError, OSError: if the model or a line of the input is broken, or writing fails.
    """
    with distributed.joined(args, ends_by_sigterm=True) as processes:
        _check_arguments(args)
        if processes.count > 1:
            distributed.check_shared_paths(input=args.input, output=args.output)
        _embed(args, processes)


def _check_arguments(args: argparse.Namespace) -> None:
    """Refuses what can be refused before the model is loaded."""
    if args.batch_size is not None and args.batch_size < 1:
        raise UsageError(f"--batch-size {args.batch_size} must be at least 1")
    for option in ("document_mode", "splitter"):
        if getattr(args, option) and not args.documents:
            raise UsageError(f"--{option.replace('_', '-')}: requires --documents")
    if args.splitter:
        check_splitter(args.splitter)
    if args.input != "-" and (not os.path.exists(args.input) or os.path.isdir(args.input)):
        raise UsageError(f"--input {args.input}: no such file")
    if args.output != "-":
        refuse_existing(args.output, args.overwrite)


def _embed(args: argparse.Namespace, processes: Processes) -> None:
    import xling_jax

    keep_compiled_programs()
    encoder = xling_jax.load(args.model)
    window = encoder.window_sentences
    if args.documents:
        window = max(1, window // _SENTENCES_OF_A_DOCUMENT)
    splitter = args.splitter or "rule"

    def texts() -> Iterator[Any]:
        if args.documents:
            return read_texts(args.input, splitter=splitter)
        return iterate_lines(args.input)

    # Reading the file twice is cheap compared to encoding it: a broken line is found before hours
    # of work, and the time left is known. A pipe can be read only once.
    total = None
    if os.path.isfile(args.input):
        total = sum(1 for _ in share_of(texts(), window, processes))
    stats = EncodeStats()
    start = time.perf_counter()

    def encode(own: Iterable[Any]) -> Iterator[Any]:
        settings = {"batch_size": args.batch_size, "normalize": args.normalize, "stats": stats}
        if not args.documents:
            chunks = encoder.encode_stream(own, **settings)
            return track(chunks, "embed", total, "sentence", len)
        # With sentencex, texts come split by their own languages.
        split = "rule" if splitter == "sentencex" else splitter
        own = encoder.document_inputs(own, args.document_mode or "sentences", splitter=split)
        chunks = encoder.encode_document_stream(own, **settings)
        return track(chunks, "embed", total, "document", len)

    file = {"dim": encoder.dim, "format": args.format, "overwrite": args.overwrite}
    if processes.count > 1:
        file |= {"window": window, "processes": processes}
        rows = write_embeddings_together(args.output, texts(), encode, **file)
    else:
        rows = write_embeddings(args.output, encode(texts()), **file)
    seconds = time.perf_counter() - start
    logger.info(
        "%s: %d rows of %d; %s%d sentences, %d without text, %d cut at %d tokens; "
        "%.1f s, %.0f sentences/s, %.0f%% padding",
        *(args.output, rows, encoder.dim, "" if processes.count == 1 else "of them here "),
        *(stats.num_sentences, stats.num_empty),
        *(stats.num_truncated, encoder.max_length_tokens, seconds),
        stats.num_sentences / max(seconds, 1e-9),
        100 * (1 - stats.num_tokens / max(stats.num_padded_tokens, 1)),
    )
