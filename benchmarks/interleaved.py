"""Fair timing of competitors: each in a process of its own, taking turns, medians compared.

A competitor is a worker process that answers one line of JSON for each line it reads. Only one
worker computes at a time; the turns alternate, so that a slow minute of the machine hits all alike,
and a ratio is the median of the ratios within a round.
"""

import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

YARDSTICK_SIZE = 2048  # of the square matrices whose product is the yardstick
YARDSTICK_REPEATS = 5


def serve(
    run: Callable[[], dict[str, float]],
    facts: dict[str, Any],
    yardstick: Callable[[], Any] | None = None,
) -> None:
    """A worker's main loop: says `facts`, then calls `run` once for every line on stdin.

    Args:
        run: does the work of one turn and waits for its end; what it returns is passed on beside
            `seconds` (wall), `cpu_seconds` (of all threads) and `peak_mb`.
        facts: sent once, when the worker is ready (compiled and warm).
        yardstick: one product of float32 matrices of `YARDSTICK_SIZE`, already compiled; the
            best time of `YARDSTICK_REPEATS` after every turn is `yardstick_seconds`.
    """
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        numbers = run()
        numbers |= {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
            # Linux gives KiB; the peak since the process began.
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        if yardstick is not None:
            # The best of some: one alone is often slow, and then a share can exceed 100 %.
            seconds = []
            for _ in range(YARDSTICK_REPEATS):
                wall = time.perf_counter()
                yardstick()
                seconds.append(time.perf_counter() - wall)
            numbers["yardstick_seconds"] = min(seconds)
        print(json.dumps(numbers), flush=True)


def matmul_share(numbers: Sequence[dict[str, float]], flops: float) -> float:
    """Share of the yardstick's rate that a turn of `flops` matrix-product FLOPs reached."""
    best = 2 * YARDSTICK_SIZE**3 / median(numbers, "yardstick_seconds")
    return flops / median(numbers) / best


class Worker:
    """A competitor's process.

    Args:
        script: the benchmark's own file; it is started again with `arguments`.
        arguments: tell it to become a worker, and which.
    """

    def __init__(self, script: str, arguments: Sequence[str]):
        self._process = subprocess.Popen(
            [sys.executable, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = self._read()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"worker {self._process.args} ended: exit {self._process.wait()}")
        return json.loads(line)

    def turn(self) -> dict[str, float]:
        """Lets it work once and returns its numbers."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def take_turns(workers: dict[str, Worker], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Runs every worker once a round, in an order that alternates; [rounds] numbers for each."""
    numbers: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    for number in range(rounds):
        order = list(workers) if number % 2 == 0 else list(reversed(workers))
        for name in order:
            numbers[name].append(workers[name].turn())
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return numbers


def median(numbers: Sequence[dict[str, float]], key: str = "seconds") -> float:
    """Median of one of the numbers over the rounds."""
    return statistics.median(entry[key] for entry in numbers)


def ratio(
    above: Sequence[dict[str, float]], below: Sequence[dict[str, float]], key: str = "seconds"
) -> float:
    """Median over the rounds of above / below."""
    return statistics.median(a[key] / b[key] for a, b in zip(above, below, strict=True))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for docs/performance.md."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def circumstances() -> str:
    """One line for a table's caption: date, processor, versions and the command."""
    processor = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        processor = names[0] if names else processor
    versions = []
    for package in ("jax", "torch"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    command = " ".join(["python", *sys.argv])
    return (
        f"{datetime.date.today()}, {len(os.sched_getaffinity(0))} cores of {processor}, "
        f"{', '.join(versions)}: `{command}`"
    )
