"""Pairs documents that are translations, one to one, by LAWDR.

Removes the components that identify the language from sentence vectors, weights sentences by
rarity, sums them, and compares documents by margin.
"""

import argparse
import dataclasses
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from xling_jax.align.pair_files import Layout, ScoredPair, write_pairs
from xling_jax.align.rows import check_same_dim
from xling_jax.cli.arguments import (
    add_config_values,
    add_languages,
    add_output,
    add_sides,
    check_sides,
    load_encoder,
    optional_config,
    read_vectors,
    refuse_suffix,
)
from xling_jax.cli.options import add_options, flag, options_from
from xling_jax.documents.alignment import DocumentAligner, match_urls
from xling_jax.documents.debias import check_rank
from xling_jax.documents.records import (
    Documents,
    choose_language,
    folder_language,
    group_by_language,
    read_documents,
    read_folder,
)
from xling_jax.encode.documents import MODES, MODES_HELP, write_mapped
from xling_jax.encode.encoder import Encoder
from xling_jax.files.lines import shown
from xling_jax.files.progress import Progress, counted
from xling_jax.options import OptionError, option

_logger = logging.getLogger(__name__)

LANGUAGES_HELP = (
    "languages of the sides; not needed for JSON lines in one language and for folders named after "
    "theirs"
)

EXAMPLES = """examples:
  xling align --model M --source fr.jsonl.gz --target en.jsonl.gz --output pairs.tsv
  xling align --model M --source crawl.jsonl --target crawl.jsonl --languages fr,en \\
      --domain domain --url-matching --output pairs.tsv
  xling align --model M --source de/ --target en/ --output pairs.tsv
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
    threshold: float | None = option(None, "keep pairs that score more than this")


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
    add_languages(parser, LANGUAGES_HELP, "SOURCE,TARGET")
    add_config_values(parser)
    add_options(parser, Options)


def run(args: argparse.Namespace) -> None:
    options = _check_arguments(args)
    fields = {"splitter": options.splitter, "domain": options.domain}
    paths = args.source, args.target
    sides = [read_side(path, code, **fields) for path, code in zip(paths, languages_of(args))]
    accepted = _match_urls(sides, options)
    encoder = load_encoder(args.model, args) if args.model else None
    if encoder:
        check_rank(options.debias, encoder)
    vectors = [
        read_vectors(path, sum(side.lengths), f"nonblank sentences of {side.name}", args, encoder)
        if path
        else encode_side(encoder, side, args.output, options.document_mode)
        for side, path in zip(sides, (args.source_embeddings, args.target_embeddings))
    ]
    check_same_dim(*vectors)
    with Progress("align", len(sides[0]), "document") as report:
        pairs = options.align(sides, vectors, accepted=accepted, report=report)
    if options.threshold is not None:
        pairs = pairs.take(pairs.scores > options.threshold)
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
    check_sides(args, can_be_folders=True)
    refuse_suffix(
        args.output, (".csv", ".jsonl", ".parquet", ".tmx"), "pairs of ids are written as .tsv"
    )
    return options


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


def languages_of(args: argparse.Namespace) -> list[str | None]:
    """The languages of both sides: from `--languages`, or from the names of folders."""
    given = [None, None] if args.languages is None else args.languages
    if len(given) != 2:
        raise OptionError("--languages: must be two codes, source and target, such as fr,en")
    is_folder = Path(args.source).is_dir()
    if Path(args.source) == Path(args.target) and (is_folder or given[0] == given[1]):
        file = "folder; give each language its own" if is_folder else "file; add --languages de,en"
        raise OptionError(f"--source and --target are the same {file}")
    languages = []
    for code, path in zip(given, (args.source, args.target)):
        if Path(path).is_dir() and not (code := code or folder_language(path)):
            raise OptionError(
                f"{path}: give --languages, such as --languages de,en, or name folders after them"
            )
        languages.append(code)
    return languages


def read_side(path: str, language: str | None, *, splitter: str, domain: str = "") -> Documents:
    """Reads the documents of a folder, or those of a language, by default the only one, of a file.

    `domain` is a field that every document must have.
    """
    name = shown(path)
    if Path(path).is_dir():
        documents = read_folder(path, language, splitter=splitter)
    else:
        documents = read_documents(path, domain=domain or None, splitter=splitter)
    side = choose_language(group_by_language(documents, name), name, language)
    _logger.info(
        "%s: %s in %s, %s; %s without text (never matched)",
        *(name, counted(len(side), "document"), side.language or "no language"),
        *(counted(sum(side.lengths), "sentence"), f"{side.num_empty:,}"),
    )
    return side


def encode_side(
    encoder: Encoder, side: Documents, output: str, mode: str = "sentences"
) -> np.ndarray:
    """Encodes a side into an unnamed file beside the output, [n, dim] float32 mapped from it.

    `mode` is what is encoded at once, whose numbers the lengths of the side become.
    """
    lengths: list[int] = []

    def texts() -> Iterator[str]:
        for inputs in side.inputs(encoder, mode):
            lengths.append(len(inputs))
            yield from inputs

    directory = Path(tempfile.gettempdir() if output == "-" else Path(output).parent)
    chunks, total = encoder.encode_stream(texts()), sum(side.lengths)
    vectors = write_mapped(chunks, encoder.dim, total, directory, side.name)
    side.lengths = lengths
    return vectors
