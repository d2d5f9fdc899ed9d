"""Aligns the sentences inside documents that are translations: groups of m and n, in order."""

import argparse
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from xling_jax.align.pair_files import Layout, check_format, open_output, output_files, write_pairs
from xling_jax.align.sentences import SentenceAligner
from xling_jax.align.translations import (
    FORMATS,
    AlignedDocuments,
    TranslationFilter,
    TranslationRules,
    write_groups,
)
from xling_jax.cli.align import LANGUAGES_HELP, encode_side, languages_of, read_side
from xling_jax.cli.arguments import (
    SIDES,
    Once,
    add_languages,
    add_model,
    add_output,
    check_input,
    check_output,
    load_encoder,
)
from xling_jax.cli.options import add_options, options_from
from xling_jax.documents.alignment import DocumentAligner
from xling_jax.documents.records import (
    Documents,
    number_sentences,
    read_pairs_of_ids,
    text_language,
)
from xling_jax.encode.encoder import Encoder
from xling_jax.encode.sentence_alignment import align_pairs
from xling_jax.files.lines import iterate_lines, shown
from xling_jax.files.progress import Progress, counted
from xling_jax.options import OptionError
from xling_jax.text.splitting import SPLITTERS, SPLITTERS_HELP

_logger = logging.getLogger(__name__)

_EQUAL_IDS = "ids"
# Documents without translation are paired too, with what is left. Of pairs of speeches and of pages
# of a manual, translations cost less than 0.43, others mostly more than 0.65.
_MAX_DOCUMENT_COST = 0.6

EXAMPLES = """examples:
  xling align-sentences --model mini --source book.fr --target book.en --output book.tsv
  xling align-sentences --model mini --source de/ --target en/ --output corpus.tmx
  xling align-sentences --model mini --source fr.jsonl --target en.jsonl \\
      --pairs pairs.tsv --languages fr,en --output corpus.tmx

Sides are two text files, a document each, one sentence per line; two folders with a text file for
each document; or JSON lines {"id", "lang", "text" or "sentences"}. Of folders and JSON lines, pairs
of documents are those of --pairs, or found as xling align finds them by default.

A cost is 0 for equal vectors and about 1 for random ones. Sentences without translation, copies,
repeated pairs and pairs of unlike lengths are left out, except with --format groups.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_model(parser, required=True)
    for side in SIDES:
        add(
            f"--{side}",
            action=Once,
            required=True,
            metavar="FILE",
            help="text file, folder or JSON lines",
        )
    add_output(parser, "file of aligned sentences; - for stdout")
    add_languages(parser, LANGUAGES_HELP, "SOURCE,TARGET")
    add(
        "--pairs",
        metavar="FILE",
        help="which documents to align inside: the output of xling align, or 'ids' for those of "
        "equal ids (in folders: names); default: those that LAWDR pairs",
    )
    add(
        "--format",
        choices=FORMATS,
        help="tsv: cost<TAB>source<TAB>target; groups: [0]:[0, 1]:cost, as vecalign writes; jsonl: "
        "JSON lines; parquet; tmx: a translation memory; moses: two files, X.de-en.de and "
        "X.de-en.en, of --output X.de-en (default: by the name of the output, otherwise tsv)",
    )
    add(
        "--splitter", choices=SPLITTERS, help=f"{SPLITTERS_HELP} (default: rule; text files: lines)"
    )
    add_options(parser, SentenceAligner)
    add_options(parser, TranslationRules)


def run(args: argparse.Namespace) -> None:
    is_text = _check_arguments(args)
    aligner, rules = options_from(args, SentenceAligner), options_from(args, TranslationRules)
    read, splitter = (_read_text, "lines") if is_text else (read_side, "rule")
    paths, languages = (args.source, args.target), languages_of(args)
    if is_text:
        languages = [code or text_language(path) for code, path in zip(languages, paths)]
    sides = [
        read(path, code, splitter=args.splitter or splitter) for path, code in zip(paths, languages)
    ]
    layout = Layout("cost", tuple(side.language for side in sides), names=("source", "target"))
    if args.format != "groups":
        check_format(args.output, layout.languages, args.format)
    encoder = load_encoder(args.model, args)
    pairs = _pairs(args, encoder, sides, is_text)
    max_cost = math.inf if is_text or args.pairs else _MAX_DOCUMENT_COST
    done = _align(aligner, encoder, pairs, max_cost)
    kept = TranslationFilter(rules)
    if args.format == "groups":
        with open_output(args.output) as file:
            write_groups(file, done)
        return
    found = (found for document in done for found in document.translations())
    chosen = (t for t in found if kept.keep(t.source, t.target, t.score))
    write_pairs(args.output, chosen, layout, args.format)
    _logger.info("%s: %s", args.output, kept.describe())


def _check_arguments(args: argparse.Namespace) -> bool:
    """Refuses wrong use and completes the format; True if the sides are a text each."""
    for side in SIDES:
        check_input(args, side, can_be_folder=True)
    if args.source == args.target == "-":
        raise OptionError("--source - and --target -: only one of them can be stdin")
    inputs = [*SIDES]
    if args.pairs and args.pairs != _EQUAL_IDS:
        inputs.append("pairs")
        check_input(args, "pairs")
    check_output(args, *inputs, files=lambda path: output_files(path, args.format))
    is_text, is_other = (_is_text(path) for path in (args.source, args.target))
    if is_text != is_other:
        raise OptionError(
            "--source and --target: both must be text files, or both documents; files of JSON "
            "lines are called .jsonl"
        )
    if args.pairs and is_text:
        raise OptionError(f"--pairs: --source must be JSON lines or a folder; found {args.source}")
    if args.format == "groups" and options_from(args, TranslationRules) != TranslationRules():
        raise OptionError("--format groups: covers all sentences; leave out the rules")
    return is_text


def _is_text(path: str) -> bool:
    """True for a text file, which is one document; False for a folder and JSON lines."""
    return not Path(path).is_dir() and ".jsonl" not in path.rpartition("/")[2]


def _read_text(path: str, language: str | None, *, splitter: str) -> Documents:
    """A text file as a side of one document without an id."""
    lines = list(iterate_lines(path))
    if next((line for line in lines if line.strip()), "").lstrip().startswith("{"):
        raise OptionError(f"{shown(path)}: looks like JSON lines; write them to a .jsonl file")
    sentences, positions = number_sentences("\n".join(lines), splitter)
    lengths = [len(sentences)]
    return Documents(shown(path), language, [""], [None], [None], lengths, sentences, positions)


def _pairs(
    args: argparse.Namespace, encoder: Encoder, sides: Sequence[Documents], is_text: bool
) -> list[AlignedDocuments]:
    """The documents to align inside, without groups."""
    texts = [dict(zip(side.ids, side.split())) for side in sides]
    positions = [dict(zip(side.ids, side.split("positions"))) for side in sides]
    if is_text:
        ids = [("", "")]
    elif not args.pairs:
        ids = _paired_ids(args, encoder, sides)
    elif args.pairs == _EQUAL_IDS:
        ids = [(name, name) for name in texts[0] if name in texts[1]]
        if not ids:
            raise OptionError("--pairs ids: --source and --target have no document id in common")
        _logger.info(
            "%s of %s source and %s target documents have the same id on both sides",
            *(f"{len(each):,}" for each in (ids, *sides)),
        )
    else:
        ids = read_pairs_of_ids(args.pairs, *texts)
    return [
        AlignedDocuments(
            None if is_text else (a, b),
            *(texts[0][a], texts[1][b], ()),
            (positions[0][a], positions[1][b]),
        )
        for a, b in ids
    ]


def _paired_ids(
    args: argparse.Namespace, encoder: Encoder, sides: Sequence[Documents]
) -> list[tuple[str, str]]:
    """Ids of the documents that LAWDR pairs, in the order of the source."""
    vectors = [encode_side(encoder, side, args.output) for side in sides]
    with Progress("align", len(sides[0]), "document") as report:
        pairs = DocumentAligner().align(sides, vectors, report=report)
    _logger.info(
        "%s of %s source and %s target documents",
        *(counted(len(pairs), "pair"), *(f"{len(side):,}" for side in sides)),
    )
    rows = sorted(zip(pairs.source.tolist(), pairs.target.tolist()))
    return [(sides[0].ids[i], sides[1].ids[j]) for i, j in rows]


def _align(
    aligner: SentenceAligner, encoder: Encoder, pairs: list[AlignedDocuments], max_cost: float
) -> Iterator[AlignedDocuments]:
    """Yields documents that cost no more, and logs how many sentences have a translation."""
    totals, paired, num_kept = [0, 0], [0, 0], 0
    texts = ((pair.source, pair.target) for pair in pairs)
    with Progress("align", len(pairs), "document pair") as report:
        aligned = align_pairs(aligner, encoder.encode, texts)
        for done, (pair, (_, groups)) in enumerate(zip(pairs, aligned), 1):
            report(done)
            document = pair._replace(groups=groups)
            if document.cost > max_cost:
                continue
            num_kept += 1
            for side, text in enumerate((pair.source, pair.target)):
                totals[side] += len(text)
                paired[side] += sum(len(g[side]) for g in groups if g.source and g.target)
            yield document
    if dropped := len(pairs) - num_kept:
        _logger.info("document pairs left out for a cost above %g: %d", max_cost, dropped)
    _logger.info(
        "%s; %s of %s source and %s of %s target sentences have a translation",
        counted(num_kept, "document pair"),
        *(f"{count:,}" for counts in zip(paired, totals) for count in counts),
    )
