"""Prepares millions of generated rows through Apache Beam: time, memory, and the same tokens.

    python lab/preparation/beam_rows.py --rows 20_000_000 --directory DIR [--compare]

Needs `pip install '.[beam]'`, 250 bytes of disk a row, and as much again with `--compare`, which
prepares the same text without Beam too. A tenth of the rows are copies of others.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

_WORDS = 50_000
_BLOCK_ROWS = 100_000


def write_rows(path: Path, rows: int) -> None:
    """Writes rows whose i-th words translate one another, in 4 to 20 words."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabularies = [
        ["".join(rng.choice(letters, size)) for size in rng.integers(2, 10, _WORDS)]
        for _ in range(2)
    ]
    with open(path, "w", encoding="utf-8") as file:
        file.write("de\ten\n")
        written, earlier = 0, []
        while written < rows:
            size = min(_BLOCK_ROWS, rows - written)
            lines = list(earlier[: size // 10])
            frequent = np.minimum(rng.zipf(1.3, size * 20), _WORDS) - 1
            ends = np.cumsum(rng.integers(4, 21, size - len(lines)))
            for start, end in zip([0, *ends[:-1].tolist()], ends.tolist()):
                ids = frequent[start:end].tolist()
                lines.append("\t".join(" ".join(words[i] for i in ids) for words in vocabularies))
            file.write("\n".join(lines) + "\n")
            written, earlier = written + size, lines[-size // 10 :]


def prepare(corpus: Path, workdir: Path, *words: str) -> tuple[float, dict[str, float]]:
    """Runs `xling prepare`; returns its seconds, and the most GiB of its processes by kind."""
    started = time.monotonic()
    command = [sys.executable, "-m", "xling_jax.cli.main", "prepare", "--config", "ct_laser:small"]
    command += ["--workdir", str(workdir), f"--config.data.corpora=('tsv:{corpus}',)", *words]
    command += ["--config.languages=('de','en')", "--config.data.pairs=('de-en',)"]
    command += ["--config.vocab.size=8000", "--config.vocab.sample_sentences=200_000"]
    process = subprocess.Popen(command)
    peaks: dict[str, float] = {}
    watcher = threading.Thread(target=_watch, args=(process, peaks))
    watcher.start()
    if process.wait():
        raise SystemExit(process.returncode)
    watcher.join()
    return time.monotonic() - started, peaks


def _watch(process: subprocess.Popen, peaks: dict[str, float]) -> None:
    while process.poll() is None:
        for pid in (process.pid, *_descendants(process.pid)):
            kind = "launcher" if pid == process.pid else "worker"
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if "VmHWM" in status:
                size = int(status.split("VmHWM:")[1].split()[0]) / (1 << 20)
                peaks[kind] = max(peaks.get(kind, 0), size)
        time.sleep(1)


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # A thread may have started them.
        for task in os.listdir(f"/proc/{pid}/task"):
            children += Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    except OSError:
        return []
    found = {int(child) for child in children}
    return [*found, *(deeper for child in found for deeper in _descendants(child))]


def _digest(workdir: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted((workdir / "data" / "de-en").rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(workdir).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--compare", action="store_true")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    corpus = args.directory / f"{args.rows}.tsv"
    if not corpus.exists():
        write_rows(corpus, args.rows)
    print(f"{args.rows:,} rows, {corpus.stat().st_size / 1e9:.2f} GB")
    beam = "--beam-options=--direct_running_mode=multi_processing --direct_num_workers=2"
    runs = {"beam": ("--runner=direct", beam)}
    if args.compare:
        runs["local"] = ()
    for name, words in runs.items():
        seconds, peaks = prepare(corpus, args.directory / name, *words)
        memory = ", ".join(f"{kind} {size:.2f} GiB" for kind, size in sorted(peaks.items()))
        print(f"{name}: {seconds:.0f} s; {memory}; tokens {_digest(args.directory / name)}")


if __name__ == "__main__":
    main()
