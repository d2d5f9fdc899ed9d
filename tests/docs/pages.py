"""The code on a page of the documentation, and a directory with the files that pages name."""

import contextlib
import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xling_jax.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Before a block that is not run stands a comment that says why.
_FENCE = re.compile(
    r"(?:^<!-- not run: ([^\n]*?) -->\n\n)?^```(\w*)(?: title=\"(.*?)\")?\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# Translations of one another, column by column.
_WORDS = {
    "en": "red blue green one two seven house tree river road sings runs sleeps small large",
    "de": "rot blau grün eins zwei sieben haus baum fluss weg singt rennt schläft klein groß",
    "fr": "rouge bleu vert un deux sept maison arbre fleuve route chante court dort petit grand",
}
# Training that a page shows takes these few steps here.
_SHORT = {
    "train.total_steps": 4,
    "train.log_every_steps": 1,
    "train.evaluate_every_steps": 4,
    "train.checkpoint_every_steps": 4,
    "vocab.size": 100,
    "data.bucket_lengths": "(64,)",  # one program to compile instead of many
}
_NARROW = {"encoder.layers": 1, "encoder.width": 32, "decoder.width": 32}  # of ct_laser:small


class Block(NamedTuple):
    """A fenced block: why it is not run, language, title, each maybe "", text, line on the page."""

    reason: str
    language: str
    title: str
    code: str
    line: int

    @property
    def runs(self) -> bool:
        """Whether it is code that a reader is meant to run here."""
        # The comment in the code is that of pages without the one before it.
        shown = self.reason or self.code.startswith(("# not run: ", "--8<--"))
        return self.language in ("bash", "python") and not self.title and not shown


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(*match.groups(default=""), text.count("\n", 0, match.start(2)) + 1)
        for match in _FENCE.finditer(text)
    ]


def write_place(place: Path) -> None:
    """Corpora, texts, documents, labels and a model, under the names that pages use."""
    random = np.random.default_rng(0)
    rows = [random.choice(15, random.integers(3, 9), replace=False) for _ in range(300)]
    names = ["".join(random.choice(list("abdeiklmnorstu"), 6)) for _ in rows]
    texts = {}
    for code, words in _WORDS.items():
        texts[code] = [
            " ".join([name, *np.array(words.split())[r]]) for name, r in zip(names, rows)
        ]
    header, table = "\t".join(texts), list(map("\t".join, zip(*texts.values())))
    (place / "corpora").mkdir()
    with gzip.open(place / "corpora/news.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join([header, *table[:240], ""]))
    (place / "dev.tsv").write_text("\n".join([header, *table[240:], ""]), encoding="utf-8")
    crawled = [f"{en}\t{de}\n" for en, de in zip(["en", *texts["en"]], ["de", *texts["de"]])]
    (place / "crawled.tsv").write_text("".join(crawled), encoding="utf-8")
    blocks = zip(texts["en"][:240], texts["de"][:240])
    (place / "dialog.pairs").write_text("\n\n".join(map("\n".join, blocks)), encoding="utf-8")
    for code in texts:
        (place / f"text.{code}").write_text("\n".join([*texts[code][:80], ""]), encoding="utf-8")
        documents = [
            {"id": f"{code}{i}", "lang": code, "sentences": texts[code][10 * i : 10 * i + 10]}
            for i in range(20)
        ]
        (place / f"{code}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    (place / "gold.tsv").write_text("".join(f"fr{i}\ten{i}\n" for i in range(20)))
    (place / "reviews").mkdir()
    for code in ("en", "de"):
        for split, part in (
            ("train", slice(0, 60)),
            ("dev", slice(60, 90)),
            ("test", slice(90, 120)),
        ):
            labeled = [f"{i % 2}\t{text}\n" for i, text in enumerate(texts[code][part])]
            (place / f"reviews/{split}.{code}.tsv").write_text("".join(labeled), encoding="utf-8")
    corpora = "('tsv:corpora/*.tsv.gz',)"
    languages = "('en','de','fr')"
    run(
        place,
        "xling train --config static:smoke --workdir runs/quickstart "
        f'--config.data.corpora="{corpora}" --config.languages="{languages}" '
        "--config.data.pairs=\"('en-de','en-fr','de-fr')\"",
    )


def run(place: Path, bash: str, package: Path | None = None) -> str:
    """Runs commands in a directory, training for a few steps; returns what they print.

    Args:
        place: the directory.
        bash: the commands. Those of `xling` run in this process, unless the shell is needed.
        package: the directory whose `xling_jax` is used, in processes of its own; by default the
            one that is tested.
    """
    if package or _NEEDS_SHELL.search(bash):
        return _run_in_shell(place, bash, package or ROOT)
    printed = ""
    for command in re.sub(r"\\\n\s*", " ", bash).splitlines():
        words = shlex.split(command, comments=True)
        if words[:1] == ["xling"]:
            printed += _run_here(place, words[1:])
        elif words:
            printed += _run_in_shell(place, command, ROOT)
    return printed


# A variable, a loop, a pipe, or output into a file.
_NEEDS_SHELL = re.compile(r"\$|^for |xling.* [|>]|--version|--help", re.MULTILINE)


def _run_here(place: Path, words: list[str]) -> str:
    """Runs a command of `xling` in this process."""
    short = _SHORT if words[0] in ("train", "prepare") else {}
    short = short | (_NARROW if "ct_laser:small" in words else {})
    words = [*words, *(f"--config.{name}={value}" for name, value in short.items())]
    printed, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(place),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        status = main(words)
    assert status == 0, f"xling {' '.join(words)}\n{printed.getvalue()}\n{errors.getvalue()}"
    return printed.getvalue()


def _run_in_shell(place: Path, bash: str, package: Path) -> str:
    programs = place / ".programs"
    programs.mkdir(exist_ok=True)
    short = " ".join(f"--config.{name}={value}" for name, value in _SHORT.items())
    (programs / "xling").write_text(
        "#!/bin/bash\nshort=\n"
        f'if [ "$1" = train ] || [ "$1" = prepare ]; then short="{short}"; fi\n'
        f'exec {sys.executable} -c "from xling_jax.cli.main import entry; entry()" "$@" $short\n'
    )
    (programs / "xling").chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{package}:{ROOT}",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", bash],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{bash}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_page(page: Path, place: Path) -> None:
    """Runs all code of a page in order; its Python blocks are one program.

    A block of the language `output` is what the block before it prints.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        if block.language == "output":
            assert printed.endswith(block.code), f"{page.name}:{block.line}: prints\n{printed}"
        elif block.runs and block.language == "bash":
            printed = run(place, block.code)
        elif block.runs:
            code = compile(block.code, f"{page.name}:{block.line}", "exec")
            with contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()) as file:
                exec(code, names)
            printed = file.getvalue()


def needs_shipped(page: Path) -> bool:
    """Whether code of a page uses the encoder in the package."""
    code = [block.code for block in blocks(page) if block.runs]
    return any('load("mini")' in text or "--model mini" in text for text in code)


def copy_place(place: Path, to: Path) -> Path:
    """A copy for one page, which may write into it."""
    return shutil.copytree(place, to)


if __name__ == "__main__":
    run_page(Path(sys.argv[1]), Path.cwd())
