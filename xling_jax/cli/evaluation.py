"""What all tasks of `xling evaluate` share: arguments, checks, and how results are written."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli.common import UsageError, keep_compiled_programs, refuse_existing, require_file

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder
    from xling_jax.eval.stored_embeddings import StoredEmbeddings

logger = logging.getLogger(__name__)

EXAMPLE = """examples:
  xling evaluate retrieval --model runs/quickstart --data dev.tsv.gz --output runs/retrieval
  xling evaluate retrieval --model M --data tatoeba/ --languages en,de,fr --output O
  xling evaluate classification --model M --data mldoc/ --train-languages en --output O
  xling evaluate retrieval --embeddings vectors/ --data dev.tsv.gz --output O
"""


def add_common(
    parser: argparse.ArgumentParser, data_help: str, nargs: str | None, *, embeddings: bool = False
) -> None:
    """Adds the arguments of every task.

    Args:
        parser: of the task.
        data_help: what `--data` takes.
        nargs: how many; None for one.
        embeddings: whether the task also measures ready vectors; it then calls
            `load_vectors` in place of `load_encoder`.
    """
    source = parser.add_mutually_exclusive_group(required=True) if embeddings else parser
    source.add_argument(
        "--model",
        required=not embeddings,
        help="model directory, workdir, or name of a shipped encoder",
    )
    if embeddings:
        source.add_argument(
            "--embeddings",
            metavar="DIR",
            help="ready vectors in place of a model: a file NAME.LANG.npy for each file or column "
            "of text, row i for line i (or LASER's NAME.LANG.bin, with --dim)",
        )
        parser.add_argument("--dim", type=int, help="size of the vectors in .bin files")
    parser.add_argument("--data", required=True, nargs=nargs or 1, help=data_help)
    parser.add_argument("--output", required=True, metavar="DIR", help="directory of the results")
    parser.add_argument(
        "--languages", type=words, metavar="CODE,CODE", help="those to measure, in order (all)"
    )
    parser.add_argument(
        "--pictures",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="draw the matrix, and for retrieval PCA and t-SNE",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing results")


def words(text: str) -> list[str]:
    """`a, b` to [a, b]."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(kind: type) -> Any:
    """The argparse type of a list of positive numbers of a kind."""

    def parse(text: str) -> tuple:
        values = tuple(kind(word) for word in words(text))
        if not values or min(values) <= 0:
            raise argparse.ArgumentTypeError(f"must be positive numbers; got {text!r}")
        return values

    parse.__name__ = f"{kind.__name__} list"  # What argparse calls it in an error.
    return parse


def check_output(args: argparse.Namespace) -> Path:
    """Refuses what can be refused before any work; returns the output directory."""
    output = Path(args.output)
    refuse_existing(output / "results.json", args.overwrite)
    for path in args.data:
        if Path(path).suffix or ":" not in path:
            require_file(path, "--data")
    return output


def check_names(names: Sequence[str], paths: Sequence[str]) -> None:
    """Refuses two data sets of one name."""
    if len(set(names)) < len(names):
        raise UsageError(f"--data: results need different names; {list(paths)} give {list(names)}")


def load_encoder(model: str) -> Encoder:
    """The encoder of `--model`."""
    import xling_jax

    keep_compiled_programs()
    return xling_jax.load(model)


def load_vectors(
    args: argparse.Namespace, columns: Callable[[], Mapping[str, Sequence[str]]]
) -> Encoder | StoredEmbeddings:
    """The encoder of `--model`, or the vectors of `--embeddings`; both have `encode`.

    Args:
        args: of a task whose `add_common` had `embeddings=True`.
        columns: called for `--embeddings` only: names of the vector files, without their suffix,
            to the texts of their rows; see `eval.stored_embeddings`.

    Raises:
        UsageError: if the directory is missing or `--dim` does not fit.
        ValueError, OSError: if the model or a vector file is broken.
    """
    if args.dim is not None and (args.embeddings is None or args.dim < 1):
        raise UsageError(f"--dim {args.dim}: must be positive, and goes with --embeddings only")
    if args.embeddings is None:
        return load_encoder(args.model)
    from xling_jax.eval.stored_embeddings import StoredEmbeddings

    if not require_file(args.embeddings, "--embeddings").is_dir():
        raise UsageError(f"--embeddings {args.embeddings}: must be a directory of vector files")
    return StoredEmbeddings(args.embeddings, columns(), dim=args.dim)


def finish(
    args: argparse.Namespace,
    encoder: Encoder | StoredEmbeddings,
    data: list[dict],
    settings: dict,
    metrics: dict[str, float],
    matrices: dict[str, dict],
    tables: list[str],
    started: float,
) -> None:
    """Writes results.md and, last, results.json, whose presence means that all is there."""
    from xling_jax.eval import results as results_lib

    output = Path(args.output)
    text = "\n".join(tables)
    results_lib.write_text(output / "results.md", text)
    results_lib.write_results(
        output / "results.json",
        {
            "format_version": 1,
            "task": args.task,
            "model": {
                "path": str(getattr(args, "embeddings", None) or args.model),
                "fingerprint": encoder.fingerprint,
            },
            "data": data,
            "settings": settings,
            "versions": results_lib.versions(),
            "seconds": round(time.monotonic() - started, 2),
            "metrics": metrics,
            "matrices": matrices,
        },
    )
    print(text)
    logger.info("results in %s", output)
