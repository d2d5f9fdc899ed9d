"""Trains and measures the systems of a paper's table, and prints ours beside the published cells.

Writes O/TABLE.md, .json and .html; with --row, O/TABLE-ROW. Runs are in the workdir and shared
by tables; the same command continues where it was stopped. TABLE is a table or figure (yu-2), a
paper (li-mak, yu, mao, gong) or all. `europarl-5k` writes the six-way retrieval set of yu-2
instead.
"""

import argparse
import dataclasses
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from xling_jax.files.untrusted import printable
from xling_jax.options import OptionError, require_file, wrong_use
from xling_jax.papers import gong, li_mak, made_up, mao, page, yu
from xling_jax.papers.tables import SCALES, Measured, Table
from xling_jax.registry import check_choice

_logger = logging.getLogger(__name__)

PAPERS = {"li-mak": li_mak, "yu": yu, "mao": mao, "gong": gong}
TABLES = {name: table for paper in PAPERS.values() for name, table in paper.TABLES.items()}
_EUROPARL_5K = "europarl-5k"

EXAMPLES = """examples:
  xling reproduce --list
  xling reproduce all --workdir runs/papers
  xling reproduce mao-7 --scale small --data DIR --workdir runs/papers
  xling reproduce yu-4 --scale paper --data DIR --workdir runs/yu
  xling reproduce europarl-5k --output DIR/retrieval/europarl_5k.tsv.gz

Scales: smoke (made-up text without --data, seconds a row), small (minutes a row on two CPU cores),
base (a day a row on one GPU), paper (the papers' corpora and sizes).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("table", nargs="?", metavar="TABLE", help="a table, a paper, or all; see --list")
    add("--list", action="store_true", help="list all tables and figures with their systems")
    add("--scale", choices=SCALES, default="smoke", help="default: %(default)s")
    add("--data", type=Path, metavar="DIR", help="text; docs/how-to/reproduce.md says which")
    add("--encoders", type=Path, metavar="DIR", help="mbert, xlm, xlmr, reimers, laser: published")
    add("--workdir", type=Path, metavar="W", help="directory of all runs")
    add("--output", type=Path, metavar="O", help="directory of the tables (default: the workdir)")
    add("--row", metavar="NAME", help="only this system")
    add("--seeds", type=int, default=1, metavar="N", help="train with seeds 0 to N - 1")
    add("--dry-run", action="store_true", help="print the commands, run none")


def run(args: argparse.Namespace) -> None:
    """Runs the command; SystemExit has the status of a training or evaluation that failed."""
    if args.list:
        print(list_tables())
        return
    if args.table == _EUROPARL_5K:
        _write_europarl_5k(args)
        return
    if not args.table:
        raise OptionError("TABLE is required; xling reproduce --list lists the tables")
    if not args.workdir:
        raise OptionError("--workdir is required")
    if args.seeds < 1:
        raise OptionError(f"--seeds {args.seeds}: must be at least 1")
    for name in ("workdir", "output", "data", "encoders"):
        if (path := getattr(args, name)) and path.is_file():
            raise OptionError(f"--{name} {path}: is a file; name a directory")
    tables = _chosen(args.table, args.row)
    _prepare(args, tables)
    from xling_jax.cli.reproduce_runs import Reproduction
    from xling_jax.cli.reproduce_tasks import check, measure

    where = (args.workdir, args.data, args.scale, args.encoders)
    seeds = [Reproduction(*where, seed, args.dry_run) for seed in range(args.seeds)]
    for table in tables.values() if args.scale == "paper" and not args.dry_run else ():
        check(seeds[0], table)
    # The page of one system does not replace that of its table, nor one scale another.
    words = filter(None, (args.table, args.row, args.scale))
    page_name = re.sub(r"[^A-Za-z0-9+]+", "-", " ".join(words))
    results, text = [], ""
    for name, table in tables.items():
        measured: dict[str, list[Measured]] = {}
        for number, row in enumerate(table.rows, 1):
            _logger.info("%s, %d of %d: %s", name, number, len(table.rows), row.name)
            measured[row.name] = [Measured() for _ in seeds]
            for reproduction, found in zip(seeds, measured[row.name]):
                for part in row.parts:
                    found.update(measure(reproduction, part))
            for missing in measured[row.name][0].missing:
                _logger.warning("%s: not measured without %s", row.name, missing)
        results.append(page.Result(name, table, args.scale, measured))
        if not args.dry_run:  # an error in a later table loses nothing
            text = page.write(args.output or args.workdir, page_name, results)
    if not args.dry_run:
        print(printable(text))


def list_tables() -> str:
    """Every table and figure of the papers: its systems, or why it has none."""
    lines = []
    for paper in PAPERS.values():
        lines += [paper.TITLE]
        for name, table in paper.TABLES.items():
            lines.append(f"  {name:15} {table.title}: {'; '.join(row.name for row in table.rows)}")
        lines += [f"  {name:15} not run: {why}" for name, why in paper.ABSENT.items()]
    return "\n".join(lines)


def _chosen(name: str, row: str | None) -> dict[str, Table]:
    """The tables of a name, with only one row if that is asked for."""
    absent = {n: why for paper in PAPERS.values() for n, why in paper.ABSENT.items()}
    if name in absent:
        raise OptionError(f"{name}: not run: {absent[name]}")
    names = {"all": TABLES} | {n: paper.TABLES for n, paper in PAPERS.items()}
    names |= {n: {n: table} for n, table in TABLES.items()}
    with wrong_use():
        check_choice("TABLE", name, [*names, _EUROPARL_5K])
    if row is None:
        return names[name]
    tables = {
        n: dataclasses.replace(table, rows=rows)
        for n, table in names[name].items()
        if (rows := tuple(one for one in table.rows if one.name == row))
    }
    if not tables:
        raise OptionError(f"--row {row!r}: {name} has no such system; see --list")
    return tables


def _prepare(args: argparse.Namespace, tables: Mapping[str, Table]) -> None:
    """Checks what a scale needs before any work, and logs it at `paper`."""
    from xling_jax.cli.reproduce_tasks import needed

    for flag in ("data", "encoders"):
        if getattr(args, flag):
            require_file(getattr(args, flag), f"--{flag}")
    if args.scale == "smoke" and not args.data:
        args.data = args.workdir / "made-up"
        made_up.write(args.data)
    if args.scale in ("small", "base") and not args.data:
        raise OptionError(f"--scale {args.scale}: needs --data, a directory with parallel/*.tsv.gz")
    if args.scale == "paper":
        for name, table in tables.items():
            trained, names = needed(table)
            cost = next(paper.COST for paper in PAPERS.values() if name in paper.TABLES)
            needs = f"encoders to train: {trained} ({cost})" if trained else "nothing to train"
            _logger.info("%s: %s; needs %s", name, needs, ", ".join(names) or "no other data")
    if args.scale in ("base", "paper") and not args.dry_run:
        import jax

        if jax.default_backend() == "cpu":
            _logger.warning("JAX finds no GPU or TPU; at --scale %s a row takes weeks", args.scale)


def _write_europarl_5k(args: argparse.Namespace) -> None:
    from xling_jax.eval.retrieval_data import join_through, write_n_way

    if not args.output:
        raise OptionError(f"{_EUROPARL_5K}: needs --output FILE.tsv.gz")
    if args.output.exists():
        raise OptionError(f"{args.output}: exists; choose another --output")
    languages = ["de", "en", "es", "fr", "it", "pt"]
    pairs = ("de-en", "en-es", "en-fr", "en-it", "en-pt")
    corpora = [f"tfds:europarl_v7/{pair}" for pair in pairs]
    rows = join_through("en", corpora, languages, 5000)
    write_n_way(args.output, languages, rows)
    _logger.info("%s: %d rows in %s", args.output, len(rows), ", ".join(languages))
