"""Readers of text: their undamaged files, and plain readings of damaged ones to compare with.

Rows are compared with what a few lines here make of the same bytes, without the library.
"""

import bz2
import gzip
import io
import itertools
import json
import lzma
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import zstandard

from tests.hostile.damage import Files
from xling_jax.align.urls import match_urls
from xling_jax.corpora.held_out import file_hashes, held_out_files
from xling_jax.corpora.specs import read_corpus
from xling_jax.documents import records
from xling_jax.files.lines import BrokenLine, iterate_lines, read_line_blocks

LANGUAGES = ("de", "en", "fr")
NUM_ROWS = 12


@dataclass(frozen=True)
class Target:
    """A reader or loader.

    Attributes:
        name: in the table of outcomes.
        files: the undamaged files, of one of several kinds; the argument chooses.
        read: reads a directory of damaged files; raises if it cannot.
        check: says what is wrong with what was read, "" for nothing.
        compressible: whether the reader also takes compressed files.
        argv: of a command that reads the directory, None if none does so directly.
    """

    name: str
    files: Callable[[int], Files]
    read: Callable[[Path], Any]
    check: Callable[[Path, Any], str] = lambda directory, result: ""
    compressible: bool = False
    argv: Callable[[Path], list[str]] | None = None


def texts(language: str) -> list[str]:
    """Row i of one language; no two are alike, and the number tells which translate each other."""
    words = {
        "de": "Der Satz über Äpfel Nr.",
        "en": "The phrase on apples no.",
        "fr": "La phrase n°",
    }
    return [f"{words[language]} {1000 + i} ({'x' * (i % 5)})" for i in range(NUM_ROWS)]


def table(*columns: list[str]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in zip(*columns)).encode()


def content_of(path: Path) -> bytes:
    """The bytes of a file, decompressed."""
    content = path.read_bytes()
    if path.suffix == ".zst":
        reader = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True)
        return reader.read()
    decompress = {".gz": gzip.decompress, ".xz": lzma.decompress, ".bz2": bz2.decompress}
    return decompress.get(path.suffix, bytes)(content)


def plain_lines(path: Path) -> list[str | None]:
    """Lines by the rules of `files.lines`; None for those that cannot be used."""
    rows = content_of(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rows = rows if rows[-1] else rows[:-1]
    return [_plain_line(row) for row in rows]


def _plain_line(row: bytes) -> str | None:
    try:
        text = row.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or len(row) > 1_000_000 else text.removesuffix("\r")


def find(directory: Path, name: str) -> Path:
    """A file, whatever it was compressed with; the plain one if there is none."""
    return next(iter(sorted(directory.glob(f"{name}*"))), directory / name)


def unequal(found: Any, expected: Any) -> str:
    if found == expected:
        return ""
    if isinstance(found, list) and isinstance(expected, list):
        for number, (one, other) in enumerate(zip(found, expected)):
            if one != other:
                return f"row {number}: {one!r:.150} must be {other!r:.150}"
        return f"{len(found)} rows must be {len(expected)}"
    return f"{found!r:.200} must be {expected!r:.200}"


# Parallel text.


def _tsv(kind: int) -> Files:
    header = "\t".join((*LANGUAGES, *["id"] * (kind % 2))) + "\n"
    columns = [texts(code) for code in LANGUAGES] + [[str(i) for i in range(NUM_ROWS)]] * (kind % 2)
    return {"a.tsv": header.encode() + table(*columns)}


def _check_tsv(directory: Path, rows: list) -> str:
    expected = []
    for path in sorted(directory.glob("*.tsv*")):
        first, *lines = plain_lines(path)
        header = [name.strip() for name in first.split("\t")]
        codes = [code for code in LANGUAGES if code in header]
        if len(codes) < 2:
            continue
        for line in lines:
            cells = (line or "").split("\t")
            if len(cells) != len(header):  # a wrong row, dropped
                cells = [""] * len(header)
            found = {code: cells[header.index(code)] for code in codes}
            expected.append({code: text for code, text in found.items() if text.strip()})
    return unequal([row.texts for row in rows], expected)


def _tmx(kind: int) -> Files:
    units = "".join(
        f"<tu tuid='{i}'>\n"
        + "".join(
            f'<tuv xml:lang="{code}"><seg>{texts(code)[i]}</seg></tuv>\n' for code in LANGUAGES
        )
        + "</tu>\n"
        for i in range(NUM_ROWS)
    )
    encoding = ["UTF-8", "utf-16", "iso-8859-1"][kind % 3]
    doctype = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n' * (kind % 2)
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?>\n{doctype}<tmx version="1.4">'
        f'<header srclang="de" datatype="plaintext"/>\n<body>\n{units}</body></tmx>\n'
    )
    return {"a.tmx": text.encode(encoding)}


def _check_tmx(directory: Path, rows: list) -> str:
    """Rows as of a parser that builds a tree; where it cannot, no text beside another's."""
    if wrong := [row for row in rows if row.line < 1]:
        return f"line {wrong[0].line}"
    expected = []
    for path in sorted(directory.glob("*.tmx*")):
        try:
            tree = ElementTree.fromstring(content_of(path))
        except (ElementTree.ParseError, LookupError, ValueError):
            return _mixed_units(rows)  # repaired, as real files need it
        expected += [_unit(unit) for unit in tree.iter("tu")]
    found = [row.texts for row in rows if not row.problem]
    if any(row.problem for row in rows):
        return ""
    return unequal(found, expected)


def _mixed_units(rows: list) -> str:
    places = {text: i for code in LANGUAGES for i, text in enumerate(texts(code))}
    for row in rows:
        if len({places[text] for text in row.texts.values() if text in places}) > 1:
            return f"line {row.line}: {row.texts} are not of one unit"
    return ""


def _unit(unit: ElementTree.Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for variant in unit.findall("tuv"):
        tag = variant.get("{http://www.w3.org/XML/1998/namespace}lang") or variant.get("lang") or ""
        code = re.split("[-_]", tag.lower())[0]
        for segment in variant.findall("seg"):
            text = "".join(_text(segment))
            if code in LANGUAGES and text.strip() and "\N{REPLACEMENT CHARACTER}" not in text:
                found.setdefault(code, text)
    return {code: found[code] for code in found}


def _text(element: ElementTree.Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if child.tag not in ("bpt", "ept", "it", "ph", "ut"):
            yield from _text(child)
        yield child.tail or ""


def _po(code: str) -> bytes:
    """A catalog whose message ids are English."""
    head = [f"Language: {code}", "Content-Type: text/plain; charset=UTF-8"]
    head.append("Plural-Forms: nplurals=2; plural=(n != 1);")
    lines = ['msgid ""', 'msgstr ""', *(f'"{line}\\n"' for line in head)]
    for i, (english, text) in enumerate(zip(texts("en"), texts(code))):
        lines += ["", f"#: a.py:{i}", f'msgid "{english}"', f'msgstr "{text}"']
    lines += ["", 'msgid "one file"', 'msgid_plural "many files"']
    lines += ['msgstr[0] "eine"', 'msgstr[1] "viele"', ""]
    return "\n".join(lines).encode()


def _mo(po: bytes) -> bytes:
    import polib

    return polib.pofile(po.decode()).to_binary()


def _gettext(kind: int) -> Files:
    files = {f"p/locale/{c}/LC_MESSAGES/a.po": _po(c) for c in ("de", "fr")}
    if kind % 4 == 1:
        files = {name.replace(".po", ".mo"): _mo(content) for name, content in files.items()}
    if kind % 4 < 2:
        return files
    stream = io.BytesIO()
    method = [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED][kind % 2]
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return {"p-1.0-py3-none-any.whl": stream.getvalue()}


_PO_ENTRY = re.compile(rb'msgid "(.*)"\s+msgstr "(.*)"')


def _check_units(directory: Path, rows: list) -> str:
    """Undamaged texts of a row belong to one message."""
    places = {text: i for code in LANGUAGES for i, text in enumerate(texts(code))}
    catalogs = [path.read_bytes() for path in directory.rglob("*.po")]
    said = {pair for content in catalogs for pair in _PO_ENTRY.findall(content)}
    for row in rows:
        numbers = {places[text] for text in row.texts.values() if text in places}
        # Where lines were moved, a catalog itself says that one translates the other.
        pairs = {(row.texts.get("en", "").encode(), text.encode()) for text in row.texts.values()}
        if len(numbers) > 1 and not pairs & said or (not row.problem and len(row.texts) < 2):
            return f"line {row.line}: {row.texts}"
    return ""


def _reads(where: str) -> Callable[[Path], list]:
    return lambda directory: list(read_corpus(where.format(directory), LANGUAGES))


def _prepares(where: str) -> Callable[[Path], list[str]]:
    def argv(directory: Path) -> list[str]:
        from tests.cli.corpora_for_cli import arguments

        return arguments("prepare", where.format(directory), directory / "w")

    return argv


# Other lines.


def _read_lines(directory: Path) -> tuple[list, list | ValueError]:
    path = str(find(directory, "text.txt"))
    blocks = list(itertools.chain.from_iterable(read_line_blocks(path)))
    try:
        return blocks, list(iterate_lines(path))
    except ValueError as error:
        return blocks, error


def _check_lines(directory: Path, result: tuple) -> str:
    expected = plain_lines(find(directory, "text.txt"))
    found = [None if isinstance(line, BrokenLine) else line for line in result[0]]
    if isinstance(result[1], ValueError):
        first = expected.index(None) + 1
        named = "text.txt" in str(result[1]) and f":{first}: " in str(result[1])
        return "" if named else str(result[1])
    return unequal(found, expected) or unequal(result[1], expected)


def _documents(kind: int) -> Files:
    def lines(code: str, prefix: str) -> bytes:
        rows = []
        for i, text in enumerate(texts(code)):
            body = {"text": f"{text} Noch einer."} if i % 2 else {"sentences": [text, "Two."]}
            url = f"http://www.site.org/{code}/page-{i}?lang={code}"
            rows.append({"id": f"{prefix}{i}", "lang": code, "url": url, "domain": "d", **body})
        return b"".join(
            json.dumps(row, ensure_ascii=bool(kind % 2)).encode() + b"\n" for row in rows
        )

    gold = table(*([f"{p}{i}" for i in range(NUM_ROWS)] for p in ("s", "t")))
    return {"s.jsonl": lines("de", "s"), "t.jsonl": lines("en", "t"), "gold.tsv": gold}


def _read_documents(directory: Path) -> tuple:
    paths = [find(directory, name) for name in ("s.jsonl", "t.jsonl", "gold.tsv")]
    whole = list(records.read_texts(paths[0]))
    hashes = set().union(*map(file_hashes, held_out_files([str(paths[1])])))
    data = records.load_document_pairs(*paths, domain="domain")
    sides = list(data.documents.values())
    matched = match_urls(sides[0].urls, sides[1].urls, *data.documents)
    return data, whole, hashes, matched, data.description


def _check_documents(directory: Path, result: tuple) -> str:
    data = result[0]
    for name, side in zip(("s.jsonl", "t.jsonl"), data.documents.values()):
        lines = [line for line in plain_lines(find(directory, name)) if line.strip()]
        if wrong := unequal(side.ids, [str(json.loads(line)["id"]) for line in lines]):
            return wrong
    return ""


def _align(directory: Path) -> list[str]:
    names = {"source": "s.jsonl", "target": "t.jsonl"}
    argv = ["align", "--output", str(directory / "out.tsv"), "--debias", "0"]
    for side, name in names.items():
        argv += [f"--{side}", str(directory / name)]
        argv += [f"--{side}-embeddings", str(directory / "v.npy")]
    np.save(directory / "v.npy", np.eye(2 * NUM_ROWS, 8, dtype=np.float32))
    return argv


TEXT_TARGETS = [
    Target("tsv", _tsv, _reads("tsv:{}/*.tsv*"), _check_tsv, True, _prepares("tsv:{}/*.tsv*")),
    Target("tmx", _tmx, _reads("tmx:{}/*.tmx*"), _check_tmx, True, _prepares("tmx:{}/*.tmx*")),
    Target("gettext", _gettext, _reads("gettext:{}"), _check_units, argv=_prepares("gettext:{}")),
    Target("lines", lambda kind: {"text.txt": table(texts("de"))}, _read_lines, _check_lines, True),
    Target("documents", _documents, _read_documents, _check_documents, True, _align),
]
