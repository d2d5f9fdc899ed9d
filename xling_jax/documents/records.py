"""Files of documents: collections to align, their gold pairs, and documents to embed.

JSON lines `{"id", "lang", "text" or "sentences", optional "domain", "url"}`. A line that breaks a
rule is an error, because ids stand for documents in gold pairs and results.
"""

import itertools
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.align.pair_files import cell
from xling_jax.files.hashes import hash_texts
from xling_jax.files.lines import COMPRESSED, iterate_lines, metric_name, shown
from xling_jax.files.untrusted import parse_json
from xling_jax.text import languages as languages_lib
from xling_jax.text.splitting import split_sentences

Gold = frozenset[tuple[int, int]]

# What JSON can escape and UTF-8 cannot write, such as half of an emoji that a crawler has cut.
_SURROGATE = re.compile("[\ud800-\udfff]")


class Document(NamedTuple):
    """One line of a file."""

    line: int  # its number, from 1
    id: str  # unique within its language
    language: str  # as written in the file
    sentences: list[str]  # the nonblank ones
    positions: list[int]  # of each among all, see `number_sentences`
    domain: str | None  # value of the field that restricts candidates; None if none was asked for
    url: str | None


@dataclass
class Documents:
    """The n documents of one language in the file `name`; fields as of `Document`, one list each.

    `lengths` are numbers of sentences; `sentences` and `positions` are those of all.
    """

    name: str
    language: str
    ids: list[str] = field(default_factory=list)
    domains: list[str | None] = field(default_factory=list)
    urls: list[str | None] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def offsets(self) -> np.ndarray:
        """[n + 1] int64: document i holds the sentences offsets[i] to offsets[i + 1] - 1."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    @property
    def num_empty(self) -> int:
        """Number of documents without sentences."""
        return self.lengths.count(0)

    @property
    def texts(self) -> list[str]:
        """Each document as one text: its sentences joined by spaces."""
        return [" ".join(sentences) for sentences in self.split()]

    def split(self, name: str = "sentences") -> Iterator[list]:
        """The `sentences` of each document, or their `positions`."""
        column = getattr(self, name)
        return (column[a:b] for a, b in itertools.pairwise(self.offsets.tolist()))

    def inputs(self, encoder: Any, mode: str) -> Iterator[list[str]]:
        """What of each document an encoder encodes at once; nothing of those without sentences."""
        found = encoder.document_inputs(filter(None, self.split()), mode)
        return (next(found) if length else [] for length in self.lengths)


@dataclass(frozen=True)
class AlignmentData:
    """Documents by language and, by pair of languages that has some, the rows of gold pairs."""

    name: str
    documents: dict[str, Documents]
    gold: dict[tuple[str, str], Gold]

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the documents."""
        return tuple(self.documents)

    @property
    def description(self) -> dict[str, Any]:
        """Plain values for results.json; the hash is not of file names or compression."""
        columns = []
        for code, side in self.documents.items():
            columns += [(code, side.ids), ("sentences", side.sentences)]
            for name in ("lengths", "domains", "urls"):
                columns.append((name, list(map(str, getattr(side, name)))))
        for pair, gold in self.gold.items():
            columns.append(("-".join(pair), [f"{i} {j}" for i, j in sorted(gold)]))
        return {
            "name": self.name,
            "sha256": hash_texts(columns),
            "languages": list(self.documents),
            "num_documents": {code: len(side) for code, side in self.documents.items()},
            "num_sentences": {code: len(side.sentences) for code, side in self.documents.items()},
            "num_gold": sum(map(len, self.gold.values())),
        }


def load_alignment_data(
    path: str | Path, languages: Sequence[str] | None = None, **options: Any
) -> AlignmentData:
    """Reads one file in which documents of equal id are translations, as in WMT19.

    Languages are in the order given, as far as there are documents, or else that of the file;
    options as of `read_documents`. ValueError if there are no gold pairs.
    """
    by_language = collect_documents(path, **options)
    codes = list(by_language) if languages is None else languages_lib.check_languages(languages)
    documents = {code: by_language[code] for code in codes if code in by_language}
    gold = {}
    for (first, side), (second, other) in itertools.combinations(documents.items(), 2):
        row_of = {name: row for row, name in enumerate(side.ids)}
        rows = frozenset((row_of[name], j) for j, name in enumerate(other.ids) if name in row_of)
        if rows:
            gold[first, second] = rows
    if not gold:
        rule = f"no document has the same id in two of the languages {', '.join(codes)}"
        raise ValueError(f"{path}: {rule}; align two files with gold pairs instead")
    return AlignmentData(_name(path), documents, gold)


def load_document_pairs(
    source: str | Path,
    target: str | Path,
    gold: str | Path,
    languages: Sequence[str] | None = None,
    **options: Any,
) -> AlignmentData:
    """Reads two collections and the gold pairs between them, as in WMT16.

    `gold` is a file of `read_pairs_of_ids`, which names the data; `languages` are None if each
    collection holds one; options as of `read_documents`.
    """
    wanted = [None, None] if languages is None else languages
    if len(wanted) != 2:
        raise ValueError(f"languages: must be two, source and target; got {len(wanted)}")
    sides = [
        choose_language(collect_documents(path, **options), path, code)
        for path, code in zip((source, target), wanted)
    ]
    pair = sides[0].language, sides[1].language
    if pair[0] == pair[1]:
        raise ValueError(f"{target}: must differ in language from {source}; both are {pair[0]}")
    rows = [{name: row for row, name in enumerate(side.ids)} for side in sides]
    found = read_pairs_of_ids(gold, *rows)
    if not found:
        raise ValueError(f"{gold}: must hold pairs source id<TAB>target id; found none")
    gold_rows = frozenset((rows[0][first], rows[1][second]) for first, second in found)
    return AlignmentData(_name(gold), dict(zip(pair, sides)), {pair: gold_rows})


def collect_documents(path: str | Path, **options: Any) -> dict[str, Documents]:
    """Reads a file of documents, by language in its order; options of `read_documents`."""
    return group_by_language(read_documents(path, **options), shown(path))


def group_by_language(documents: Iterable[Document], name: str) -> dict[str, Documents]:
    """Gathers the documents of the file `name`, by language in their order.

    ValueError if an id occurs twice in a language.
    """
    by_language: dict[str, Documents] = {}
    lines: dict[tuple[str, str], int] = {}
    for document in documents:
        first = lines.setdefault((document.language, document.id), document.line)
        if first != document.line:
            twice = f"duplicate id {document.id!r} in {document.language}, first in line {first}"
            raise ValueError(f"{name}:{document.line}: {twice}")
        side = by_language.setdefault(document.language, Documents(name, document.language))
        side.ids.append(document.id)
        side.domains.append(document.domain)
        side.urls.append(document.url)
        side.lengths.append(len(document.sentences))
        side.sentences += document.sentences
        side.positions += document.positions
    return by_language


def choose_language(
    by_language: dict[str, Documents], path: str | Path, language: str | None
) -> Documents:
    """Returns the documents of one language of a file; of its only language, or none, for None."""
    if language is not None:
        languages_lib.check_known(language, list(by_language), str(path))
        return by_language[language]
    if len(by_language) > 1:
        raise ValueError(f"{path}: holds documents in {', '.join(by_language)}; set languages")
    return next(iter(by_language.values()), Documents(str(path), ""))


def read_documents(
    path: str | Path,
    *,
    domain: str | None = None,
    splitter: str = "rule",
) -> Iterator[Document]:
    """Reads documents one by one from JSON lines, maybe compressed; blank lines are skipped.

    `domain` is the field that restricts candidates, required in every document if given; `splitter`
    finds the sentences of `text`, see `split_sentences`. ValueError names file and line if that is
    not a JSON object, or lacks `id`, `lang`, the domain, or both `text` and `sentences`.
    """
    for number, line in enumerate(iterate_lines(path), 1):
        if not line.strip():
            continue
        where = f"{shown(path)}:{number}"
        record, text = _parse_record(line, where)
        url = record.get("url")
        yield Document(
            number,
            _name_field(record, "id", where),
            _name_field(record, "lang", where),
            *number_sentences(text, splitter),
            None if domain is None else _name_field(record, domain, where),
            url if isinstance(url, str) and url.strip() else None,
        )


def folder_language(path: str | Path) -> str | None:
    """The language that a folder is named after, such as `corpus/de`; None if it is not."""
    name = Path(path).resolve().name
    return name if languages_lib.is_iso639(name) else None


def text_language(path: str) -> str | None:
    """The language that a text is named after, such as `news.de.gz`; None if it is not."""
    code = re.sub(rf"({COMPRESSED})$", "", path).rpartition(".")[2]
    return code if languages_lib.is_iso639(code) else None


def read_folder(path: str | Path, language: str, *, splitter: str = "rule") -> Iterator[Document]:
    """Reads the documents of a folder, all in one language, one by one in the order of their names.

    Every file in the folder and in folders inside it is a document, except hidden ones. Its id is
    its path inside the folder without `.gz` (`.xz`, `.zst`, `.bz2`), `.txt` and the language:
    `2024/note.de.txt.gz` is `2024/note`, so that translations may have the same. The splitter
    "lines" makes a sentence of each line.

    Raises:
        ValueError: if there are no files, two have the same id, or one is not UTF-8 text.
        OSError: if one cannot be read.
    """
    suffixes = re.compile(rf"(\.txt)?({COMPRESSED})?$", re.IGNORECASE)
    files: dict[str, Path] = {}
    for file in sorted(Path(path).rglob("*")):
        inside = file.relative_to(path)
        if not file.is_file() or any(part.startswith(".") for part in inside.parts):
            continue
        # macOS and others write the same name in other code points.
        name = unicodedata.normalize("NFC", inside.as_posix())
        name = suffixes.sub("", name).removesuffix(f".{language}")
        if cell(name) != name:
            raise ValueError(f"{file}: a file name with tabs or line ends cannot be an id")
        if (first := files.setdefault(name, file)) != file:
            raise ValueError(f"{file}: the same document, {name!r:.80}, as {first}; rename one")
    if not files:
        raise ValueError(f"{path}: must hold text files, one document each; found none")
    for number, (name, file) in enumerate(files.items(), 1):
        numbered = number_sentences("\n".join(iterate_lines(file)), splitter)
        yield Document(number, name, language, *numbered, None, None)


def number_sentences(text: str | Sequence[str], splitter: str) -> tuple[list[str], list[int]]:
    """The nonblank sentences of a document, and the position of each among all, from 0.

    Blank sentences count; with the splitter "lines" positions are those of lines, blank or not.
    """
    if not isinstance(text, str):
        numbered = enumerate(text)
    elif splitter == "lines":
        # A form feed ends a sentence, but not a line.
        lines = enumerate(text.split("\n"))
        numbered = ((n, s) for n, line in lines for s in split_sentences(line, splitter="lines"))
    else:
        numbered = enumerate(split_sentences(text, splitter=splitter))
    filled = [(n, sentence) for n, sentence in numbered if sentence.strip()]
    return [sentence for _, sentence in filled], [n for n, _ in filled]


def read_texts(path: str | Path) -> Iterator[str | list[str]]:
    """Reads documents to embed, one per line, blank lines included: texts, or lists of sentences.

    Lines are JSON with `text` or `sentences` if the file name has `.jsonl` or the first nonblank
    line begins with "{"; otherwise plain text.
    """
    records = True if ".jsonl" in Path(path).name else None
    for number, line in enumerate(iterate_lines(path), 1):
        if records is None and line.strip():
            records = line.startswith("{")
            if line.strip() == "[" or line.startswith("[{"):
                where = f"{shown(path)}:{number}"
                raise ValueError(f"{where}: is a JSON array; write JSON lines with jq -c '.[]'")
        is_record = records and line.strip()
        yield _parse_record(line, f"{shown(path)}:{number}")[1] if is_record else line


def read_pairs_of_ids(
    path: str | Path, source: Container[str], target: Container[str]
) -> list[tuple[str, str]]:
    """Reads lines `source id<TAB>target id`, maybe after a score, maybe compressed.

    Swapped columns are accepted, line by line: WMT16 puts French pages first in one file and
    English pages in another. Lines that could be read either way are read as most others are.
    ValueError names a line that is not a pair of known ids.
    """
    pairs = [line.split("\t")[-2:] for line in iterate_lines(path)]
    known = lambda cells: len(cells) == 2 and cells[0] in source and cells[1] in target
    is_swapped = sum(known(p[::-1]) for p in pairs) > sum(map(known, pairs))
    for number, cells in enumerate(pairs, 1):
        where = f"{shown(path)}:{number}"
        if len(cells) != 2:
            raise ValueError(f"{where}: must be source id<TAB>target id; found {cells[0]!r:.80}")
        if known(cells[::-1]) and (is_swapped or not known(cells)):
            cells.reverse()
        for one, side, name in zip(cells, (source, target), ("source", "target")):
            if one not in side:
                raise ValueError(f"{where}: no {name} document has the id {one!r:.80}")
    return [*map(tuple, pairs)]


def _parse_record(line: str, where: str) -> tuple[dict, str | list[str]]:
    """The JSON object in a line, and its `text` if it has one, otherwise its `sentences`."""
    way_out = "documents are JSON lines; the sentences of two texts: xling align-sentences"
    record = parse_json(line, where, allow_surrogates=True, way_out=way_out)
    if not isinstance(record, dict):
        raise ValueError(f"{where}: a document must be a JSON object; found {line!r:.40}")
    record = {name: _writable(value) for name, value in record.items()}
    text, sentences = record.get("text"), record.get("sentences")
    if isinstance(text, str):
        return record, text
    if isinstance(sentences, list) and all(isinstance(item, str) for item in sentences):
        return record, [_writable(item) for item in sentences]
    raise ValueError(f"{where}: a document must have 'text' (a string) or 'sentences' (strings)")


def _writable(value: Any) -> Any:
    """A string with replacement characters for lone surrogates; other values as they are."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value) if isinstance(value, str) else value


def _name_field(record: dict, key: str, where: str) -> str:
    """A field that identifies something: a string that fits into a cell, or an integer."""
    value = record.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value or cell(value) != value:
        found = "it has none" if key not in record else f"found {value!r:.40}"
        rule = f"a document must have {key!r}, a string without tabs or line ends"
        raise ValueError(f"{where}: {rule}; {found}")
    return value


def _name(path: str | Path) -> str:
    return metric_name(str(path).replace(".jsonl", "").replace(".tsv", ""))
