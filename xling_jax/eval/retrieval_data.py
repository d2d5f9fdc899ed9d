"""Parallel text to measure retrieval on, read whole; a broken line is an error."""

import gzip
import itertools
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.corpora import specs as corpora
from xling_jax.corpora.readers import READERS
from xling_jax.corpora.readers.moses import MosesReader
from xling_jax.corpora.readers.tables import TableReader, read_strictly
from xling_jax.files.hashes import hash_texts
from xling_jax.files.lines import COMPRESSED, PROBLEM_RULES, metric_name, read_lines
from xling_jax.files.whole import write_whole
from xling_jax.options import OptionError, wrong_use
from xling_jax.registry import check_choice
from xling_jax.text import languages as languages_lib

_logger = logging.getLogger(__name__)

XSR_SEED = 1234  # MUSE's, both for the order of rows and for the queries
# Of altered copies, in Chen et al. (2023): a negation or an opposite, a name, a number.
ALTERED_KINDS = ("causality", "entity", "number")

_SUFFIXES = "tsv|csv|jsonl|parquet|tmx|xlf|xliff"
_TABLE = re.compile(rf".+\.({_SUFFIXES})({COMPRESSED})?")
# The layout of LASER's Tatoeba test set: tatoeba.deu-eng.deu beside tatoeba.deu-eng.eng.
_CODE = r"[a-z]+(?:_[A-Za-z0-9]+)*"
_TATOEBA = re.compile(rf"(.+\.({_CODE})-({_CODE}))\.\2({COMPRESSED})?")
_ONE_LANGUAGE = re.compile(rf".+\.([A-Za-z]+(?:_[A-Za-z0-9]+)*)\.(txt|tsv)({COMPRESSED})?")


@dataclass(frozen=True)
class ParallelText:
    """Rows of translations.

    Attributes:
        name: where they are from.
        texts: language -> n texts, "" for none.
        found: all languages there, as they are called there; `texts` may have some of them.
    """

    name: str
    texts: dict[str, list[str]]
    found: tuple[str, ...] = ()


@dataclass(frozen=True)
class RetrievalData:
    """One retrieval data set: n-way text, or many bilingual files that share no direction."""

    name: str
    parts: tuple[ParallelText, ...]
    path: str = ""

    @property
    def languages(self) -> tuple[str, ...]:
        """All languages, in the order of first appearance."""
        return tuple(dict.fromkeys(code for part in self.parts for code in part.texts))

    @property
    def description(self) -> dict[str, Any]:
        """Plain values for results.json; the hash is not of file names or compression."""
        columns = (item for part in self.parts for item in sorted(part.texts.items()))
        return {
            "name": self.name,
            "path": self.path,
            "sha256": hash_texts(columns),
            "languages": list(self.languages),
            "num_rows": sum(len(next(iter(part.texts.values()))) for part in self.parts),
        }


def load_retrieval_data(path: str | Path, languages: Sequence[str] | None = None) -> RetrievalData:
    """Reads parallel text; of a directory the files with at least two of the languages.

    Args:
        path: a TSV file with a header of language codes (a first column `id` is ignored), a
            directory of such files or in the layout of LASER's Tatoeba set, or a corpus such as
            `moses:PREFIX`; files may be compressed.
        languages: those to read, by their codes in the data or by an alias (`de` for `deu`), which
            is then the name used; None for all.

    Raises:
        OptionError: if there are fewer than two of the languages.
        ValueError, OSError: if a file breaks a rule, or there are fewer than two languages.
    """
    if languages is not None:
        languages = languages_lib.check_languages(languages)
    place = Path(path).expanduser()
    if place.is_dir():
        read = _read_directory(place, languages)
    else:
        read = [_read_corpus(str(path), languages)]
    parts = [part for part in read if len(part.texts) >= 2]
    if not parts:
        found = [*dict.fromkeys(code for part in read for code in part.found)]
        hint = "; the first line of a table must name them, such as en<TAB>de"
        there = f"found {', '.join(found) or 'none'}{hint if len(found) < 2 else ''}"
        rule = f"{path}: retrieval needs at least two languages"
        if languages:
            raise OptionError(f"{rule}; asked for {', '.join(languages)}; {there}")
        raise ValueError(f"{rule}; {there}")
    seen: dict[frozenset[str], str] = {}
    for part in parts:
        for pair in itertools.combinations(part.texts, 2):
            other = seen.setdefault(frozenset(pair), part.name)
            if other != part.name:
                both = f"{'-'.join(pair)} is in {other} and {part.name}"
                raise ValueError(f"{path}: each language pair must be in one file; {both}")
    name = metric_name(corpora.split_options(str(path))[0].rpartition(":")[2])
    return RetrievalData(name, tuple(parts), str(path))


def load_distractors(paths: Sequence[str | Path], languages: Sequence[str]) -> dict[str, list[str]]:
    """Reads `NAME.LANG.txt`, candidates that are nothing's translation, by language, not blank.

    LANG is one of the languages of the data or an alias; files may be compressed.
    """
    texts: dict[str, list[str]] = {}
    for path in paths:
        code = _language_of_file(path, "txt", languages)
        texts.setdefault(code, []).extend(filter(None, map(str.strip, read_lines(path))))
    return texts


class Altered(NamedTuple):
    """An altered copy of a text: the row of the original, one of `ALTERED_KINDS`, and the text."""

    row: int
    kind: str
    text: str


def load_altered(
    paths: Sequence[str | Path], data: RetrievalData
) -> list[dict[str, list[Altered]]]:
    """Reads altered copies of the sentences of a data set, `NAME.LANG.tsv`, maybe compressed.

    Their header is kind, original, altered. An original without a row in the data is skipped; one
    with several belongs to all of them. A cell has a space for other white space. Returns language
    -> copies for each part of the data.
    """
    found: list[dict[str, list[Altered]]] = [{} for _ in data.parts]
    for path in paths:
        code = _language_of_file(path, "tsv", data.languages)
        copies: dict[str, list[tuple[str, str]]] = {}
        table = corpora.open_table(str(path))
        for number, (kind, original, text) in read_strictly(table, ("kind", "original", "altered")):
            check_choice(f"{path}:{number}: kind", kind, ALTERED_KINDS)
            copies.setdefault(" ".join(original.split()), []).append((kind, text))
        for part, by in zip(data.parts, found):
            for row, text in enumerate(part.texts.get(code, ())):
                for copy in copies.get(" ".join(text.split()), ()):
                    by.setdefault(code, []).append(Altered(row, *copy))
        if not any(code in by for by in found):
            raise ValueError(f"{path}: none of its originals is a text in {code} of {data.name}")
    return found


def _language_of_file(path: str | Path, suffix: str, languages: Sequence[str]) -> str:
    """The language in the name `NAME.LANG.SUFFIX`, as one of the languages of the data."""
    match = _ONE_LANGUAGE.fullmatch(Path(path).name)
    if not match or match[2] != suffix:
        raise OptionError(f"{path}: must be named NAME.LANG.{suffix}[.gz]; rename it")
    (code,) = _choose_columns(languages, [match[1]]) or [match[1]]
    with wrong_use():
        languages_lib.check_known(code, languages, str(path))
    return code


def _read_directory(place: Path, languages: Sequence[str] | None) -> list[ParallelText]:
    """All bilingual or n-way files of a directory, by name."""
    parts = []
    for file in sorted(entry for entry in place.iterdir() if entry.is_file()):
        if _TABLE.fullmatch(file.name):
            parts.append(_read_corpus(str(file), languages))
        elif match := _TATOEBA.fullmatch(file.name):
            spec = f"moses:{place / match[1]}@{match[2]}-{match[3]}"
            parts.append(_read_corpus(spec, languages))
    if not parts:
        raise ValueError(f"{place}: must hold .tsv files, or pairs such as tatoeba.deu-eng.deu")
    return parts


def _read_corpus(spec: str, languages: Sequence[str] | None) -> ParallelText:
    """Any corpus that training can read; every row counts, and may lack some of the languages."""
    if not corpora.names_kind(spec) and corpora.suffix_of(spec) not in READERS:
        way_out = "separate the columns by tabs and name it .tsv"
        raise ValueError(f"{spec}: must be a .tsv file, a directory or KIND:WHERE; {way_out}")
    reader = corpora.open_corpus(spec)
    knows = languages is None or isinstance(reader, TableReader | MosesReader)
    found = reader.languages() if knows else tuple(languages)
    if not found and languages is None:
        raise ValueError(f"{spec}: name the languages to read from it, such as --languages en,de")
    names = {**dict.fromkeys(found), **({"id": None} if "id" in (languages or ()) else {})}
    chosen = _choose_columns(names, languages)
    texts: dict[str, list[str]] = {code: [] for code in chosen.values()}
    for row in reader.rows([*chosen]) if len(chosen) > 1 else ():
        if row.problem:
            where = f"{row.broken_file or row.file}:{row.line}"
            rule = row.detail or PROBLEM_RULES[row.problem]
            raise ValueError(f"{where}: {rule}; rows of evaluation data count, so correct it")
        for name, code in chosen.items():
            texts[code].append(row.texts.get(name, "").strip())
    if len(chosen) > 1:
        texts = {code: column for code, column in texts.items() if any(column)}
    return ParallelText(corpora.split_options(spec)[0], texts, found)


def _choose_columns(columns: Iterable[str], languages: Sequence[str] | None) -> dict[str, str]:
    """The columns to read -> the codes to call them by, in the order of `languages`."""
    if languages is None:
        return {column: column for column in columns}
    chosen = {}
    for code in languages:
        same = languages_lib.to_iso639_1(code)
        aliases = [name for name in columns if languages_lib.to_iso639_1(name) == same]
        if code in columns:
            chosen[code] = code
        elif len(aliases) == 1:
            chosen[aliases[0]] = code
    return chosen


def draw_sample(
    source: Sequence[str], target: Sequence[str], num_keys: int, num_queries: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws keys and queries among translations as MUSE's `load_europarl_data` does (XSR).

    2,000 queries among 200,000 keys of Europarl, as in Conneau et al. (2018) and later work. Rows
    are made unique on the source side, then on the target side, by their lower-cased words; the
    first of equal rows stays, in the order of the words, as `np.unique` leaves them. They are then
    shuffled, the first ones are the keys, and queries are drawn among these without replacement.
    MUSE reads the first 800,000 lines. Choice: blank texts, one of which MUSE would keep, are left
    out; of too few rows all are taken.

    Returns:
        keys: [m] int64, rows whose target texts are the candidates.
        queries: [q] int64, indices into `keys` whose source texts are the queries.

    Raises:
        ValueError: if all rows lack a text.
    """
    rows = [row for row in range(len(source)) if source[row].strip() and target[row].strip()]
    if not rows:
        raise ValueError("no row has text on both sides to draw")
    for texts in (source, target):
        first: dict[tuple[str, ...], int] = {}
        for row in rows:
            first.setdefault(tuple(texts[row].lower().split()), row)
        rows = [first[words] for words in sorted(first)]
    order = np.random.RandomState(XSR_SEED).permutation(len(rows))
    keys = np.array(rows, np.int64)[order][:num_keys]
    count = min(num_queries, len(keys))
    queries = np.random.RandomState(XSR_SEED).choice(len(keys), size=count, replace=False)
    return keys, queries.astype(np.int64)


def join_through(
    pivot: str, specs: Sequence[str], languages: Sequence[str], num_rows: int
) -> list[list[str]]:
    """The last rows of the first corpus whose text in `pivot` all other languages have as well.

    Yu et al. (2018), Table 2, compare 5,000 such rows of Europarl in six languages, copies among
    them. Choice: the last ones, which training leaves out by `data.exclude`; of several
    translations of one text the first. All texts are held in memory.

    Returns rows of as many cells as there are languages, the pivot among them; OptionError if there
    is no such row.
    """
    columns: dict[str, dict[str, str]] = {code: {} for code in languages if code != pivot}
    order: list[str] = []
    for number, spec in enumerate(specs):
        for row in corpora.read_corpus(spec, languages):
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
