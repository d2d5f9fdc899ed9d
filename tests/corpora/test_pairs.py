"""Pairs to score: which columns are the two sides."""

import pytest

from tests.corpora.small_corpus import write_file
from xling_jax.corpora.pairs import read_pairs


@pytest.mark.parametrize("first, is_said", [("de\txx", True), ("no\tnein, nie", False)])
def test_a_header_with_an_unknown_code_is_read_as_text_and_said_to_be(
    tmp_path, caplog, first, is_said
):
    path = write_file(tmp_path / "a.tsv", f"{first}\nja\tyes\n")
    assert read_pairs(path).columns[0][1:] == ["ja"]
    assert ("a.tsv:1: de, xx is read as text; if it is a header" in caplog.text) == is_said
    if is_said:
        assert caplog.text.strip().endswith(f"{path}?columns=de,CODE:xx")
        assert read_pairs(f"{path}?columns=de,nl:xx") == ((["ja"], ["yes"]), ("de", "nl"))
