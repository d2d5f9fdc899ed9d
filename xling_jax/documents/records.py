"""Documents to align and the pairs of them that are translations, read whole and strictly.

JSON lines `{"id", "lang", "text" or "sentences", optional "domain", "url"}`. A document's line
that breaks a rule is an error that names it: ids stand for documents in gold pairs and results.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.files.hashes import hash_texts
from xling_jax.files.lines import BrokenLine, metric_name, read_line_blocks, read_lines
from xling_jax.text import languages as languages_lib
from xling_jax.text.splitting import document_sentences

Gold = frozenset[tuple[int, int]]


class Document(NamedTuple):
    """One line of a file.

    Attributes:
        line: its number, from 1.
        id: names it among those of its language.
        language: as the file writes it.
        sentences: without blank ones; an empty document has none.
        domain: value of the field that restricts candidates, if one was asked for.
        url: if it has one.
    """

    line: int
    id: str
    language: str
    sentences: list[str]
    domain: str | None
    url: str | None


@dataclass
class Documents:
    """The documents of one language.

    Attributes:
        name: of the file, for messages.
        language: as the file writes it.
        ids: of the n documents.
        domains: value of the field that restricts candidates; None each if none was asked for.
        urls: None for those without.
        lengths: sentences of each.
        sentences: of all, in order; empty if they were not kept.
    """

    name: str
    language: str
    ids: list[str] = field(default_factory=list)
    domains: list[str | None] = field(default_factory=list)
    urls: list[str | None] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def offsets(self) -> np.ndarray:
        """[n + 1] int64: document i holds the sentences offsets[i] to offsets[i + 1] - 1."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    @property
    def num_empty(self) -> int:
        """Documents without a sentence."""
        return self.lengths.count(0)

    @property
    def texts(self) -> list[str]:
        """Each document as one text: its sentences joined by spaces."""
        offsets = self.offsets.tolist()
        return [
            " ".join(self.sentences[start:end]) for start, end in zip(offsets[:-1], offsets[1:])
        ]


@dataclass(frozen=True)
class AlignmentData:
    """Documents of several languages and their gold pairs.

    Attributes:
        name: begins the names of its metrics, such as `europarl_speeches_dev`.
        documents: by language.
        gold: for each pair of languages, (first, second), the rows of documents that are
            translations; pairs of languages without any are not there.
    """

    name: str
    documents: dict[str, Documents]
    gold: dict[tuple[str, str], Gold]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of documents and gold pairs; not of file names or compression."""
        columns = []
        for code, side in self.documents.items():
            columns += [(code, side.ids), ("sentences", side.sentences)]
            columns += [("lengths", list(map(str, side.lengths)))]
            columns += [("domains", list(map(str, side.domains)))]
            columns += [("urls", list(map(str, side.urls)))]
        for pair, gold in self.gold.items():
            columns.append(("-".join(pair), [f"{i} {j}" for i, j in sorted(gold)]))
        return hash_texts(columns)

    @property
    def size(self) -> str:
        """Documents and gold pairs, in words."""
        counts = ", ".join(
            f"{len(side):,} documents in {code} ({side.num_empty} empty)"
            for code, side in self.documents.items()
        )
        return f"{counts}; {sum(map(len, self.gold.values())):,} gold pairs"

    @property
    def description(self) -> dict[str, Any]:
        """The data in numbers, as plain values."""
        return {
            "name": self.name,
            "sha256": self.fingerprint,
            "languages": list(self.documents),
            "num_documents": {code: len(side) for code, side in self.documents.items()},
            "num_sentences": {code: len(side.sentences) for code, side in self.documents.items()},
            "num_gold": sum(map(len, self.gold.values())),
        }


def load_alignment_data(
    path: str | Path,
    languages: Sequence[str] | None = None,
    *,
    domain: str | None = None,
    splitter: str = "rule",
) -> AlignmentData:
    """Reads one file whose documents of equal id are translations: the form of WMT19.

    Args:
        path: JSON lines, maybe compressed.
        languages: those to align, in order; None takes all, in the order of the file.
        domain: the field that restricts candidates.
        splitter: see `read_documents`.

    Returns:
        The data, with gold pairs between all languages.

    Raises:
        ValueError: if a line breaks a rule, a language is not there, or nothing is to be found.
        OSError: if the file cannot be read.
    """
    by_language = collect_documents(path, domain=domain, splitter=splitter)
    codes = list(by_language) if languages is None else languages_lib.check_languages(languages)
    for code in codes:
        languages_lib.check_known(code, list(by_language), str(path))
    gold = {}
    for index, first in enumerate(codes):
        row_of = {name: row for row, name in enumerate(by_language[first].ids)}
        for second in codes[index + 1 :]:
            ids = by_language[second].ids
            rows = frozenset((row_of[name], j) for j, name in enumerate(ids) if name in row_of)
            if rows:
                gold[first, second] = rows
    if not gold:
        raise ValueError(
            f"{path}: no document has the same id in two of the languages {', '.join(codes)}; "
            "give two files and --gold"
        )
    documents = {code: by_language[code] for code in codes}
    return AlignmentData(_name(path), documents, gold)


def load_document_pairs(
    source: str | Path,
    target: str | Path,
    gold: str | Path,
    languages: Sequence[str] | None = None,
    *,
    domain: str | None = None,
    splitter: str = "rule",
) -> AlignmentData:
    """Reads two collections and the gold pairs between them: the form of WMT16.

    Args:
        source: JSON lines, maybe compressed.
        target: the same.
        gold: lines `source id<TAB>target id`, see `read_gold`.
        languages: of the two files; None if each holds one.
        domain: the field that restricts candidates.
        splitter: see `read_documents`.

    Returns:
        The data, named after the gold pairs.

    Raises:
        ValueError: if a line breaks a rule, or the languages are not two different ones.
        OSError: if a file cannot be read.
    """
    wanted = [None, None] if languages is None else languages
    if len(wanted) != 2:
        raise ValueError(f"languages: two files need two, source and target; got {len(wanted)}")
    sides = [
        choose_language(collect_documents(path, domain=domain, splitter=splitter), path, code)
        for path, code in zip((source, target), wanted)
    ]
    pair = sides[0].language, sides[1].language
    if pair[0] == pair[1]:
        raise ValueError(f"{target}: must be of another language than {source}; both are {pair[0]}")
    return AlignmentData(_name(gold), dict(zip(pair, sides)), {pair: read_gold(gold, *sides)})


def collect_documents(
    path: str | Path,
    *,
    domain: str | None = None,
    splitter: str = "rule",
    keep_sentences: bool = True,
    name: str | None = None,
) -> dict[str, Documents]:
    """Reads a file of documents.

    Args:
        path: JSON lines, maybe compressed.
        domain: see `read_documents`.
        splitter: see there.
        keep_sentences: whether to hold the text too.
        name: what to call the file in messages; None for its path.

    Returns:
        The documents by language, in the order of the file.

    Raises:
        ValueError: as `read_documents`, and if an id occurs twice in a language.
        OSError: if the file cannot be read.
    """
    by_language: dict[str, Documents] = {}
    lines: dict[tuple[str, str], int] = {}
    name = name or str(path)
    for document in read_documents(path, domain=domain, splitter=splitter, name=name):
        first = lines.setdefault((document.language, document.id), document.line)
        if first != document.line:
            raise ValueError(
                f"{name}:{document.line}: an id may stand once in a language; {document.id!r} "
                f"stands in line {first} too"
            )
        side = by_language.setdefault(document.language, Documents(name, document.language))
        side.ids.append(document.id)
        side.domains.append(document.domain)
        side.urls.append(document.url)
        side.lengths.append(len(document.sentences))
        if keep_sentences:
            side.sentences += document.sentences
    return by_language


def choose_language(
    by_language: dict[str, Documents], path: str | Path, language: str | None
) -> Documents:
    """The documents of one language of a file; of its only one if `language` is None.

    Raises:
        ValueError: if it is not there, or there are several and none was named. A file without
            any document has them in no language.
    """
    if language is not None:
        languages_lib.check_known(language, list(by_language), str(path))
        return by_language[language]
    if len(by_language) > 1:
        raise ValueError(
            f"{path}: holds documents in {', '.join(by_language)}; choose by --languages "
            "SOURCE,TARGET"
        )
    return next(iter(by_language.values()), Documents(str(path), ""))


def read_documents(
    path: str | Path,
    *,
    domain: str | None = None,
    splitter: str = "rule",
    name: str | None = None,
) -> Iterator[Document]:
    """Reads documents one by one.

    Args:
        path: JSON lines, maybe compressed; blank lines are skipped.
        domain: the field that restricts candidates, which every document then must have.
        splitter: what finds sentences in `text`, see `split_sentences`.
        name: what to call the file in messages; None for its path.

    Yields:
        The documents.

    Raises:
        ValueError: if a line is broken, is no JSON object, or lacks `id`, `lang`, both `text` and
            `sentences`, or the domain; file and line are named.
        OSError: if the file cannot be read.
    """
    number, name = 0, name or str(path)
    for block in read_line_blocks(str(path)):
        for line in block:
            number += 1
            if isinstance(line, BrokenLine):
                raise ValueError(f"{name}:{number}: broken line ({line.problem}); mend the file")
            if line.strip():
                yield _parse(line, f"{name}:{number}", number, domain, splitter)


def read_gold(path: str | Path, source: Documents, target: Documents) -> Gold:
    """Reads pairs of ids.

    Args:
        path: lines `source id<TAB>target id`, maybe compressed. A line with the columns the other
            way round is taken too: WMT16 names French pages first in one file, English ones in
            another.
        source: the documents on one side.
        target: those on the other.

    Returns:
        Rows of the pairs; a pair that stands twice counts once.

    Raises:
        ValueError: if a line is no pair of known ids, which is named, or there is none.
        OSError: if the file cannot be read.
    """
    rows = [{name: row for row, name in enumerate(side.ids)} for side in (source, target)]
    pairs = set()
    for number, line in enumerate(read_lines(path), 1):
        cells = line.split("\t")
        if len(cells) == 2 and cells[0] not in rows[0] and cells[0] in rows[1]:
            cells.reverse()
        if len(cells) != 2:
            raise ValueError(
                f"{path}:{number}: must be source id<TAB>target id; found {line!r:.80}"
            )
        for name, side, row_of in zip(cells, (source, target), rows):
            if name not in row_of:
                raise ValueError(f"{path}:{number}: {side.name} has no document {name!r:.80}")
        pairs.add((rows[0][cells[0]], rows[1][cells[1]]))
    if not pairs:
        raise ValueError(f"{path}: must hold pairs source id<TAB>target id; the file is empty")
    return frozenset(pairs)


def parse_record(line: str, where: str) -> tuple[dict, str | list[str]]:
    """Reads one line of a file of documents.

    Args:
        line: JSON.
        where: file and line, for messages.

    Returns:
        The object, and its `text` or else its `sentences`.

    Raises:
        ValueError: if it is no JSON object or has neither.
    """
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: a document must be a JSON object: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{where}: a document must be a JSON object; found {line!r:.40}")
    text, sentences = record.get("text"), record.get("sentences")
    if isinstance(text, str):
        return record, text
    if isinstance(sentences, list) and all(isinstance(item, str) for item in sentences):
        return record, sentences
    raise ValueError(
        f"{where}: a document must have 'text' (a string) or 'sentences' (a list of strings)"
    )


def _parse(line: str, where: str, number: int, domain: str | None, splitter: str) -> Document:
    record, text = parse_record(line, where)
    language, url = _name_field(record, "lang", where), record.get("url")
    code = languages_lib.to_iso639_1(language)
    split = document_sentences(text, splitter=splitter, language=code)
    return Document(
        number,
        _name_field(record, "id", where),
        language,
        [sentence for sentence in split if sentence.strip()],
        None if domain is None else _name_field(record, domain, where),
        url if isinstance(url, str) and url.strip() else None,
    )


def _name_field(record: dict, key: str, where: str) -> str:
    """A field that names something: a string that fits into a cell, or an integer."""
    value = record.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value or any(mark in value for mark in "\t\r\n"):
        found = "it has none" if key not in record else f"found {value!r:.40}"
        raise ValueError(
            f"{where}: a document must have {key!r}, a string without tabs and line ends; {found}"
        )
    return value


def _name(path: str | Path) -> str:
    """The beginning of metric names from a file's name."""
    return metric_name(str(path).replace(".jsonl", "").replace(".tsv", ""))
