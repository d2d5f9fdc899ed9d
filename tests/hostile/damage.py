"""Damage to files: what disks, networks, editors and attackers do, drawn from a seeded generator.

A set of files is a dict, path inside a directory -> content. `damage` returns another one.
"""

import bz2
import copy
import gzip
import io
import json
import lzma
import random
import re
import struct
import zipfile
from collections.abc import Callable

import zstandard

Files = dict[str, bytes]
Random = random.Random

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: zstandard.ZstdCompressor().compress(content),
}
ABSURD = [0, -1, 1, 2, 10**9, 10**18, 2**31, 2**63, 2**64, float("nan"), float("inf"), -0.5, 1e300]
ABSURD += [None, True, "", "0", "x" * 5000, "a\nb\t", "\ud800", "../../etc/passwd", [], [0], {}]
ABSURD += [[[]], {"a": {}}, "caf\u00e9\u2028\x00"]
_WORDS = [b"", b"\t", b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\x1a"]
_WORDS += [b"0", b"-1", b"1000000000", b"1e999", b"NaN", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x85"]
_WORDS += [b'"', b"<", b"&", b"{", b"[" * 3000, b" " * 200, b"\x0b\x0c", b"#", b":", b"\\"]
# Compressed, a thousandth of that: the bombs are moderate, and still too large for a careless list.
_BOMB_BYTES = 24_000_000


def damage(rng: Random, files: Files, compressible: bool = False) -> Files:
    """Damages one file or more of a set; `compressible` files are sometimes compressed too."""
    files = dict(files)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if not files:
            break
        name = rng.choice(sorted(files))
        if rng.random() < 0.03:
            del files[name]
            continue
        if compressible and rng.random() < 0.25 and not name.endswith((*COMPRESSORS, ".zip")):
            suffix = rng.choice(sorted(COMPRESSORS))
            content = files.pop(name)
            if rng.random() < 0.15:
                content = rng.choice([b"\0", b"a", b"\t", b"\r"]) * _BOMB_BYTES
                content = rng.choice([content, b"a b\n" * 100_000])
            elif rng.random() < 0.5:
                content = _damage_file(rng, name, content)
            content = COMPRESSORS[suffix](content)
            name += suffix
            files[name] = content if rng.random() < 0.4 else change_bytes(rng, content)
            continue
        files[name] = _damage_file(rng, name, files[name])
    return files


def _damage_file(rng: Random, name: str, content: bytes) -> bytes:
    by_kind = [change for suffix, change in _BY_SUFFIX.items() if name.endswith(suffix)]
    if by_kind and rng.random() < 0.6:
        return by_kind[0](rng, content)
    if rng.random() < 0.15:
        return _recode(rng, content)
    return change_bytes(rng, content)


def change_bytes(rng: Random, content: bytes) -> bytes:
    """Flips, cuts, inserts, deletes, repeats, moves or zeroes bytes anywhere."""
    size = len(content)
    start = rng.randrange(size + 1)
    end = min(size, start + rng.choice([1, 1, 2, 4, 8, 50, 1000]))
    kind = rng.randrange(9)
    if kind == 0:
        changed = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 10])):
            if size:
                changed[rng.randrange(size)] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind == 1:
        return content[:start]
    if kind == 2:
        return content[:start] + rng.choice(_WORDS) + content[start:]
    if kind == 3:
        return content[:start] + content[end:]
    if kind == 4:
        return content[:end] + content[start:end] * rng.choice([1, 3]) + content[end:]
    if kind == 5:
        return content[:start] + bytes(end - start) + content[end:]
    if kind == 6:
        return content[:start] + rng.randbytes(end - start) + content[end:]
    if kind == 7:
        return content[start:] + content[:start]
    return rng.choice([b"", b"\0" * 100, rng.randbytes(200), content * 2, b"\n" * 50, content[1:]])


def _recode(rng: Random, content: bytes) -> bytes:
    """Another encoding, byte order mark or line end."""
    text = content.decode("utf-8", "replace")
    encodings = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "latin-1", "cp1252"]
    kind = rng.randrange(len(encodings) + 3)
    if kind < len(encodings):
        return text.encode(encodings[kind], "replace")
    end = [b"\r", b"\r\n", b"\n\r"][kind - len(encodings)]
    return re.sub(rb"\n", lambda _: end if rng.random() < 0.7 else b"\n", content)


def change_lines(rng: Random, content: bytes) -> bytes:
    """Rows and cells: missing, repeated, swapped, empty, too many, very long, not numbers."""
    lines = content.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(9)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(i, lines[j])
    elif kind == 2:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 3:
        lines[i] = rng.choice([b"", b" ", b"\t", b"\t\t\t\t"])
    elif kind == 4:
        lines[i] += b"\tmore"
    elif kind == 5:
        lines[i] = lines[i].replace(b"\t", b" ", 1)
    elif kind == 6:
        lines[i] = lines[i] + b" long" * rng.choice([300, 199_999, 300_000])
    elif kind == 7:
        cells = re.split(rb"([\t ])", lines[i])
        cells[rng.randrange(len(cells))] = rng.choice(_WORDS)
        lines[i] = b"".join(cells)
    else:
        return content[:-1] if content.endswith(b"\n") else content + b"\n"
    return b"\n".join(lines)


def change_json(rng: Random, content: bytes) -> bytes:
    """A value, key or level of a JSON file changed; still JSON, or what Python takes for it."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):  # damaged already
        return change_bytes(rng, content)
    if rng.random() < 0.08:
        deep = rng.choice([b"[", b'{"a":']) * 100_000
        return rng.choice([deep, b"1" * 5000, content[:-2] + b',"z":' + deep, b"null", b'"x"'])
    for _ in range(rng.choice([1, 1, 2])):
        value = change_value(rng, value)
    return json.dumps(value).encode()


def change_value(rng: Random, value: object) -> object:
    """Changes one place in nested dicts and lists."""
    if not isinstance(value, (dict, list)):
        return rng.choice(ABSURD)
    value = copy.deepcopy(value)
    places: list[tuple[dict | list, object]] = []
    pending = [value]
    while pending:
        holder = pending.pop()
        keys = sorted(holder, key=str) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            places.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                pending.append(holder[key])
    if not places or rng.random() < 0.05:
        return rng.choice(ABSURD)
    holder, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(["", "unknown", "../x", str(key) + "s"])] = holder[key]
    elif kind == 2 and isinstance(holder, list):
        holder.append(holder[key])
    elif kind == 3 and type(holder[key]) in (int, float):
        holder[key] = rng.choice([holder[key] + 1, -holder[key], holder[key] * 2, holder[key] - 1])
    else:
        holder[key] = copy.deepcopy(rng.choice(ABSURD))
    return value


def change_json_lines(rng: Random, content: bytes) -> bytes:
    """One record of a JSON lines file changed, or the lines themselves."""
    if rng.random() < 0.3:
        return change_lines(rng, content)
    lines = content.split(b"\n")
    row = rng.randrange(max(1, len(lines) - 1))
    lines[row] = change_json(rng, lines[row])
    return b"\n".join(lines)


def change_npy(rng: Random, content: bytes) -> bytes:
    """A header that does not tell the truth, or asks for pickled objects."""
    if content[:6] != b"\x93NUMPY":
        return change_bytes(rng, content)
    header_end = 10 + struct.unpack("<H", content[8:10])[0]
    data = content[header_end:]
    sizes = [0, 1, 2, -1, 7, 8, 10**9, 10**18, 2**62]
    shape = tuple(rng.choice(sizes) for _ in range(rng.randrange(4)))
    descr = rng.choice(["'<f4'", "'|O'", "'<f8'", "'<i8'", "'>f4'", "'<U4'", "'|V0'", "'<m8'"])
    shape = rng.choice([repr(shape), "(2, 4.5)", "(True, 4)", "('a',)", "4", "(12, 8)", "()"])
    order = rng.choice(["False", "True", "0", "None"])
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    if rng.random() < 0.2:
        header = rng.choice([b"__import__('os').getpid()\n", b"{" * 9000, b"\0" * 20, header[:-9]])
    version = rng.choice([b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
    length = rng.choice([len(header)] * 5 + [0, 65535])
    size = struct.pack("<H" if version[0] == 1 else "<I", length)
    return b"\x93NUMPY" + version + size + header + data


def change_safetensors(rng: Random, content: bytes) -> bytes:
    """A header with other names, types, shapes or offsets, or another length."""
    size = struct.unpack("<Q", content[:8].ljust(8, b"\0"))[0]
    try:
        header = json.loads(content[8 : 8 + size])
    except (ValueError, RecursionError):  # damaged already
        return change_bytes(rng, content)
    if rng.random() < 0.2:
        length = rng.choice([0, 2**63, 2**40, size + 1, size - 1])
        return struct.pack("<Q", length) + content[8:]
    names = sorted(name for name in header if name != "__metadata__")
    entry = header[rng.choice(names)]
    kind = rng.randrange(6)
    if kind == 0:
        entry["shape"] = rng.choice([[], [0], [-1], [10**9, 10**9], [2**62], entry["shape"][::-1]])
    elif kind == 1:
        entry["dtype"] = rng.choice(["F64", "F16", "BF16", "I8", "BOOL", "F8_E4M3", "X", 3])
    elif kind == 2:
        entry["data_offsets"] = rng.choice([[0, 2**62], [4, 0], [-4, 0], [0, 4], [0], "0"])
    elif kind == 3:
        entry["data_offsets"] = header[rng.choice(names)]["data_offsets"]
    elif kind == 4:
        header[rng.choice(["", "a/b/c/d", "../x", "layers_9/kernel"])] = header.pop(names[0])
    else:
        header = change_value(rng, header)
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + content[8 + size :]


def change_zip(rng: Random, content: bytes) -> bytes:
    """Another content, name, size, check sum or method of a member of a zip file."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # damaged already
        return change_bytes(rng, content)
    kind = rng.randrange(4)
    chosen = rng.randrange(len(members))
    if kind < 2:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for number, (name, data) in enumerate(members):
                if number == chosen:
                    data = _damage_file(rng, name, data) if kind == 0 else data
                    bomb = kind == 1 and rng.random() < 0.2
                    name = "../../" + name if kind == 1 and rng.random() < 0.3 else name
                    data = b"\0" * _BOMB_BYTES if bomb else data
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        return stream.getvalue()
    changed = bytearray(content)
    # Fields of a central header: flags (encrypted), method, check sum, sizes, place.
    headers = [match.start() for match in re.finditer(b"PK\x01\x02", content)]
    at = headers[chosen % len(headers)] + rng.choice([8, 10, 16, 20, 24, 28, 30, 42])
    changed[at : at + 2] = rng.choice([b"\x01\x00", b"\x0c\x00", b"\x0e\x00", b"\xff\xff", b"\0\0"])
    return bytes(changed)


def change_xml(rng: Random, content: bytes) -> bytes:
    """Tags lost, repeated or nested, declarations of encodings and entities, odd languages."""
    tags = list(re.finditer(rb"<[^>]*>", content))
    if not tags:
        return change_bytes(rng, content)
    tag, other = rng.choice(tags), rng.choice(tags)
    before, after = content[: tag.start()], content[tag.end() :]
    kind = rng.randrange(12)
    if kind == 0:
        return before + after
    if kind == 1:
        return before + tag[0] * 2 + after
    if kind == 2:
        return before + other[0] + tag[0] + after
    if kind == 3:  # balanced: a part of the file once more, inside another
        first, last = sorted((tag.start(), other.end()))
        return content[: tag.end()] + content[first:last] + after
    if kind == 4:
        insert = rng.choice(_ODD_MARKUP)
        return before + tag[0] + insert + after
    if kind == 5:
        names = rng.choice([b"", b"xx", b"DE", b"en-US", b"\xc3\xa9", b"de_DE", b"&#0;", b"fr"])
        return content.replace(b'"de"', b'"' + names + b'"', rng.choice([1, -1]))
    if kind == 6:
        return content.replace(b'xml:lang="de"', b"", rng.choice([1, -1]))
    if kind == 7:
        return re.sub(rb"<\?xml.*?\?>", rng.choice([b"", b"\n", b" "]), content, count=1)
    if kind in (8, 9):
        name = rng.choice(ENCODINGS)
        declared = re.sub(rb'encoding="[^"]*"', b'encoding="' + name + b'"', content, count=1)
        if kind == 8:
            return declared
        text = declared.decode("utf-8", "replace")
        try:
            return text.encode(name.decode("ascii"), "replace")
        except (LookupError, UnicodeError):
            return text.encode("utf-16")
    if kind == 10:
        declared = re.sub(rb"(<!DOCTYPE[^>]*>)?\s*<tmx", rng.choice(_DOCTYPES) + b"<tmx", content)
        name = rng.choice([b"&x;", b"&l9;", b"&nbsp;", b"&amp;", b"&#55296;", b"&#x0;"])
        return declared.replace(b"<seg>", b"<seg>" + name, rng.choice([1, 2]))
    return content.replace(b"<seg>", b"<seg><hi>" * rng.choice([1, 50_000]), 1)


ENCODINGS = [b"utf-16", b"UTF-16LE", b"utf-16-be", b"iso-8859-1", b"windows-1251", b"us-ascii"]
ENCODINGS += [b"utf-7", b"hex", b"rot13", b"zlib", b"idna", b"punycode", b"unicode_escape", b"x"]
ENCODINGS += [b"utf-32", b"undefined", b"shift_jis", b"hz", b"raw_unicode_escape", b"cp037", b""]
_ENTITIES = b"".join(
    b'<!ENTITY l%d "%s">' % (level, b"&l%d;" % (level - 1) * 10) for level in range(1, 10)
)
_DOCTYPES = [
    b'<!DOCTYPE tmx [<!ENTITY x "inner">]>',
    b'<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
    b'<!DOCTYPE tmx [<!ENTITY % d SYSTEM "http://127.0.0.1/x.dtd"> %d;]>',
    b'<!DOCTYPE tmx SYSTEM "tmx14.dtd">',
    b'<!DOCTYPE tmx [<!ENTITY l0 "lol">' + _ENTITIES + b"]>",
]
_ODD_MARKUP = [b"<seg>inner</seg>", b"<tu></tu>", b"</tuv><tuv>", b"<hi>marked</hi>"]
_ODD_MARKUP += [b"<ph>{0}</ph>"]
_ODD_MARKUP += [b"<![CDATA[<raw> & text]]>", b"<!-- remark -->", b"<?pi x?>", b"&#1;", b"&#xFFFE;"]
_ODD_MARKUP += [b"<bpt><sub>sub</sub></bpt>", b"]]>", b"\x01\x02", b"&amp;amp;", b"</seg><seg>"]
_ODD_MARKUP += [b'</tu><tuv xml:lang="de"><seg>stray</seg></tuv><tu>']
_ODD_MARKUP += [b"<tuv><seg>none</seg></tuv>"]
_ODD_MARKUP += [b'<tuv xml:lang="de"><seg>again</seg></tuv>', b"<x:y/>", b"<hi><seg>a</seg></hi>"]


_BY_SUFFIX: dict[str, Callable[[Random, bytes], bytes]] = {
    ".jsonl": change_json_lines,
    ".json": change_json,
    ".npy": change_npy,
    ".safetensors": change_safetensors,
    ".whl": change_zip,
    ".pt": change_zip,
    ".tmx": change_xml,
    ".model": change_bytes,
    ".mo": change_bytes,
    "": change_lines,
}
