import csv
import importlib.resources

import numpy as np
import pytest

from xling_jax.cli.reproduce import PAPERS, TABLES, list_tables
from xling_jax.papers.tables import Key, cells_of, compare, mean_of, published

FILE = importlib.resources.files("xling_jax.papers").joinpath("published.csv")
ROWS = csv.DictReader(FILE.read_text("utf-8").splitlines())
NAMES = dict.fromkeys(name for row in ROWS for name in row["table"].split())
# Printed means that their printed cells do not give, and why.
EXCEPTIONS = {
    ("li-mak-3", "LASER_2018", "*", "*"): "72.6 is a misprint of the 72.0 of Table 4",
    ("yu-2", "similarity loss", "*", "de"): "fr to de, 87.8, is doubtful",
    ("yu-4", "similarity loss", "de", "*"): "73.3 is a misprint of 76.3",
}
SIX = ("de", "en", "es", "fr", "it", "pt")
# Of these systems the paper prints some of the cells only.
PARTIAL = {("yu-2", "encoder weight regularization"), ("yu-1", "meanpool (label unreadable)")}


def mean(cells, key):
    return mean_of(cells, cells_of(cells, key))


def printed_means():
    for table in NAMES:
        for system, cells in published(table).items():
            for key in cells:
                if key.mean and cells_of(cells, key) and (table, system) not in PARTIAL:
                    yield table, system, key


def test_every_printed_mean_is_that_of_its_printed_cells():
    """Cells are rounded to a tenth and so is the mean."""
    checked = [*printed_means()]
    wrong = {
        (table, system, key.source, key.target)
        for table, system, key in checked
        if abs(mean(published(table)[system], key) - published(table)[system][key]) > 0.1 + 1e-6
    }
    assert len(checked) > 90
    assert wrong == EXCEPTIONS.keys()


def test_means_are_those_of_the_papers():
    """X_cross leaves the language itself out, All takes it in (Li and Mak 5, Yu et al. 2)."""
    cells = {Key("a", s, t): 10.0 * i + j for i, s in enumerate("xyz") for j, t in enumerate("xyz")}
    grid = np.array([[10.0 * i + j for j in range(3)] for i in range(3)])
    off = ~np.eye(3, dtype=bool)
    assert mean(cells, Key("a", "y", "*", "cross")) == grid[1][off[1]].mean()
    assert mean(cells, Key("a", "y", "*", "all")) == grid[1].mean()
    assert mean(cells, Key("a", "*", "z", "all")) == grid[:, 2].mean()
    assert mean(cells, Key("a", "*", "*", "same")) == grid.diagonal().mean()
    assert mean(cells, Key("a", "*", "*", "cross")) == grid[off].mean()
    assert mean(cells, Key("b", "*", "*", "all")) is None


def test_a_mean_beside_the_published_one_is_over_the_cells_of_both():
    """Of the 36 cells of Yu et al., Table 4, an encoder without Russian has 25."""
    theirs = published("yu-4")["similarity loss"]
    key = Key("accuracy", "*", "*", "all")
    known = {k: v for k, v in theirs.items() if k.measure == "accuracy" and not k.mean}
    ours = {k: v + 1 for k, v in known.items() if "ru" not in k[:3]} | {
        Key("accuracy", "pt", "pt"): 0.0
    }
    pair = compare(ours, theirs, key)
    assert len(known) == 36 and pair.ours == pytest.approx(pair.theirs + 1)
    assert pair.theirs == pytest.approx(np.mean([v for k, v in known.items() if "ru" not in k[:3]]))
    assert pair.note == "mean of the 25 cells in common, the paper prints 74.6"
    assert compare(known, theirs, key)[:2] == pytest.approx([74.6, 74.6], abs=0.05)


def test_a_mean_of_cells_that_are_left_out_is_beside_ours_of_all():
    """Yu et al., Table 2, weight regularization: 12 cells of 36 are printed, and all means."""
    ours = {Key("accuracy", s, t): 50.0 for s in SIX for t in SIX}
    theirs, key = (
        published("yu-2")["encoder weight regularization"],
        Key("accuracy", "*", "*", "all"),
    )
    assert compare(ours, theirs, key) == (50.0, 91.0, "")
    assert compare(ours, theirs, Key("accuracy", "de", "es")) == (50.0, None, "")
    five = {k: v for k, v in ours.items() if "pt" not in k}
    pair = compare(five, theirs, key)
    assert pair.theirs == pytest.approx(
        np.mean([96.9, 89.2, 89.1, 97.1, 87.8, 92, 87.4, 91.1, 85.3, 89.4])
    )
    assert pair.note == "mean of the 10 cells in common, the paper prints 91"


def test_a_mean_is_over_the_directions_of_the_paper():
    """Mao et al. average eight directions, without the diagonal, and none of mBERT's four."""
    ours = {Key("MLDoc", "en", t): 80.0 for t in ("de", "es", "fr", "it")} | {
        Key("MLDoc", "en", "en"): 0.0
    }
    key = Key("MLDoc", "*", "*", "cross")
    assert compare(ours, {}, key).ours == 80.0
    pair = compare(ours, published("mao-3")["mBERT"], key)
    assert pair == (80.0, pytest.approx(77.175), "mean of the 4 cells in common")
    assert compare({}, published("mao-3")["MultiFiT"], key) == (None, None, "")


def test_every_published_table_is_run_or_says_why_not():
    assert NAMES.keys() <= TABLES.keys()
    text = list_tables()
    for paper in PAPERS.values():
        for name, table in paper.TABLES.items():
            assert f"  {name} " in text and all(row.name in text for row in table.rows)
            systems = published(name) if name in NAMES else {}
            beside = {row.beside or row.name for row in table.rows}
            assert not systems or beside & systems.keys(), name
        assert all(f"{name} not run: " in " ".join(text.split()) for name in paper.ABSENT)
