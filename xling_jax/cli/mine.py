"""Mines translations from two texts by LASER's margin criterion, or scores given pairs."""

import argparse
import contextlib
import dataclasses
import itertools
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.align import bitext, knn, mining
from xling_jax.align.filters import Filters
from xling_jax.align.knn_index import EXACT, empty_index, import_faiss
from xling_jax.align.margin import MARGINS
from xling_jax.align.pair_files import (
    Languages,
    Layout,
    ScoredPair,
    check_format,
    output_files,
    write_pairs,
)
from xling_jax.align.rows import AnyRows, check_same_dim
from xling_jax.align.stages import (
    SPAN_ROWS,
    join_parts,
    stage_candidates,
    stage_vectors,
    write_part,
)
from xling_jax.cli import shards
from xling_jax.cli.arguments import (
    SIDES,
    add_output,
    add_sides,
    check_sides,
    load_encoder,
    matching_files,
    read_vectors,
)
from xling_jax.cli.mine_cut import Cut
from xling_jax.cli.options import add_options, flag, options_from
from xling_jax.corpora.pairs import Pairs, read_pairs, read_text
from xling_jax.documents.records import text_language
from xling_jax.encode.encoder import Encoder
from xling_jax.files.embeddings import JoinedRows
from xling_jax.files.hashes import fingerprint, hash_texts
from xling_jax.files.lines import BrokenLine
from xling_jax.files.lock import only_run
from xling_jax.files.progress import Progress, counted, track
from xling_jax.files.whole import scratch_directory, short_name
from xling_jax.options import OptionError, option
from xling_jax.version import __version__

_logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  xling mine --model M --source news.de.gz --target news.en.gz --output pairs.tsv --precision 0.95
  xling mine --source a.de --target a.en --source-embeddings a.de.npy \\
      --target-embeddings a.en.npy --output - | head
  xling mine --model M --source 'de/*.gz' --target en.0.gz en.1.gz --output pairs.tsv \\
      --min-words 3 --max-length-ratio 3 --drop-copies --numbers-agree
  xling mine --model M --pairs crawled.tsv --output scored.tsv
  xling mine --model M --source a.de --target a.en --output part.npz --shard 3/16
  xling mine --model M --source a.de --target a.en --output pairs.tsv --join 'part-*-of-00016.npz'

Output lines are `score<TAB>source<TAB>target`, best first; tabs within a sentence become spaces.
Repeated lines count once; blank and broken lines are not mined. With --pairs the output keeps the
order of the file, and pairs with a blank or broken side score -inf; if the pairs have a header of
languages the output has one, so that it is a corpus to train on.

A share searches its part of the source in all of the target, and embeds both sides; for large
texts, embed them first, in shares too. Joining takes the same inputs.

If the command is killed, run it again to resume: vectors and neighbors are kept beside the output
until it is written, or for good in --workdir, where another threshold or other filters of pairs
then take seconds. --precision needs a model that `xling calibrate` has measured.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    margin: str = option(
        "ratio", "how a cosine is compared with those of its neighborhoods", tuple(MARGINS)
    )
    k: int = option(mining.MARGIN_NEIGHBORS, "size of the neighborhoods", positive=True)
    retrieval: str = option(
        "max",
        "max: one to one, best first; intersect: best in both directions; fwd, bwd: the best for "
        "every source, for every target",
        mining.RETRIEVALS,
    )
    min_cosine: float | None = option(
        None, "keep pairs with at least this cosine; a guard against unrelated texts"
    )
    memory_mb: float = option(512, "memory for the search, besides vectors", positive=True)
    backend: str = option(
        "auto", "search backend; auto: JAX on an accelerator, otherwise NumPy", knn.BACKENDS
    )
    index: str = option(
        EXACT,
        "ivf, ivfpq or hnsw, such as ivfpq:nprobe=128, or a faiss factory string: "
        "approximate search, for millions of lines",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sides(
        parser,
        "texts or patterns, one sentence per line; may be .gz .xz .zst .bz2; - for stdin",
        "their vectors, row i for line i, instead of a model (or LASER's .bin, with --dim)",
        many=True,
    )
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="score these pairs, a corpus as for training or source<TAB>target, against their "
        "neighborhoods in --source and --target, or in their own columns without them",
    )
    add_output(
        parser,
        "file of pairs: .tsv, .jsonl, .parquet, .tmx, or X.de-en for X.de-en.de and X.de-en.en; "
        "- for stdout",
    )
    parser.add_argument(
        "--workdir", metavar="DIR", help="keep vectors and neighbors here, for the next command"
    )
    add_options(parser, Options)
    add_options(parser.add_argument_group("threshold", "which pairs are kept; give one"), Cut)
    add_options(parser.add_argument_group("filters"), Filters)
    shards.add_arguments(parser, "their neighbors, for --join")


def run(args: argparse.Namespace) -> None:
    options = _check_arguments(args)
    cut, filters = options_from(args, Cut), options_from(args, Filters)
    cut.check(options.retrieval, args.model)
    if args.shard and cut.given():
        raise OptionError(f"{cut.given()[0]}: is for --join; a share has no pairs yet")
    with _stages(args) as stages:
        _mine(args, options, cut, filters, stages)


def _check_arguments(args: argparse.Namespace) -> Options:
    for side in SIDES:
        setattr(args, side, matching_files(getattr(args, side), flag(side)))
    given = [side for side in SIDES if getattr(args, side)]
    if len(given) == 1 or not (given or args.pairs):
        raise OptionError("--source and --target are required, or --pairs alone")
    if args.pairs == "-" and "-" in (*args.source, *args.target):
        raise OptionError("--pairs -: stdin is already read for --source or --target")
    options = options_from(args, Options)
    if options.min_cosine is not None and not -1 <= options.min_cosine <= 1:
        raise OptionError(f"--min-cosine {options.min_cosine:g}: must be from -1 to 1")
    if args.shard and not args.output.endswith(".npz"):
        raise OptionError("--shard: writes neighbors, not pairs; name --output FILE.npz")
    if args.join:
        args.join = shards.check_parts(args.join)
    check_sides(args, "pairs", "join", files=output_files)
    if args.workdir and os.path.isfile(args.workdir):
        raise OptionError(f"--workdir {args.workdir}: is a file; name a directory")
    if options.index != EXACT:
        import_faiss(f"--index {options.index}")  # before any work
        knn.find_search(options.backend, options.index)
    for side in SIDES:
        files, vectors = getattr(args, side), getattr(args, f"{side}_embeddings")
        if vectors and len(vectors) != max(1, len(files)):
            raise OptionError(
                f"--{side}-embeddings: must be one file for each of the {len(files)} of --{side}; "
                f"found {len(vectors)}"
            )
    if args.workdir and "-" in (*args.source, *args.target):
        _logger.info("--workdir %s: stdin has to be the same text each time", args.workdir)
    return options


@contextlib.contextmanager
def _stages(args: argparse.Namespace) -> Iterator[Path]:
    """The directory of vectors and neighbors, for this process alone.

    Without --workdir it is hidden beside the output, and removed once that is written.
    """
    if args.workdir is None and args.output == "-":
        with scratch_directory("xling-mine") as directory:
            yield directory
        return
    output = Path(args.output)
    directory = Path(args.workdir or output.with_name(f".{short_name(output.name)}.mining"))
    try:
        with only_run(directory, "--workdir" if args.workdir else "--output"):
            yield directory
            if args.workdir is None:  # while no other run can begin in it
                shutil.rmtree(directory, ignore_errors=True)
    finally:
        if args.workdir is None:
            with contextlib.suppress(OSError):  # there is something to continue from
                directory.rmdir()


def _mine(
    args: argparse.Namespace, options: Options, cut: Cut, filters: Filters, stages: Path
) -> None:
    encoder = load_encoder(args.model, args) if args.model else None
    if encoder and options.index != EXACT:
        empty_index(options.index, encoder.dim)  # refuses a wrong one before any work
    scored = options.margin, options.k, options.retrieval
    calibration = cut.calibration(encoder, args, *scored)
    given = read_pairs(args.pairs, filters.languages) if args.pairs else None
    pairs = given and given.columns
    languages = _languages(args, filters, given)
    if not args.shard:
        check_format(args.output, languages)
    vectors = args.source_embeddings, args.target_embeddings
    of_texts = filters if pairs is None else None  # texts of given pairs are filtered with these
    both = bitext.read_sides(
        (args.source, args.target), vectors, pairs, args.pairs, of_texts, read_text
    )
    for side in both:
        _logger.info("%s", side.describe())
        if pairs is None:
            side.check()
    fewest, most = sorted(len(side.texts) for side in both)
    if cut.precision is not None and fewest and (fewest < 2 or most < options.k):
        raise OptionError(
            f"--precision {cut.precision:g}: needs at least 2 sentences on one side and "
            f"{options.k} on the other; found {fewest} and {most}; use --top or --threshold"
        )
    made_from: dict[str, Any] = {name: _made_from(s, encoder) for name, s in zip(SIDES, both)}
    rows: Sequence[AnyRows] = ()
    if not args.join or pairs is not None:  # those of given pairs are compared
        rows = [
            _given_vectors(side, args, encoder)
            if side.vectors
            else _embed(encoder, side, stages, name, made_from[name])
            for name, side in zip(SIDES, both)
        ]
        check_same_dim(*rows, [" ".join(s.vectors) or name for s, name in zip(both, SIDES)])
    of_parts = {name: {**made_from[name], "files": None} for name in SIDES}  # of any machine
    of_parts |= {"k": options.k, "index": options.index}
    if args.join:
        candidates = join_parts(args.join, of_parts, options.k)
    else:
        candidates = _search(args, options, stages, made_from, rows)
    if args.shard:
        write_part(args.output, candidates, of_parts)
        _logger.info("%s: neighbors of %d source texts", args.output, len(candidates.forward))
        return
    found, texts, unusable = _choose(args, options, cut, both, rows, pairs, candidates)
    unit = "cosine" if options.margin == "absolute" else "margin"
    problem_of = filters.pair_problem if pairs is None else filters.of_given_pairs()
    found = cut.apply(found, texts, problem_of, calibration, unusable=unusable, unit=unit)
    layout = Layout("score", languages, header=bool(given and given.languages))
    text = lambda line: "" if isinstance(line, BrokenLine) else line
    written = (ScoredPair(score, *map(text, (texts[0][i], texts[1][j]))) for score, i, j in found)
    write_pairs(args.output, written, layout)
    _logger.info("%s: %s", args.output, counted(len(found), "pair"))


def _languages(args: argparse.Namespace, filters: Filters, given: Pairs | None) -> Languages:
    """Those of the sides: of the pairs, of --languages, or those that the texts are named after."""
    if known := (given and given.languages) or filters.languages:
        return known
    return tuple(text_language(side[0]) if side else None for side in (args.source, args.target))


def _search(
    args: argparse.Namespace,
    options: Options,
    stages: Path,
    made_from: Mapping[str, Any],
    rows: Sequence[AnyRows],
) -> mining.Candidates:
    """The neighbors of both sides; of a share, of its source texts and among these."""
    search = {name: getattr(options, name) for name in ("memory_mb", "backend", "index")}
    if args.shard:
        made_from = {**made_from, "shard": str(args.shard)}
        search["rows"] = args.shard.rows(len(rows[0]), SPAN_ROWS)
    with Progress("search", len(rows[0]), "sentence") as report:
        return stage_candidates(stages, made_from, *rows, options.k, report=report, **search)


def _choose(
    args: argparse.Namespace,
    options: Options,
    cut: Cut,
    both: Sequence[bitext.Side],
    rows: Sequence[AnyRows],
    pairs: bitext.Columns | None,
    candidates: mining.Candidates,
) -> tuple[mining.MinedPairs, Sequence[Sequence[bitext.Line]], np.ndarray | None]:
    """The pairs mined, or the given ones with their scores, and which of these have none.

    In between, the texts of their rows.
    """
    rule = {"margin": options.margin, "min_cosine": options.min_cosine}
    if pairs is None:
        # Precision is calibrated above LASER's threshold of 0; no other cut has it.
        threshold = -np.inf if cut.precision is None else None
        rule |= {"retrieval": options.retrieval, "threshold": threshold}
        return mining.choose_pairs(candidates, **rule), [side.texts for side in both], None
    scores, unusable = bitext.score_columns(both, rows, pairs, candidates, **rule)
    if options.min_cosine is not None:  # a blank side has none
        unusable[:] = False
    if unusable.any():
        broken = counted(unusable.sum(), "pair")
        _logger.info("%s: %s with a blank or broken side", args.pairs, broken)
    lines = np.arange(len(scores))
    runners_up = candidates.runners_up(options.margin)
    return mining.MinedPairs(lines, lines, scores, runners_up), pairs, unusable


def _made_from(side: bitext.Side, encoder: Encoder | None) -> dict[str, Any]:
    """Describes what determines the vectors of a side."""
    content = {"texts": hash_texts([("", side.texts)]), "version": __version__}
    if not side.vectors:
        return content | {"model": encoder.fingerprint, "dim": encoder.dim}
    states = [os.stat(path) for path in side.vectors]
    return content | {
        "files": [[os.path.abspath(p), s.st_mtime_ns] for p, s in zip(side.vectors, states)],
        "sizes": [state.st_size for state in states],
        "lines": fingerprint([side.file_lines, side.last_lines.tolist()]),
    }


def _given_vectors(
    side: bitext.Side, args: argparse.Namespace, encoder: Encoder | None
) -> knn.UnitRows:
    """Unit vectors of the distinct texts of a side, read."""
    arrays = [
        read_vectors(path, num_lines, f"lines of {file}", args, encoder)
        for path, num_lines, file in zip(side.vectors, side.file_lines, side.files)
    ]
    for array, path in zip(arrays, side.vectors):
        check_same_dim(arrays[0], array, (side.vectors[0], path))
    # Without gaps the rows need not be gathered.
    lines = None if len(side.texts) == side.num_lines else side.last_lines
    joined = arrays[0] if len(arrays) == 1 else JoinedRows(arrays)
    return knn.UnitRows(joined, lines, name=" ".join(side.vectors))


def _embed(
    encoder: Encoder, side: bitext.Side, stages: Path, name: str, made_from: Mapping[str, Any]
) -> np.ndarray:
    """Unit vectors of the distinct texts of a side, encoded, or what is left of it."""

    def encode(first: int) -> Iterator[np.ndarray]:
        texts = itertools.islice(side.texts, first, None)
        chunks = encoder.encode_stream(texts, normalize=True)
        return track(chunks, f"embed {side.name}", len(side.texts) - first, "sentence", len)

    return stage_vectors(stages, name, made_from, encode, (len(side.texts), encoder.dim))
