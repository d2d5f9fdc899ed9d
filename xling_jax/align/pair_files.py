"""Files of pairs of texts with scores: TSV, JSON lines, Parquet, TMX, and two Moses files.

The suffix of an output says which: `.tsv` and any other, `.jsonl`, `.parquet`, `.tmx`, or a pair of
languages, `corpus.de-en`, for `corpus.de-en.de` and `corpus.de-en.en`. White space in a text never
ends a row: where a format has no other way, it becomes a space.
"""

import contextlib
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TextIO
from xml.sax.saxutils import escape, quoteattr

from xling_jax.files.whole import naming_errors, whole_file
from xling_jax.options import OptionError
from xling_jax.registry import import_extra
from xling_jax.text.languages import is_code

# What XML 1.0 does not allow.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Ends of a cell or a line, for readers of all kinds.
_SPACES = str.maketrans(dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029", " "))
_BATCH_ROWS = 10_000

_NOT_WRITTEN = (".csv", ".json", ".xls", ".xlsx", ".xml", ".xlf", ".xliff")

Languages = tuple[str | None, str | None]


class ScoredPair(NamedTuple):
    """Two texts, what they score or cost, and the ids of their documents, if they have any."""

    score: float
    source: str
    target: str
    ids: tuple[str, str] | None = None


class Layout(NamedTuple):
    """What a file of pairs says besides the texts."""

    score: str = "score"  # what the numbers are called
    languages: Languages = (None, None)  # of the sides; None where unknown
    header: bool = False  # whether TSV begins with the names of its columns
    names: tuple[str, str] | None = None  # of texts in JSON lines; None for known languages

    @property
    def columns(self) -> tuple[str, str]:
        """Names of the texts: their languages, if both are known and differ."""
        return self.languages if len({*self.languages} - {None}) == 2 else ("source", "target")


def pair_format(path: str) -> str:
    """The format of an output, a name of `PAIR_FORMATS`."""
    suffix = Path(path).suffix[1:]
    if suffix.lower() in PAIR_FORMATS:
        return suffix.lower()
    if len(codes := suffix.split("-")) == 2 and all(map(is_code, codes)):
        return "moses"
    return "tsv"


def output_files(path: str, kind: str | None = None) -> list[str]:
    """The files that an output consists of."""
    if (kind or pair_format(path)) != "moses":
        return [path]
    return [f"{path}.{code}" for code in _moses_languages(path)]


def check_format(path: str, languages: Languages, kind: str | None = None) -> None:
    """Raises OptionError before any work if pairs cannot be written; ImportError for a package."""
    suffix = Path(path).suffix
    if kind is None and suffix.lower() in _NOT_WRITTEN:
        raise OptionError(
            f"--output {path}: {suffix} is not written; use .tsv, .jsonl, .parquet, .tmx or a pair "
            "of languages, such as corpus.de-en"
        )
    kind = kind or pair_format(path)
    if kind == "tmx" and None in languages:
        raise OptionError(f"--output {path}: TMX needs the languages, such as --languages de,en")
    if kind == "moses" and (len(codes := _moses_languages(path)) != 2 or codes[0] == codes[1]):
        raise OptionError(f"--output {path}: must end in two languages, such as corpus.de-en")
    if kind == "moses" and all(languages) and {*codes} != {*languages}:
        raise OptionError(f"--output {path}: the texts are {' and '.join(languages)}")
    if kind == "parquet":
        import_extra("pyarrow", "data", path)
        if path == "-":
            raise OptionError("--output -: Parquet is written to a file only")


def write_pairs(
    path: str, pairs: Iterable[ScoredPair], layout: Layout, kind: str | None = None
) -> None:
    """Writes pairs; "-" is stdout. A file appears whole or not at all."""
    PAIR_FORMATS[kind or pair_format(path)](path, pairs, layout)


def cell(text: str) -> str:
    """A text in one cell of one line."""
    return text.translate(_SPACES)


@contextlib.contextmanager
def open_output(path: str) -> Iterator[TextIO]:
    """A file that appears whole or not at all; "-" is stdout."""
    if path == "-":
        with naming_errors("<stdout>"):
            yield sys.stdout
            sys.stdout.flush()
        return
    with whole_file(path, "w") as file:
        yield file


def _write_tsv(path: str, pairs: Iterable[ScoredPair], layout: Layout) -> None:
    """Lines `score<TAB>source<TAB>target`."""
    with open_output(path) as file:
        if layout.header:
            file.write("\t".join((layout.score, *layout.columns)) + "\n")
        for score, source, target, _ in pairs:
            file.write(f"{score:.6f}\t{cell(source)}\t{cell(target)}\n")


def _write_jsonl(path: str, pairs: Iterable[ScoredPair], layout: Layout) -> None:
    """JSON lines {"source", "target", "score"}, and the ids of documents that have any."""
    names = layout.names or layout.columns
    with open_output(path) as file:
        for score, source, target, ids in pairs:
            record = {names[0]: source, names[1]: target, layout.score: _number(score)}
            record |= dict(zip(("source_id", "target_id"), ids or ()))
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _write_parquet(path: str, pairs: Iterable[ScoredPair], layout: Layout) -> None:
    """Columns as the fields of JSON lines; one of the languages if both are known."""
    import pyarrow as pa
    from pyarrow import parquet

    pairs = iter(pairs)
    first = list(itertools.islice(pairs, _BATCH_ROWS))
    columns = {layout.score: pa.float64(), **dict.fromkeys(layout.columns, pa.string())}
    if first and first[0].ids:
        columns |= dict.fromkeys(("source_id", "target_id"), pa.string())
    schema = pa.schema(columns)
    with whole_file(path, "wb") as file, parquet.ParquetWriter(file, schema) as writer:
        while first:
            rows = [(_number(p.score), p.source, p.target, *(p.ids or ())) for p in first]
            arrays = [pa.array(c, kind) for c, kind in zip(zip(*rows), columns.values())]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            first = list(itertools.islice(pairs, _BATCH_ROWS))


def _write_tmx(path: str, pairs: Iterable[ScoredPair], layout: Layout) -> None:
    """A translation memory (TMX 1.4b); each unit has its score, and the ids of its documents."""
    created = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    source, target = (quoteattr(code.replace("_", "-")) for code in layout.languages)
    with open_output(path) as file:
        file.write(
            '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n'
            '<header creationtool="xling_jax" creationtoolversion="1" segtype="block" '
            f'o-tmf="none" adminlang="en" srclang={source} datatype="plaintext" '
            f'creationdate="{created}"/>\n<body>\n'
        )
        for pair in pairs:
            file.write("<tu>")
            for kind, name in zip(("source", "target"), pair.ids or ()):
                file.write(f'<prop type="x-{kind}-document">{_xml(name)}</prop>')
            file.write(f'<prop type="x-{layout.score}">{pair.score:.6f}</prop>')
            for code, text in ((source, pair.source), (target, pair.target)):
                file.write(f"<tuv xml:lang={code}><seg>{_xml(text)}</seg></tuv>")
            file.write("</tu>\n")
        file.write("</body>\n</tmx>\n")


def _write_moses(path: str, pairs: Iterable[ScoredPair], layout: Layout) -> None:
    """Two files, line i a translation of line i; the languages of the name are those of the sides
    in this order, unless one side is known to be the other.
    """
    codes = _moses_languages(path)
    files = [f"{path}.{code}" for code in codes]
    if any(known == code for known, code in zip(layout.languages, codes[::-1])):
        files.reverse()
    with whole_file(files[0], "w") as source, whole_file(files[1], "w") as target:
        for pair in pairs:
            source.write(f"{cell(pair.source)}\n")
            target.write(f"{cell(pair.target)}\n")


def _moses_languages(path: str) -> list[str]:
    return Path(path).suffix[1:].split("-")


def _number(score: float) -> float | None:
    """A score as JSON has it; None without one."""
    return round(float(score), 6) if math.isfinite(score) else None


def _xml(text: str) -> str:
    return escape(_NOT_XML.sub(" ", text))


PAIR_FORMATS: dict[str, Callable[[str, Iterable[ScoredPair], Layout], None]] = {
    "tsv": _write_tsv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
    "tmx": _write_tmx,
    "moses": _write_moses,
}
