"""What every reader of parallel text yields and offers."""

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Row(NamedTuple):
    """Texts that are translations of one another, and where they are from.

    Attributes:
        texts: language -> text, of the languages asked for; a language without text is absent.
        file: the file (of the first language where each has its own), or the name of the dataset.
        line: line number from 1, header included; in a dataset the number of the example.
        problem: None, or one of `files.lines.PROBLEMS`; then `texts` is empty.
        broken_file: the file that the problem is in, where that is not `file`.
    """

    texts: dict[str, str]
    file: str
    line: int
    problem: str | None = None
    broken_file: str = ""


class Lines(NamedTuple):
    """Consecutive lines of plain text files, copied to be read apart from the rest.

    A copy begins with one line that does not count: the header, or an empty line.

    Attributes:
        copies: path of a copy -> the file that it is from.
        first_line: number of the line in the files that follows that line in the copies.
    """

    copies: Mapping[str, str]
    first_line: int


class Reader:
    """One corpus. A subclass reads one kind of corpus; as it stands, WHERE is a glob of files.

    Args:
        spec: the corpus as the user names it, for messages.
        where: the part of the spec after the kind.

    Attributes:
        reads_file_by_file: whether each of its files is a corpus by itself.
        finds_by_name: whether `files` looks at names only.
    """

    reads_file_by_file = False
    finds_by_name = True

    def __init__(self, spec: str, where: str):
        self.spec, self.where = spec, where

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads the corpus.

        What can be checked without reading the text (missing files, headers) is checked by the
        call, before the first row is asked for.

        Args:
            languages: the languages wanted, at least two.

        Returns:
            Rows in the order of the corpus.

        Raises:
            ValueError: if the corpus breaks a rule of its kind, in the call or while reading; names
                the file and the line.
            OSError: if a file is missing or cannot be read.
        """
        raise NotImplementedError

    def files(self, languages: Sequence[str] | None = None) -> list[str]:
        """Lists the files whose content makes the corpus, sorted.

        Args:
            languages: the languages wanted; None for all.

        Raises:
            OSError: if there are none.
        """
        paths = sorted(glob.glob(self.where, recursive=True))
        if not paths:
            raise FileNotFoundError(f"{self.spec}: no such file; check the path or the pattern")
        for path in paths:
            if os.path.isdir(path):
                raise IsADirectoryError(
                    f"{path}: is a directory; name the files in it, such as {path}/*"
                )
        return paths

    def moved(self, move: Callable[[str], str]) -> str:
        """Returns WHERE with its path or pattern replaced by `move(path)`."""
        return move(self.where)

    def to_download(self) -> dict[str, Path]:
        """Lists files that the user has to download first: address -> where it belongs."""
        return {}

    def prepare(self, beam_options: Any = None) -> None:
        """Downloads what several processes will read, if that has not been done.

        Args:
            beam_options: Apache Beam's `PipelineOptions`, for what Beam itself makes.
        """
