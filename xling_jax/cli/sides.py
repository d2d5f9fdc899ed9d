"""Arguments of `xling mine` and `xling align` for two sides: files, and their vectors if ready."""

import argparse
from pathlib import Path

from xling_jax.cli.common import UsageError, refuse_existing, require_file

SIDES = ("source", "target")


def add_arguments(
    parser: argparse.ArgumentParser, text: str, vectors: str, *, required: bool = False
) -> None:
    """Adds the arguments of both sides.

    Args:
        parser: of the command.
        text: help for `--source` and `--target`.
        vectors: help for `--source-embeddings` and `--target-embeddings`.
        required: whether both files must be given.
    """
    parser.add_argument("--model", help="model directory, workdir, or name of a shipped encoder")
    for side in SIDES:
        parser.add_argument(f"--{side}", required=required, metavar="FILE", help=text)
        parser.add_argument(f"--{side}-embeddings", metavar="E.npy", help=vectors)
    parser.add_argument("--dim", type=int, help="dimension of LASER's .bin vectors")


def check_arguments(args: argparse.Namespace, inputs: tuple[str, ...], outputs: list[str]) -> None:
    """Refuses what can be refused before any work.

    Args:
        args: parsed.
        inputs: names of input arguments besides those of the sides.
        outputs: paths to write.

    Raises:
        UsageError: naming the argument.
    """
    for name in (*SIDES, "source_embeddings", "target_embeddings", *inputs):
        path, option = getattr(args, name), f"--{name.replace('_', '-')}"
        if path and path != "-" and require_file(path, option).is_dir():
            raise UsageError(f"{option} {path}: is a directory")
    if args.source == args.target == "-":
        raise UsageError("--source - and --target -: only one of them can be stdin")
    ready = [bool(args.source_embeddings), bool(args.target_embeddings)]
    if not args.model and not all(ready):
        raise UsageError("--model is required, or --source-embeddings and --target-embeddings")
    if args.model and all(ready):
        raise UsageError("--model: both sides have vectors, so there is nothing to embed")
    if args.dim is not None and (args.dim < 1 or not any(ready)):
        raise UsageError(f"--dim {args.dim}: must be positive, and requires --SIDE-embeddings")
    for path in outputs:
        refuse_existing(path, args.overwrite)
        if path != "-" and not Path(path).parent.is_dir():
            raise UsageError(f"{path}: no such directory; create it first")
