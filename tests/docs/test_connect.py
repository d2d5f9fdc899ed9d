"""The code for databases runs where they are installed, and finds what the encoder finds."""

import contextlib
import re

import pytest

from tests.docs.pages import ROOT, blocks

FIRST, *OTHERS = [
    block for block in blocks(ROOT / "docs/how-to/connect.md") if block.language == "python"
]
DATABASES = {
    match[1]: block
    for block in OTHERS
    if (match := re.fullmatch(r"needs the package (\w+)", block.reason))
}


@pytest.mark.parametrize("package", DATABASES)
def test_the_nearest_line_is_found(package, tmp_path):
    pytest.importorskip(package)
    words = ["haus", "baum", "fluss", "weg"]
    text = [f"{a} {b} {i}" for i, a in enumerate(words) for b in words]
    (tmp_path / "text.de").write_text("\n".join(text), encoding="utf-8")
    names = {}
    with contextlib.chdir(tmp_path):
        exec(FIRST.code, names)
        exec(DATABASES[package].code, names)
    best = (names["vectors"] @ names["query"]).argsort()[::-1][:3]
    assert names["found"] == [text[row] for row in best]
