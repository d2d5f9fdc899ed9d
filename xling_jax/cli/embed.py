"""`xling embed`: a text file to an embedding file, row i for line i, in bounded memory."""

import argparse
import logging
import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from xling_jax.cli import distributed
from xling_jax.cli.common import UsageError, keep_compiled_programs, refuse_existing
from xling_jax.files.lines import (
    BROKEN_UTF8,
    LINE_TOO_LONG,
    MAX_LINE_BYTES,
    NUL_BYTE,
    BrokenLine,
    read_line_blocks,
)
from xling_jax.files.progress import track
from xling_jax.text.languages import to_iso639_1
from xling_jax.text.splitting import SPLITTERS, check_splitter, split_sentences

if TYPE_CHECKING:
    from xling_jax.files.processes import Processes

logger = logging.getLogger(__name__)

# Repeated here because the parser of `xling` must not load NumPy; a test compares them.
DOCUMENT_MODES = ("sentences", "packed", "sequence")

# About. Processes take turns by windows of so many documents fewer than sentences.
_SENTENCES_OF_A_DOCUMENT = 16

_EXAMPLE = """example:
  xling embed --model runs/quickstart --input europarl.de.gz --output europarl.de.npy
  zcat news.en.gz | xling embed --model runs/quickstart --input - --output news.en.npy

Compiled programs are kept for the next start in JAX_COMPILATION_CACHE_DIR, else in
$XDG_CACHE_HOME/xling_jax or ~/.cache/xling_jax; the directory may be removed at any time.
"""

_PROBLEMS = {
    BROKEN_UTF8: "text must be UTF-8; found other bytes; convert the file with iconv",
    NUL_BYTE: "text must not hold NUL bytes; is it UTF-16 or binary? convert it to UTF-8",
    LINE_TOO_LONG: f"a line must be below {MAX_LINE_BYTES:,} bytes; split it",
}

_NO_LANGUAGE = "--splitter sentencex needs JSON with the document's 'lang'; or take rule"


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
        "--input", required=True, help="text, one sentence a line; may be .gz .xz .zst; - for stdin"
    )
    parser.add_argument("--output", required=True, help="embedding file; - for stdout")
    parser.add_argument(
        "--format", choices=("npy", "laser"), default="npy", help="laser: float32 without header"
    )
    parser.add_argument(
        "--documents",
        action="store_true",
        help="each line is a document: JSON with 'text' or 'sentences' when the input is .jsonl or "
        "begins with '{', plain text otherwise; its vector is the mean over its sentences",
    )
    parser.add_argument(
        "--document-mode",
        choices=DOCUMENT_MODES,
        help="what of a document is encoded at once: a sentence (default), as many as the model "
        "takes, or all of it, cut where the model ends",
    )
    parser.add_argument(
        "--splitter",
        choices=SPLITTERS,
        help="what finds sentences in 'text': rule, punctuation (default), or sentencex, by the "
        "language in 'lang' (pip install sentencex)",
    )
    parser.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    parser.add_argument(
        "--batch-size", type=int, help="sentences in a full batch; smaller needs less memory"
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
    with distributed.joined(args) as processes, distributed.dying_of_sigterm():
        _check_arguments(args)
        if processes.count > 1:
            distributed.check_shared_paths(input=args.input, output=args.output)
        _embed(args, processes)


def _embed(args: argparse.Namespace, processes: "Processes") -> None:
    import xling_jax
    from xling_jax.encode.encoder import EncodeStats
    from xling_jax.encode.process_shares import share_of, write_embeddings_together
    from xling_jax.files.embeddings import write_embeddings

    keep_compiled_programs()
    encoder = xling_jax.load(args.model)
    window = encoder.window_sentences
    if args.documents:
        window = max(1, window // _SENTENCES_OF_A_DOCUMENT)

    def texts() -> Iterator[Any]:
        return _read_texts(args.input, args.documents, args.splitter)

    # Reading the file once more costs little beside encoding it; a broken line is found before
    # hours of work, and the time left is known. A pipe can be read only once.
    total = None
    if os.path.isfile(args.input):
        total = sum(1 for _ in share_of(texts(), window, processes))
    stats = EncodeStats()
    start = time.perf_counter()

    def encode(own: Iterable[Any]) -> Iterator[Any]:
        settings = {"batch_size": args.batch_size, "normalize": args.normalize, "stats": stats}
        if args.documents:
            own = encoder.document_inputs(own, args.document_mode or "sentences")
            chunks = encoder.encode_document_stream(own, **settings)
            return track(chunks, "embed", total, "document", len)
        return track(encoder.encode_stream(own, **settings), "embed", total, "sentence", len)

    file = {"dim": encoder.dim, "format": args.format, "overwrite": args.overwrite}
    if processes.count > 1:
        rows = write_embeddings_together(
            args.output, texts(), encode, window=window, processes=processes, **file
        )
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


def _check_arguments(args: argparse.Namespace) -> None:
    """Refuses what costs nothing to refuse, before the model is loaded."""
    if args.batch_size is not None and args.batch_size < 1:
        raise UsageError(f"--batch-size {args.batch_size} must be at least 1")
    for option in ("document_mode", "splitter"):
        if getattr(args, option) and not args.documents:
            raise UsageError(f"--{option.replace('_', '-')}: goes with --documents")
    if args.splitter:
        check_splitter(args.splitter)
    if args.input != "-" and (not os.path.exists(args.input) or os.path.isdir(args.input)):
        raise UsageError(f"--input {args.input}: no such file")
    if args.output != "-":
        refuse_existing(args.output, args.overwrite)


def _read_texts(path: str, documents: bool, splitter: str | None) -> Iterator[Any]:
    """Yields each line, or with `documents` each document, split unless the rule can do it.

    Raises:
        ValueError: for a line that cannot be used, naming file and line: dropping it would shift
            the rows.
    """
    name = "<stdin>" if path == "-" else path
    lines = (line for block in read_line_blocks(_file(path)) for line in block)
    records: bool | None = None
    for number, line in enumerate(lines, 1):
        if isinstance(line, BrokenLine):
            raise ValueError(f"{name}:{number}: {_PROBLEMS[line.problem]}")
        if not documents:
            yield line
            continue
        if records is None:
            records = ".jsonl" in os.path.basename(path) or line.startswith("{")
        if records and line.strip():
            yield _split_record(line, f"{name}:{number}", splitter)
        elif line.strip() and splitter == "sentencex":
            raise ValueError(f"{name}:{number}: {_NO_LANGUAGE}")
        else:
            yield line


def _split_record(line: str, where: str, splitter: str | None) -> str | list[str]:
    """The document of a line; its text is split here where that takes its language."""
    from xling_jax.documents.records import parse_record

    record, text = parse_record(line, where)
    if splitter != "sentencex" or not isinstance(text, str):
        return text
    if not isinstance(language := record.get("lang"), str):
        raise ValueError(f"{where}: {_NO_LANGUAGE}")
    return split_sentences(text, splitter=splitter, language=to_iso639_1(language))


def _file(path: str) -> str:
    return "/dev/stdin" if path == "-" else path
