"""A tiny bilingual corpus, the arguments that train on it, and commands on eight devices."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]


def write_tsv(path: Path, rows: int = 300) -> Path:
    """Sentences of made-up words, each English word a fixed German one."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdefghijklm"), 4)) for _ in range(80)]
    lines = ["de\ten"]
    for _ in range(rows):
        picked = random.choice(80, random.integers(3, 9))
        english = " ".join(words[i] for i in picked)
        lines.append(" ".join(words[i][::-1] + "o" for i in picked) + "\t" + english)
    path.write_text("\n".join(lines) + "\n")
    return path


def arguments(command: str, corpus: str, workdir: Path, *overrides: str) -> list[str]:
    """`xling COMMAND` on a corpus with the smallest model."""
    settings = {
        "languages": "('de','en')",
        "data.pairs": "('de-en','en-de')",
        "data.corpora": f"({corpus!r},)",
        "data.reader": "numpy",
        "data.bucket_lengths": "(24,)",
        "data.max_tokens": 384,
        "vocab.size": 120,
        "encoder.width": 16,
        "encoder.layers": 1,
        "encoder.ffn_width": 32,
        "decoder.width": 16,
        "decoder.ffn_width": 32,
        "train.checkpoint_every_steps": 2,
    }
    given = dict(word.removeprefix("--config.").split("=", 1) for word in overrides)
    return [
        command,
        "--config",
        f"{ROOT}/configs/ct_laser.py:smoke",
        "--workdir",
        str(workdir),
        *(f"--config.{key}={value}" for key, value in (settings | given).items()),
    ]


def xling(*arguments: object) -> None:
    """A command in a process with 8 devices, which must succeed."""
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8"
    finished = subprocess.run(
        [sys.executable, "-m", "xling_jax.cli.main", *map(str, arguments)],
        env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
