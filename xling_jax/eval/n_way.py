"""N-way retrieval sets from bilingual corpora, joined through one language."""

import gzip
import logging
from collections.abc import Sequence
from pathlib import Path

from xling_jax.corpora import specs as corpora_lib
from xling_jax.files.whole import write_whole
from xling_jax.options import OptionError

_logger = logging.getLogger(__name__)


def join_through(
    pivot: str, corpora: Sequence[str], languages: Sequence[str], num_rows: int
) -> list[list[str]]:
    """The last rows of the first corpus whose text in `pivot` all other languages have as well.

    Yu et al. (2018), Table 2, compare 5,000 such rows of Europarl in six languages, copies among
    them. Choice: the last ones, which training leaves out by `data.exclude`; of several
    translations of one text the first. All texts are held in memory.

    Returns:
        Rows of as many cells as there are languages, the pivot among them.

    Raises:
        OptionError: if there is no such row.
    """
    columns: dict[str, dict[str, str]] = {code: {} for code in languages if code != pivot}
    order: list[str] = []
    for number, spec in enumerate(corpora):
        for row in corpora_lib.read_corpus(spec, languages):
            if text := row.texts.get(pivot):
                order += [text] if number == 0 else []
                for code, column in columns.items():
                    if translation := row.texts.get(code):
                        column.setdefault(text, translation)
        _logger.info("%s read", spec)
    rows = [text for text in order if all(text in column for column in columns.values())]
    if not rows:
        raise OptionError(f"--corpora: no {pivot} text is translated to all of {languages}")
    return [
        [text if code == pivot else columns[code][text] for code in languages]
        for text in rows[-num_rows:]
    ]


def write_n_way(path: Path, languages: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Writes rows as a TSV with a header of languages, compressed if the name ends in .gz."""
    lines = ("\t".join(" ".join(cell.split()) for cell in cells) for cells in (languages, *rows))
    content = "".join(f"{line}\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
