"""All code on the pages of the documentation runs, and their links lead somewhere."""

import re
import subprocess
import sys

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, needs_shipped, run_page
from xling_jax.encode.model_directory import SHIPPED

_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
_COMMAND = re.compile(r"^\s*xling (?:.*\\\n)*.*$", re.MULTILINE)
_HOW_TO = [PAGES[0], ROOT / "docs/first-steps.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]
WITH_CODE = [
    page
    for page in PAGES
    if page.name != "extending.md" and any(block.runs for block in blocks(page))
]


# The pages that people begin with; make test-all runs the others.
_FIRST = [PAGES[0], ROOT / "docs/first-steps.md", ROOT / "docs/how-to/train.md"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[] if p in _FIRST else pytest.mark.exhaustive) for p in WITH_CODE],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
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


def commands(page):
    """The `xling` commands of a page, each on one line, also of blocks that are not run here."""
    for block in blocks(page):
        if block.language == "bash":
            for match in _COMMAND.finditer(block.code):
                yield re.sub(r"\s*\\\n\s*", " ", match[0]).strip().partition("  # ")[0]


def test_a_workdir_belongs_to_one_run():
    runs = {}
    for page in PAGES:
        for command in commands(page):
            if command.startswith("xling train") and "--dry-run" not in command:
                found = re.search(r"--workdir (\S+)", command)
                if found:
                    first = runs.setdefault(found[1], command)
                    assert command == first, page.name


def test_a_page_replaces_the_outputs_of_earlier_ones():
    written = {}
    for page in _HOW_TO:
        for command in commands(page):
            found = re.search(r"--output (\S+)", command)
            if found and found[1] != "-":
                first = written.setdefault(found[1], command)
                assert command is first or "--overwrite" in command, f"{page.name}: {command}"


def test_quoted_tables_are_those_of_the_lab():
    done = subprocess.run(
        [sys.executable, ROOT / "lab/tables.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout}run python lab/tables.py"
