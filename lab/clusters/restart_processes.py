"""Stops and starts one run again and again in several processes, and counts what goes wrong.

    python lab/clusters/restart_processes.py --processes 2 --starts 140
    python lab/clusters/restart_processes.py --processes 1 --starts 1000 --steps 2500

Each start is `launch/local.sh N train` on synthetic text, with a model that trains in seconds and
three shapes of batches, each a program that compiles when it is first needed. It is stopped at a
random moment of its start or after a random step: by SIGTERM, which saves, or by SIGKILL to all
processes, as when the power fails. The next start continues, until the run is complete; then its
encoder must equal the one of an undisturbed run, bit for bit, and another run begins. Every second
run is warm: the programs of a one-process run lie in its workdir, in `xla_cache`, and
JAX_COMPILATION_CACHE_DIR names them as well.

Prints a line a start, and what was counted. A start fails if it ends by itself with a status other
than 0, ends with other than 143 or 0 after SIGTERM, or takes SILENT_S seconds. Exits with 1 if any
start failed or any encoder differs.
"""

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from kill_and_resume import ROOT, write_corpus

SILENT_S = 1200
STEPS_A_START = 12  # at most, before the next stop
STARTING_S = 6.0  # the first steps come about then, on a quiet machine


class Workdir:
    """A run in a directory: its command in `count` processes, and the environment of that."""

    def __init__(
        self, path: Path, corpus: Path, config: str, steps: int, programs: Path | None = None
    ):
        self.path = path
        settings = {
            "languages": "('de','en')",
            "data.pairs": "('de-en','en-de')",
            "data.corpora": f"('tsv:{corpus}',)",
            "vocab.size": 120,
            "train.total_steps": steps,
            "train.checkpoint_every_steps": 10,
        }
        self._words = ["train", "--config", f"{ROOT}/configs/{config}", "--workdir", str(path)]
        self._words += [f"--config.{key}={value}" for key, value in settings.items()]
        commands = path.parent / "commands"
        if not commands.exists():
            commands.mkdir()
            (commands / "xling").write_text(
                f'#!/bin/sh\nexec {sys.executable} -m xling_jax.cli.main "$@"\n'
            )
            (commands / "xling").chmod(0o755)
        self._environment = os.environ | {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "GRACE": str(SILENT_S // 2),  # a busy machine compiles for minutes
        }
        if programs:
            shutil.copytree(programs, path / "xla_cache")
            self._environment["JAX_COMPILATION_CACHE_DIR"] = str(path / "xla_cache")

    def start(self, count: int) -> subprocess.Popen:
        """Starts the processes, whose first one logs to standard output."""
        return subprocess.Popen(
            [f"{ROOT}/launch/local.sh", str(count), *self._words],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, count: int) -> bytes:
        """Runs to the end; returns the encoder.

        Raises:
            RuntimeError: if that fails.
        """
        process = self.start(count)
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{self.path}: status {process.returncode}\n{output}")
        return self.encoder()

    def encoder(self) -> bytes:
        """The exported encoder."""
        return (self.path / "encoder/encoder.safetensors").read_bytes()

    def kill(self) -> None:
        """Sends SIGKILL to all processes of the run at once, `local.sh` among them."""
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if str(self.path) in words and "--workdir" in words:
                    os.kill(int(directory.name), signal.SIGKILL)
            except OSError:
                continue  # ended meanwhile


def start_and_stop(run: Workdir, count: int, generator: random.Random) -> tuple[str, int]:
    """One start; returns what was done to it, and its status."""
    starting, by = generator.random() < 0.4, generator.choice(("SIGTERM", "SIGKILL"))
    seconds = generator.uniform(0.3, STARTING_S)
    steps = generator.randint(1, STEPS_A_START)
    process = run.start(count)
    stopped = ""

    def stop(done: str) -> None:
        nonlocal stopped
        if stopped or process.poll() is not None:
            return
        stopped = f"{by} {done}"
        if by == "SIGTERM":
            process.terminate()
        else:
            run.kill()

    timers = [threading.Timer(SILENT_S, run.kill)]
    if starting:
        timers.append(threading.Timer(seconds, stop, [f"after {seconds:.1f} s"]))
    for timer in timers:
        timer.start()
    seen = 0
    for line in process.stdout:
        seen += " step " in line and "loss=" in line
        if not starting and seen == steps:
            stop(f"after step {steps}")
    status = process.wait()
    for timer in timers:
        timer.cancel()
    if not stopped:
        stopped = "hung" if status == -signal.SIGKILL else "not stopped"
    return stopped, status


def is_expected(stopped: str, status: int) -> bool:
    """Whether a start ended as it must."""
    if stopped.startswith("SIGTERM"):
        return status in (0, 143)
    return status == (-signal.SIGKILL if stopped.startswith("SIGKILL") else 0)


def main() -> int:
    """Runs everything; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--starts", type=int, default=140)
    parser.add_argument("--steps", type=int, default=60, help="of a run")
    parser.add_argument("--config", default="static.py:smoke", help="file in configs/")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    generator, counts = random.Random(args.seed), collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        corpus = write_corpus(top / "corpus.tsv")
        Workdir(top / "alone", corpus, args.config, args.steps).finish(1)
        programs = top / "alone/xla_cache"
        print(f"{len([*programs.iterdir()])} files of programs", flush=True)
        undisturbed = Workdir(top / "undisturbed", corpus, args.config, args.steps)
        expected = undisturbed.finish(args.processes)
        for number in range(args.starts):
            path = top / f"run-{counts['complete']}"
            if not path.exists():
                path.mkdir()
                warm = counts["complete"] % 2
                run = Workdir(path, corpus, args.config, args.steps, programs if warm else None)
            began = time.monotonic()
            stopped, status = start_and_stop(run, args.processes, generator)
            well = is_expected(stopped, status)
            counts["starts"] += 1
            counts["warm" if warm else "cold"] += 1
            counts[stopped.split()[0]] += 1
            counts["failed"] += not well
            took = time.monotonic() - began
            load = os.getloadavg()[0]
            line = f"{number + 1}: {'warm' if warm else 'cold'}, {stopped}, status {status}"
            print(f"{line}, {took:.1f} s, load {load:.1f}{'' if well else ', FAILED'}", flush=True)
            if not well:
                print((path / "logs/process-0.log").read_text()[-4000:], flush=True)
            if status == 0:
                same = run.encoder() == expected
                counts["same" if same else "different"] += 1
                counts["complete"] += 1
                shutil.rmtree(path)
        if path.exists():  # the last run is not complete yet
            counts["same" if run.finish(args.processes) == expected else "different"] += 1
        print(dict(counts))
    return 1 if counts["failed"] or counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
