"""Trains and evaluates all configs of a paper's table; run it as `launch/reproduce.sh`.

    launch/reproduce.sh mao-6 --data DIR --workdir runs/mao
    launch/reproduce.sh li-mak-4 --data DIR --workdir runs/claims --scale claims --seeds 2
    launch/reproduce.sh li-mak-4 --workdir runs/li_mak --scale paper --mldoc MLDOC

Scales, from minutes to weeks:

    small    minutes per row on two CPU cores, settings in lab/experiments; text in DIR
    claims   20 million padded tokens a side for T-LASER and cT-LASER, 5 million for the others, an
             hour or two per row on two CPU cores, published weights of the losses; text in DIR
    base     the configs' `:base`, a day per row on one GPU
    paper    the configs as they are, with the papers' corpora

DIR holds the training text `parallel/*.tsv.gz`, `retrieval/*.dev.tsv.gz` and
`classification/sib200`, which stands in for MLDoc. All rows of a table use the same text,
vocabulary and seeds. Rows shared by several tables are trained once. Run it again in the same
workdir to do what is missing; another scale or other corpora need another workdir. Nothing is
downloaded; the script says what is missing and where to get it.
"""

import argparse
import itertools
import json
import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from reproduce_tables import CLAIMS_CORPORA, CLAIMS_DEV, ELSEWHERE, SCALES, TABLES, Row, Table
from run import run

from xling_jax.files.whole import read_json, write_json

NO_MLDOC = (
    "MLDoc is not measured: it needs Reuters RCV1 and RCV2, which NIST licenses "
    "(https://trec.nist.gov/data/reuters/reuters.html), and the lists of "
    "https://github.com/facebookresearch/MLDoc; build it with `python -m xling_jax.eval.mldoc "
    "--rcv RCV1 RCV2 --indices MLDoc/mldoc-indices --output MLDOC` and add --mldoc MLDOC"
)
# In the workdir of a row: what it was trained with.
RECORD = "reproduce.json"
NO_ACCELERATOR = (
    "JAX finds no GPU or TPU on this machine, and rows of this scale would take weeks; run the "
    "same command where there is one, or add --cpu"
)


@dataclass(frozen=True)
class Runner:
    """Trains and evaluates rows; only prints the commands if `dry_run`."""

    data: Path | None
    workdir: Path
    scale: str
    corpora: tuple[str, ...]
    mldoc: Path | None
    cpu: bool
    dry_run: bool

    def xling(self, *arguments: object, done: Path) -> None:
        """Runs a command of the library unless its result exists."""
        words = [*map(str, arguments)]
        if self.dry_run:
            print(shlex.join(["xling", *words]))
        elif not done.exists():
            # Stdout is reserved for the table.
            command = [sys.executable, "-m", "xling_jax.cli.main", *words]
            run(command, stdout=sys.stderr)

    def row_workdir(self, row: Row, seed: int) -> Path:
        """The workdir of a row."""
        return self.workdir / (row.directory + (f"-seed-{seed}" if seed else ""))

    def conflict(self, row: Row, seed: int) -> str | None:
        """Says that a row was trained at another scale or on other text; None if it was not."""
        workdir = self.row_workdir(row, seed)
        recorded = (workdir / "encoder").exists() and read_json(workdir / RECORD)
        if not recorded or recorded == self._record():  # earlier versions left no record
            return None
        was, now = (shlex.join(record["options"]) for record in (recorded, self._record()))
        return f"{workdir}: was trained with {was}, not {now}; choose another --workdir"

    def _record(self) -> dict[str, list[str]]:
        """The options of this script that the training of a row depends on."""
        corpora = ["--corpora", *self.corpora] if self.corpora else []
        return {"options": ["--scale", self.scale, *corpora]}

    def measure(self, table: Table, row: Row, seed: int) -> Path:
        """Trains and evaluates a row; returns its workdir."""
        workdir = self.row_workdir(row, seed)
        config = f"{Path(__file__).parents[1]}/configs/{row.config}"
        if self.scale != "paper":
            size = "small" if self.scale == "claims" else self.scale
            config += f"{',' if ':' in row.config else ':'}{size}"
        settings = self.settings(table, row) | ({"seed": seed} if seed else {})
        options = ["--config", config]
        options += [f"--config.{key}={value!r}" for key, value in settings.items()]
        if self.scale in ("base", "paper"):
            manifest = workdir / "data/manifest.json"
            self.xling("prepare", *options, "--workdir", workdir, done=manifest)
            if not (self.cpu or self.dry_run or (workdir / "encoder").exists()):
                _require_accelerator()
        elif not self.dry_run:
            self._share_text(workdir)
        if not (self.dry_run or (workdir / "encoder").exists()):
            workdir.mkdir(parents=True, exist_ok=True)
            write_json(workdir / RECORD, self._record())
        self.xling("train", *options, "--workdir", workdir, done=workdir / "encoder")
        model = workdir
        if table.chosen_on_mldoc and self.mldoc and self.scale in ("base", "paper"):
            model = self.choose(table, row, workdir)
        for task, words in self.evaluations(table, row):
            output = workdir / "results" / task
            self.xling(
                *("evaluate", task.partition("-")[0], "--model", model, *words),
                *("--languages", table.languages, "--no-pictures", "--output", output),
                done=output / "results.json",
            )
        return workdir

    def choose(self, table: Table, row: Row, workdir: Path) -> Path:
        """Exports the checkpoint, of those that the run kept, that is best on MLDoc's dev set."""
        dev, model = workdir / "results/mldoc-dev", workdir / "chosen"
        scores = dev / "checkpoints.json"
        (words,) = [words for task, words in self.evaluations(table, row) if "mldoc" in task]
        self.xling(
            *("evaluate", "classification", "--model", workdir, "--checkpoint", "all", *words),
            *("--split", "dev", "--metric", "cross"),
            *("--languages", table.languages, "--no-pictures", "--output", dev),
            done=scores,
        )
        best = json.loads(scores.read_text())["best"] if scores.exists() else "BEST"
        self.xling(
            *("export", "--workdir", workdir, "--checkpoint", best, "--output", model), done=model
        )
        return model

    def settings(self, table: Table, row: Row) -> dict[str, object]:
        """The config keys to change."""
        names = CLAIMS_CORPORA if self.scale == "claims" else table.corpora
        found: dict[str, object] = {}
        if self.data and not self.corpora and self.scale in ("small", "claims"):
            found["data.corpora"] = self.text(names, set(table.languages.split(",")))
        if self.corpora:
            found["data.corpora"] = self.corpora
        if self.scale == "claims":
            found["data.exclude"] = (f"{self.data}/retrieval/*.dev.tsv.gz",)
            found["evaluation.retrieval"] = self.dev(CLAIMS_DEV)
        elif self.data:
            found["data.exclude"] = self.dev(table.dev)
        return found | table.at(self.scale) | row.at(self.scale)

    def text(self, names: tuple[str, ...], languages: set[str]) -> tuple[str, ...]:
        """The training text of some names, but for those without a file of two of the languages.

        Files that are missing are named by preparation.
        """
        corpora = {name: [*self.data.glob(f"parallel/{name}.tsv.gz")] for name in names}
        return tuple(
            f"tsv:{self.data}/parallel/{name}.tsv.gz"
            for name, paths in corpora.items()
            if not paths
            or any(len(languages & {*path.name.split(".")[1].split("-")}) > 1 for path in paths)
        )

    def dev(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The retrieval sets of some names, all of them at larger scales."""
        names = names if self.scale in ("small", "claims") else ("*",)
        top = self.data / "retrieval"
        return tuple(sorted(str(path) for n in names for path in top.glob(f"{n}.dev.tsv.gz")))

    def evaluations(self, table: Table, row: Row) -> list[tuple[str, list[str]]]:
        """Name and arguments of each evaluation; the name begins with the task."""
        found = []
        if self.data:
            found.append(("retrieval", ["--data", *self.dev(table.dev)]))
            sib200 = self.data / "classification/sib200"
            found.append(("classification", ["--data", str(sib200)]))
        if self.mldoc:
            words = ["--data", str(self.mldoc), *table.mldoc]
            words += row.mldoc if self.scale == "paper" else ()
            found.append(("classification-mldoc", words))
        return found

    def _share_text(self, workdir: Path) -> None:
        """Begins with the text and vocabulary of another row; what does not fit is made again."""
        others = [path.parents[1] for path in sorted(self.workdir.glob("[!.]*/data/manifest.json"))]
        if others and not workdir.exists():
            partial = workdir.with_name(f".{workdir.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            for name in ("data", "vocab"):
                shutil.copytree(others[0] / name, partial / name)
            partial.rename(workdir)


def _require_accelerator() -> None:
    code = "import jax, sys; sys.exit(jax.default_backend() == 'cpu')"
    if subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode:
        raise SystemExit(f"launch/reproduce.sh: {NO_ACCELERATOR}")


def measured(workdir: Path, languages: str) -> dict[str, float]:
    """Our columns, in percent: P@1, averaged over the sets, and accuracies."""
    codes = languages.split(",")
    pairs = [(a, b) for a in codes for b in codes if a != b]
    found: dict[str, float] = {}
    if sets := _matrices(workdir, "retrieval"):
        if len(codes) == 2:
            found |= {
                f"P@1 {a}→{b}": np.mean([matrix["p_at_1"][a][b] for matrix in sets.values()])
                for a, b in pairs
            }
        else:
            found |= {
                f"{name} P@1": np.mean(
                    [
                        value
                        for source, row in matrix["p_at_1"].items()
                        for target, value in row.items()
                        if source != target
                    ]
                )
                for name, matrix in sets.items()
            }
    for task, name in (("classification", "sib200"), ("classification-mldoc", "MLDoc")):
        for matrix in [m for m in _matrices(workdir, task).values() if "accuracy" in m][:1]:
            scores = matrix["accuracy"]
            same = np.mean([scores[code][code] for code in codes])
            cross = np.mean([scores[a][b] for a, b in pairs])
            if len(codes) == 2:
                found |= {f"{name} {a}→{b}": scores[a][b] for a, b in pairs}
            if len(codes) > 2 or name == "MLDoc":
                found |= {f"{name} same": same, f"{name} cross": cross}
    return {name: 100 * float(value) for name, value in found.items()}


def _matrices(workdir: Path, task: str) -> dict[str, dict]:
    path = workdir / f"results/{task}/results.json"
    return json.loads(path.read_text())["matrices"] if path.is_file() else {}


def markdown(table: Table, rows: dict[str, list[dict[str, float]]], scale: str) -> str:
    """The table as Markdown: our numbers (mean ± deviation over seeds), then the published ones."""
    columns = [*dict.fromkeys(name for seeds in rows.values() for seed in seeds for name in seed)]
    header = ["", *columns, *(f"published {name}" for name in table.published)]
    lines = [f"{table.title}, {scale} scale", "", f"| {' | '.join(header)} |"]
    lines.append("| --- |" + " ---: |" * (len(header) - 1))
    for row in table.rows:
        cells = [_spread([seed.get(column) for seed in rows[row.name]]) for column in columns]
        cells += ["–" if math.isnan(value) else f"{value:.1f}" for value in row.published]
        lines.append(f"| {' | '.join([row.name, *cells])} |")
    return "\n".join(lines)


def _spread(values: list[float | None]) -> str:
    """Mean, and with several seeds the sample standard deviation; a dash if one has no value."""
    if None in values:
        return "–"
    deviation = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{deviation}"


def _list_tables() -> None:
    for name, table in TABLES.items():
        scales = "" if table.scales == SCALES else f" (scales {', '.join(table.scales)})"
        print(f"{name:11} {table.title}: {', '.join(row.name for row in table.rows)}{scales}")
        if table.note:
            print(f"{'':11} not here: {table.note}")
    print("Not trained by this script:")
    for title, where in ELSEWHERE.items():
        print(f"{'':11} {title}: {where}")


def main(words: Sequence[str] | None = None) -> None:
    """Trains what is missing; prints the table and saves it in the workdir."""
    parser = argparse.ArgumentParser(
        prog="launch/reproduce.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("table", nargs="?", choices=TABLES, metavar="TABLE", help="which table, see --list")
    add("--data", type=Path, help="directory with the text; needed at small and claims")
    add("--workdir", type=Path, help="one directory per row, and the table")
    add("--scale", choices=SCALES, default="small")
    add("--seeds", type=int, default=1, metavar="N", help="train each row with seeds 0 to N - 1")
    add("--row", metavar="NAME", help="only this row; its part of the table is only printed")
    add("--mldoc", type=Path, metavar="DIR", help="MLDoc, {train,dev,test}.LANG.tsv")
    add("--corpora", nargs="+", default=(), metavar="CORPUS", help="text to train on instead")
    add("--cpu", action="store_true", help="train at base or paper scale on a CPU, too")
    add("--dry-run", action="store_true", help="print the commands only")
    add("--list", action="store_true", help="list the tables and their rows")
    args = parser.parse_args(words)
    if args.list:
        _list_tables()
        return
    if args.table is None or args.workdir is None:
        parser.error("TABLE and --workdir are needed (--list lists the tables)")
    table = TABLES[args.table]
    _check(parser, args, table)
    if not args.mldoc and args.scale in ("base", "paper"):
        print(f"launch/reproduce.sh: {NO_MLDOC}", file=sys.stderr)
    text = (args.data, args.workdir, args.scale, tuple(args.corpora))
    runner = Runner(*text, args.mldoc, args.cpu, args.dry_run)
    chosen = [row for row in table.rows if args.row in (None, row.name)]
    for row, seed in itertools.product(chosen, range(args.seeds)):
        if conflict := runner.conflict(row, seed):
            parser.error(conflict)
    rows = {}
    for row in chosen:
        workdirs = [runner.measure(table, row, seed) for seed in range(args.seeds)]
        if not args.dry_run:
            rows[row.name] = [measured(workdir, table.languages) for workdir in workdirs]
    if args.dry_run or not all(seed for row in rows.values() for seed in row):
        return
    text = markdown(replace(table, rows=tuple(chosen)), rows, args.scale)
    if not args.row:
        (args.workdir / f"{args.table}.md").write_text(text + "\n", encoding="utf-8")
    print(text)


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace, table: Table) -> None:
    """Refuses what cannot work before anything is done."""
    if args.scale not in table.scales:
        parser.error(f"{args.table}: only at --scale {' or '.join(table.scales)}")
    if args.seeds < 1:
        parser.error(f"--seeds {args.seeds}: must be at least 1")
    if args.row and args.row not in [row.name for row in table.rows]:
        parser.error(f"--row {args.row!r}: {args.table} has {[row.name for row in table.rows]}")
    if args.data is None and args.scale in ("small", "claims"):
        parser.error(f"--data is needed at --scale {args.scale}")
    if args.data and not (args.data / "retrieval").is_dir():
        parser.error(f"--data {args.data}: must hold parallel/, retrieval/ and classification/")
    for code in table.languages.split(",") if args.mldoc else ():
        for split in ("train", "dev", "test"):
            if not [*args.mldoc.glob(f"{split}.{code}.tsv*")]:
                parser.error(f"--mldoc {args.mldoc}: no {split}.{code}.tsv; {NO_MLDOC}")


if __name__ == "__main__":
    main()
