"""Pairs documents that are translations, one to one, by LAWDR.

Removes the components that identify the language from sentence vectors, weights sentences by
rarity, sums them, and compares documents by margin.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xling_jax.align.bitext import write_pairs
from xling_jax.align.sentences import SentenceAligner
from xling_jax.cli import sentence_alignment
from xling_jax.cli.arguments import (
    add_output,
    add_sides,
    check_same_size,
    check_sides,
    load_encoder,
    optional_config,
    read_vectors,
)
from xling_jax.cli.options import add_options, options_from
from xling_jax.documents.alignment import DocumentAligner, match_urls
from xling_jax.documents.records import (
    Documents,
    choose_language,
    collect_documents,
    read_documents,
    read_gold,
)
from xling_jax.encode.documents import MODES, MODES_HELP
from xling_jax.encode.mapped import encode_documents_mapped
from xling_jax.files.lines import shown
from xling_jax.files.progress import Progress
from xling_jax.files.whole import naming_errors
from xling_jax.options import OptionError, option

logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  xling align --model M --source fr.jsonl.gz --target en.jsonl.gz --output pairs.tsv
  xling align --model M --source crawl.jsonl --target crawl.jsonl --languages fr,en \\
      --domain domain --url-matching --output pairs.tsv
  xling align --sentences --model mini --source book.fr --target book.en --output book.tsv
  xling align --sentences --model mini --source fr.jsonl --target en.jsonl \\
      --pairs pairs.tsv --format tmx --output corpus.tmx
  jq -r '.sentences[]' a.jsonl | xling embed --model M --input - --output a.npy
  xling align --source a.jsonl --target b.jsonl --source-embeddings a.npy \\
      --target-embeddings b.npy --output - | head

Input lines are {"id", "lang", "text" or "sentences", optional "domain", "url"}. Output lines are
`score<TAB>source id<TAB>target id`, best first; each document is in one line at most. Pairs found
by their URLs come first, with score inf. Documents without text are never matched.

With --sentences, documents are aligned inside: groups of m and n sentences, in order, by dynamic
programming over vectors of adjacent sentences. A cost is 0 for equal vectors and about 1 for random
ones; sentences without translation are left out, except with --format groups.

While the command runs, sentence vectors are kept in an unnamed file beside the output (with
--output - in the directory for temporary files), 4 bytes x dim per sentence.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DocumentAligner):
    document_mode: str = option("sentences", MODES_HELP, MODES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sides(
        parser,
        "documents; may be .gz .xz .zst; - for stdin",
        "vectors of its nonblank sentences, in order, instead of a model (or LASER's .bin, with "
        "--dim)",
        required=True,
    )
    add_output(parser, "file of pairs; - for stdout")
    parser.add_argument(
        "--languages", metavar="SOURCE,TARGET", help="languages to align, of files with several"
    )
    parser.add_argument("--gold", metavar="FILE", help="pairs of ids; their recall is logged")
    parser.add_argument(
        "--config",
        metavar="NAME[:ARG]",
        help="values for arguments not given here, such as lawdr_wmt16:encoder=xlm; "
        "--config.KEY=VALUE changes one",
    )
    add_options(parser, Options)
    parser.add_argument("--threshold", type=float, help="keep pairs that score more than this")
    sentence_alignment.add_arguments(parser)
    add_options(parser, SentenceAligner)


def run(args: argparse.Namespace) -> None:
    if args.sentences:
        sentence_alignment.run(args, Options)
        return
    if wrong := sentence_alignment.given(args):
        raise OptionError(f"{wrong[0]}: needs --sentences")
    languages, options = _check_arguments(args)
    directory = Path(tempfile.gettempdir() if args.output == "-" else Path(args.output).parent)
    with contextlib.ExitStack() as stack:
        paths = [
            stack.enter_context(_readable_twice(path, directory))
            for path in (args.source, args.target)
        ]
        names = shown(args.source), shown(args.target)
        both = [_read_side(*file, options) for file in zip(paths, names, languages)]
        gold = read_gold(args.gold, *both) if args.gold else None
        accepted = None
        if options.url_matching:
            for side in both:
                if not any(side.urls):
                    raise ValueError(f"{side.name}: --url-matching needs 'url' in documents")
            accepted = match_urls(*both, use_domains=bool(options.domain))
            logger.info("%d pairs by their URLs", len(accepted[0]))
        vectors = _embed(args, paths, both, options, directory)
    with Progress("align", len(both[0]), "document") as report:
        pairs = options.align(both, vectors, accepted=accepted, report=report)
    if args.threshold is not None:
        pairs = pairs.take(pairs.scores > args.threshold)
    write_pairs(args.output, pairs, both[0].ids, both[1].ids)
    logger.info(
        "%s: %d pairs; unmatched: %d of %d source and %d of %d target documents",
        *(args.output, len(pairs)),
        *(count for side in both for count in (len(side) - len(pairs), len(side))),
    )
    if gold is not None:
        from xling_jax.eval.alignment import count_correct

        rows = zip(pairs.source.tolist(), pairs.target.tolist())
        share = count_correct(rows, gold) / len(gold)
        logger.info("recall %.2f %% of %d gold pairs", 100 * share, len(gold))


def _check_arguments(args: argparse.Namespace) -> tuple[list[str | None], Options]:
    """Refuses what can be refused before any work; returns languages and options."""
    options = options_from(args, Options, optional_config(args))
    check_sides(args, ("gold",), [args.output])
    languages = [None, None] if args.languages is None else args.languages.split(",")
    if len(languages) != 2:
        raise OptionError("--languages: must be two codes, source and target, such as fr,en")
    if args.source == args.target and languages[0] == languages[1]:
        raise OptionError("--source and --target are the same file; add --languages SOURCE,TARGET")
    if options.document_mode != "sentences" and (args.source_embeddings or args.target_embeddings):
        raise OptionError("--document-mode: precomputed vectors are of sentences; leave it out")
    return languages, options


@contextlib.contextmanager
def _readable_twice(path: str, directory: Path) -> Iterator[str]:
    """Gives the path itself, or for "-" that of a copy of stdin."""
    if path != "-":
        yield path
        return
    with naming_errors(directory), tempfile.NamedTemporaryFile(dir=directory) as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield copy.name


def _read_side(path: str, name: str, language: str | None, options: Options) -> Documents:
    """Reads all of the documents but their text, which is read again to encode it."""
    reading = {"domain": options.domain or None, "splitter": options.splitter, "name": name}
    by_language = collect_documents(path, keep_sentences=False, **reading)
    side = choose_language(by_language, name, language)
    logger.info(
        "%s: %d documents in %s, %d sentences; %d without text, never matched",
        *(name, len(side), side.language or "no language", sum(side.lengths), side.num_empty),
    )
    return side


def _embed(
    args: argparse.Namespace,
    paths: list[str],
    both: list[Documents],
    options: Options,
    directory: Path,
) -> list[np.ndarray]:
    """Sentence vectors of both sides, encoded or read, mapped from files."""
    encoder = load_encoder(args.model, args) if args.model else None
    vectors = []
    for path, side, ready in zip(paths, both, (args.source_embeddings, args.target_embeddings)):
        if ready:
            what = f"nonblank sentences of {side.name}"
            found = read_vectors(ready, sum(side.lengths), what, args, encoder)
            vectors.append(np.asanyarray(found))  # int8 and packed bits are decoded in memory
        else:
            read = read_documents(path, splitter=options.splitter)
            documents = filter(None, (d.sentences for d in read if d.language == side.language))
            where = (directory, side.name)
            vectors_of, lengths = encode_documents_mapped(
                encoder, documents, sum(side.lengths), options.document_mode, *where
            )
            filled = iter(lengths)
            side.lengths = [next(filled) if length else 0 for length in side.lengths]
            vectors.append(vectors_of)
    check_same_size(vectors)
    return vectors
