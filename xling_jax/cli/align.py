"""Pairs documents that are translations, one to one, by LAWDR.

Removes the components that identify the language from sentence vectors, weights sentences by
rarity, sums them, and compares documents by margin.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from xling_jax.align.bitext import write_pairs
from xling_jax.align.sentences import SentenceAligner
from xling_jax.align.translation_filter import TranslationRules
from xling_jax.cli import document_pairs, sentence_alignment
from xling_jax.cli.arguments import add_output, add_sides, check_sides, load_encoder
from xling_jax.cli.document_pairs import DocumentPairer, Options, encoded_vectors, ready_vectors
from xling_jax.cli.options import add_options, words
from xling_jax.documents.records import Documents
from xling_jax.files.lines import shown
from xling_jax.files.progress import counted
from xling_jax.files.whole import naming_errors
from xling_jax.options import OptionError

_logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  xling align --model M --source fr.jsonl.gz --target en.jsonl.gz --output pairs.tsv
  xling align --model M --source crawl.jsonl --target crawl.jsonl --languages fr,en \\
      --domain domain --url-matching --output pairs.tsv
  xling align --sentences --model mini --source de/ --target en/ --output corpus.tmx
  xling align --sentences --model mini --source book.fr --target book.en --output book.tsv
  xling align --sentences --model mini --source fr.jsonl --target en.jsonl \\
      --pairs pairs.tsv --languages fr,en --output corpus.tmx
  xling align --model M --source de/ --target en/ --output 1.tsv --save-debias de-en.lawdr
  xling align --model M --source 2/de --target 2/en --output 2.tsv --load-debias de-en.lawdr
  jq -r '.sentences[]' a.jsonl | xling embed --model M --input - --output a.npy
  xling align --source a.jsonl --target b.jsonl --source-embeddings a.npy \\
      --target-embeddings b.npy --output - | head

Inputs are folders with a text file for each document, or JSON lines {"id", "lang", "text" or
"sentences", optional "domain", "url"}. Output lines are `score<TAB>source id<TAB>target id`, best
first; each document is in one line at most. Pairs found by their URLs come first, with score inf.
Documents without text are never matched.

With --sentences, the documents are paired (or as --pairs says), then aligned inside: groups of m
and n sentences, in order, by dynamic programming over vectors of adjacent sentences. A cost is 0
for equal vectors and about 1 for random ones. Sentences without translation, untranslated copies,
repeated pairs and pairs of unlike lengths are left out, except with --format groups.

While the command runs, sentence vectors are kept in an unnamed file beside the output (with
--output - in the directory for temporary files), 4 bytes x dim per sentence.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sides(
        parser,
        "documents: JSON lines, optionally .gz .xz .zst .bz2, - for stdin; or a folder of text "
        "files",
        "vectors of its nonblank sentences, in order, instead of a model (or LASER's .bin, with "
        "--dim); with --sentences those of the overlaps",
        required=True,
    )
    add_output(parser, "file of pairs; - for stdout")
    parser.add_argument(
        "--languages",
        type=words,
        metavar="SOURCE,TARGET",
        help="languages of the sides; not needed for JSON lines in one language and for folders "
        "named after theirs",
    )
    parser.add_argument(
        "--config",
        metavar="NAME[:ARG]",
        help="values for arguments not given here, such as lawdr_wmt16:encoder=xlm; "
        "--config.KEY=VALUE changes one",
    )
    add_options(parser, Options)
    document_pairs.add_arguments(parser)
    sentence_alignment.add_arguments(parser)
    add_options(parser, SentenceAligner)
    add_options(parser, TranslationRules)


def run(args: argparse.Namespace) -> None:
    if args.sentences:
        sentence_alignment.run(args)
        return
    if wrong := sentence_alignment.given(args):
        raise OptionError(f"{wrong[0]}: needs --sentences")
    options = document_pairs.check_arguments(args)
    inputs, outputs = ("gold", "load_debias"), ("output", "save_debias")
    check_sides(args, inputs, outputs, folders=("source", "target"))
    languages = document_pairs.languages_of(args)
    directory = Path(tempfile.gettempdir() if args.output == "-" else Path(args.output).parent)
    with contextlib.ExitStack() as stack:
        paths = [
            stack.enter_context(_readable_twice(path, directory))
            for path in (args.source, args.target)
        ]
        names = shown(args.source), shown(args.target)
        files = [*zip(paths, names, languages)]
        both = [document_pairs.read_side(*file, options) for file in files]
        pairer = DocumentPairer(args, options, both)
        encoder = load_encoder(args.model, args) if args.model else None
        sources = []
        for file, ready in zip(files, (args.source_embeddings, args.target_embeddings)):
            again = functools.partial(_read_again, *file, options)
            sources.append(
                ready_vectors(ready, args, encoder)
                if ready
                else encoded_vectors(encoder, options.document_mode, again, directory)
            )
        pairs = pairer.pair(encoder, sources)
    write_pairs(args.output, pairs, *(side.ids for side in both))
    _logger.info(
        "%s: %s; unmatched: %s of %s source and %s of %s target documents",
        *(args.output, counted(len(pairs), "pair")),
        *(f"{count:,}" for side in both for count in (len(side) - len(pairs), len(side))),
    )


@contextlib.contextmanager
def _readable_twice(path: str, directory: Path) -> Iterator[str]:
    """Gives the path itself, or that of a copy of what can be read only once: stdin or a pipe."""
    if path != "-" and (Path(path).is_file() or Path(path).is_dir()):
        yield path
        return
    same = {"dir": directory, "suffix": Path(path).suffix}
    with naming_errors(directory), tempfile.NamedTemporaryFile(**same) as copy:
        stdin = contextlib.nullcontext(sys.stdin.buffer)
        with stdin if path == "-" else open(path, "rb") as source:
            shutil.copyfileobj(source, copy)
        copy.flush()
        yield copy.name


def _read_again(
    path: str, name: str, language: str | None, options: Options, side: Documents
) -> Iterator[Sequence[str]]:
    """Yields the sentences of each document of a side, which are not kept in memory.

    Raises:
        ValueError: if they are not the documents that were read before.
    """
    read = document_pairs.read_texts(path, name, language, options)
    again = (document for document in read if document.language == side.language)
    for document, *known in itertools.zip_longest(again, side.ids, side.lengths):
        if document is None or [document.id, len(document.sentences)] != known:
            raise ValueError(f"{name}: changed while it was read; run the command again")
        if document.sentences:
            yield document.sentences
