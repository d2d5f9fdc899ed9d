"""`xling align --sentences`: groups of sentences inside documents that are translations."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from xling_jax.align.bitext import open_output
from xling_jax.align.overlap_files import OverlapVectors
from xling_jax.align.sentences import SentenceAligner
from xling_jax.align.translation_filter import TranslationFilter, TranslationRules
from xling_jax.align.translations import FORMATS, TEXT_FORMATS, AlignedDocuments, write_groups
from xling_jax.cli import document_pairs
from xling_jax.cli.arguments import SIDES, check_sides, load_encoder
from xling_jax.cli.document_pairs import DocumentPairer, Options, encoded_vectors
from xling_jax.cli.options import flag, options_from
from xling_jax.documents.records import Documents, read_pairs_of_ids
from xling_jax.encode.sentence_alignment import align_pairs
from xling_jax.encode.unique import Encode
from xling_jax.files.lines import iterate_lines, shown
from xling_jax.files.progress import Progress, counted
from xling_jax.options import OptionError
from xling_jax.text.languages import to_iso639_1
from xling_jax.text.splitting import split_sentences

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)

_EQUAL_IDS = "ids"
# Documents without translation are paired too, with what is left. Of pairs of speeches and of pages
# of a manual, translations cost less than 0.43, others mostly more than 0.65.
_MAX_DOCUMENT_COST = 0.6
# Arguments of this module that need --sentences.
_OWN = ("pairs", "format", "max_document_cost", "source_overlaps", "target_overlaps")


class Pair(NamedTuple):
    """Two documents to align inside; attributes as of `AlignedDocuments`."""

    ids: tuple[str, str] | None
    source: list[str]
    target: list[str]
    lines: tuple[list[int], list[int]] | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sentences",
        action="store_true",
        help="align the sentences inside the documents too; --source and --target may also be two "
        "text files, a document each, one sentence per line",
    )
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="which documents to align inside: the output of xling align, or 'ids' for those of "
        "equal ids (in folders: names); default: those that LAWDR pairs",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="of the aligned sentences: tsv: cost<TAB>source<TAB>target; groups: [0]:[0, 1]:cost, "
        "as vecalign writes; tmx: a translation memory (default: tmx for an output named .tmx, "
        "otherwise tsv)",
    )
    parser.add_argument(
        "--max-document-cost",
        type=float,
        metavar="COST",
        help="leave out documents paired by LAWDR whose aligned sentences cost more on average "
        f"(default: {_MAX_DOCUMENT_COST})",
    )
    for side in SIDES:
        parser.add_argument(
            f"--{side}-overlaps",
            metavar="FILE",
            help=f"texts of vecalign's overlap.py, whose vectors are --{side}-embeddings",
        )


def given(args: argparse.Namespace) -> list[str]:
    """Arguments that need `--sentences` and are there."""
    names = [*_OWN, *_names(SentenceAligner), *_names(TranslationRules)]
    return [flag(name) for name in names if getattr(args, name, None) is not None]


def _names(options: type) -> list[str]:
    fields = dataclasses.fields(options)
    return [field.name for field in fields if "argument" in field.metadata]


def run(args: argparse.Namespace) -> None:
    """Aligns sentences and writes them."""
    kind = _check_arguments(args)
    aligner, rules = options_from(args, SentenceAligner), options_from(args, TranslationRules)
    options = document_pairs.check_arguments(args)
    languages = document_pairs.languages_of(args)
    if args.format == "tmx" and None in languages and kind == "text":
        raise OptionError("--format tmx: needs the languages, such as --languages fr,en")
    if kind == "text":
        _, encode = _encoders(args)
        sides = [_read_lines(path, args, code) for path, code in zip(_paths(args), languages)]
        (texts, lines), codes = zip(*sides), languages
        pairs = [Pair(None, *texts, None if None in lines else lines)]
    else:
        names = map(shown, _paths(args))
        sides = [
            document_pairs.read_side(*file, options, keep_sentences=True)
            for file in zip(_paths(args), names, languages)
        ]
        codes = tuple(side.language for side in sides)
        encode, pairs = _pairs(args, options, sides)
    max_cost = math.inf
    if kind != "text" and not args.pairs:
        limit = args.max_document_cost
        max_cost = _MAX_DOCUMENT_COST if limit is None else limit
    done = _align(aligner, encode, pairs, max_cost)
    kept = TranslationFilter(rules)
    with open_output(args.output) as file:
        if args.format == "groups":
            write_groups(file, done)
        else:
            found = (found for document in done for found in document.translations())
            chosen = (t for t in found if kept.keep(t.source, t.target, t.cost))
            TEXT_FORMATS[args.format](file, chosen, codes)
    if args.format != "groups":
        _logger.info("%s: %s", args.output, kept.describe())


def _check_arguments(args: argparse.Namespace) -> str:
    """Refuses wrong use and completes the format; returns what the sides are."""
    by_ids = args.pairs == _EQUAL_IDS
    inputs = ["gold", "load_debias", "source_overlaps", "target_overlaps"]
    inputs += ["pairs"] if not by_ids else []
    check_sides(args, inputs, ("output", "save_debias"), folders=SIDES)
    kinds = [_kind(path) for path in _paths(args)]
    if "text" in kinds and kinds[0] != kinds[1]:
        raise OptionError(
            "--source and --target: both must be text files, or both documents; JSON lines "
            "from a pipe are not recognized, write them to a file"
        )
    kind = kinds[0]
    if args.pairs and kind == "text":
        raise OptionError(f"--pairs: --source must be JSON lines or a folder; found {args.source}")
    if args.format is None:
        args.format = "tmx" if args.output.endswith(".tmx") else "tsv"
    _refuse_unused(args, pairs_documents=kind != "text" and not args.pairs)
    for side in SIDES:
        both = [getattr(args, f"{side}_{what}") for what in ("overlaps", "embeddings")]
        if any(both) and not all(both):
            raise OptionError(
                f"--{side}-overlaps and --{side}-embeddings: give both, the texts of one, two, … "
                "adjacent sentences and their vectors"
            )
    return kind


def _refuse_unused(args: argparse.Namespace, *, pairs_documents: bool) -> None:
    """Refuses arguments that would do nothing."""
    wrong = []
    if not pairs_documents:
        names = [name for name in _names(Options) if name != "splitter"]
        names += ["gold", "threshold", "config", "save_debias", "load_debias", "max_document_cost"]
        why = "is for pairing documents, which is not done here"
        wrong = [(name, why) for name in names if getattr(args, name, None) is not None]
    if args.format == "groups":
        names = _names(TranslationRules)
        why = "is not for --format groups, which covers all sentences"
        wrong += [(name, why) for name in names if getattr(args, name, None) is not None]
    if wrong:
        raise OptionError(f"{flag(wrong[0][0])}: {wrong[0][1]}; leave it out")


def _paths(args: argparse.Namespace) -> tuple[str, str]:
    return args.source, args.target


def _kind(path: str) -> str:
    """What a side is: a "folder" or "records" of documents, or the "text" of one."""
    if Path(path).is_dir():
        return "folder"
    if ".jsonl" in path.rpartition("/")[2]:
        return "records"
    # A pipe can be read only once.
    lines = iterate_lines(path) if Path(path).is_file() else ()
    return "records" if _begins_with_object(lines) else "text"


def _begins_with_object(lines: Iterable[str]) -> bool:
    """Whether the first line that is not blank looks like JSON."""
    return next((line for line in lines if line.strip()), "").lstrip().startswith("{")


def _encoders(args: argparse.Namespace) -> tuple[Encoder | None, list[Encode]]:
    """The model, and for each side what gives vectors of texts: the model, or overlap files."""
    encoder = load_encoder(args.model, args) if args.model else None
    dim = args.dim or (encoder.dim if encoder else None)
    encode = []
    for side in SIDES:
        texts, vectors = getattr(args, f"{side}_overlaps"), getattr(args, f"{side}_embeddings")
        encode.append(OverlapVectors(texts, vectors, dim) if texts else encoder.encode)
    return encoder, encode


def _read_lines(
    path: str, args: argparse.Namespace, language: str | None
) -> tuple[list[str], list[int] | None]:
    """The sentences of a text file, and their lines unless lines are split."""
    splitter = getattr(args, "splitter", None) or "lines"
    if splitter == "sentencex" and language is None:
        raise OptionError("--splitter sentencex: needs the languages, such as --languages de,en")
    lines = list(iterate_lines(path))
    if _begins_with_object(lines):
        raise OptionError(
            f"{shown(path)}: holds JSON lines, which --sentences does not read from a pipe; write "
            "them to a file"
        )
    if splitter != "lines":
        code = language and to_iso639_1(language)
        return split_sentences("\n".join(lines), splitter=splitter, language=code), None
    filled = [(n, line.strip()) for n, line in enumerate(lines) if line.strip()]
    return [line for _, line in filled], [number for number, _ in filled]


def _pairs(
    args: argparse.Namespace, options: Options, sides: list[Documents]
) -> tuple[list[Encode], list[Pair]]:
    """What gives vectors of texts for each side, and the documents to align inside."""
    texts = [dict(zip(side.ids, side.split())) for side in sides]
    positions = [dict(zip(side.ids, side.split_positions())) for side in sides]
    if not args.pairs:
        encode, ids = _paired_ids(args, options, sides)
    elif args.pairs == _EQUAL_IDS:
        ids = [(name, name) for name in texts[0] if name in texts[1]]
        if not ids:
            raise OptionError("--pairs ids: --source and --target have no document id in common")
        _logger.info(
            "%s of %s source and %s target documents have the same id on both sides",
            *(f"{len(each):,}" for each in (ids, *sides)),
        )
        _, encode = _encoders(args)
    else:
        ids = read_pairs_of_ids(args.pairs, *texts)
        _, encode = _encoders(args)
    return encode, [
        Pair((a, b), texts[0][a], texts[1][b], (positions[0][a], positions[1][b])) for a, b in ids
    ]


def _paired_ids(
    args: argparse.Namespace, options: Options, sides: list[Documents]
) -> tuple[list[Encode], list[tuple[str, str]]]:
    """What gives vectors, and ids of documents that LAWDR pairs, in the order of the source."""
    # Copies, whose lengths become numbers of what is encoded at once.
    pairer = DocumentPairer(args, options, [dataclasses.replace(side) for side in sides])
    encoder, encode = _encoders(args)
    directory = Path(tempfile.gettempdir() if args.output == "-" else Path(args.output).parent)
    filled = lambda side: filter(None, side.split())
    sources = [
        (lambda side, look_up=function: look_up(side.sentences))
        if isinstance(function, OverlapVectors)
        else encoded_vectors(encoder, options.document_mode, filled, directory)
        for function in encode
    ]
    pairs = pairer.pair(encoder, sources)
    _logger.info(
        "%s of %s source and %s target documents",
        *(counted(len(pairs), "pair"), *(f"{len(side):,}" for side in sides)),
    )
    rows = sorted(zip(pairs.source.tolist(), pairs.target.tolist()))
    return encode, [(sides[0].ids[i], sides[1].ids[j]) for i, j in rows]


def _align(
    aligner: SentenceAligner, encode: list[Encode], pairs: list[Pair], max_cost: float
) -> Iterator[AlignedDocuments]:
    """Yields documents that cost no more, and logs how many sentences have a translation."""
    totals, paired, num_kept = [0, 0], [0, 0], 0
    texts = ((pair.source, pair.target) for pair in pairs)
    with Progress("align", len(pairs), "document pair") as report:
        aligned = align_pairs(aligner, tuple(encode), texts)
        for done, (pair, (_, groups)) in enumerate(zip(pairs, aligned), 1):
            report(done)
            document = AlignedDocuments(pair.ids, pair.source, pair.target, groups, pair.lines)
            if document.cost > max_cost:
                continue
            num_kept += 1
            for side, text in enumerate((pair.source, pair.target)):
                totals[side] += len(text)
                paired[side] += sum(len(g[side]) for g in groups if g.source and g.target)
            yield document
    if max_cost < math.inf:
        dropped = counted(len(pairs) - num_kept, "document pair")
        _logger.info("%s left out, with a cost above %g", dropped, max_cost)
    _logger.info(
        "%s; %s of %s source and %s of %s target sentences have a translation",
        counted(num_kept, "document pair"),
        *(f"{count:,}" for counts in zip(paired, totals) for count in counts),
    )
