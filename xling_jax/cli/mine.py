"""`xling mine`: two text files to pairs that are likely translations, or given pairs to scores."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli import distributed, mine_files
from xling_jax.cli.common import (
    UsageError,
    keep_compiled_programs,
    refuse_existing,
    require_file,
)
from xling_jax.files.lines import BrokenLine
from xling_jax.files.progress import Progress, track

if TYPE_CHECKING:
    import numpy as np

    from xling_jax.align.mining import Candidates
    from xling_jax.cli.mine_files import Side
    from xling_jax.encode.encoder import Encoder
    from xling_jax.files.processes import Processes

logger = logging.getLogger(__name__)

_SIDES = ("source", "target")

_EXAMPLE = """examples:
  xling mine --model M --source news.de.gz --target news.en.gz --output pairs.tsv --threshold 1.06
  xling mine --source a.de --target a.en --source-embeddings a.de.npy \\
      --target-embeddings a.en.npy --output - | head
  xling mine --model M --pairs crawled.tsv --output scored.tsv

Output lines are `score<TAB>source<TAB>target`, the best first; tabs inside a sentence become
spaces. Each distinct text counts once. Blank and broken lines are never mined. With --pairs the
lines keep the order of the file, and pairs with a blank or broken side score -inf.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the parser of `xling`."""
    parser = subparsers.add_parser(
        "mine",
        help="find translations in two texts, or score given pairs",
        description="Mines translations in two texts by margins of cosines, as LASER does.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", help="model directory, workdir, or name of a shipped encoder")
    for side in _SIDES:
        parser.add_argument(
            f"--{side}", metavar="FILE", help="text, one sentence a line; may be .gz .xz .zst; -"
        )
        parser.add_argument(
            f"--{side}-embeddings",
            metavar="E.npy",
            help="its vectors, row i for line i, in place of a model (or LASER's .bin, with --dim)",
        )
    parser.add_argument("--dim", type=int, help="size of the vectors in LASER files")
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="score these pairs, source<TAB>target, against the neighborhoods in both texts; "
        "without --source and --target in their own columns",
    )
    parser.add_argument("--output", required=True, help="the pairs; - for stdout")
    parser.add_argument(
        "--n-best", metavar="FILE", help="also write all k candidates of each source sentence"
    )
    parser.add_argument("--margin", choices=("ratio", "distance", "absolute"), default="ratio")
    parser.add_argument("--k", type=int, default=4, help="size of the neighborhoods (4)")
    parser.add_argument(
        "--retrieval",
        choices=("max", "intersect", "fwd", "bwd"),
        default="max",
        help="max: one to one, best first (default); intersect: best both ways; fwd, bwd: the "
        "best of every source, of every target",
    )
    parser.add_argument("--threshold", type=float, help="keep pairs that score more than this")
    parser.add_argument(
        "--min-cosine", type=float, help="keep pairs of at least this cosine; for unrelated texts"
    )
    parser.add_argument(
        "--memory-mb", type=float, default=512, help="memory to search in, beyond vectors (512)"
    )
    parser.add_argument(
        "--backend",
        choices=("auto", "numpy", "jax", "faiss"),
        default="auto",
        help="what searches; auto: JAX where it has an accelerator, else NumPy",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing outputs")
    distributed.add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
        UsageError: if arguments do not fit together, an input is missing or an output exists.
        ValueError, OSError: if the model, vectors or text are broken, or writing fails.
    """
    with distributed.joined(args) as processes, distributed.dying_of_sigterm():
        _check_arguments(args)
        if processes.count > 1:
            _check_arguments_of_several(args)
        try:
            _mine(args, processes)
            processes.meet("the pairs are written")
        finally:
            if processes.index == 0:
                for side in _SIDES:
                    processes.remove(_shared_vectors(args, side))


def _mine(args: argparse.Namespace, processes: Processes) -> None:
    seconds: dict[str, float] = {}
    started = time.perf_counter()

    def split(name: str) -> None:
        nonlocal started
        seconds[name], started = time.perf_counter() - started, time.perf_counter()

    pairs = mine_files.read_pairs(args.pairs) if args.pairs else None
    sides = _read_sides(args, pairs)
    split("read")
    encoder = _load_encoder(args)
    files = [_shared_vectors(args, side) for side in _SIDES]
    rows = [_embed(encoder, side, args.dim, processes, file) for side, file in zip(sides, files)]
    if rows[0].shape[1] != rows[1].shape[1]:
        raise ValueError(
            f"the vectors of both sides must have the same size; {sides[0].vectors or 'source'} "
            f"has {rows[0].shape[1]}, {sides[1].vectors or 'target'} {rows[1].shape[1]}"
        )
    split("embed")
    candidates = _find_candidates(args, rows, processes)
    split("search")
    if processes.index > 0:
        return  # the first process has found the same, and writes it
    if pairs is None:
        count = _write_mined(args, sides, candidates)
    else:
        count = _write_scored(args, sides, rows, pairs, candidates)
    split("choose and write")
    logger.info(
        "%s: %d pairs; %s",
        args.output,
        count,
        ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items()),
    )


def _check_arguments(args: argparse.Namespace) -> None:
    """Refuses what costs nothing to refuse."""
    given = [side for side in _SIDES if getattr(args, side)]
    if len(given) == 1 or not (given or args.pairs):
        raise UsageError("--source and --target are needed, or --pairs alone")
    if args.source == args.target == "-":
        raise UsageError("--source - and --target -: only one of them can be stdin")
    if args.pairs == "-" and "-" in (args.source, args.target):
        raise UsageError("--pairs -: stdin is already read for --source or --target")
    for name in ("source", "target", "source_embeddings", "target_embeddings", "pairs"):
        path = getattr(args, name)
        option = f"--{name.replace('_', '-')}"
        if path and path != "-" and require_file(path, option).is_dir():
            raise UsageError(f"{option} {path}: is a directory")
    ready = [bool(args.source_embeddings), bool(args.target_embeddings)]
    if not args.model and not all(ready):
        raise UsageError("--model is needed, or --source-embeddings and --target-embeddings")
    if args.model and all(ready):
        raise UsageError("--model: both sides have ready vectors, nothing is left to embed")
    if args.dim is not None and (args.dim < 1 or not any(ready)):
        raise UsageError(f"--dim {args.dim}: must be positive, and goes with ready vectors only")
    if args.k < 1:
        raise UsageError(f"--k {args.k} must be at least 1")
    if not args.memory_mb > 0:
        raise UsageError(f"--memory-mb {args.memory_mb:g} must be positive")
    if args.n_best and args.pairs:
        raise UsageError("--n-best: --pairs scores given pairs only, there is no list to write")
    if args.n_best and args.n_best == args.output:
        raise UsageError(f"--n-best {args.n_best}: is also --output; choose another")
    for path in filter(None, (args.output, args.n_best)):
        refuse_existing(path, args.overwrite)
        if path != "-" and not Path(path).parent.is_dir():
            raise UsageError(f"{path}: its directory does not exist; make it first")


def _check_arguments_of_several(args: argparse.Namespace) -> None:
    """Refuses what several processes cannot do together."""
    names = ("source", "target", "source_embeddings", "target_embeddings", "pairs")
    names += ("output", "n_best")
    distributed.check_shared_paths(**{name: getattr(args, name) for name in names})
    if args.backend not in ("auto", "jax"):
        raise UsageError(
            f"--backend {args.backend}: several processes search together with jax; leave it out"
        )


def _read_sides(args: argparse.Namespace, pairs: mine_files.Pairs | None) -> list[Side]:
    """Both texts, duplicates unified, with the texts of given pairs among them."""
    sides = []
    for column, name in enumerate(_SIDES):
        path, vectors = getattr(args, name), getattr(args, f"{name}_embeddings")
        texts = pairs.columns[column] if pairs else None
        if path:
            side = mine_files.unify(mine_files.read_lines(path), mine_files.shown(path), vectors)
            if texts is not None:
                side.add(texts, args.pairs)
        else:
            side = mine_files.unify(texts, f"{mine_files.shown(args.pairs)} ({name})", vectors)
        logger.info("%s", side.describe())
        sides.append(side)
    return sides


def _load_encoder(args: argparse.Namespace) -> Encoder | None:
    if not args.model:
        return None
    import xling_jax

    keep_compiled_programs()
    return xling_jax.load(args.model)


def _shared_vectors(args: argparse.Namespace, side: str) -> Path:
    """Where several processes put the vectors of a side."""
    output = Path(args.output)
    return output.with_name(f".{output.name}.{side}.npy")


def _embed(
    encoder: Encoder | None, side: Side, dim: int | None, processes: Processes, shared: Path
) -> Any:
    """Unit vectors of a side's distinct texts, encoded or read."""
    import numpy as np

    from xling_jax.align import knn
    from xling_jax.encode.process_shares import share_of, write_embeddings_together
    from xling_jax.files.embeddings import read_embeddings

    if side.vectors:
        array = read_embeddings(side.vectors, dim=dim or (encoder.dim if encoder else None))
        if len(array) != side.num_lines:
            raise ValueError(
                f"{side.vectors}: must have one row for each of the {side.num_lines} lines of "
                f"{side.name}; found {len(array)}"
            )
        # Without gaps the rows need not be gathered.
        lines = None if len(side.texts) == side.num_lines else side.lines
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


def _find_candidates(args: argparse.Namespace, rows: list[Any], processes: Processes) -> Candidates:
    from xling_jax.align import mining

    where = {"backend": args.backend}
    if processes.count > 1:
        import jax

        where = {"backend": "jax", "devices": jax.devices()}
    with Progress("search", len(rows[0]), "sentence") as progress:
        return mining.find_candidates(
            *rows, args.k, memory_mb=args.memory_mb, report=progress, **where
        )


def _write_mined(args: argparse.Namespace, sides: list[Side], candidates: Candidates) -> int:
    """Writes the pairs chosen, and the n-best list if asked for; returns the number of pairs."""
    from xling_jax.align import mining

    rule = {"margin": args.margin, "min_cosine": args.min_cosine}
    texts = sides[0].texts, sides[1].texts
    if args.n_best:
        ranked = mining.rank_candidates(candidates, **rule)
        mine_files.write_pairs(args.n_best, ranked, *texts)
    found = mining.choose_pairs(
        candidates, retrieval=args.retrieval, threshold=args.threshold, **rule
    )
    return mine_files.write_pairs(args.output, found, *texts)


def _write_scored(
    args: argparse.Namespace,
    sides: list[Side],
    rows: list[np.ndarray],
    pairs: mine_files.Pairs,
    candidates: Candidates,
) -> int:
    """Writes given pairs with their scores, in their order; returns how many are kept."""
    import numpy as np

    from xling_jax.align import mining

    places = [side.places(texts) for side, texts in zip(sides, pairs.columns)]
    usable = (places[0] >= 0) & (places[1] >= 0)
    scores = np.full(len(usable), -np.inf, np.float32)
    if usable.any():
        chosen = places[0][usable], places[1][usable]
        scores[usable] = mining.score_pairs(
            *rows, chosen, candidates, margin=args.margin, min_cosine=args.min_cosine
        )
    order = np.arange(len(scores))
    if args.threshold is not None:
        order = np.flatnonzero(scores > args.threshold)
    if not usable.all():
        logger.info("%s: %d pairs with a blank or broken side", args.pairs, (~usable).sum())
    found = mining.MinedPairs(order, order, scores[order])
    texts = [
        ["" if isinstance(text, BrokenLine) else text for text in column]
        for column in pairs.columns
    ]
    return mine_files.write_pairs(args.output, found, *texts)
