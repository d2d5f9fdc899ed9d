"""Fair timing of contestants: separate processes that take turns, compared by medians.

A contestant is a worker process that answers each line it reads with a line of JSON. Only one
worker computes at a time. Turns alternate, so that a slow minute of the machine affects all alike,
and a ratio is the median of the ratios within a round.
"""

import contextlib
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

YARDSTICK_SIZE = 2048  # size of the square matrices of the yardstick product
YARDSTICK_REPEATS = 5


def serve(
    run: Callable[[], dict[str, float]],
    facts: dict[str, Any],
    yardstick: Callable[[], Any] | None = None,
) -> None:
    """A worker's main loop: prints `facts`, then calls `run` once for every line on stdin.

    Args:
        run: does the work of one turn and waits for it to finish; what it returns is reported
            along with `seconds` (wall), `cpu_seconds` (of all threads) and `peak_mb`.
        facts: sent once, when the worker is ready (compiled and warmed up).
        yardstick: a compiled product of float32 matrices of `YARDSTICK_SIZE`; the best time of
            `YARDSTICK_REPEATS` after every turn is `yardstick_seconds`.
    """
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        numbers = run()
        numbers |= {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
            "peak_mb": peak_mb(),
        }
        if yardstick is not None:
            # The best of several: a single one is often slow, and a share could exceed 100 %.
            seconds = []
            for _ in range(YARDSTICK_REPEATS):
                wall = time.perf_counter()
                yardstick()
                seconds.append(time.perf_counter() - wall)
            numbers["yardstick_seconds"] = min(seconds)
        print(json.dumps(numbers), flush=True)


def peak_mb() -> float:
    """The peak memory of this process; that of `resource` begins with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def matmul_share(numbers: Sequence[dict[str, float]], facts: Mapping[str, Any]) -> str:
    """Share of the yardstick's rate reached by a turn with the `flops` of its facts; "" without."""
    if "flops" not in facts:
        return ""
    best = 2 * YARDSTICK_SIZE**3 / median(numbers, "yardstick_seconds")
    return f"{facts['flops'] / median(numbers) / best:.0%}"


class Worker:
    """The process of a contestant, with large pages for all of them, as our commands have.

    Args:
        script: the benchmark's own file, started again with `arguments`.
        arguments: select the worker to run.
    """

    def __init__(self, script: str, arguments: Sequence[str]):
        self._process = subprocess.Popen(
            [sys.executable, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ},
        )
        self.facts = self._read()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"worker {self._process.args} ended: exit {self._process.wait()}")
        return json.loads(line)

    def turn(self) -> dict[str, float]:
        """Runs one turn and returns its numbers."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def take_turns(
    script: str, arguments: Mapping[str, Sequence[str]], rounds: int
) -> tuple[dict[str, list[dict[str, float]]], dict[str, dict[str, Any]]]:
    """Starts a worker per contestant, runs each once per round, in alternating order, and ends all.

    Args:
        script: the benchmark's own file.
        arguments: of each worker.
        rounds: number of turns of each.

    Returns:
        [rounds] numbers of each, and the facts of each.
    """
    numbers: dict[str, list[dict[str, float]]] = {name: [] for name in arguments}
    with contextlib.ExitStack() as stack:
        start = lambda name: contextlib.closing(Worker(script, arguments[name]))
        workers = {name: stack.enter_context(start(name)) for name in arguments}
        for number in range(rounds):
            for name in list(workers) if number % 2 == 0 else reversed(workers):
                numbers[name].append(workers[name].turn())
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return numbers, {name: worker.facts for name, worker in workers.items()}


def median(numbers: Sequence[dict[str, float]], key: str = "seconds") -> float:
    """Median of a number over the rounds."""
    return statistics.median(entry[key] for entry in numbers)


def ratio(
    above: Sequence[dict[str, float]], below: Sequence[dict[str, float]], key: str = "seconds"
) -> float:
    """Median of above / below over the rounds."""
    return statistics.median(a[key] / b[key] for a, b in zip(above, below, strict=True))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


CHOOSING = ("OPENBLAS_CORETYPE", "XLA_FLAGS")


def circumstances() -> str:
    """A line for the caption of a table: date, processor, versions, environment and command."""
    processor = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.read().split("\n\n")[0].splitlines()
        pairs = (line.partition(":") for line in lines)
        facts = {name.strip(): value.strip() for name, _, value in pairs}
        processor = facts.get("model name", processor)
        if "cpu family" in facts:  # the name may be that of many generations
            processor += f" (family {facts['cpu family']}, model {facts['model']})"
    versions = []
    for package in ("jax", "torch"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    # What chooses kernels.
    chosen = [f"{name}={shlex.quote(os.environ[name])}" for name in CHOOSING if name in os.environ]
    command = " ".join([*chosen, "python", *sys.argv])
    return (
        f"{datetime.date.today()}, {len(os.sched_getaffinity(0))} cores of {processor}, "
        f"{', '.join(versions)}: `{command}`"
    )
