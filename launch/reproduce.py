"""Trains and evaluates all configs of a paper's table; run it as `launch/reproduce.sh`.

    launch/reproduce.sh mao-6 --data DIR --workdir runs/mao
    launch/reproduce.sh li-mak-4 --data DIR --workdir runs/li_mak --scale paper \
        --corpora 'moses:europarl/europarl-v7.de-en' 'moses:europarl/europarl-v7.es-en'

DIR holds the training text `parallel/*.tsv.gz`, `retrieval/*.dev.tsv.gz` and
`classification/sib200`, which replaces MLDoc. `--scale small` takes minutes per row on two CPU
cores, with the settings described in docs/experiments.md; `paper` uses the configs unchanged and
the text of `--corpora`. All rows of a table use the same text, vocabulary and seed. Rows shared by
several tables are trained once. Run it again in the same workdir to do what is missing.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """One system of a table.

    Attributes:
        name: as in the paper.
        config: file in configs/, with its argument.
        published: the paper's numbers, in the order of the table's columns.
        settings: config keys this row changes at any scale.
        small: config keys it changes at the small scale.
    """

    name: str
    config: str
    published: tuple[float, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)

    @property
    def directory(self) -> str:
        """Name of its workdir; identical training runs share one."""
        parts = [self.config, *(f"{key.split('.')[-1]}_{v}" for key, v in self.settings.items())]
        return re.sub(r"[^A-Za-z0-9+_]+", "-", "-".join(parts)).strip("-")


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
        title: includes the number.
        rows: its systems.
        published: names of the paper's columns.
        languages: the languages evaluated.
        small: settings of all rows at the small scale.
        corpora: training text at the small scale, names in `parallel/`.
        dev: retrieval sets at the small scale.
    """

    title: str
    rows: tuple[Row, ...]
    published: tuple[str, ...]
    languages: str
    small: dict[str, Any]
    corpora: tuple[str, ...]
    dev: tuple[str, ...]


# 200,000 pairs per row, whatever the batch size.
_MAO_PAIRS = 200_000


def _mao(batch: int) -> dict[str, Any]:
    steps = _MAO_PAIRS // batch
    return {
        "train.total_steps": steps,
        "train.evaluate_every_steps": steps,
        "train.checkpoint_every_steps": steps,
        "schedule.warmup_steps": 200 * 128 // batch,
        "schedule.drop_steps": steps * 3 // 4,
    }


_MAO_SMALL = {
    "data.bucket_lengths": (8, 12, 16, 24),
    "vocab.size": 8000,
    "encoder.width": 128,
    "encoder.heads": 2,
    "encoder.ffn_width": 256,
    # With the published N(0, 1), a short run is spent shrinking the initial logits.
    "encoder.init_stddev": 0.05,
    "head.init_stddev": 0.05,
    "train.log_every_steps": 100,
    # The best of 2e-3, 4e-3 and 8e-3 for XTR after 64,000 pairs.
    "schedule.peak_value": 4e-3,
    **_mao(128),
}
_MAO_CORPORA = ("tatoeba.en-fr", "multi30k.en-de-fr", "news.en-de-fr-es", "news.en-fr")
_MAO_COLUMNS = ("XSR en→fr", "XSR fr→en", "MLDoc en→fr", "MLDoc fr→en")


def _mao_table(title: str, rows: dict[str, tuple[str, tuple[float, ...]]], **batches: int) -> Table:
    """Rows: name -> (argument of configs/lightweight.py, published)."""
    return Table(
        f"Mao et al. (2021), {title}",
        tuple(
            Row(
                name,
                f"lightweight.py:{argument}",
                published,
                {"data.batch_size": batches.get(name.split()[0], 128)},
                _mao(batches.get(name.split()[0], 128)),
            )
            for name, (argument, published) in rows.items()
        ),
        _MAO_COLUMNS,
        "en,fr",
        _MAO_SMALL,
        _MAO_CORPORA,
        ("pud", "multi30k"),
    )


_LI_MAK_SMALL = {
    "data.pairs": ("de-en", "de-es", "en-es", "es-en", "fr-en", "fr-es", "it-en", "it-es"),
    "data.bucket_lengths": (8, 12, 16, 22, 30, 40, 56, 80),
    "data.max_tokens": 1024,
    "vocab.size": 8000,
    "cleaning.length_ratio_slack": 3,
    "train.total_steps": 1000,
    "train.evaluate_every_steps": 1000,
    "train.checkpoint_every_steps": 500,
}
_LSTM = {"schedule.value": 2e-3}
# With the published weights, short runs collapse; see docs/experiments.md.
_CONSTRAINT = {"objective.distance.weight": 1.0, "objective.distance.negative_weight": 8.0}
_YU = {
    "data.both_directions": True,
    "data.max_tokens": 640,
    "encoder.embedding_width": 128,
    "decoder.embedding_width": 128,
} | _LSTM
_MIXED_CORPORA = ("europarl.*", "multi30k.*", "news.*", "tatoeba.de-*", "tatoeba.en-[defi]*")
_MIXED_CORPORA += ("tatoeba.es-*", "tatoeba.fr-*")
_DEV = ("europarl", "pud", "multi30k")
_FIVE = "en,de,fr,es,it"

TABLES = {
    "mao-5": _mao_table(
        "Table 5, depth",
        {
            "1 layer": ("objective=all,layers=1", (89.4, 90.0, 81.7, 79.4)),
            "2 layers": ("objective=all", (90.2, 90.8, 85.1, 82.4)),
            "3 layers": ("objective=all,layers=3", (90.9, 91.5, 84.2, 81.9)),
        },
    ),
    "mao-6": _mao_table(
        "Table 6, generative tasks",
        {
            "MLM": ("objective=mlm", (19.6, 25.4, 78.5, 77.6)),
            "SMLM": ("objective=smlm", (85.0, 85.3, 75.0, 78.7)),
            "XTR": ("objective=xtr", (89.5, 90.8, 84.2, 81.2)),
            "MLM + XTR": ("objective=mlm+xtr", (84.1, 85.0, 82.2, 78.2)),
            "UGT": ("objective=ugt", (89.8, 90.6, 85.1, 82.4)),
        },
    ),
    "mao-7": _mao_table(
        "Table 7, contrastive tasks",
        {
            "UGT": ("objective=ugt", (89.8, 90.6, 85.1, 82.4)),
            "UGT + ALIGN": ("objective=ugt+align", (89.9, 90.4, 84.1, 81.9)),
            "UGT + ALIGN + SIM": ("objective=all", (90.2, 90.8, 82.3, 80.3)),
        },
    ),
    "mao-9": _mao_table(
        "Table 9, batch size in pairs",
        {
            "64 pairs": ("objective=all", (89.6, 90.3, 82.9, 82.6)),
            "128 pairs": ("objective=all", (90.2, 90.8, 84.1, 81.9)),
            "256 pairs": ("objective=all", (90.2, 90.7, 82.9, 81.1)),
        },
        **{"64": 64, "256": 256},
    ),
    "li-mak-4": Table(
        "Li and Mak (2020), Table 4",
        (
            Row("LASER_1", "laser.py:layers=1", (88.5, 70.5), small=_LSTM),
            Row("LASER_6", "laser.py:layers=6", (87.8, 70.1), small=_LSTM),
            Row("cLASER_6", "claser.py", (87.8, 72.6), small=_LSTM | _CONSTRAINT),
            Row("T-LASER", "t_laser.py", (88.6, 73.5)),
            Row("cT-LASER", "ct_laser.py", (89.2, 75.2), small=_CONSTRAINT),
        ),
        ("MLDoc same", "MLDoc cross"),
        _FIVE,
        _LI_MAK_SMALL,
        _MIXED_CORPORA,
        _DEV,
    ),
    "yu-2": Table(
        "Yu, Li and Oguz (2018), Tables 2 and 4",
        (
            Row("without the loss", "similarity_loss.py:loss=none", (88.9, 72.7), small=_YU),
            Row(
                "similarity loss",
                "similarity_loss.py",
                (91.6, 74.6),
                small=_YU | {"objective.similarity.weight": 0.1},
            ),
        ),
        ("Europarl P@1", "MLDoc all"),
        _FIVE,
        _LI_MAK_SMALL,
        _MIXED_CORPORA,
        _DEV,
    ),
}


@dataclass(frozen=True)
class Runner:
    """Trains and evaluates rows; only prints the commands if `dry_run`."""

    data: Path
    workdir: Path
    scale: str
    corpora: tuple[str, ...]
    dry_run: bool

    def xling(self, *arguments: object, done: Path) -> None:
        """Runs a command of the library unless its result exists."""
        words = [*map(str, arguments)]
        if self.dry_run:
            print(shlex.join(["xling", *words]))
        elif not done.exists():
            # Stdout is reserved for the table.
            command = [sys.executable, "-m", "xling_jax.cli.main", *words]
            subprocess.run(command, check=True, stdout=sys.stderr)

    def measure(self, table: Table, row: Row) -> Path:
        """Trains and evaluates a row; returns its workdir."""
        workdir = self.workdir / row.directory
        names = table.dev if self.scale == "small" else ("*",)
        found = sorted(
            path for n in names for path in (self.data / "retrieval").glob(f"{n}.dev.tsv.gz")
        )
        dev = tuple(map(str, found))
        settings = {
            "data.corpora": self.corpora
            or tuple(f"tsv:{self.data}/parallel/{name}.tsv.gz" for name in table.corpora)
        }
        settings |= {"data.exclude": dev} | row.settings
        if self.scale == "small":
            settings |= table.small | row.small
        config = f"{Path(__file__).parents[1]}/configs/{row.config}"
        if self.scale != "paper":
            config += f"{',' if ':' in row.config else ':'}{self.scale}"
        options = ["--config", config]
        options += [f"--config.{key}={value!r}" for key, value in settings.items()]
        self.xling("train", *options, "--workdir", workdir, done=workdir / "encoder")
        for task, data in (
            ("retrieval", dev),
            ("classification", [self.data / "classification/sib200"]),
        ):
            output = workdir / "results" / task
            self.xling(
                *("evaluate", task, "--model", workdir, "--data", *data),
                *("--languages", table.languages, "--no-pictures", "--output", output),
                done=output / "results.json",
            )
        return workdir


def measured(workdir: Path, languages: str) -> dict[str, float]:
    """Our columns, in percent: P@1, averaged over the sets, and accuracy."""
    read = lambda task: json.loads((workdir / f"results/{task}/results.json").read_text())
    sets = read("retrieval")["matrices"].values()
    topics = read("classification")["matrices"]["sib200"]["accuracy"]
    codes = languages.split(",")
    if len(codes) == 2:
        cells = [(codes[0], codes[1]), (codes[1], codes[0])]
        found = {
            f"P@1 {a}→{b}": np.mean([matrix["p_at_1"][a][b] for matrix in sets]) for a, b in cells
        }
        found |= {f"sib200 {a}→{b}": topics[a][b] for a, b in cells}
    else:
        found = {
            f"{name} P@1": np.mean(
                [value for row in matrix["p_at_1"].values() for value in row.values()]
            )
            for name, matrix in read("retrieval")["matrices"].items()
        }
        same = [topics[code][code] for code in codes]
        cross = [topics[a][b] for a in codes for b in codes if a != b]
        found |= {"sib200 same": np.mean(same), "sib200 cross": np.mean(cross)}
    return {name: 100 * float(value) for name, value in found.items()}


def markdown(table: Table, rows: dict[str, dict[str, float]], scale: str) -> str:
    """The table as Markdown: our numbers, then the published ones."""
    columns = list(next(iter(rows.values())))
    header = ["", *columns, *(f"published {name}" for name in table.published)]
    lines = [f"{table.title}, {scale} scale", "", f"| {' | '.join(header)} |"]
    lines.append("| --- |" + " ---: |" * (len(header) - 1))
    for row in table.rows:
        cells = [f"{rows[row.name][column]:.1f}" for column in columns]
        cells += [f"{value:.1f}" for value in row.published]
        lines.append(f"| {' | '.join([row.name, *cells])} |")
    return "\n".join(lines)


def main() -> None:
    """Trains what is missing; prints the table and saves it in the workdir."""
    parser = argparse.ArgumentParser(
        prog="launch/reproduce.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", nargs="?", choices=TABLES, help="which table")
    parser.add_argument("--data", type=Path, help="directory with the text")
    parser.add_argument("--workdir", type=Path, help="receives one directory per row, and the table")
    parser.add_argument("--scale", choices=("small", "base", "paper"), default="small")
    parser.add_argument(
        "--corpora", nargs="+", default=(), metavar="CORPUS", help="training text, in place of parallel/"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")
    parser.add_argument("--list", action="store_true", help="list the tables and their rows")
    args = parser.parse_args()
    if args.list:
        for name, table in TABLES.items():
            print(f"{name:9} {table.title}: {', '.join(row.name for row in table.rows)}")
        return
    if args.table is None or args.data is None or args.workdir is None:
        parser.error("TABLE, --data and --workdir are needed (--list lists the tables)")
    if not (args.data / "retrieval").is_dir():
        parser.error(f"--data {args.data}: must hold parallel/, retrieval/ and classification/")
    table = TABLES[args.table]
    runner = Runner(args.data, args.workdir, args.scale, tuple(args.corpora), args.dry_run)
    workdirs = {row.name: runner.measure(table, row) for row in table.rows}
    if args.dry_run:
        return
    rows = {name: measured(workdir, table.languages) for name, workdir in workdirs.items()}
    text = markdown(table, rows, args.scale)
    (args.workdir / f"{args.table}.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
