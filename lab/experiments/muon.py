"""Muon against AdamW: updates of a small T-LASER to the same validation loss, on made-up text.

    taskset -c 0 python lab/experiments/muon.py --workdir runs/muon

Sentences of one language are random walks over 400 words; the other has a word for each of them,
and every second pair of neighbors in the opposite order. With `consistent_rms=0.2`, Muon's updates
are as large as AdamW's usually are, so that both take the same learning rates.
"""

import argparse
import random
from pathlib import Path

from xling_jax.config import load
from xling_jax.runs.train import train_experiment
from xling_jax.train.metrics import read_metrics

WORDS, PAIRS, STEPS, EVERY = 400, 10_000, 160, 10
MUON = {"name": "muon", "consistent_rms": 0.2, "adam_b2": 0.98, "weight_decay": 1e-4}
RUNS = {
    f"{name} {rate:g}": {"schedule.peak_value": rate, "optimizer": optimizer}
    for name, optimizer in (("adamw", None), ("muon", MUON))
    for rate in (2e-3, 4e-3)
}


def write_text(path: Path) -> None:
    """Writes made-up pairs of `de` and `en`, the same ones every time."""
    generator = random.Random(0)
    syllables = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    words = lambda: ["".join(generator.sample(syllables, 3)) for _ in range(WORDS)]
    sides, lines = (words(), words()), ["de\ten"]
    following = [generator.sample(range(WORDS), 5) for _ in range(WORDS)]
    for _ in range(PAIRS):
        walk = [generator.randrange(WORDS)]
        while len(walk) < generator.randint(4, 12):
            walk.append(generator.choice(following[walk[-1]]))
        turned = [n for i in range(0, len(walk), 2) for n in reversed(walk[i : i + 2])]
        texts = (" ".join(side[n] for n in order) for side, order in zip(sides, (walk, turned)))
        lines.append("\t".join(texts))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Trains all runs and prints their validation losses by update."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workdir", type=Path, required=True)
    workdir = parser.parse_args().workdir
    workdir.mkdir(parents=True, exist_ok=True)
    write_text(workdir / "text.tsv")
    curves = {}
    for name, values in RUNS.items():
        values = {key: value for key, value in values.items() if value}
        values |= {"languages": ("de", "en"), "data.pairs": ("de-en", "en-de")}
        values |= {"data.corpora": (f"tsv:{workdir}/text.tsv",), "data.validation_pairs": 100}
        values |= {"data.max_tokens": 960, "data.bucket_lengths": (40,), "vocab.size": 500}
        values |= {"train.total_steps": STEPS, "train.evaluate_every_steps": EVERY}
        values |= {"train.checkpoint_every_steps": STEPS, "schedule.warmup_steps": 20}
        place = workdir / name.replace(" ", "-")
        train_experiment(load("t_laser:small").replace(values), str(place))
        records = [r for r in read_metrics(place) if "validation/loss" in r]
        curves[name] = {record["step"]: record["validation/loss"] for record in records}
    print("\t".join(["updates", *curves]))
    for step in next(iter(curves.values())):
        print("\t".join([str(step), *(f"{curve[step]:.3f}" for curve in curves.values())]))


if __name__ == "__main__":
    main()
