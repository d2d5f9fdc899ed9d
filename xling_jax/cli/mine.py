"""Mines translations from two texts by LASER's margin criterion, or scores given pairs."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xling_jax.align import bitext, knn, mining
from xling_jax.align.margin import MARGINS
from xling_jax.cli import distributed
from xling_jax.cli.arguments import (
    SIDES,
    add_output,
    add_sides,
    check_same_size,
    check_sides,
    load_encoder,
    read_vectors,
)
from xling_jax.cli.options import add_options, flag, options_from
from xling_jax.files.embeddings import read_embeddings
from xling_jax.files.processes import Processes
from xling_jax.files.progress import Progress, track
from xling_jax.options import OptionError, option

if TYPE_CHECKING:
    from xling_jax.align.precision import Calibration
    from xling_jax.encode.encoder import Encoder

logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  xling mine --model M --source news.de.gz --target news.en.gz --output pairs.tsv --precision 0.95
  xling mine --source a.de --target a.en --source-embeddings a.de.npy \\
      --target-embeddings a.en.npy --output - | head
  xling mine --model M --pairs crawled.tsv --output scored.tsv

Output lines are `score<TAB>source<TAB>target`, best first; tabs within a sentence become spaces.
Repeated lines count once; blank and broken lines are not mined. With --pairs the output keeps the
order of the file, and pairs with a blank or broken side score -inf.

--precision needs a model that `xling calibrate` has measured. It estimates from the scores how many
of the pairs are translations, and keeps the most pairs that are expected to be that precise.
"""

# A cut that keeps a smaller share of the pairs is rarely meant.
_FEW = 0.01


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
    threshold: float | None = option(None, "keep pairs that score more than this")
    precision: float | None = option(
        None, "keep the most pairs of which this share is expected to be translations, such as 0.95"
    )
    top: int | None = option(None, "keep this many pairs, the best", positive=True, metavar="N")
    min_cosine: float | None = option(
        None, "keep pairs with at least this cosine; for unrelated texts"
    )
    memory_mb: float = option(512, "memory for the search, besides vectors", positive=True)
    backend: str = option(
        "auto", "of the search; auto: JAX where it has an accelerator, else NumPy", knn.BACKENDS
    )
    index: str = option(
        "exact",
        "ivf, ivfpq or hnsw, such as ivfpq:nprobe=128, or a faiss factory string: "
        "approximate search, for millions of lines",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sides(
        parser,
        "text, one sentence per line; may be .gz .xz .zst; - for stdin",
        "its vectors, row i for line i, instead of a model (or LASER's .bin, with --dim)",
    )
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="score these pairs, source<TAB>target, against their neighborhoods in --source and "
        "--target, or in their own columns without them",
    )
    add_output(parser, "file of pairs; - for stdout")
    parser.add_argument(
        "--n-best", metavar="FILE", help="also write all k candidates of each source sentence"
    )
    add_options(parser, Options)
    distributed.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    with distributed.joined(args) as processes, distributed.dying_of_sigterm():
        options = _check_arguments(args, processes)
        try:
            _mine(args, options, processes)
            processes.meet("the pairs are written")
        finally:
            if processes.index == 0:
                for side in SIDES:
                    processes.remove(_shared_vectors(args, side))


def _check_arguments(args: argparse.Namespace, processes: Processes) -> Options:
    given = [side for side in SIDES if getattr(args, side)]
    if len(given) == 1 or not (given or args.pairs):
        raise OptionError("--source and --target are required, or --pairs alone")
    if args.pairs == "-" and "-" in (args.source, args.target):
        raise OptionError("--pairs -: stdin is already read for --source or --target")
    if args.n_best and args.pairs:
        raise OptionError("--n-best: not with --pairs, which scores given pairs only")
    if args.n_best and args.n_best == args.output:
        raise OptionError(f"--n-best {args.n_best}: is also --output; choose another")
    options = options_from(args, Options)
    _check_cut(args, options)
    check_sides(args, ("pairs",), list(filter(None, (args.output, args.n_best))))
    if processes.count > 1:
        names = ("source", "target", "source_embeddings", "target_embeddings", "pairs")
        names += ("output", "n_best")
        distributed.check_shared_paths(**{name: getattr(args, name) for name in names})
        if options.backend not in ("auto", "jax"):
            raise OptionError(
                f"--backend {options.backend}: several processes search with jax; leave it out"
            )
    return options


def _check_cut(args: argparse.Namespace, options: Options) -> None:
    given = _cuts(options)
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)}: give only one of them")
    if options.precision is None:
        return
    if not 0 < options.precision < 1:
        raise OptionError(f"{given[0]}: must be between 0 and 1, such as 0.95")
    if not args.model:
        raise OptionError(
            f"{given[0]}: needs --model, a calibrated one; or use --top or --threshold"
        )
    if options.retrieval != "max":
        raise OptionError(f"{given[0]}: needs --retrieval max, with which models are calibrated")


def _cuts(options: Options) -> list[str]:
    """Arguments given that choose which pairs are kept, such as "--top 100"."""
    cuts = {name: getattr(options, name) for name in ("threshold", "precision", "top")}
    return [f"{flag(name)} {value:g}" for name, value in cuts.items() if value is not None]


def _calibration(
    args: argparse.Namespace, options: Options, encoder: Encoder | None
) -> Calibration | None:
    """What the scores mean; None if that is unknown."""
    calibration = encoder.calibration if encoder else None
    if calibration and options.retrieval == "max":
        try:
            calibration.check_applies(options.margin, options.k)
            return calibration
        except ValueError as error:
            problem = str(error)
    else:
        problem = f"not calibrated; run xling calibrate --model {args.model} --data FILE"
    if options.precision is not None:
        problem += ", or use --top or --threshold"
        raise OptionError(f"--precision {options.precision:g}: {args.model}: {problem}")
    return None


def _cut(
    pairs: mining.MinedPairs, options: Options, calibration: Calibration | None
) -> mining.MinedPairs:
    """Keeps pairs by --threshold, --precision or --top, in their order, and logs what is kept."""
    order = np.argsort(-pairs.scores, kind="stable")
    ranked = pairs.take(order[pairs.scores[order] > -np.inf])
    precisions, runners_up = None, ranked.runners_up
    # Texts of a few lines have fewer candidates than the calibration; only --precision needs them.
    is_alike = calibration and runners_up is not None and runners_up.k == calibration.k
    if is_alike or options.precision is not None:
        precisions = calibration.precisions(ranked)
    count = len(ranked)
    if options.threshold is not None:
        count = np.count_nonzero(ranked.scores > options.threshold)
    elif options.precision is not None:
        count = calibration.count_for(ranked, options.precision)
    elif options.top is not None:
        count = min(options.top, count)
    cuts = _cuts(options)
    text = f"kept {count:,} of {len(pairs):,} pairs"
    score = options.threshold
    if score is None and 0 < count < len(ranked):
        score = round(float(ranked.scores[count - 1 : count + 1].mean()), 4)
    if score is not None:
        text += f" with {'cosine' if options.margin == 'absolute' else 'margin'} > {score:g}"
    if count and precisions is not None:
        text += f", expected precision {precisions[count - 1]:.2f}"
    if cuts or precisions is not None:
        logger.info("%s", text)
    if count < _FEW * len(ranked) and options.top is None:
        logger.warning(
            "%s keeps next to nothing, %s of %s pairs; ask for less, or use --top N",
            *(cuts[0], f"{count:,}", f"{len(ranked):,}"),
        )
    return pairs.take(np.sort(order[:count])) if cuts else pairs


def _mine(args: argparse.Namespace, options: Options, processes: Processes) -> None:
    encoder = load_encoder(args.model, args) if args.model else None
    calibration = _calibration(args, options, encoder)
    times = [time.perf_counter()]
    pairs = bitext.read_pairs(args.pairs) if args.pairs else None
    vectors = args.source_embeddings, args.target_embeddings
    both = bitext.read_sides((args.source, args.target), vectors, pairs, args.pairs)
    for side in both:
        logger.info("%s", side.describe())
    times.append(time.perf_counter())
    shared = [_shared_vectors(args, side) for side in SIDES]
    rows = [_embed(args, encoder, *side, processes) for side in zip(both, shared)]
    check_same_size(rows, [side.vectors or name for side, name in zip(both, SIDES)])
    times.append(time.perf_counter())
    where = {"backend": options.backend}
    if processes.count > 1:
        import jax

        where = {"backend": "jax", "devices": jax.devices()}
    with Progress("search", len(rows[0]), "sentence") as report:
        where |= {"memory_mb": options.memory_mb, "index": options.index, "report": report}
        candidates = mining.find_candidates(*rows, options.k, **where)
    times.append(time.perf_counter())
    if processes.index > 0:
        return  # process 0 has found the same, and writes it
    rule = {"margin": options.margin, "min_cosine": options.min_cosine}
    texts = (both[0].texts, both[1].texts) if pairs is None else pairs
    if pairs is None:
        if args.n_best:
            bitext.write_pairs(args.n_best, mining.rank_candidates(candidates, **rule), *texts)
        found = mining.choose_pairs(candidates, retrieval=options.retrieval, **rule)
    else:
        scores, num_unusable = bitext.score_columns(both, rows, pairs, candidates, **rule)
        if num_unusable:
            logger.info("%s: %d pairs with a blank or broken side", args.pairs, num_unusable)
        rows_of_pairs = np.arange(len(scores))
        runners_up = candidates.runners_up(options.margin) if calibration else None
        found = mining.MinedPairs(rows_of_pairs, rows_of_pairs, scores, runners_up)
    found = _cut(found, options, calibration)
    count = bitext.write_pairs(args.output, found, *texts)
    times.append(time.perf_counter())
    seconds = np.diff(times)
    logger.info(
        "%s: %d pairs; read %.1f s, embed %.1f s, search %.1f s, choose and write %.1f s",
        *(args.output, count, *seconds),
    )


def _shared_vectors(args: argparse.Namespace, side: str) -> Path:
    """Where several processes put the vectors of a side."""
    output = Path(args.output)
    return output.with_name(f".{output.name}.{side}.npy")


def _embed(
    args: argparse.Namespace,
    encoder: Encoder | None,
    side: bitext.Side,
    shared: Path,
    processes: Processes,
) -> Any:
    """Unit vectors of the distinct texts of a side, encoded or read."""
    from xling_jax.encode.process_shares import share_of, write_embeddings_together

    if side.vectors:
        what = f"lines of {side.name}"
        array = read_vectors(side.vectors, side.num_lines, what, args, encoder)
        # Without gaps the rows need not be gathered.
        lines = None if len(side.texts) == side.num_lines else side.first_lines
        return knn.UnitRows(array, lines, name=side.vectors)
    if processes.count == 1:
        vectors, done = np.empty((len(side.texts), encoder.dim), np.float32), 0
        for chunk in _encode(encoder, side.texts, len(vectors), side.name):
            vectors[done : done + len(chunk)] = chunk
            done += len(chunk)
        return vectors
    window = encoder.window_sentences
    total = sum(1 for _ in share_of(side.texts, window, processes))
    write_embeddings_together(
        shared,
        side.texts,
        lambda own: _encode(encoder, own, total, side.name),
        window=window,
        processes=processes,
        dim=encoder.dim,
        overwrite=True,
    )
    if processes.index == 0:
        processes.send(shared)
    processes.meet(f"{shared.name}: sent")
    if processes.index > 0:
        processes.receive(shared)
    return read_embeddings(shared)


def _encode(encoder: Encoder, texts: Iterable[str], total: int, name: str) -> Iterator[np.ndarray]:
    """Yields unit vectors, chunk by chunk."""
    chunks = encoder.encode_stream(iter(texts), normalize=True)
    return track(chunks, f"embed {name}", total, "sentence", len)
