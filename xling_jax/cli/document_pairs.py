"""Documents of two sides to pairs, for `xling align` with and without `--sentences`."""

from __future__ import annotations

import argparse
import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xling_jax.align.rows import check_same_dim
from xling_jax.cli.arguments import optional_config, read_vectors
from xling_jax.cli.options import flag, options_from
from xling_jax.documents.alignment import DocumentAligner, match_urls
from xling_jax.documents.fitted import FittedPair
from xling_jax.documents.folders import folder_language, read_folder
from xling_jax.documents.lawdr import Lawdr
from xling_jax.documents.records import (
    Document,
    Documents,
    choose_language,
    group_by_language,
    read_documents,
    read_gold,
)
from xling_jax.encode.documents import MODES, MODES_HELP
from xling_jax.encode.mapped import encode_documents_mapped
from xling_jax.files.progress import Progress, counted
from xling_jax.options import OptionError, option, wrong_use

if TYPE_CHECKING:
    from xling_jax.align.mining import MinedPairs
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)

# What --load-debias brings with it.
_FITTED = ("debias", "center", "weighting", "density_on", "seed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DocumentAligner):
    document_mode: str = option("sentences", MODES_HELP, MODES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gold", metavar="FILE", help="pairs of ids; their recall is logged")
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


def check_arguments(args: argparse.Namespace) -> Options:
    """Refuses what can be refused before any work."""
    options = options_from(args, Options, optional_config(args))
    if options.document_mode != "sentences" and (args.source_embeddings or args.target_embeddings):
        raise OptionError("--document-mode: precomputed vectors are of sentences; leave it out")
    if args.save_debias == "-":
        raise OptionError("--save-debias -: is not text for stdout; name a file")
    if args.load_debias:
        given = [name for name in _FITTED if getattr(args, name, None) is not None]
        given += ["save_debias"] if args.save_debias else []
        if given:
            raise OptionError(f"{flag(given[0])}: --load-debias brings it with it, leave it out")
    return options


def languages_of(args: argparse.Namespace) -> list[str | None]:
    """The languages of both sides: from `--languages`, or from the names of folders."""
    given = [None, None] if args.languages is None else args.languages
    if len(given) != 2:
        raise OptionError("--languages: must be two codes, source and target, such as fr,en")
    paths = (args.source, args.target)
    if args.source == args.target and given[0] == given[1]:
        raise OptionError("--source and --target are the same file; add --languages SOURCE,TARGET")
    named = [folder_language(path) if Path(path).is_dir() else None for path in paths]
    if args.source == args.target and Path(args.source).is_dir():
        raise OptionError(f"--source and --target are the same folder, {args.source}")
    languages = [code or name for code, name in zip(given, named)]
    for code, path in zip(languages, paths):
        if code is None and Path(path).is_dir():
            raise OptionError(
                f"{path}: give --languages, such as --languages de,en, or name folders after them"
            )
    return languages


def read_texts(path: str, name: str, language: str | None, options: Options) -> Iterable[Document]:
    """The documents of a folder, or of one language or all in JSON lines."""
    if not Path(path).is_dir():
        domain = options.domain or None
        return read_documents(path, domain=domain, splitter=options.splitter, name=name)
    if options.domain or options.url_matching:
        needed = "--domain" if options.domain else "--url-matching"
        raise OptionError(f"{needed}: text files in a folder have no fields; use JSON lines")
    return read_folder(path, language, splitter=options.splitter)


def read_side(
    path: str, name: str, language: str | None, options: Options, *, keep_sentences: bool = False
) -> Documents:
    """Reads the documents of a side, without their text unless it is to be kept."""
    found = group_by_language(read_texts(path, name, language, options), name, keep_sentences)
    side = choose_language(found, name, language)
    _logger.info(
        "%s: %s in %s, %s; %s without text, never matched",
        *(name, counted(len(side), "document"), side.language or "no language"),
        *(counted(sum(side.lengths), "sentence"), f"{side.num_empty:,}"),
    )
    return side


# From the documents of a side to the vectors of their sentences, [n, dim].
VectorSource = Callable[[Documents], np.ndarray]


class DocumentPairer:
    """Pairs the documents of two sides by LAWDR; refuses what does not fit before any work.

    Args:
        args: parsed.
        options: of the alignment.
        sides: source and target.
    """

    def __init__(self, args: argparse.Namespace, options: Options, sides: Sequence[Documents]):
        self._args, self._options, self._sides = args, options, sides
        self._gold = read_gold(args.gold, *sides) if args.gold else None
        self._accepted = None
        if options.url_matching:
            for side in sides:
                if not any(side.urls):
                    raise ValueError(f"{side.name}: --url-matching needs 'url' in documents")
            self._accepted = match_urls(*sides, use_domains=bool(options.domain))
            _logger.info("%s by their URLs", counted(len(self._accepted[0]), "pair"))
        self._fitted = FittedPair.load(args.load_debias) if args.load_debias else None
        if self._fitted:
            self._estimators("", self._fitted.dim)

    def pair(self, encoder: Encoder | None, sources: Sequence[VectorSource]) -> MinedPairs:
        """The pairs, best first; `sources` give the vectors of each side."""
        args, options, sides = self._args, self._options, self._sides
        model = encoder.fingerprint if encoder else ""
        if self._fitted and encoder:  # before sentences are encoded
            self._estimators(model, encoder.dim)
        vectors = [source(side) for source, side in zip(sources, sides)]
        check_same_dim(*vectors)
        estimators = None
        if self._fitted:
            estimators = self._estimators(model, vectors[0].shape[1])
        elif args.save_debias:
            estimators = self._fit_and_save(vectors, model)
        settings = {"estimators": estimators, "accepted": self._accepted}
        with Progress("align", len(sides[0]), "document") as report:
            pairs = options.align(sides, vectors, **settings, report=report)
        if args.threshold is not None:
            pairs = pairs.take(pairs.scores > args.threshold)
        if self._gold is not None:
            from xling_jax.eval.alignment import count_correct

            rows = zip(pairs.source.tolist(), pairs.target.tolist())
            share = count_correct(rows, self._gold) / len(self._gold)
            gold = counted(len(self._gold), "gold pair")
            _logger.info("recall %.2f %% of %s", 100 * share, gold)
        return pairs

    def _estimators(self, model: str, dim: int) -> list[Lawdr]:
        """Those of --load-debias."""
        languages, mode = [side.language for side in self._sides], self._options.document_mode
        with wrong_use(f"--load-debias {self._args.load_debias}"):
            return self._fitted.estimators_for(languages, model, dim, mode)

    def _fit_and_save(self, vectors: Sequence[np.ndarray], model: str) -> list[Lawdr]:
        if not all(map(len, vectors)):
            raise ValueError("--save-debias: both sides must have sentences")
        estimators = self._options.fit(self._sides, vectors)
        languages = tuple(side.language for side in self._sides)
        fitted = FittedPair(languages, tuple(estimators), model, self._options.document_mode)
        fitted.save(self._args.save_debias)
        _logger.info("%s: written", self._args.save_debias)
        return estimators


def ready_vectors(path: str, args: argparse.Namespace, encoder: Encoder | None) -> VectorSource:
    """Reads the vectors of a side from a file."""

    def read(side: Documents) -> np.ndarray:
        what = f"nonblank sentences of {side.name}"
        found = read_vectors(path, sum(side.lengths), what, args, encoder)
        return np.asanyarray(found)  # int8 and packed bits are decoded in memory

    return read


def encoded_vectors(
    encoder: Encoder,
    mode: str,
    documents: Callable[[Documents], Iterable[Sequence[str]]],
    directory: Path,
) -> VectorSource:
    """Encodes a side into an unnamed file.

    Args:
        encoder: of its sentences.
        mode: what is encoded at once; the lengths of the side become numbers of these.
        documents: gives the sentences of each document of a side that has some.
        directory: for the file.
    """

    def encode(side: Documents) -> np.ndarray:
        where = (directory, side.name)
        total = sum(side.lengths)
        vectors, lengths = encode_documents_mapped(encoder, documents(side), total, mode, *where)
        filled = iter(lengths)
        side.lengths = [next(filled) if length else 0 for length in side.lengths]
        return vectors

    return encode
