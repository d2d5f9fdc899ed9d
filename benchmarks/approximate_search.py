r"""Approximate search among millions of sentences of real text: time, memory and recall.

    python benchmarks/approximate_search.py prepare --text 'parallel/*.tsv.gz' --rows 2000000 \
        --directory runs/two_million
    python benchmarks/approximate_search.py search --directory runs/two_million \
        --index ivf ivf:nprobe=64 ivfpq

`prepare` reads translations (TSV with a header of language codes), English on one side and any of
`--languages` on the other, and encodes distinct lines of both sides in random order. Where there
are too few, two random pairs are joined: both their English and their other sentences, one after
the other. `search` finds the neighbors in both directions with each index, in a process of its own,
and compares those of `--sample` rows a side with exact ones. Memory is the peak of what the process
holds itself, without the pages of mapped files. OMP_WAIT_POLICY=passive where others compute too.
"""

import argparse
import glob
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import interleaved
import numpy as np

import xling_jax
from xling_jax.align import knn
from xling_jax.align.rows import UnitRows
from xling_jax.files.lines import iterate_lines

SIDES = ("source", "target")
RECALLS = ("recall_1", "recall_similar", "recall_k")
# Rows with a neighbor like this are those that mining is about.
SIMILAR = 0.7


def translations(patterns: list[str], languages: list[str]) -> Iterator[tuple[str, str]]:
    """(other, English) of the rows of all files."""
    for path in sorted({path for pattern in patterns for path in glob.glob(pattern)}):
        lines = iterate_lines(path)
        header = next(lines).split("\t")
        columns = [header.index(code) for code in languages if code in header]
        if "en" not in header or not columns:
            continue
        english = header.index("en")
        for line in lines:
            cells = line.split("\t")
            yield from ((cells[column], cells[english]) for column in columns)


def prepare(args: argparse.Namespace) -> None:
    """Writes vectors of `--rows` distinct sentences a side."""
    rng = np.random.default_rng(0)
    pairs = [pair for pair in translations(args.text, args.languages) if all(pair)]
    texts = [dict.fromkeys(side) for side in zip(*pairs)]
    print(f"{len(pairs):,} pairs, {len(texts[0]):,} and {len(texts[1]):,} distinct sentences")
    while min(map(len, texts)) < args.rows:
        for first, second in rng.integers(0, len(pairs), (100_000, 2)):
            for side, (one, other) in zip(texts, zip(pairs[first], pairs[second])):
                side[f"{one} {other}"] = None
    encoder = xling_jax.load(args.model)
    args.directory.mkdir(parents=True, exist_ok=True)
    for name, side in zip(SIDES, texts):
        lines = list(side)
        lines = [lines[row] for row in rng.permutation(len(lines))[: args.rows]]
        path = args.directory / f"{name}.npy"
        shape = (len(lines), encoder.dim)
        vectors = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        started, done = time.perf_counter(), 0
        for chunk in encoder.encode_stream(iter(lines), normalize=True):
            vectors[done : done + len(chunk)] = chunk
            done += len(chunk)
        vectors.flush()
        seconds = time.perf_counter() - started
        print(f"{path}: {done:,} x {encoder.dim}, {seconds:.0f} s", flush=True)
    sample = {}
    sides = [mapped(args.directory, name) for name in SIDES]
    for name, queries, keys in (("forward", *sides), ("backward", *sides[::-1])):
        rows = np.sort(rng.choice(len(queries), min(args.sample, len(queries)), replace=False))
        scores, indices = knn.top_k(queries[rows], keys, args.k)
        sample |= {f"{name}_rows": rows, f"{name}_scores": scores, f"{name}": indices}
    np.savez(args.directory / f"exact_{args.k}.npz", **sample)


def mapped(directory: Path, name: str) -> UnitRows:
    return UnitRows(np.load(directory / f"{name}.npy", mmap_mode="r"))


class PeakMemory(threading.Thread):
    """Samples the memory that this process holds itself, in MiB."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak = 0.0

    def run(self) -> None:
        while True:
            status = Path("/proc/self/status").read_text()
            anonymous = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            self.peak = max(self.peak, int(anonymous.split()[1]) / 1024)
            time.sleep(0.05)


def search_once(args: argparse.Namespace) -> None:
    """Searches with one index and prints figures as JSON."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    memory = PeakMemory()
    memory.start()
    sides = [mapped(args.directory, name) for name in SIDES]
    started = time.perf_counter()
    found = knn.top_k_both_ways(
        *sides, args.k, index=args.worker, memory_mb=args.memory_mb, backend=args.backend
    )
    seconds = time.perf_counter() - started
    exact = np.load(args.directory / f"exact_{args.k}.npz")
    first, similar, all_k = [], [], []
    for (_, indices), name in zip(found, ("forward", "backward")):
        true, mine = exact[name], indices[exact[f"{name}_rows"]]
        first.append(mine[:, 0] == true[:, 0])
        similar.append(exact[f"{name}_scores"][:, 0] > SIMILAR)
        all_k.append((mine[:, :, None] == true[:, None]).any(axis=1))
    first, similar, all_k = map(np.concatenate, (first, similar, all_k))
    figures = {"seconds": seconds, "cpu_seconds": time.process_time(), "mb": memory.peak}
    figures |= {"recall_1": first.mean(), "recall_k": all_k.mean()}
    figures |= {"recall_similar": first[similar].mean(), "similar": similar.mean()}
    figures = {name: float(figure) for name, figure in figures.items()}
    print(json.dumps(figures | {"rows": [len(side) for side in sides]}))


def search(args: argparse.Namespace) -> None:
    """Runs a process for every index and prints a Markdown table."""
    table, rows = [], (0, 0)
    for index in args.index:
        options = ["--directory", args.directory, "--k", args.k, "--memory-mb", args.memory_mb]
        options += ["--backend", args.backend, "--worker", index]
        command = [sys.executable, __file__, "search", *map(str, options)]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures = json.loads(result.stdout)
        rows = figures["rows"]
        recalls = (f"{100 * figures[name]:.1f}" for name in RECALLS)
        times = (f"{figures[name]:,.0f}" for name in ("seconds", "cpu_seconds", "mb"))
        table.append((f"`{index}`", *times, *recalls))
        print(table[-1], file=sys.stderr, flush=True)
    print(f"Both directions, top {args.k}, {rows[0]:,} against {rows[1]:,}.")
    print(f"{interleaved.circumstances()}\n")
    recalls = ("recall@1, %", f"where cosine > {SIMILAR}", f"recall@{args.k}, %")
    header = ("index", "s", "CPU s", "MB", *recalls)
    print(interleaved.markdown_table(header, table))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("prepare", "search"))
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--text", nargs="+", default=[])
    parser.add_argument("--languages", nargs="+", default=["de", "fr", "es", "it"])
    parser.add_argument("--rows", type=int, default=2_000_000, help="sentences a side")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--sample", type=int, default=2000, help="rows a side searched exactly")
    parser.add_argument("--index", nargs="+", default=["ivf"])
    parser.add_argument("--backend", default="auto", help="of --index exact")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--memory-mb", type=float, default=512)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step == "prepare":
        prepare(args)
    elif args.worker:
        search_once(args)
    else:
        search(args)


if __name__ == "__main__":
    main()
