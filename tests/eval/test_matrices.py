"""Matrices over languages: means with and without the diagonal, published ones, the tables."""

import json

import numpy as np
import pytest

from xling_jax.eval.matrices import LanguageMatrix, matrix_tables

# Yu et al. (2018), Table 2, without similarity loss, with its row and column "All".
CODES = ("de", "en", "es", "fr", "it", "pt")
TABLE_2 = """
96.9 87.0 86.7 85.3 83.2 85.8 87.5
85.5 97.2 89.9 88.3 86.1 89.4 89.4
85.4 90.2 97.1 88.8 87.5 91.1 90.0
83.8 88.9 89.0 97.0 86.2 89.1 89.0
82.2 86.7 87.7 86.6 97.0 86.9 87.8
84.5 90.0 91.0 88.8 86.6 97.3 89.7
86.4 90.0 90.2 89.1 87.8 89.9 88.9
"""


def of(values):
    cells = {
        (source, target): {"p_at_1": values[i][j], "num_queries": 7, "num_candidates": 9}
        for i, source in enumerate(CODES)
        for j, target in enumerate(CODES)
        if not np.isnan(values[i][j])
    }
    return LanguageMatrix(CODES, cells)


def test_the_table_of_yu_et_al_has_their_means():
    published = np.array(
        [[float(cell) for cell in row.split()] for row in TABLE_2.split("\n")[1:-1]]
    )
    matrix = of(published[:-1, :-1] / 100)
    table = matrix_tables(matrix, ["p_at_1"]).split("\n\n")[-1].splitlines()
    assert [cell.strip() for cell in table[0].split("|")[2:-1]] == [*CODES, "all"]
    printed = [[float(cell) for cell in line.split("|")[2:-1]] for line in table[2:]]
    # Published means are of unrounded cells.
    np.testing.assert_allclose(printed, published, atol=0.1001)
    assert 100 * matrix.means_of_all()["p_at_1"] == pytest.approx(88.9, abs=0.05)
    off_diagonal = published[:-1, :-1][~np.eye(6, dtype=bool)]
    assert 100 * matrix.mean("p_at_1") == pytest.approx(off_diagonal.mean())
    assert matrix.num_directions == 30
    content = matrix.to_dict()
    assert content["mean_of_all"]["p_at_1"] == matrix.means_of_all()["p_at_1"]
    assert content["mean"]["p_at_1"] == matrix.mean("p_at_1")
    assert (
        content["p_at_1"]["de"]["de"] == pytest.approx(0.969)
        and content["num_queries"]["de"]["en"] == 7
    )
    json.dumps(content, allow_nan=False)


def test_without_a_diagonal_means_are_of_the_directions():
    values = np.full((6, 6), 0.5)
    values[0, 1] = 1
    np.fill_diagonal(values, np.nan)
    matrix = of(values)
    assert matrix.mean("p_at_1") == pytest.approx(15.5 / 30)
    assert "mean_of_all" not in matrix.to_dict() and [*matrix.scores()] == ["p_at_1"]
    text = matrix_tables(matrix, ["p_at_1"])
    assert "| mean of 30 directions |" in text and "| mean |" in text and "all" not in text
    last = [cell.strip() for cell in text.splitlines()[-1].split("|")[1:-1]]
    assert last == ["**mean**", "50.0", "60.0", *["50.0"] * 4, "51.7"]


def test_sparse_matrices_become_a_list_of_pairs():
    values = {("en", "de"): 1, ("en", "fr"): 0.5, ("en", "it"): 1, ("fr", "en"): 0.75}
    cells = {pair: {"p_at_1": value, "num_queries": 7} for pair, value in values.items()}
    matrix = LanguageMatrix(("en", "de", "fr", "it", "es"), cells)
    table = matrix_tables(matrix, ["p_at_1"])
    assert [line[2:7] for line in table.splitlines()[-4:]] == ["en-de", "en-fr", "en-it", "fr-en"]
