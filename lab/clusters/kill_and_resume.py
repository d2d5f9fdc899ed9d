"""Kills one of two training processes at random moments, then resumes with 1, 2 and 4.

    python lab/clusters/kill_and_resume.py --kills 10

All runs are `xling train` on the same synthetic text with a model that trains in seconds. Prints
for each kill its moment, how the surviving process ended, and the newest complete checkpoint; then
the difference of losses and exported encoders from those of an undisturbed single process. Exits
with 1 if a process did not end in time or ended with status 0, or if results differ.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[2]
EVERY_STEPS = 5
MOMENTS = ("start", "step", "save")
# Of xling_jax.cli.distributed: 60 s without a heartbeat, or 300 s if a process was killed before it
# joined; plus time to exit on a busy machine.
NOTICED_WITHIN_S = 300 + 30
# Softmax is invariant to the bias of the keys: its gradient is rounding noise, amplified by Adam.
ARBITRARY = "key.bias"
LOSS_TOLERANCE, ENCODER_TOLERANCE = 1e-3, 2e-3


def write_corpus(path: Path, rows: int = 400) -> Path:
    """Sentences of synthetic words with a fixed German word for each English one."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklm", k=4)) for _ in range(80)]
    lines = ["de\ten"]
    for _ in range(rows):
        picked = generator.choices(words, k=generator.randint(3, 8))
        lines.append(" ".join(f"{word[::-1]}o" for word in picked) + "\t" + " ".join(picked))
    path.write_text("\n".join(lines) + "\n")
    return path


class Run:
    """A training run in a workdir.

    Args:
        workdir: of the run.
        corpus: from `write_corpus`.
        total_steps: of the run.
    """

    def __init__(self, workdir: Path, corpus: Path, total_steps: int):
        self.workdir = workdir
        settings = {
            "languages": "('de','en')",
            "data.pairs": "('de-en','en-de')",
            "data.corpora": f"('tsv:{corpus}',)",
            "data.bucket_lengths": "(24,)",
            "data.batch_multiple": 4,  # number of processes
            "data.max_tokens": 384,
            "vocab.size": 120,
            "train.total_steps": total_steps,
            "train.log_every_steps": 1,
            "train.checkpoint_every_steps": EVERY_STEPS,
        }
        self._words = [sys.executable, "-m", "xling_jax.cli.main", "train"]
        self._words += ["--config", f"{ROOT}/configs/ct_laser.py:smoke", "--workdir", str(workdir)]
        self._words += [f"--config.{key}={value}" for key, value in settings.items()]

    def start(self, count: int) -> list[subprocess.Popen]:
        """Starts the processes; process i logs to `logs/i.txt`."""
        (self.workdir / "logs").mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "PYTHONPATH": str(ROOT),
        }
        started = []
        for number in range(count):
            words = list(self._words)
            if count > 1:
                words += ["--coordinator", address, "--num-processes", str(count)]
                words += ["--process-id", str(number)]
            with open(self.workdir / f"logs/{number}.txt", "a") as log:
                started.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log))
        return started

    def finish(self, count: int) -> None:
        """Runs until training is complete.

        Raises:
            RuntimeError: if a process fails.
        """
        statuses = [process.wait() for process in self.start(count)]
        if statuses != [0] * count:
            raise RuntimeError(f"{self.workdir}: exited with {statuses}, see logs/")

    def newest(self) -> int:
        """Step of the newest complete checkpoint, 0 if there is none."""
        steps = (self.workdir / "checkpoints").glob("[0-9]*[0-9]")
        return max((int(path.name) for path in steps if path.name.isdigit()), default=0)

    def is_saving(self) -> bool:
        """Whether a checkpoint is being written."""
        return any((self.workdir / "checkpoints").glob("*.orbax-checkpoint-tmp*"))

    def losses(self) -> dict[int, float]:
        """The loss of each step."""
        records = [json.loads(line) for line in (self.workdir / "metrics.jsonl").open()]
        return {r["step"]: r["train/loss"] for r in records if "train/loss" in r}

    def encoder(self) -> dict[str, np.ndarray]:
        """The arrays of the exported encoder that affect its vectors."""
        arrays = load_file(self.workdir / "encoder/encoder.safetensors")
        return {n: a for n, a in arrays.items() if not n.replace("/", ".").endswith(ARBITRARY)}


def kill_one(run: Run, moment: str, generator: random.Random) -> tuple[list[str], bool]:
    """Starts two processes and kills one; returns a row of the table and whether it went well."""
    before = run.newest()
    pair = run.start(2)
    started = time.monotonic()
    seconds = generator.uniform(0.5, 10.0)
    target = before + EVERY_STEPS * generator.randint(1, 2)

    def reached() -> bool:
        if moment == "start":
            return time.monotonic() - started > seconds
        return run.newest() >= target and (moment == "step" or run.is_saving())

    while not reached() and all(process.poll() is None for process in pair):
        time.sleep(0.002)
    victim = generator.randrange(2)
    too_late = any(process.poll() is not None for process in pair)
    pair[victim].send_signal(signal.SIGKILL)
    killed, torn = time.monotonic(), run.is_saving()
    try:
        status = pair[1 - victim].wait(NOTICED_WITHIN_S)
    except subprocess.TimeoutExpired:
        pair[1 - victim].kill()
        status = None
    after = time.monotonic() - killed
    pair[victim].wait()
    row = [moment, f"{killed - started:.1f} s", "yes" if torn else "no", str(victim)]
    row += [f"{status} after {after:.1f} s", f"{before} → {run.newest()}"]
    return row, status not in (0, None) and not too_late and run.newest() >= before


def compare(run: Run, reference: Run) -> tuple[list[str], bool]:
    """The largest differences of losses and encoder, and whether they are mere rounding."""
    found, expected = run.losses(), reference.losses()
    same_steps = found.keys() == expected.keys()
    loss = max(abs(found[step] / expected[step] - 1) for step in found.keys() & expected.keys())
    encoder, other = run.encoder(), reference.encoder()
    array = max(float(np.abs(encoder[name] - other[name]).max()) for name in other)
    row = [str(len(found)), "yes" if same_steps else "no", f"{loss:.1e}", f"{array:.1e}"]
    return row, same_steps and loss < LOSS_TOLERANCE and array < ENCODER_TOLERANCE


def print_table(header: str, rows: list[list[str]]) -> None:
    """Prints a Markdown table."""
    columns = header.split(", ")
    for row in (columns, ["---"] * len(columns), *rows):
        print("|", " | ".join(row), "|")
    print(flush=True)


def main() -> int:
    """Runs everything; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    generator = random.Random(args.seed)
    total = 2 * EVERY_STEPS * (args.kills + 2)
    all_well = True
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        corpus = write_corpus(top / "corpus.tsv")
        reference = Run(top / "reference", corpus, total)
        reference.finish(1)
        killed = Run(top / "killed", corpus, total)
        rows = []
        for number in range(args.kills):
            row, well = kill_one(killed, MOMENTS[number % 3], generator)
            rows.append([str(number + 1), *row])
            all_well &= well
        header = "kill, moment, since start, while saving, process, the other ended with"
        print_table(f"{header}, newest checkpoint", rows)
        rows = []
        for count in (1, 2, 4):
            for kind in ("undisturbed", "continued"):
                run = Run(top / f"{kind}-{count}", corpus, total)
                if kind == "continued":
                    shutil.copytree(killed.workdir, run.workdir)
                run.finish(count)
                row, well = compare(run, reference)
                rows.append([str(count), kind, *row])
                all_well &= well
        header = "processes, run, steps logged, each once, largest relative difference of a loss"
        print_table(f"{header}, of a parameter", rows)
    print("passed" if all_well else "FAILED")
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
