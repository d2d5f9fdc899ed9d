"""Finds the lines of a text that are nearest to a query, in any language.

The text is encoded once: vectors are kept beside it until it changes. Prints score, line number
and line, best first.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from typing import TYPE_CHECKING

from xling_jax.cli.arguments import Once, add_model, check_input, check_text, load_encoder
from xling_jax.files.lines import iterate_lines
from xling_jax.files.untrusted import printable
from xling_jax.options import OptionError

if TYPE_CHECKING:
    from xling_jax.serve.corpus import Corpus

_logger = logging.getLogger(__name__)

# Scores of which it is logged what they are worth, and lines that say little about that.
_TOLD = (0.4, 0.5, 0.6, 0.7, 0.8)
_FEW_LINES = 100

EXAMPLES = """\
examples:
  xling search --model mini --text manual.txt "how do I reset my password"
  xling search --model mini --text manual.txt --json - < questions.txt
  xling search --model M --text news.gz --debias 4 --index hnsw "elections in the capital"

With queries from stdin, each line begins with the number of its query.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "query", metavar="QUERY", help="what to look for; - for stdin, one query per line"
    )
    add_model(parser, required=True)
    add_corpus_options(parser, required=True)
    parser.add_argument("--k", type=int, default=10, help="lines per query (default: 10)")
    parser.add_argument("--json", action="store_true", help="print a JSON object per query")


def add_corpus_options(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Adds `--text`, `--index` and `--debias`."""
    parser.add_argument(
        "--text",
        action=Once,
        required=required,
        metavar="FILE",
        help="text to search, one line each",
    )
    parser.add_argument(
        "--index",
        default="exact",
        help="for millions of lines: ivf, ivfpq, hnsw or a factory string of faiss, kept beside "
        "the text too; may miss lines (default: exact)",
    )
    parser.add_argument(
        "--debias",
        type=int,
        default=0,
        metavar="N",
        help="remove N principal components of the lines, for a text in several languages and an "
        "encoder that tells them apart; try 4 (default: 0)",
    )


def run(args: argparse.Namespace) -> None:
    from xling_jax.serve.corpus import Corpus

    if args.k < 1:
        raise OptionError(f"--k {args.k}: must be at least 1")
    check_corpus_options(args)
    encoder = load_encoder(args.model, args)
    corpus = Corpus(args.text, encoder, index=args.index, debias=args.debias)
    are_many = args.query == "-"
    queries = [*iterate_lines("-")] if are_many else [args.query]
    if not args.json:
        explain_scores(corpus)
    for number, (query, hits) in enumerate(zip(queries, corpus.search(queries, args.k)), 1):
        if args.json:
            found = [hit._asdict() for hit in hits]
            print(json.dumps({"query": query, "hits": found}, ensure_ascii=False))
            continue
        first = f"{number}\t" if are_many else ""
        for hit in hits:
            print(f"{first}{hit.score:.4f}\t{hit.line}\t{printable(hit.text)}")


def check_corpus_options(args: argparse.Namespace) -> None:
    """Refuses options of `add_corpus_options` before any work."""
    check_input(args, "text")
    if not args.text and (args.debias or args.index != "exact"):
        name = "debias" if args.debias else "index"
        raise OptionError(f"--{name} {getattr(args, name)}: requires --text")
    if args.text and not os.path.isfile(args.text):
        raise OptionError(f"--text {args.text}: vectors are kept beside it; write it to a file")
    check_text(args.text or "", "--text", "write one text a line: jq -r .text")


def explain_scores(corpus: Corpus) -> None:
    """Logs what scores of the best lines are worth in this text."""
    if len(corpus.lines) < _FEW_LINES:
        return
    shares = zip(_TOLD, corpus.resemblance(_TOLD))
    _logger.info(
        "scores are cosines; share of lines in this text with a neighbor above %s; a query without "
        "an answer reaches a score about as often",
        ", ".join(f"{score:g}: {share:.0%}" for score, share in shares),
    )
