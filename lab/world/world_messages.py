"""Reads translated messages and word lists of packages, for `world_text.py`.

Every reader takes the folder into which `world.sh` unpacks the packages, and yields rows (source,
{language: text}) with languages as the packages write them. Lists of words have sources that begin
with `dict-`.
"""

import ast
import collections
import itertools
import json
import re
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

Row = tuple[str, dict[str, str]]

# A source of messages, where its catalogues are, and their names.
_LOCALE, _WIDELANDS = "locale", "games/widelands/data/locale"
CATALOGUES = (
    ("gramps", _LOCALE, "gramps"),
    ("freeciv", _LOCALE, "freeciv-core freeciv-nations"),
    ("smallgames", _LOCALE, "minetest gbrainy tuxmath"),
    ("widelands", _WIDELANDS, "world tribes* maps win_conditions texts"),
    ("dict-eduactiv8", "games/pysiogame/locale", "eduactiv8"),
    ("gamesworld", _WIDELANDS, "*scenario* map_* texts tribes_encyclopedia *wheels win_conditions"),
    ("gamesworld", _LOCALE, "freeciv-core gbrainy"),
)
# Of `gamesworld`, sentences and paragraphs, the least characters.
PARAGRAPH = 60
_MARKUP = re.compile(r"[%<>{}\\@#=~|`\n\[\]$\ufffd]|http|\w_\w")
_NUMBERS = r"""
import fs from "fs"
const folder = process.argv.at(-1), load = (file) => import(folder + "/" + file)
const english = await load("en-US.js"), some = [...Array(101).keys()]
some.push(101, 110, 120, 150, 200, 250, 300, 365, 400, 500, 600, 700, 800, 900, 1000, 1500, 1999)
some.push(2000, 2024, 2025, 3000, 5000, 1e4, 12e3, 2e4, 5e4, 1e5, 25e4, 1e6, 2e6, 5e6, 1e9)
for (let seed = 7, i = 0; i < 60; i++)
  some.push(101 + (seed = (seed * 1103515245 + 12345) % 2147483648) % 9899)
for (const file of fs.readdirSync(folder).filter((f) => /^[a-z]{2}-[\w-]+\.js$/.test(f))) {
  const words = await load(file)
  const say = (n, form) =>
    console.log([file.slice(0, 2), words[form](n), english[form](n)].join("\t"))
  for (const n of some) try { say(n, "toCardinal") } catch {}
  for (const n of some.slice(1, 41)) try { say(n, "toOrdinal") } catch {}
}
"""


def messages(packages: Path) -> Iterator[Row]:
    """The rows of all readers."""
    for reader in (catalogues, home_assistant, gcompris, tuxpaint, eduactiv8, numbers):
        yield from reader(packages)


def catalogues(packages: Path) -> Iterator[Row]:
    """Messages of gettext."""
    for source, folder, names in CATALOGUES:
        patterns = [f"usr/share/{folder}/*/LC_MESSAGES/{name}.mo" for name in names.split()]
        for path in sorted(itertools.chain(*map(packages.glob, patterns))):
            code = path.parts[-3]
            for message, text in () if "@" in code else gettext(path):
                if source != "gamesworld" or max(len(message), len(text)) > PARAGRAPH:
                    yield from _messages(source, code, {"": text}, {"": message})


def gettext(path: Path) -> Iterator[tuple[str, str]]:
    """Messages and translations of a compiled catalogue, the first of plural forms."""
    data = path.read_bytes()
    count, *tables = struct.unpack_from("<3I", data, 8)
    for number in range(count):
        spans = [struct.unpack_from("<2I", data, table + 8 * number) for table in tables]
        texts = [data[start : start + size] for size, start in spans]
        message, text = (t.decode("utf-8", "replace").split("\0")[0] for t in texts)
        yield message.split("\x04")[-1], text


def _messages(source: str, code: str, texts: dict, english: dict) -> Iterator[Row]:
    """Those of a language beside the English ones of the same key, without marks of menus."""
    for key, text in texts.items():
        pair = [re.sub(r"^\?\w+:|[_&](?=\w)|\(\w\)$", "", t).rstrip(":… ")
                for t in (text, english.get(key, ""))]  # fmt: skip
        if not any(map(_MARKUP.search, pair)) and re.search("[A-Za-z]{2}", pair[1]):
            yield source, {code: pair[0], "en": pair[1]}


def home_assistant(packages: Path) -> Iterator[Row]:
    """The interface of a smart home."""
    folder, tables = packages / "hass_frontend/static/translations", collections.defaultdict(dict)
    for path in sorted(folder.rglob("*.json")):
        code = path.name.rsplit("-", 1)[0]
        tables[code].update(_leaves(json.loads(path.read_text("utf-8")), str(path.parent)))
    yield from _beside_english("hass", tables)


def _leaves(table: dict, prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}.{key}")
        elif isinstance(value, str):
            yield f"{prefix}.{key}", value


def _beside_english(source: str, tables: dict[str, dict]) -> Iterator[Row]:
    english = tables.get("en") or tables["en_US"]
    for code, texts in sorted(tables.items()):
        yield from _messages(source, code, texts, english)


def gcompris(packages: Path) -> Iterator[Row]:
    """Everyday words, in a resource file of Qt: a tree whose nodes have names and data."""
    data = (packages / "usr/share/gcompris-qt/rcc/lang.rcc").read_bytes()
    version, tree, contents, names = struct.unpack_from(">4I", data, 4)
    tables, nodes = {}, [0]
    for node in nodes:
        start = tree + node * (14 if version < 2 else 22)
        name, flags, count, first = struct.unpack_from(">IH2I", data, start)
        if flags & 2:
            nodes.extend(range(first, first + count))
            continue
        size = struct.unpack_from(">H", data, names + name)[0]
        name = data[names + name + 6 :][: 2 * size].decode("utf-16-be")
        if name.startswith("content-"):
            place = contents + first
            (length,) = struct.unpack_from(">I", data, place)
            text = data[place + 4 : place + 4 + length]
            text = zlib.decompress(text[4:]) if flags & 1 else text
            tables[name[8:].removesuffix(".json")] = json.loads(text)
    yield from _beside_english("dict-gcompris", tables)


def tuxpaint(packages: Path) -> Iterator[Row]:
    """Captions of pictures, in English in the first line."""
    tables = collections.defaultdict(dict)
    for path in sorted(packages.glob("usr/share/tuxpaint/stamps/**/*.txt")):
        first, *lines = path.read_text("utf-8", "replace").splitlines()
        for line in (f"en.utf8={first}", *lines):
            if found := re.match(r"(\w+)\.utf8=(.*)", line):
                tables[found[1]][path] = found[2].strip(" .。।")
    yield from _beside_english("tuxpaint", tables)


def eduactiv8(packages: Path) -> Iterator[Row]:
    """Lists of everyday words, each assigned in Python to a key."""
    tables = collections.defaultdict(dict)
    for path in sorted(
        (packages / "usr/share/games/pysiogame/i18n/custom/a4a_py").glob("[a-z]*.py")
    ):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
                words = enumerate(ast.literal_eval(node.value))
                key = ast.unparse(node.targets)
                tables[path.stem].update({(key, i): str(word) for i, word in words})
    yield from _beside_english("dict-eduactiv8", tables)


def numbers(packages: Path) -> Iterator[Row]:
    """Numbers in words, as `n2words` writes them."""
    (folder,) = packages.glob("n2words-*/package/dist")
    command = ["node", "--input-type=module", "-e", _NUMBERS, folder.absolute()]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for place, line in enumerate(printed.splitlines()):
        code, text, english = line.split("\t")
        text = text.replace("i", "і") if code == "uk" else text
        yield (
            "dict-numbers",
            {code: text, "en": english.replace("-", " ") if place % 2 else english},
        )
