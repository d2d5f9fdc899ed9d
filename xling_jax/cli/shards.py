"""Shares of a command's work: a complete part file for each, and the parts joined by name.

What starts the shares is up to the user: a Slurm array, Beam, Ray, Spark, GNU parallel or a loop. A
share that failed is started again; it needs nothing from the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Sequence

from xling_jax.cli.arguments import matching_files
from xling_jax.options import OptionError

_PART = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})(\.[^./]*)?")


@dataclasses.dataclass(frozen=True)
class Shard:
    """Share `index` of `count`, from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Reads "3/16"; raises ArgumentTypeError."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise argparse.ArgumentTypeError(f"must be I/N, from 1/N to N/N; got {text!r}")
        return cls(int(index), int(count))

    def part_path(self, path: str) -> str:
        """`E-00003-of-00016.npy` of `E.npy`."""
        stem, suffix = os.path.splitext(path)
        return f"{stem}-{self.index:05}-of-{self.count:05}{suffix}"

    def rows(self, total: int, multiple: int = 1) -> slice:
        """The rows of the share: as many as of others, beginning at a multiple of `multiple`."""
        units = -(-total // multiple)
        edges = [units * index // self.count * multiple for index in (self.index - 1, self.index)]
        return slice(*(min(edge, total) for edge in edges))


def add_arguments(parser: argparse.ArgumentParser, part: str) -> None:
    """Adds `--shard` and `--join`; `part` names a part in their help."""
    group = parser.add_argument_group(
        "shares",
        "for Slurm arrays, GNU parallel, Ray and other engines; a share begins at a multiple of "
        "some thousand rows, so a small input may leave shares empty",
    )
    group.add_argument(
        "--shard",
        type=Shard.parse,
        metavar="I/N",
        help=f"do the I-th of N shares, from 1, and write {part}, such as OUT-00003-of-00016.npy",
    )
    group.add_argument(
        "--join",
        nargs="+",
        action="extend",
        metavar="PART",
        help="the parts of all shares, or a pattern in quotes",
    )


def name_output(args: argparse.Namespace) -> None:
    """Gives the output of a share its name."""
    if not getattr(args, "shard", None):
        return
    if args.join:
        raise OptionError("--shard and --join exclude each other; join when all shares are done")
    if args.output == "-":
        raise OptionError("--shard: a part needs a file; name --output FILE")
    args.output = args.shard.part_path(args.output)


def check_parts(words: Sequence[str]) -> list[str]:
    """The files of `--join`, in the order of their shares; none may be missing."""
    paths = matching_files(words, "--join")
    parts: dict[str, str] = {}
    output = None
    for path in paths:
        match = _PART.fullmatch(path)
        if match is None:
            raise OptionError(f"--join {path}: must be named as --shard names it, X-00001-of-00016")
        stem, index, count, suffix = match.groups()
        if output not in (None, (stem, count, suffix)):
            raise OptionError(f"--join {path}: is not of the same output as {paths[0]}")
        if index in parts:
            raise OptionError(f"--join {path}: is named twice; name each part once")
        output, parts[index] = (stem, count, suffix), path
    for shard in (Shard(index, int(count)) for index in range(1, int(count) + 1)):
        if f"{shard.index:05}" not in parts:
            missing = shard.part_path(f"{stem}{suffix or ''}")
            raise OptionError(f"--join: {missing} is missing; run --shard {shard} first")
    return [parts[index] for index in sorted(parts, key=int)]
