"""Pairs documents that are translations, one to one, by LAWDR.

Removes the components that identify the language from sentence vectors, weights sentences by
rarity, sums them, and compares documents by margin.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import logging
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xling_jax.align.mining import MinedPairs
from xling_jax.align.pair_files import Layout, ScoredPair, write_pairs
from xling_jax.align.rows import check_same_dim
from xling_jax.cli.arguments import (
    add_config_values,
    add_output,
    add_sides,
    check_sides,
    load_encoder,
    optional_config,
    read_vectors,
)
from xling_jax.cli.document_sides import (
    add_languages,
    encode_side,
    iterate_documents,
    languages_of,
    read_side,
    scratch_directory,
)
from xling_jax.cli.options import add_options, flag, options_from
from xling_jax.documents.alignment import DocumentAligner, FittedPair, match_urls
from xling_jax.documents.lawdr import Lawdr
from xling_jax.documents.records import Document, Documents
from xling_jax.encode.documents import MODES, MODES_HELP
from xling_jax.files.lines import shown
from xling_jax.files.progress import Progress, counted
from xling_jax.files.whole import naming_errors, temporary_directory
from xling_jax.options import OptionError, option, wrong_use

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)

# Options that --load-debias sets.
_FITTED = ("debias", "weighting")

EXAMPLES = """examples:
  xling align --model M --source fr.jsonl.gz --target en.jsonl.gz --output pairs.tsv
  xling align --model M --source crawl.jsonl --target crawl.jsonl --languages fr,en \\
      --domain domain --url-matching --output pairs.tsv
  xling align --model M --source de/ --target en/ --output 1.tsv --save-debias de-en.lawdr
  xling align --model M --source 2/de --target 2/en --output 2.tsv --load-debias de-en.lawdr
  jq -r '.sentences[]' a.jsonl | xling embed --model M --input - --output a.npy
  xling align --source a.jsonl --target b.jsonl --source-embeddings a.npy \\
      --target-embeddings b.npy --output - | head

Inputs are folders with a text file for each document, or JSON lines {"id", "lang", "text" or
"sentences", optional "domain", "url"}. Output lines are `score<TAB>source id<TAB>target id`, best
first; each document appears in at most one line. Pairs found by their URLs come first, with score
inf. Documents without text are never matched. xling align-sentences aligns the sentences inside.

While the command runs, sentence vectors are kept in an unnamed file beside the output (with
--output - in the directory for temporary files), 4 bytes x dim per sentence.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DocumentAligner):
    document_mode: str = option("sentences", MODES_HELP, MODES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sides(
        parser,
        "documents: JSON lines, optionally .gz .xz .zst .bz2, - for stdin; or a folder of text "
        "files",
        "vectors of its nonblank sentences, in order, instead of a model (or LASER's .bin, with "
        "--dim)",
        required=True,
    )
    add_output(parser, "file of pairs; - for stdout")
    add_languages(parser)
    add_config_values(parser)
    add_options(parser, Options)
    parser.add_argument("--threshold", type=float, help="keep pairs that score more than this")
    parser.add_argument(
        "--save-debias",
        metavar="FILE",
        help="write what is fitted to these documents: language components, density of sentences",
    )
    parser.add_argument(
        "--load-debias",
        metavar="FILE",
        help="use what --save-debias wrote for other documents of these languages and this model",
    )


def run(args: argparse.Namespace) -> None:
    options = _check_arguments(args)
    languages = languages_of(args)
    directory = scratch_directory(args.output)
    with contextlib.ExitStack() as stack:
        paths = [
            stack.enter_context(_readable_twice(path, directory))
            for path in (args.source, args.target)
        ]
        names = shown(args.source), shown(args.target)
        fields = {"splitter": options.splitter, "domain": options.domain}
        readers = [
            functools.partial(iterate_documents, *side, **fields)
            for side in zip(paths, names, languages)
        ]
        sides = [read_side(read(), *side) for read, *side in zip(readers, names, languages)]
        accepted = _match_urls(sides, options)
        encoder = load_encoder(args.model, args) if args.model else None
        model = encoder.fingerprint if encoder else ""
        ready = [
            path and _ready_vectors(path, side, args, encoder)
            for path, side in zip((args.source_embeddings, args.target_embeddings), sides)
        ]
        estimators = None
        if args.load_debias:  # refused before sentences are encoded
            dim = encoder.dim if encoder else ready[0].shape[1]
            estimators = _load(args, options, sides, model, dim)
        vectors = [
            encode_side(encoder, side, _again(read(), side), directory, options.document_mode)
            if array is None
            else array
            for array, side, read in zip(ready, sides, readers)
        ]
        check_same_dim(*vectors)
        if args.save_debias:
            estimators = _fit_and_save(args, options, sides, vectors, model)
        pairs = _align(options, sides, vectors, estimators, accepted, args.threshold)
    source, target = (side.ids for side in sides)
    found = (ScoredPair(score, source[i], target[j]) for score, i, j in pairs)
    write_pairs(args.output, found, Layout(), "tsv")
    _logger.info(
        "%s: %s; unmatched: %s of %s source and %s of %s target documents",
        *(args.output, counted(len(pairs), "pair")),
        *(f"{count:,}" for side in sides for count in (len(side) - len(pairs), len(side))),
    )


def _check_arguments(args: argparse.Namespace) -> Options:
    """Refuses what can be refused before any work."""
    options = options_from(args, Options, optional_config(args))
    if options.document_mode != "sentences" and (args.source_embeddings or args.target_embeddings):
        raise OptionError("--document-mode: does not apply to precomputed vectors of sentences")
    for name in ("domain", "url_matching"):
        if getattr(options, name) and (Path(args.source).is_dir() or Path(args.target).is_dir()):
            raise OptionError(
                f"{flag(name)}: text files in a folder have no fields; use JSON lines"
            )
    if args.save_debias == "-":
        raise OptionError("--save-debias -: is not text for stdout; name a file")
    if args.load_debias:
        given = [name for name in _FITTED if getattr(args, name, None) is not None]
        given += ["save_debias"] if args.save_debias else []
        if given:
            raise OptionError(f"{flag(given[0])}: is set by --load-debias; leave it out")
    check_sides(args, ["load_debias"], ("output", "save_debias"), can_be_folders=True)
    return options


@contextlib.contextmanager
def _readable_twice(path: str, directory: Path) -> Iterator[str]:
    """Gives the path itself, or that of a copy of what can be read only once: stdin or a pipe."""
    if path != "-" and (Path(path).is_file() or Path(path).is_dir()):
        yield path
        return
    with naming_errors(directory), temporary_directory(directory / "xling-align") as scratch:
        copy = scratch / f"copy{Path(path).suffix}"
        stdin = contextlib.nullcontext(sys.stdin.buffer)
        with stdin if path == "-" else open(path, "rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield str(copy)


def _again(documents: Iterable[Document], side: Documents) -> Iterator[Sequence[str]]:
    """Yields the sentences of each document of a side, which are not kept in memory."""
    again = (document for document in documents if document.language == side.language)
    # Lengths may change once all documents are read.
    for document, *known in itertools.zip_longest(again, side.ids, [*side.lengths]):
        if document is None or [document.id, len(document.sentences)] != known:
            raise ValueError(f"{side.name}: changed while it was read; run the command again")
        if document.sentences:
            yield document.sentences


def _match_urls(
    sides: Sequence[Documents], options: Options
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows of the pairs that are accepted by their URLs, if they are to be."""
    if not options.url_matching:
        return None
    for side in sides:
        if not any(side.urls):
            raise ValueError(f"{side.name}: --url-matching needs 'url' in documents")
    accepted = match_urls(*sides, use_domains=bool(options.domain))
    _logger.info("%s by their URLs", counted(len(accepted[0]), "pair"))
    return accepted


def _ready_vectors(
    path: str, side: Documents, args: argparse.Namespace, encoder: Encoder | None
) -> np.ndarray:
    what = f"nonblank sentences of {side.name}"
    # int8 and packed bits are decoded in memory.
    return np.asanyarray(read_vectors(path, sum(side.lengths), what, args, encoder))


def _load(
    args: argparse.Namespace, options: Options, sides: Sequence[Documents], model: str, dim: int
) -> list[Lawdr]:
    """The estimators of --load-debias, if they fit."""
    fitted = FittedPair.load(args.load_debias)
    with wrong_use(f"--load-debias {args.load_debias}"):
        languages = [side.language for side in sides]
        return fitted.estimators_for(languages, model, dim, options.document_mode)


def _fit_and_save(
    args: argparse.Namespace,
    options: Options,
    sides: Sequence[Documents],
    vectors: Sequence[np.ndarray],
    model: str,
) -> list[Lawdr]:
    if not all(map(len, vectors)):
        raise ValueError("--save-debias: both sides must have sentences")
    estimators = options.fit(sides, vectors)
    languages = tuple(side.language for side in sides)
    fitted = FittedPair(languages, tuple(estimators), model, options.document_mode)
    fitted.save(args.save_debias)
    _logger.info("%s: written", args.save_debias)
    return estimators


def _align(
    options: Options,
    sides: Sequence[Documents],
    vectors: Sequence[np.ndarray],
    estimators: Sequence[Lawdr] | None,
    accepted: tuple[np.ndarray, np.ndarray] | None,
    threshold: float | None,
) -> MinedPairs:
    with Progress("align", len(sides[0]), "document") as report:
        given = {"estimators": estimators, "accepted": accepted, "report": report}
        pairs = options.align(sides, vectors, **given)
    return pairs if threshold is None else pairs.take(pairs.scores > threshold)
