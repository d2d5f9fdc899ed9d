"""`xling evaluate alignment`."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli.common import UsageError, load_config, require_file
from xling_jax.cli.evaluation import (
    add_common,
    check_names,
    check_output,
    finish,
    load_vectors,
    words,
)
from xling_jax.cli.options import add_options, options_from
from xling_jax.documents.alignment import AUTO, AlignmentOptions
from xling_jax.encode.documents import MODES
from xling_jax.encode.mapped import encode_mapped
from xling_jax.options import option

if TYPE_CHECKING:
    from xling_jax.documents.records import AlignmentData
    from xling_jax.eval.document_alignment import AlignmentResult

logger = logging.getLogger(__name__)

_EXAMPLE = """examples:
  xling evaluate alignment --model M --data news.jsonl.gz --languages en,de,fr --baselines \\
      --output runs/alignment
  xling evaluate alignment --model M --data fr.jsonl.gz en.jsonl.gz --gold test.pairs \\
      --domain domain --url-matching --output runs/wmt16
"""

_FIRST_TOKENS = 512
# Arguments that are those of `measure_alignment`.
_SETTINGS = ("k", "candidates", "center", "density_on", "seed", "url_matching", "backend")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(AlignmentOptions):
    document_mode: str = option("sentences", "what is encoded at once", MODES)


def add_task(tasks: Any) -> None:
    """Adds the task to `xling evaluate`."""
    parser = tasks.add_parser(
        "alignment",
        help="are a document's translations found among other documents?",
        description="Recall of documents aligned one to one, in the eight cells of LAWDR: vectors "
        "biased or debiased, documents as mean or weighted sum of sentences, scores by cosine or "
        "margin. One file: documents of equal id are translations, all pairs of languages (WMT19). "
        "With --gold two files, source and target (WMT16).",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common(
        parser,
        'JSON lines {"id", "lang", "text" or "sentences"}; any number of files, or with --gold two',
        nargs="+",
        embeddings=True,
    )
    parser.add_argument("--gold", metavar="FILE", help="pairs of ids, source id<TAB>target id")
    parser.add_argument("--config", metavar="FILE[:ARG]", help="values not given here")
    add_options(parser, _Options)
    parser.add_argument(
        "--cells",
        default="all",
        metavar="NAME,NAME",
        help="such as biased-mean-cosine,debiased-weighted-margin; by default all eight, without "
        "the debiased ones if --debias is 0",
    )
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="also whole documents as one sequence, and their first 512 tokens",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the task.

    Raises:
        UsageError: if an input is missing, an argument is out of range or the output exists.
        ValueError, OSError: if the model or the data is broken, or writing fails.
    """
    from xling_jax.eval import document_alignment

    started = time.monotonic()
    if args.config_overrides and not args.config:
        raise UsageError(f"{args.config_overrides[0]}: requires --config FILE")
    config = load_config(args.config, args.config_overrides) if args.config else None
    vars(args).update(dataclasses.asdict(options_from(args, _Options, config)))
    cells = _cells(args)
    if args.embeddings and (args.baselines or args.document_mode != "sentences"):
        raise UsageError("--embeddings: of sentences; leave out --baselines and --document-mode")
    output = check_output(args)
    sets = _load(args)
    check_names([data.name for data in sets], args.data)
    encoder = load_vectors(args, lambda: _columns(sets))
    baselines, first_tokens = _baselines(args, encoder)
    output.mkdir(parents=True, exist_ok=True)
    settings = {name: getattr(args, name) for name in _SETTINGS}
    results, tables, metrics = {}, [], {}
    for data in sets:
        logger.info("%s: %s", data.name, _sizes(data))
        result = document_alignment.measure_alignment(
            _encode_in(encoder, output, data.name),
            _regroup(data, encoder, args.document_mode),
            cells=cells,
            rank=None if args.debias == AUTO else args.debias,
            baselines=baselines,
            use_domains=bool(args.domain),
            memory_mb=args.memory_mb,
            **settings,
        )
        results[data.name] = result
        tables.append(_table(data, result))
        metrics |= document_alignment.named_metrics(data.name, result)
        if args.pictures:
            _draw(output, data, result)
    settings |= {
        "cells": list(cells),
        "debias": args.debias,
        "domain": args.domain,
        "document_mode": args.document_mode,
        "splitter": args.splitter,
        "baseline_tokens": first_tokens,
    }
    described = [_describe(data) for data in sets]
    matrices = {name: _counts(result) for name, result in results.items()}
    finish(args, encoder, described, settings, metrics, matrices, tables, started)


def _cells(args: argparse.Namespace) -> Sequence[str]:
    from xling_jax.eval.document_alignment import CELLS

    possible = [cell for cell in CELLS if args.debias != 0 or cell.startswith("biased")]
    if args.cells == "all":
        return possible
    cells = words(args.cells)
    for cell in cells:
        if cell not in possible:
            hint = " with --debias 0" if cell in CELLS else ""
            raise UsageError(f"--cells: {cell!r} is none of {', '.join(possible)}{hint}")
    if not cells:
        raise UsageError(f"--cells: must name one of {', '.join(possible)}")
    return cells


def _load(args: argparse.Namespace) -> list[AlignmentData]:
    from xling_jax.documents import records as document_data

    settings = {"domain": args.domain or None, "splitter": args.splitter}
    if args.gold is None:
        return [
            document_data.load_alignment_data(path, args.languages, **settings)
            for path in args.data
        ]
    require_file(args.gold, "--gold")
    if len(args.data) != 2:
        raise UsageError(f"--gold: needs two files in --data, source and target; got {args.data}")
    return [document_data.load_document_pairs(*args.data, args.gold, args.languages, **settings)]


def _columns(sets: Sequence[AlignmentData]) -> dict[str, list[str]]:
    """Names of the files of vectors, `NAME.LANG`, to the sentences of their rows."""
    return {
        f"{data.name}.{code}": side.sentences
        for data in sets
        for code, side in data.documents.items()
    }


def _encode_in(encoder: Any, directory: Path, name: str) -> Callable:
    """The encoder's `encode` with its vectors in a file without a name, for large collections."""
    if not hasattr(encoder, "encode_stream"):
        return encoder.encode
    return lambda texts: encode_mapped(encoder, texts, len(texts), directory, name)


def _baselines(args: argparse.Namespace, encoder: Any) -> tuple[dict[str, Callable], dict]:
    """Encoders of whole documents by the names of their cells, and the tokens they keep."""
    if not args.baselines:
        return {}, {}
    longest = encoder.max_length_tokens
    baselines, tokens = {"document": encoder.encode}, {"document": longest}
    if longest > _FIRST_TOKENS:
        name = f"first{_FIRST_TOKENS}"
        baselines[name] = encoder.with_max_length(_FIRST_TOKENS).encode
        tokens[name] = _FIRST_TOKENS
    else:
        logger.info("the model takes at most %d tokens: one baseline, cut there", longest)
    return baselines, tokens


def _regroup(data: AlignmentData, encoder: Any, mode: str) -> AlignmentData:
    """The same with what the encoder reads at once in place of sentences."""
    if mode == "sentences":
        return data
    documents = {}
    for code, side in data.documents.items():
        ends = side.offsets[1:].tolist()
        texts = (side.sentences[end - n : end] for end, n in zip(ends, side.lengths) if n)
        inputs = list(encoder.document_inputs(texts, mode))
        counts = iter(map(len, inputs))
        documents[code] = dataclasses.replace(
            side,
            sentences=[text for texts in inputs for text in texts],
            lengths=[next(counts) if length else 0 for length in side.lengths],
        )
    return dataclasses.replace(data, documents=documents)


def _sizes(data: AlignmentData) -> str:
    counts = ", ".join(
        f"{len(side):,} documents in {code} ({side.num_empty} empty)"
        for code, side in data.documents.items()
    )
    return f"{counts}; {sum(map(len, data.gold.values())):,} gold pairs"


def _describe(data: AlignmentData) -> dict:
    return {
        "name": data.name,
        "sha256": data.fingerprint,
        "languages": list(data.documents),
        "num_documents": {code: len(side) for code, side in data.documents.items()},
        "num_sentences": {code: len(side.sentences) for code, side in data.documents.items()},
        "num_gold": sum(map(len, data.gold.values())),
    }


def _counts(result: AlignmentResult) -> dict:
    cells = {
        cell: {
            "-".join(pair): {
                "recall": found.recall,
                "num_gold": found.num_gold,
                "num_correct": found.num_correct,
                "num_aligned": found.num_aligned,
            }
            for pair, found in counts.items()
        }
        for cell, counts in result.counts.items()
    }
    return {"cells": cells, "ranks": result.ranks, "num_empty": result.num_empty}


def _table(data: AlignmentData, result: AlignmentResult) -> str:
    """Recall of every cell, then of the primary one by pair of languages."""
    from xling_jax.eval.document_alignment import SIMILARITIES, primary_cell
    from xling_jax.eval.results import markdown_table

    means = {"recall": result.micro_recall}
    if len(data.gold) > 1:
        means["macro recall"] = result.macro_recall
    rows = []
    for name in dict.fromkeys(cell.rpartition("-")[0] for cell in result.counts):
        row = [name.replace("-", ", ")]
        for mean in means.values():
            cells = [f"{name}-{score}" for score in SIMILARITIES]
            row += [f"{100 * mean(c):.1f}" if c in result.counts else "" for c in cells]
        rows.append(row)
    header = ["documents", *(f"{mean}, {score}" for mean in means for score in SIMILARITIES)]
    primary = primary_cell(result)
    by_pair = [
        ["-".join(pair), f"{100 * found.recall:.1f}", f"{found.num_gold}"]
        for pair, found in result.counts[primary].items()
    ]
    lines = [f"## {data.name}: document alignment, %", "", markdown_table(header, rows), ""]
    lines.append(markdown_table([primary, "recall", "gold pairs"], by_pair))
    removed = [f"{rank} in {code}" for code, rank in result.ranks.items() if rank]
    if removed:
        lines += ["", f"Components of the language removed: {', '.join(removed)}."]
    empty = [f"{count} in {code}" for code, count in result.num_empty.items() if count]
    if empty:
        lines += ["", f"Empty documents, never matched: {', '.join(empty)}."]
    return "\n".join(lines) + "\n"


def _draw(output: Path, data: AlignmentData, result: AlignmentResult) -> None:
    """The recall between all languages; nothing for two."""
    import numpy as np

    from xling_jax.eval.document_alignment import primary_cell
    from xling_jax.report import pictures

    codes = list(data.documents)
    if len(codes) < 3:
        return
    values = np.full((len(codes), len(codes)), np.nan)
    primary = primary_cell(result)
    for (first, second), found in result.counts[primary].items():
        i, j = codes.index(first), codes.index(second)
        values[i, j] = values[j, i] = found.recall
    pictures.draw_matrix(
        output / f"{data.name}.matrix.png",
        values,
        codes,
        codes,
        title=f"{data.name}: recall of document alignment, %",
        subtitle=f"{primary}, of all pairs {100 * result.micro_recall(primary):.1f}",
    )
