"""The latency of single sentences while other processes use the cores, beside PyTorch.

    python benchmarks/busy_machine.py --text europarl.dev.tsv.gz

The models are those of `cold_start.py`. `loops` are processes that compute all the time; `services`
are processes that encode sentences one by one, all at the same time. `all threads` is our encoder
with all threads of BLAS in each product, whatever runs.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import cold_start
import interleaved

CONTESTANTS = ("xling_jax", "all threads", "sentence-transformers")
# Busy loops, and services beside one another.
SITUATIONS = ((0, 1), (1, 1), (2, 1), (0, 2), (0, 4))


def serve_once(name: str, model: str, text: str, count: int) -> None:
    """Encodes sentences one by one until all services have begun and `count` are done."""
    if name == "all threads":
        from xling_jax.files import threads

        threads.num_free_cores = lambda own=0: sys.maxsize
    sentences = cold_start.read_sentences(text, count)
    encode = cold_start.load(name, model)
    for sentence in sentences[:10]:
        encode(sentence)
    print("ready", flush=True)
    sys.stdin.readline()
    times = []
    for sentence in sentences:
        start = time.perf_counter()
        encode(sentence)
        times.append(time.perf_counter() - start)
    print(json.dumps({"median": statistics.median(times), "longest": max(times)}))


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keeps that many threads of the machine busy within the block."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(command: Sequence[str], loops: int, services: int) -> list[dict[str, float]]:
    """What each of the services measured."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(services)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    with busy_loops(loops):
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        return [json.loads(process.communicate()[0]) for process in processes]


def main() -> None:
    """Prints a Markdown table of medians over rounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", required=True, help="a TSV with a header, .gz; its first column")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    families = cold_start.FAMILIES
    parser.add_argument("--families", nargs="+", choices=families, default=list(families))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve_once(*args.worker, args.text, args.sentences)
        return
    rows = []
    for family in args.families:
        with tempfile.TemporaryDirectory() as top:
            directory = Path(top)
            cold_start.write_ours(family, directory / "ours")
            cold_start.write_peer(family, directory / "peer")
            found = {key: [] for key in itertools.product(SITUATIONS, CONTESTANTS)}
            for _, (situation, name) in itertools.product(range(args.rounds), found):
                model = directory / ("peer" if name == CONTESTANTS[-1] else "ours")
                command = [sys.executable, __file__, "--text", args.text]
                command += ["--sentences", str(args.sentences), "--worker", name, str(model)]
                found[situation, name] += measure(command, *situation)
        for loops, services in SITUATIONS:
            cells = [family, str(loops), str(services)]
            for name, key in itertools.product(CONTESTANTS, ("median", "longest")):
                value = interleaved.median(found[(loops, services), name], key)
                cells.append(f"{1e3 * value:,.1f}")
            rows.append(cells)
    print(f"{interleaved.circumstances()}, {args.rounds} rounds\n")
    header = ["", "loops", "services"]
    header += [f"{name}, {key} ms" for name in CONTESTANTS for key in ("median", "longest")]
    print(interleaved.markdown_table(header, rows))


if __name__ == "__main__":
    main()
