"""Results: whole files, strict JSON, tables that can be read."""

import json

import pytest

from xling_jax.eval import results


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
