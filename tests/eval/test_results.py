"""Results: whole files, strict JSON, tables that can be read."""

import json

import numpy as np
import pytest

from xling_jax.eval import results, retrieval


def test_results_are_written_whole_or_not_at_all(tmp_path):
    results.write_results(tmp_path, ["one\n", "two\n"], {"a": 1.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        results.write_results(tmp_path, ["three\n"], {"a": float("nan")})
    assert json.loads((tmp_path / "results.json").read_text()) == {"a": 1.5}
    assert (tmp_path / "results.md").read_text() == "one\n\ntwo\n"
    assert {entry.name for entry in tmp_path.iterdir()} == {"results.json", "results.md"}


def test_markdown_table_is_aligned_and_escaped():
    table = results.markdown_table(["a|b", "value"], [["x", "1.0"], ["long name", "12.5"]])
    assert table.splitlines() == [
        "| a\\|b      | value |",
        "| --------- | ----: |",
        "| x         |   1.0 |",
        "| long name |  12.5 |",
    ]


def test_retrieval_table_shows_every_direction():
    rng = np.random.default_rng(0)
    matrix = retrieval.retrieval_matrix({"en": np.eye(4), "de": rng.permutation(np.eye(4))})
    table = retrieval.retrieval_table("toy", matrix, "cosine")
    share = f"{100 * matrix.mean('p_at_1'):.1f}"
    assert "## toy: retrieval by cosine, %" in table
    assert "| **en**" in table and table.count(share) >= 3
    json.dumps(matrix.to_dict(), allow_nan=False)


def test_sparse_matrices_become_a_list_of_pairs():
    values = {("en", "de"): 1, ("en", "fr"): 0.5, ("en", "it"): 1, ("fr", "en"): 0.75}
    cells = {pair: {"p_at_1": value, "num_queries": 7} for pair, value in values.items()}
    matrix = retrieval.RetrievalMatrix(("en", "de", "fr", "it", "es"), cells)
    table = retrieval.retrieval_table("toy", matrix, "cosine")
    assert "| en-de |" in table and "| de-en |" not in table and "| en-it |" in table


def test_versions_name_python_and_numpy():
    assert {"python", "numpy"} <= set(results.versions())
