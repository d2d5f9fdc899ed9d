"""`xling align --sentences`: groups of sentences inside documents that are translations."""

from __future__ import annotations

import argparse
import dataclasses
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from xling_jax.align.bitext import open_output
from xling_jax.align.sentences import SentenceAligner, overlap_vectors
from xling_jax.align.translations import FORMATS, AlignedDocuments
from xling_jax.cli.arguments import check_sides, load_encoder
from xling_jax.cli.options import flag, options_from
from xling_jax.documents.records import (
    choose_language,
    collect_documents,
    read_pairs_of_ids,
)
from xling_jax.files.lines import read_lines, shown
from xling_jax.files.progress import Progress
from xling_jax.options import OptionError

if TYPE_CHECKING:
    from xling_jax.documents.records import Documents
    from xling_jax.encode.encoder import Encoder

logger = logging.getLogger(__name__)

# A document: its id, None for a file of lines, and its sentences.
Side = dict[str | None, list[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sentences",
        action="store_true",
        help="align the sentences inside documents instead: --source and --target are text, one "
        "sentence per line, or JSON lines with documents of equal ids or of --pairs",
    )
    parser.add_argument(
        "--pairs", metavar="FILE", help="which documents to align inside: the output of xling align"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="of the aligned sentences: tsv: cost<TAB>source<TAB>target (default); groups: "
        "[0]:[0, 1]:cost, as vecalign writes; tmx: a translation memory, with --languages",
    )


def given(args: argparse.Namespace) -> list[str]:
    """Arguments that need `--sentences` and are there."""
    names = ["pairs", "format", *_names(SentenceAligner)]
    return [flag(name) for name in names if getattr(args, name, None) is not None]


def _names(options: type) -> list[str]:
    fields = dataclasses.fields(options)
    return [field.name for field in fields if "argument" in field.metadata]


def run(args: argparse.Namespace, document_options: type) -> None:
    """Aligns sentences and writes them.

    Args:
        args: parsed.
        document_options: dataclass of the options that align documents; only the splitter applies.
    """
    check_sides(args, ("pairs",), [args.output])
    aligner = options_from(args, SentenceAligner)
    wrong = [name for name in _names(document_options) if getattr(args, name, None) is not None]
    wrong = [flag(name) for name in wrong if name != "splitter"]
    wrong += [flag(name) for name in ("gold", "threshold", "config") if getattr(args, name)]
    if args.source_embeddings or args.target_embeddings:
        wrong.append("--source-embeddings")  # of single sentences; groups need their own
    if wrong:
        raise OptionError(f"{wrong[0]}: is not for --sentences, leave it out")
    languages = tuple(args.languages.split(",")) if args.languages else (None, None)
    if len(languages) != 2:
        raise OptionError("--languages: must be two codes, source and target, such as fr,en")
    sides, found = zip(*(_read(args, side, code) for side, code in zip(_SIDES, languages)))
    languages = tuple(code or other for code, other in zip(languages, found))
    if args.format == "tmx" and None in languages:
        raise OptionError("--format tmx: needs the languages, such as --languages fr,en")
    pairs = _pairs(args, *sides)
    encoder = load_encoder(args.model, args)
    aligned = _align(aligner, encoder, pairs, *sides)
    with open_output(args.output) as file:
        FORMATS[args.format or "tsv"](file, aligned, languages)


_SIDES = ("source", "target")


def _read(args: argparse.Namespace, name: str, language: str | None) -> tuple[Side, str | None]:
    """The documents of a side, and their language."""
    path = getattr(args, name)
    if ".jsonl" not in path.rpartition("/")[2]:
        if args.pairs:
            raise OptionError(f"--pairs: --{name} must be JSON lines, with ids; found {path}")
        return {None: [line for line in read_lines(path) if line.strip()]}, language
    splitter = getattr(args, "splitter", None) or "rule"
    by_language = collect_documents(path, keep_sentences=True, splitter=splitter, name=shown(path))
    documents = choose_language(by_language, shown(path), language)
    return dict(_documents(documents)), documents.language


def _documents(documents: Documents) -> Iterator[tuple[str, list[str]]]:
    begin = 0
    for name, length in zip(documents.ids, documents.lengths):
        yield name, documents.sentences[begin : begin + length]
        begin += length


def _pairs(args: argparse.Namespace, source: Side, target: Side) -> list[tuple]:
    """Ids of the documents to align inside."""
    if (None in source) != (None in target):
        raise OptionError("--source and --target: both must be JSON lines, or both text")
    if args.pairs:
        return read_pairs_of_ids(args.pairs, source, target)
    pairs = [(name, name) for name in source if name in target]
    if not pairs:
        raise OptionError(
            "--source and --target have no document id in common; give --pairs, the output of "
            "xling align"
        )
    logger.info(
        "%d of %d source and %d target documents have the same id on both sides",
        *(len(pairs), len(source), len(target)),
    )
    return pairs


def _align(
    aligner: SentenceAligner, encoder: Encoder, pairs: list[tuple], source: Side, target: Side
) -> Iterator[AlignedDocuments]:
    """Yields the documents one by one, and logs how many sentences have a translation."""
    totals, paired = [0, 0], [0, 0]
    with Progress("align", len(pairs), "document") as report:
        for done, (source_id, target_id) in enumerate(pairs, 1):
            texts = source[source_id], target[target_id]
            vectors = (overlap_vectors(encoder.encode, t, aligner.num_overlaps) for t in texts)
            groups = aligner.align(*vectors)
            for side, text in enumerate(texts):
                totals[side] += len(text)
                paired[side] += sum(len(g[side]) for g in groups if g.source and g.target)
            ids = None if source_id is None else (source_id, target_id)
            yield AlignedDocuments(ids, *texts, groups)
            report(done)
    logger.info(
        "%d of %d source and %d of %d target sentences have a translation",
        *(paired[0], totals[0], paired[1], totals[1]),
    )
