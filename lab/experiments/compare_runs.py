"""Compares runs: a Markdown table of their dev metrics and a plot of their curves.

    python lab/experiments/compare_runs.py runs/t_laser runs/ct_laser --output t_vs_ct.png
    python lab/experiments/compare_runs.py runs/* --metrics pud_dev/p_at_1 train/tokens_per_second
    python lab/experiments/compare_runs.py A B C --tokens 3487 3487 3240 --output curves.png

Reads `metrics.jsonl` of each workdir and prints the table. Dev metrics are in percent; speeds are
medians over the lines of the log. With `--tokens`, the tokens a side in an update of each run,
the plot has P@1 over tokens.
"""

import argparse
import itertools
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from xling_jax.eval.results import markdown_table
from xling_jax.train.metrics import read_metrics

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
# A run has a color and, beyond the sixth, another line.
LINES = [(color, line) for line in ("-", "--", ":", "-.") for color in COLORS]


def short_names(workdirs: Sequence[Path]) -> dict[str, Path]:
    """As many of the last parts of the paths as tell them apart -> the path."""
    paths = {tuple(os.path.abspath(path).split(os.sep)): path for path in workdirs}
    for count in range(1, max(map(len, paths)) + 1):
        names = {os.sep.join(parts[-count:]): path for parts, path in paths.items()}
        if len(names) == len(paths):
            break
    return names


def curve(records: list[dict[str, float]], name: str) -> tuple[list[int], list[float]]:
    """Steps and values of one metric."""
    found = [(int(record["step"]), record[name]) for record in records if name in record]
    return [step for step, _ in found], [value for _, value in found]


def dev_metrics(runs: dict[str, list[dict[str, float]]]) -> list[str]:
    """Names of the primary dev metrics that all runs have."""
    names = [{name for record in records for name in record} for records in runs.values()]
    return sorted(n for n in set.intersection(*names) if n.endswith(("/p_at_1", "/p_at_5")))


def value(records: list[dict[str, float]], name: str, step: int) -> str:
    """A metric at a step: the last dev value in percent, the last loss, the median speed."""
    values = [record[name] for record in records if name in record and record["step"] <= step]
    if not values:
        return "–"
    if name.endswith("_per_second"):
        return f"{statistics.median(values):,.0f}"
    return f"{values[-1]:.3f}" if name.startswith("train/") else f"{100 * values[-1]:.1f}"


def table(runs: dict[str, list[dict[str, float]]], names: list[str], step: int) -> str:
    """The metrics of each run at a step, as Markdown."""
    rows = [[run, *(value(records, name, step) for name in names)] for run, records in runs.items()]
    return markdown_table(["run", *names], rows)


def draw(runs: dict[str, list[dict[str, float]]], path: Path, tokens: Sequence[int] = ()) -> None:
    """Plots the dev P@1 of every set, without `tokens` the translation loss to its left."""
    names = [name for name in dev_metrics(runs) if name.endswith("/p_at_1")]
    panels = [(name, f"{name.split('/')[0]}: P@1 (%)", 100.0) for name in names]
    if not tokens:
        panels.insert(0, ("train/translation_loss", "translation loss (nats per token)", 1.0))
    size = (4.2 * len(panels) + 1.2, 3.4)
    figure, (axes,) = plt.subplots(1, len(panels), figsize=size, squeeze=False)
    per_step = [n / 1e6 for n in tokens] or [1] * len(runs)
    for axis, (name, title, scale) in zip(axes, panels):
        dots = {} if name.startswith("train/") else {"marker": "o", "markersize": 4}
        for (color, line), (run, records), x in zip(itertools.cycle(LINES), runs.items(), per_step):
            steps, values = curve(records, name)
            style = {"color": color, "linestyle": line, "linewidth": 1.8} | dots
            axis.plot([x * s for s in steps], [scale * v for v in values], label=run, **style)
        if dots:
            axis.set_ylim(bottom=0)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel("million tokens a side" if tokens else "updates", fontsize=9)
        axis.locator_params(axis="x", nbins=5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes[-1].legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(words: Sequence[str] | None = None) -> None:
    """Reads the arguments, prints the table, and draws the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workdirs", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, help="PNG file to write")
    parser.add_argument("--tokens", nargs="+", type=int, help="of an update, for each workdir")
    parser.add_argument("--metrics", nargs="+", help="columns; default: P@1, P@5, translation loss")
    parser.add_argument(
        "--step", type=int, help="compare at this step (default: the last common one)"
    )
    args = parser.parse_args(words)
    runs = {name: read_metrics(path) for name, path in short_names(args.workdirs).items()}
    for name, records in runs.items():
        if not records:
            parser.error(f"{name}: no measurements in metrics.jsonl; give the workdir of a run")
    if args.tokens and len(args.tokens) != len(runs):
        parser.error(f"--tokens needs one number for each of the {len(runs)} workdirs")
    measured = dev_metrics(runs)
    if not measured and (args.step is None or args.output):
        parser.error("not all runs have measured P@1; give --step and --metrics, and no --output")
    step = args.step or min(max(curve(records, measured[0])[0]) for records in runs.values())
    names = args.metrics or [*measured, "train/translation_loss"]
    print(f"At step {step}:\n\n{table(runs, names, step)}")
    if args.output:
        draw(runs, args.output, args.tokens or ())


if __name__ == "__main__":
    main()
