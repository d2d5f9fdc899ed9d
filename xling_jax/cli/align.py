"""`xling align`: two files of documents to pairs that are likely translations."""

from __future__ import annotations

import argparse
import contextlib
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli import align_files, mine_files
from xling_jax.cli.align_arguments import AUTO, add_choice, add_method_arguments, complete
from xling_jax.cli.common import (
    UsageError,
    keep_compiled_programs,
    refuse_existing,
    require_file,
)
from xling_jax.files.progress import Progress

if TYPE_CHECKING:
    import numpy as np

    from xling_jax.align.mining import MinedPairs
    from xling_jax.documents.records import Documents

logger = logging.getLogger(__name__)

_EXAMPLE = """examples:
  xling align --model M --source fr.jsonl.gz --target en.jsonl.gz --output pairs.tsv
  xling align --model M --source crawl.jsonl --target crawl.jsonl --languages fr,en \\
      --domain domain --url-matching --output pairs.tsv
  jq -r '.sentences[]' a.jsonl | xling embed --model M --input - --output a.npy
  xling align --source a.jsonl --target b.jsonl --source-embeddings a.npy \\
      --target-embeddings b.npy --output - | head

Input lines are {"id", "lang", "text" or "sentences", optional "domain", "url"}. Output lines are
`score<TAB>source id<TAB>target id`, the best first, each document in one line at most. Pairs by
their URLs come first, with the score inf. Documents without text are never matched.

Vectors of sentences are kept in a file without a name beside the output (for - in the directory
of temporary files), 4 bytes x dim a sentence, while the command runs.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the parser of `xling`."""
    parser = subparsers.add_parser(
        "align",
        help="find documents that are translations of one another",
        description="Aligns documents one to one by LAWDR: sentence vectors without what tells "
        "their language, weighted by how rare they are, added up, compared by margin.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", help="model directory, workdir, or name of a shipped encoder")
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}", required=True, metavar="FILE", help="documents; may be .gz .xz .zst; -"
        )
        parser.add_argument(
            f"--{side}-embeddings",
            metavar="E.npy",
            help="vectors of its sentences that are not blank, in order, in place of a model (or "
            "LASER's .bin, with --dim)",
        )
    parser.add_argument("--dim", type=int, help="size of the vectors in LASER files")
    parser.add_argument("--output", required=True, help="the pairs; - for stdout")
    parser.add_argument(
        "--languages", metavar="SOURCE,TARGET", help="those to align, of files that hold several"
    )
    parser.add_argument("--gold", metavar="FILE", help="pairs of ids; the recall goes to the log")
    add_method_arguments(parser)
    for name in ("weighting", "similarity"):
        add_choice(parser, name)
    parser.add_argument(
        "--raw-products",
        action="store_true",
        help="margins of vectors as long as they are, as equation 4 is written; else of length 1",
    )
    parser.add_argument("--threshold", type=float, help="keep pairs that score more than this")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
        UsageError: if arguments do not fit together, an input is missing or the output exists.
        ValueError, OSError: if the model, vectors or documents are broken, or writing fails.
    """
    _check_arguments(args)
    directory = Path(tempfile.gettempdir() if args.output == "-" else Path(args.output).parent)
    with contextlib.ExitStack() as stack:
        paths = [
            stack.enter_context(align_files.readable_twice(path, directory))
            for path in (args.source, args.target)
        ]
        sides = _read_sides(args, paths)
        gold = _read_gold(args, sides)
        accepted = _match_urls(args, sides)
        vectors = _embed(args, paths, sides, directory)
    documents = _represent(args, sides, vectors)
    pairs = _align(args, sides, documents, accepted)
    if args.threshold is not None:
        pairs = pairs.take(pairs.scores > args.threshold)
    mine_files.write_pairs(args.output, pairs, sides[0].ids, sides[1].ids)
    logger.info(
        "%s: %d pairs; without a partner: %d of %d source and %d of %d target documents",
        *(args.output, len(pairs)),
        *(count for side in sides for count in (len(side) - len(pairs), len(side))),
    )
    if gold is not None:
        from xling_jax.eval.document_alignment import recall

        rows = zip(pairs.source.tolist(), pairs.target.tolist())
        logger.info("recall %.2f %% of %d gold pairs", 100 * recall(rows, gold), len(gold))


def _check_arguments(args: argparse.Namespace) -> None:
    """Refuses what costs nothing to refuse."""
    complete(args)
    for name in ("source", "target", "source_embeddings", "target_embeddings", "gold"):
        path = getattr(args, name)
        option = f"--{name.replace('_', '-')}"
        if path and path != "-" and require_file(path, option).is_dir():
            raise UsageError(f"{option} {path}: is a directory")
    if args.source == args.target == "-":
        raise UsageError("--source - and --target -: only one of them can be stdin")
    args.languages = [None, None] if args.languages is None else args.languages.split(",")
    if len(args.languages) != 2:
        raise UsageError("--languages: must be two codes, source and target, such as fr,en")
    if args.source == args.target and args.languages[0] == args.languages[1]:
        raise UsageError("--source and --target are one file; choose by --languages SOURCE,TARGET")
    ready = [bool(args.source_embeddings), bool(args.target_embeddings)]
    if not args.model and not all(ready):
        raise UsageError("--model is needed, or --source-embeddings and --target-embeddings")
    if args.model and all(ready):
        raise UsageError("--model: both sides have ready vectors, nothing is left to embed")
    if args.dim is not None and (args.dim < 1 or not any(ready)):
        raise UsageError(f"--dim {args.dim}: must be positive, and goes with ready vectors only")
    if args.document_mode != "sentences" and any(ready):
        raise UsageError("--document-mode: ready vectors are of sentences; leave it out")
    if args.raw_products and args.similarity == "cosine":
        raise UsageError("--raw-products: goes with --similarity margin only")
    refuse_existing(args.output, args.overwrite)
    if args.output != "-" and not Path(args.output).parent.is_dir():
        raise UsageError(f"{args.output}: its directory does not exist; make it first")


def _read_sides(args: argparse.Namespace, paths: list[str]) -> list[Documents]:
    """Everything of the documents but their text, which is read again to encode it."""
    from xling_jax.documents.records import choose_language, collect_documents

    sides = []
    for path, given, language in zip(paths, (args.source, args.target), args.languages):
        name = mine_files.shown(given)
        by_language = collect_documents(
            path,
            domain=args.domain or None,
            splitter=args.splitter,
            keep_sentences=False,
            name=name,
        )
        side = choose_language(by_language, name, language)
        logger.info(
            "%s: %d documents in %s, %d sentences; %d without text, never matched",
            *(name, len(side), side.language or "no language", sum(side.lengths), side.num_empty),
        )
        sides.append(side)
    return sides


def _read_gold(args: argparse.Namespace, sides: list[Documents]) -> Any:
    from xling_jax.documents.records import read_gold

    return read_gold(args.gold, *sides) if args.gold else None


def _match_urls(args: argparse.Namespace, sides: list[Documents]) -> tuple | None:
    if not args.url_matching:
        return None
    from xling_jax.eval.document_alignment import match_urls

    for side in sides:
        if not any(side.urls):
            raise ValueError(f"{side.name}: --url-matching needs documents with 'url'; found none")
    accepted = match_urls(*sides, use_domains=bool(args.domain))
    logger.info("%d pairs by their URLs", len(accepted[0]))
    return accepted


def _embed(
    args: argparse.Namespace, paths: list[str], sides: list[Documents], directory: Path
) -> list[np.ndarray]:
    """Sentence vectors of both sides, encoded or read, mapped from files."""
    encoder = None
    if args.model:
        import xling_jax

        keep_compiled_programs()
        encoder = xling_jax.load(args.model)
    vectors = []
    for path, side, ready in zip(paths, sides, (args.source_embeddings, args.target_embeddings)):
        if ready:
            dim = args.dim or (encoder.dim if encoder else None)
            vectors.append(align_files.read_vectors(ready, side, dim))
            continue
        texts = align_files.read_inputs(path, side, encoder, args.document_mode, args.splitter)
        count = sum(side.lengths)
        vectors.append(align_files.encode_to_disk(encoder, texts, count, directory, side.name))
    if vectors[0].shape[1] != vectors[1].shape[1]:
        raise ValueError(
            "the vectors of both sides must have the same size; "
            f"source has {vectors[0].shape[1]}, target {vectors[1].shape[1]}"
        )
    return vectors


def _represent(
    args: argparse.Namespace, sides: list[Documents], vectors: list[np.ndarray]
) -> list[np.ndarray]:
    """Document vectors [docs, dim] of both sides."""
    import numpy as np

    from xling_jax.documents import debias
    from xling_jax.documents.lawdr import Lawdr

    if not all(map(len, vectors)):
        # A side without any sentence: nothing can be fitted, and nothing matched.
        return [
            np.zeros((len(side), array.shape[1]), np.float32) for side, array in zip(sides, vectors)
        ]
    rank = None if args.debias == AUTO else args.debias or None
    if args.debias == AUTO:
        named = {f"{side.name} ({side.language})": a for side, a in zip(sides, vectors)}
        rank = debias.choose_rank(named, seed=args.seed, center=args.center).rank
        logger.info("debiasing: %d components of each language", rank)
    documents = []
    for side, array in zip(sides, vectors):
        lawdr = Lawdr(
            rank=rank,
            center=args.center,
            weighting=args.weighting,
            density_on=args.density_on,
            seed=args.seed,
        )
        documents.append(lawdr.fit(array).transform(array, side.offsets))
        logger.info("%s: document vectors done", side.name)
    return documents


def _align(
    args: argparse.Namespace,
    sides: list[Documents],
    documents: list[np.ndarray],
    accepted: tuple | None,
) -> MinedPairs:
    from xling_jax.align.matching import align_documents

    with Progress("align", len(sides[0]), "document") as progress:
        return align_documents(
            *documents,
            similarity=args.similarity,
            k=args.k,
            candidates=args.candidates,
            domains=tuple(side.domains for side in sides) if args.domain else None,
            accepted=accepted,
            normalize=not args.raw_products,
            memory_mb=args.memory_mb,
            backend=args.backend,
            report=progress,
        )
