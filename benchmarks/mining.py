"""End-to-end mining, with a breakdown of the time.

    python benchmarks/mining.py --rows 100000 --dim 512
    python benchmarks/mining.py --model M --source corpus.de.gz --target corpus.en.gz

Without a model, random vectors around shared centers take the place of the texts, a third of them
with a translation on the other side. They are written to files, so that `xling mine` does the rest:
read text and vectors, unify, search in both directions, choose, write. Peak memory is that of
`xling mine`.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import interleaved
import numpy as np
from nearest_neighbors import clustered

# `xling`, which then prints its peak memory.
MINE = """
import sys, interleaved
from xling_jax.cli.main import main
status = main(sys.argv[1:])
print(interleaved.peak_mb())
sys.exit(status)
"""


def write_random_sides(directory: Path, rows: int, dim: int) -> list[str]:
    """Texts and vectors of both sides; the first third are translations, shuffled."""
    source = clustered(rows, dim, 1)
    target = clustered(rows, dim, 2)
    shared = rows // 3
    noise = np.random.default_rng(3).standard_normal((shared, dim), np.float32)
    target[:shared] = source[:shared] + 0.3 * noise / np.sqrt(dim)
    order = np.random.default_rng(4).permutation(rows)
    np.save(directory / "source.npy", source)
    np.save(directory / "target.npy", target[order])
    (directory / "source.txt").write_text("".join(f"s {i}\n" for i in range(rows)))
    (directory / "target.txt").write_text("".join(f"t {i}\n" for i in order))
    return [
        *("--source", f"{directory}/source.txt", "--target", f"{directory}/target.txt"),
        *("--source-embeddings", f"{directory}/source.npy"),
        *("--target-embeddings", f"{directory}/target.npy"),
    ]


def recall(output: Path, rows: int) -> float:
    """Share of the translations that were found."""
    found = 0
    with open(output, encoding="utf-8") as file:
        for line in file:
            _, source, target = line.rstrip("\n").split("\t")
            found += source[2:] == target[2:] and int(source[2:]) < rows // 3
    return found / (rows // 3)


def main() -> None:
    """Runs `xling mine` and prints its times as a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000, help="rows per side")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--memory-mb", type=float, default=512)
    parser.add_argument("--model", help="model that embeds --source and --target")
    parser.add_argument("--source")
    parser.add_argument("--target")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        output = directory / "pairs.tsv"
        if args.model:
            what = ["--model", args.model, "--source", args.source, "--target", args.target]
        else:
            what = write_random_sides(directory, args.rows, args.dim)
        options = ["--backend", args.backend, "--memory-mb", str(args.memory_mb)]
        command = [sys.executable, "-c", MINE, "mine", "--output", str(output), *what, *options]
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        started = time.perf_counter()
        result = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        seconds = time.perf_counter() - started
        if result.returncode:
            raise RuntimeError(result.stderr)
        peak_mb = float(result.stdout.splitlines()[-1])
        splits = re.findall(r"([a-z ]+) ([0-9.]+) s(?:,|$)", result.stderr.splitlines()[-1])
        pairs = output.read_bytes().count(b"\n")
        rows = [(split.strip(), value, f"{float(value) / seconds:.0%}") for split, value in splits]
        rest = seconds - sum(float(value) for _, value in splits)
        rows += [("startup and shutdown", f"{rest:.1f}", f"{rest / seconds:.0%}")]
        rows += [("total", f"{seconds:.1f}", "100%")]
        found = "" if args.model else f", {recall(output, args.rows):.1%} of the translations"
    sides = f"{args.source} and {args.target}" if args.model else f"{args.rows:,} x 2 of {args.dim}"
    print(f"Mining {sides}: {pairs:,} pairs{found}; peak memory {peak_mb:,.0f} MB.")
    print(f"{interleaved.circumstances()}\n")
    print(interleaved.markdown_table(("part", "s", "share"), rows))


if __name__ == "__main__":
    main()
