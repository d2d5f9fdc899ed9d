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
    translations of one text the first.

    Args:
        pivot: the language in all corpora.
        corpora: `KIND:WHERE`, as training reads them.
        languages: the columns; one may be the pivot.
        num_rows: at most so many.

    Returns:
        Rows of as many cells as there are languages.

    Raises:
        OptionError: if there is no such row.
    """
    columns: dict[str, dict[str, str]] = {}
    order: list[str] = []
    for code in (code for code in languages if code != pivot):
        found: dict[str, str] = {}
        known = next(reversed(columns.values())) if columns else None
        for spec in corpora:
            for row in corpora_lib.read_corpus(spec, [pivot, code]):
                text, translation = row.texts.get(pivot, ""), row.texts.get(code, "")
                if text and translation and (known is None or text in known):
                    found.setdefault(text, translation)
                    order += [text] if known is None else []
        columns[code] = found
        _logger.info("%s: %d texts in common with the languages before", code, len(found))
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
