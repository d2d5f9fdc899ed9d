"""The commands of docs/clusters.md run, and print what the page says."""

import re

from tests.launch.scripts import ROOT, Launcher

PAGE = ROOT / "docs/clusters.md"


def page_with_outputs(text: str, launcher: Launcher) -> str:
    """The page, with what its commands print below each."""
    variables: dict[str, str] = {}

    def run(block: re.Match) -> str:
        lines = []
        for line in block[1].splitlines():
            if line.startswith("$ export "):
                variables.update(word.split("=", 1) for word in line.split()[2:])
            if line.startswith("$ "):
                lines.append(line)
            if line.startswith("$ ") and "launch/" in line:
                assert "--dry-run" in line
                ran = launcher.paste(line[2:], variables)
                assert (ran.returncode, ran.stderr) == (0, ""), line
                lines += re.sub(r"127.0.0.1:\d+", "127.0.0.1:28476", ran.stdout).splitlines()
        return "\n".join(["```console", *lines, "```"])

    return re.sub(r"^```console\n(.*?)\n```$", run, text, flags=re.MULTILINE | re.DOTALL)


def test_the_page_shows_what_dry_runs_print(tmp_path):
    launcher = Launcher(tmp_path)
    text = PAGE.read_text("utf-8")
    assert page_with_outputs(text, launcher) == text
    assert launcher.calls() == []


def test_the_page_names_the_scripts_that_are_there():
    text = PAGE.read_text("utf-8")
    for path in set(re.findall(r"\b(?:launch|configs)/[\w.]+\w", text)):
        assert (ROOT / path).exists(), path
