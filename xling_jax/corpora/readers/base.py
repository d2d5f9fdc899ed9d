"""The interface of a reader of parallel text."""

import collections
import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self
from urllib.parse import parse_qsl

from xling_jax.registry import check_choice
from xling_jax.text.languages import check_languages

# Where options begin; a "?" in a pattern stands for a character.
_OPTIONS = re.compile(r"\?(?=[a-z_]+=)")


class Row(NamedTuple):
    """Texts that are translations of one another, and where they are from.

    Attributes:
        texts: language -> text, of the languages asked for; a language without text is absent.
        file: the file (of the first language where each has its own), or the name of the dataset.
        line: line number from 1, header included; in a dataset the number of the example.
        problem: None, or one of `files.lines.PROBLEMS`; then `texts` is empty.
        broken_file: the file that the problem is in, where that is not `file`.
        detail: what the problem is in words, if its name does not say that.
    """

    texts: dict[str, str]
    file: str
    line: int
    problem: str | None = None
    broken_file: str = ""
    detail: str = ""


def split_options(where: str) -> tuple[str, str]:
    """The path and the options of `PATH[?OPTION=VALUE&…]`."""
    path, *query = _OPTIONS.split(where, maxsplit=1)
    return path, "".join(query)


class Reader:
    """One corpus. A subclass reads one kind of corpus; as it stands, PATH is a glob of files.

    Args:
        spec: the corpus as the user names it, for messages.
        where: the part of the spec after the kind, `PATH[?OPTION=VALUE&…]`.

    Attributes:
        defaults: option -> its default, "" for none; a subclass has others.
        path: WHERE without options.
        options: option -> value.
        kind: its name in the table of readers.
        limit: number of rows of each file to read; None for all.
    """

    defaults: Mapping[str, str] = {}
    kind = ""
    limit: int | None = None

    def __init__(self, spec: str, where: str):
        self.spec, self.where = spec, where
        self.path, query = split_options(where)
        given = dict(parse_qsl(query, keep_blank_values=True))
        for name in given:
            check_choice(f"{spec}: option", name, self.defaults)
        self.options = {**self.defaults, **given}

    @property
    def name(self) -> str:
        """The corpus as a config names it."""
        return self.spec if self.limit is None else f"{self.spec}[:{self.limit}]"

    def at(self, move: Callable[[str], str]) -> Self:
        """The reader of this corpus elsewhere: its path or pattern becomes `move(path)`."""
        where = self.moved(move)
        spec = f"{self.kind}:{where}" if self.spec.startswith(f"{self.kind}:") else where
        moved = type(self)(spec, os.path.expanduser(where))
        moved.kind, moved.limit = self.kind, self.limit
        return moved

    def rows(self, languages: Sequence[str]) -> Iterator[Row]:
        """As `read`, up to the limit."""
        languages = check_languages(languages)
        if len(languages) < 2:
            raise ValueError(
                f"{self.name}: parallel text needs two languages; found {list(languages)}"
            )
        rows = self.read(languages)
        return rows if self.limit is None else _first_rows(rows, self.limit)

    def languages(self) -> tuple[str, ...]:
        """The languages there are, in the order of the corpus, if that can be told at once."""
        return ()

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads the rows in their order, in the languages wanted, at least two.

        What can be checked without reading the text (missing files, headers) is checked by the
        call, before the first row is asked for. A ValueError names the file and the line.
        """
        raise NotImplementedError

    def files(self, languages: Sequence[str] | None = None) -> list[str]:
        """Lists the files whose content makes the corpus, sorted; None means all languages."""
        pattern = glob.escape(self.path) if os.path.exists(self.path) else self.path
        paths = sorted(glob.glob(pattern, recursive=True))
        if not paths:
            raise FileNotFoundError(f"{self.spec}: no such file; check the path or the pattern")
        if directory := next(filter(os.path.isdir, paths), None):
            raise IsADirectoryError(
                f"{directory}: is a directory; name the files in it, such as {directory}/*"
            )
        return paths

    def moved(self, move: Callable[[str], str]) -> str:
        """Returns WHERE with its path or pattern replaced by `move(path)`."""
        return move(self.path) + self.where[len(self.path) :]


def _first_rows(rows: Iterator[Row], limit: int) -> Iterator[Row]:
    read: collections.Counter[str] = collections.Counter()
    for row in rows:
        read[row.file] += 1
        if read[row.file] <= limit:
            yield row
