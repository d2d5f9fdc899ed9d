"""The examples of docs/extending.md, copied from the page into a copy of the package."""

import re
import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.docs.pages import ROOT, blocks, run

PAGE = ROOT / "docs/extending.md"


def extend(package, place):
    """Writes the page's files, and its lines at the end of their tables."""
    files, lines = [], []
    for block in blocks(PAGE):
        if block.title.startswith("one line in "):
            path = package / block.title.removeprefix("one line in ")
            assert block.code.count("\n") == 1
            source = path.read_text(encoding="utf-8")
            table = re.search(r"^[A-Z]+ = Registry\(\n.*?^\)", source, re.MULTILINE | re.DOTALL)
            end = table.end() - 1
            path.write_text(source[:end] + block.code + source[end:], encoding="utf-8")
            lines.append(path)
        elif block.title:
            path = (package if "/" in block.title else place) / block.title
            assert not path.exists()
            path.write_text(block.code, encoding="utf-8")
            files.append(path)
    return files, lines


@pytest.mark.slow
def test_five_things_are_added_by_one_file_and_one_line_each(place, tmp_path):
    package = tmp_path / "changed"
    shutil.copytree(ROOT / "xling_jax", package / "xling_jax")
    shutil.copytree(ROOT / "configs", package / "xling_jax/configs")
    files, lines = extend(package, place)
    assert len(files) == 5 + 1 and len(lines) == 5  # and a config of the user's
    run(place, f"python -m tests.docs.pages {PAGE}", package)
    listed = run(place, "xling evaluate --help", package)
    assert "orphans" in listed and "how many texts are nobody's neighbor?" in listed


def test_examples_keep_the_style_of_the_package(tmp_path):
    for block in blocks(PAGE):
        if "/" in block.title and not block.title.startswith("one line"):
            path = tmp_path / block.title.rpartition("/")[2]
            path.write_text(block.code, encoding="utf-8")
    run(tmp_path, f"python -m ruff check --config {ROOT}/pyproject.toml .")
    run(tmp_path, f"python -m ruff format --check --config {ROOT}/pyproject.toml .")


def test_the_term_has_a_finite_gradient_at_the_zeros_of_padding():
    (code,) = (block.code for block in blocks(PAGE) if block.title.endswith("cosine_gap.py"))
    exec(code, page := {"__name__": "xling_jax.train.terms.cosine_gap"})
    context = types.SimpleNamespace(reduction="sum")
    vectors = np.float32([[[1, 2], [0, 0]], [[2, -1], [0, 0]]])

    def loss(sides):
        source, target = sides
        mask = jnp.array([True, False])
        inputs = types.SimpleNamespace(
            source=source, target=target, both=False, mask=mask, sentences=1.0
        )
        return page["CosineGap"]()(context, inputs)[0]

    value, gradient = jax.jit(jax.value_and_grad(loss))(vectors)
    assert value == pytest.approx(0.9) and np.isfinite(gradient).all()
