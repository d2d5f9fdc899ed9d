"""The row every reader of parallel text yields. Not for reading: see the other modules here."""

from typing import NamedTuple


class Row(NamedTuple):
    """Texts that are translations of one another, and where they stand.

    A named tuple, because a corpus has millions and a frozen dataclass takes three times as long to
    make.

    Attributes:
        texts: language to text, of the languages asked for; a language without text is absent.
        file: the file (of the first language where each has its own), or the name of the dataset.
        line: from 1, the header included; in a dataset the number of the example.
        problem: None, or one of `PROBLEMS`; then `texts` is empty.
    """

    texts: dict[str, str]
    file: str
    line: int
    problem: str | None = None
