"""All code on the pages of the documentation runs, and their links lead somewhere."""

import re

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, needs_shipped, run_page
from xling_jax.encode.model_directory import SHIPPED

_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
WITH_CODE = [
    page
    for page in PAGES
    if page.name != "extending.md" and any(block.runs for block in blocks(page))
]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_runs(page, place):
    if needs_shipped(page) and "mini" not in SHIPPED:
        pytest.skip("the encoder mini is not in the package yet")
    run_page(page, place)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page):
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_that_does_not_run_says_why(page):
    for block in blocks(page):
        assert block.language, f"{page.name}:{block.line}: name the language of the block"
        if block.code.startswith("# not run"):
            assert re.match(r"# not run: \w", block.code), f"{page.name}:{block.line}"
    comments = page.read_text(encoding="utf-8").count("<!-- not run")
    assert comments == sum(bool(block.reason) for block in blocks(page)), page.name
