"""Parallel text from Debian packages: messages, manuals, descriptions, dialogs; see `mini.sh`.

Nothing in the packages is run; only the `.deb` files of one release are read:

    curl -O MIRROR/dists/bookworm/main/Contents-all.gz          # and Contents-amd64.gz
    curl -O MIRROR/dists/bookworm/main/i18n/Translation-it.bz2  # and de, en (.xz), es and fr
    mkdir -p debs
    python lab/mini/mini_debian.py list Contents-*.gz | (cd debs && xargs apt-get download)
    python lab/mini/mini_debian.py write --debs debs --descriptions . --data DIR

The files are written to DIR/parallel. It takes dpkg-deb, `pip install lxml`, 5 GB and 10 to 25
minutes.
"""

import argparse
import bz2
import gzip
import lzma
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mini_text import evaluation_texts

from xling_jax.corpora.quickstart_text import content
from xling_jax.corpora.readers.gettext import GettextReader

try:
    from lxml import etree, html
except ImportError:
    sys.exit("mini_debian.py: manuals are read with lxml: pip install lxml")

LANGUAGES = ("en", "de", "fr", "es", "it")
# A catalog, and a manual that exists in several languages.
CATALOG = re.compile(r"usr/share/locale/(de|fr|es|it)/LC_MESSAGES/.*\.mo")
MANUAL = re.compile(r"usr/share/(?:help|doc/HTML)/(de|fr|es|it)/.*\.(?:page|docbook)")
WESNOTH = ("data", "did", "dm", "dw", "ei", "httt", "l", "low", "nr", "sof", "sota", "sotbe")
WESNOTH += ("thot", "trow", "tsg", "ttb", "utbs")
# Packages with text in other forms, or with catalogs elsewhere.
MORE_PACKAGES = (
    "debian-handbook",
    "fillets-ng-data",
    *(f"gimp-help-{code}" for code in LANGUAGES),
    "gnucash-docs",
    *(f"libreoffice-l10n-{code}" for code in LANGUAGES[1:]),
    "naev-data",
    "widelands-data",
    *(f"wesnoth-1.16-{name}" for name in WESNOTH),
)
# Names of places, languages, elements and the like: a dictionary.
NAME_PACKAGES = (
    "iso-codes",
    "kalzium-data",
    "kstars-data",
    "libgweather-4-common",
    "marble-data",
)
MEMBERS = (
    "*/{}/LC_MESSAGES/*.mo",
    "*/usr/share/doc/HTML/{}/*.docbook",
    "*/usr/share/help/{}/*",
    "*/gimp/2.0/help/{}/*.html",
    "*/gnucash-guide-{}/*.html",
    "*/gnucash-help-{}/*.html",
    "*/debian-handbook/html/{}-*.html",
    "*/script/*/dialogs_{}.lua",
)
# Where the path of a page names its language.
LANGUAGE_OF_PAGE = (
    r"/share/doc/HTML/(\w\w)/",
    r"/share/help/(C|\w\w)/",
    r"/share/gimp/2\.0/help/(\w\w)/",
    r"/gnucash-(?:guide|help)-(\w\w)/",
    r"/debian-handbook/html/(\w\w-\w\w)/",
)
# Elements that are paragraphs, and those whose text is not prose.
BLOCKS = {"p", "para", "simpara", "title", "subtitle", "term", "desc", "item"}
BLOCKS |= {"h1", "h2", "h3", "h4", "h5", "li", "dt", "dd", "td", "th"}
SKIPPED = {"code", "pre", "screen", "programlisting", "synopsis", "script", "style", "media"}
# Names of programs are entities, defined in files that are not there.
ENTITY = re.compile(rb"&(?!amp;|lt;|gt;|quot;|apos;|#)([\w.-]+);")
QUOTED = r'"((?:[^"\\]|\\.)*)"'
DIALOG = re.compile(rf'dialogId\("([^"]+)".*?{QUOTED}\)\s*(?:dialogStr\({QUOTED}\))?')
# Rows of one catalog or directory of pages, and the English words of a row.
ROWS_OF_EACH, LEAST_WORDS, MOST_WORDS, MOST_WORDS_OF_NAMES = 10_000, 4, 100, 3

Row = dict[str, str]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    listing = commands.add_parser("list", help="name the packages to download")
    listing.add_argument("contents", nargs="+", type=Path, help="Contents-*.gz of a release")
    writing = commands.add_parser("write", help="write TSV files")
    writing.add_argument("--debs", required=True, type=Path, help="the packages")
    writing.add_argument("--descriptions", required=True, type=Path, help="Translation-* files")
    writing.add_argument(
        "--data", required=True, type=Path, help="of mini.sh; its evaluation sets are held out"
    )
    args = parser.parse_args(words)
    if args.command == "list":
        print("\n".join(packages_of(args.contents)))
        return
    for option, path, pattern in (
        ("--debs", args.debs, "*.deb"),
        ("--descriptions", args.descriptions, "Translation-*"),
        ("--data", args.data, "parallel"),
    ):
        if not any(path.glob(pattern)):
            parser.error(f"{option} {path}: needs {pattern} and has none; see the top of this file")
    held_out = evaluation_texts(args.data)
    with tempfile.TemporaryDirectory(dir=args.data) as name:
        games, others = Path(name, "games"), Path(name, "others")
        unpack(args.debs, games, others)
        of_names = [others / name for name in NAME_PACKAGES if (others / name).exists()]
        for kind, rows in {
            "debian-dialogs": dialogs(games),
            "debian-games": messages(packages_in(games)),
            "debian-manuals": (*manuals(games), *manuals(others)),
            "debian-descriptions": descriptions(args.descriptions),
            "debian-messages": messages(packages_in(others)),
        }.items():
            write_table(args.data, kind, select(rows, held_out, LEAST_WORDS, MOST_WORDS))
        names = select(messages(of_names), held_out, 1, MOST_WORDS_OF_NAMES)
        write_table(args.data, "dict-debian", names)


def packages_of(contents: Iterable[Path]) -> list[str]:
    """The packages with catalogs in all four other languages, or manuals in three of them."""
    catalogs, manuals_of = defaultdict(set), defaultdict(set)
    for path in contents:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                name, _, owners = line.rstrip().rpartition(" ")
                for pattern, found in ((CATALOG, catalogs), (MANUAL, manuals_of)):
                    if match := pattern.match(name):
                        for owner in owners.split(","):
                            found[owner.rpartition("/")[2]].add(match[1])
    names = {name for name, codes in catalogs.items() if len(codes) == 4}
    names |= {name for name, codes in manuals_of.items() if len(codes) >= 3}
    return sorted(names | {*MORE_PACKAGES, *NAME_PACKAGES})


def unpack(debs: Path, games: Path, others: Path) -> None:
    """Unpacks what has text from each package, games apart."""
    codes = [*LANGUAGES, "C", *(f"{code}_{code.upper()}" for code in LANGUAGES)]
    patterns = [member.format(code) for member in MEMBERS for code in codes]
    for deb in sorted(debs.glob("*.deb")):
        asked = ["dpkg-deb", "--field", deb, "Package", "Section"]
        fields = subprocess.run(asked, capture_output=True, text=True, check=False)
        if fields.returncode:
            sys.exit(f"mini_debian.py: {fields.stderr.strip()}; download {deb} again")
        package, section = re.findall(r": (.*)", fields.stdout)
        output = (games if section == "games" else others) / package
        output.mkdir(parents=True, exist_ok=True)
        archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
        # tar fails where a pattern finds nothing, and says so.
        command = ["tar", "--extract", "--directory", output, "--wildcards", *patterns]
        subprocess.run(command, stdin=archive.stdout, stderr=subprocess.DEVNULL, check=False)
        if archive.wait():
            sys.exit(f"mini_debian.py: {deb} is not whole; download it again")


def packages_in(directory: Path) -> list[Path]:
    """The unpacked packages; none if there is no such directory."""
    return sorted(directory.glob("*"))


def messages(packages: Iterable[Path]) -> Iterator[tuple[str, Row]]:
    """Messages of unpacked packages, each with the path of its catalogs.

    A package with a broken catalog is left out, and named.
    """
    for package in packages:
        try:
            for name, row in GettextReader(f"gettext:{package}", str(package)).messages(LANGUAGES):
                yield f"{package.name}/{name}", row.texts
        except FileNotFoundError:  # no catalogs
            continue
        except ValueError as error:
            print(f"left out: {package.name}, {error}", file=sys.stderr)


def manuals(directory: Path) -> Iterator[tuple[str, Row]]:
    """Paragraphs of pages, where two or more languages have the same elements."""
    pages: dict[str, dict[str, Path]] = defaultdict(dict)
    for path in sorted(directory.rglob("*")):
        if path.suffix in (".page", ".docbook", ".html"):
            name, code = without_language(str(path))
            if code in LANGUAGES:
                pages[name].setdefault(code, path)
    for name, versions in pages.items():
        if "en" in versions and len(versions) > 1:
            found = {code: paragraphs_of_page(path) for code, path in versions.items()}
            tags = {code: [tag for tag, _ in paragraphs] for code, paragraphs in found.items()}
            same = [code for code in found if tags[code] == tags["en"]]
            for place in range(len(tags["en"])):
                yield name.rpartition("/")[0], {code: found[code][place][1] for code in same}


def without_language(path: str) -> tuple[str, str]:
    """A path with `*` for its language, and the language; "" if it names none."""
    for pattern in LANGUAGE_OF_PAGE:
        if match := re.search(pattern, path):
            code = "en" if match[1] == "C" else match[1][:2]
            name = path[: match.start(1)] + "*" + path[match.end(1) :]
            return re.sub(r"/gimp-help-\w\w/", "/gimp-help/", name), code
    return path, ""


def paragraphs_of_page(path: Path) -> list[tuple[str, str]]:
    """The innermost blocks of a page, each with its tag; none if it cannot be parsed."""
    data = path.read_bytes()
    try:
        if path.suffix == ".html":
            tree = html.document_fromstring(data)
        else:
            parser = etree.XMLParser(recover=True, resolve_entities=False)
            tree = etree.fromstring(ENTITY.sub(rb"\1", data), parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        return []
    found = []
    for element in () if tree is None else tree.iter():
        inner = (tag_of(other) for other in element.iterdescendants())
        if tag_of(element) in BLOCKS and not any(tag in BLOCKS for tag in inner):
            found.append((tag_of(element), " ".join("".join(prose_of(element)).split())))
    return found


def tag_of(element: etree._Element) -> str:
    """The tag of an element without its namespace; "" for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def prose_of(element: etree._Element) -> Iterator[str]:
    """The text of an element, without code."""
    if tag_of(element) and tag_of(element) not in SKIPPED:
        yield element.text or ""
        for inner in element:
            yield from prose_of(inner)
            yield inner.tail or ""


def descriptions(directory: Path) -> Iterator[tuple[str, Row]]:
    """Paragraphs of descriptions of packages, where two or more languages have as many."""
    versions: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for code in LANGUAGES:
        for path in directory.glob(f"Translation-{code}.*"):
            open_text = lzma.open if path.suffix == ".xz" else bz2.open
            with open_text(path, "rt", encoding="utf-8") as file:
                for entry in file.read().split("\n\n"):
                    head, _, body = entry.partition(f"\nDescription-{code}: ")
                    if key := re.search(r"Description-md5: (\w+)", head):
                        versions[key[1]][code] = paragraphs_of_description(body)
    for key, texts in versions.items():
        length = len(texts.get("en", ()))
        same = {code: found for code, found in texts.items() if len(found) == length}
        if len(same) > 1:
            yield from ((key, {code: same[code][i] for code in same}) for i in range(length))


def paragraphs_of_description(body: str) -> list[str]:
    """The summary, the paragraphs and the items of lists."""
    summary, _, text = body.partition("\n")
    text = re.sub(r"^ \.$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ +[*·•-] ", "\n", text, flags=re.MULTILINE)
    paragraphs = (" ".join(found.split()) for found in (summary, *text.split("\n\n")))
    return [paragraph for paragraph in paragraphs if paragraph]


def dialogs(directory: Path) -> Iterator[tuple[str, Row]]:
    """What the fish say in Fish Fillets."""
    rows: dict[tuple[str, str], Row] = defaultdict(dict)
    for path in sorted(directory.rglob("dialogs_*.lua")):
        code = path.stem.removeprefix("dialogs_")
        text = path.read_text(encoding="utf-8", errors="replace")
        for key, source, translation in DIALOG.findall(text):
            row = rows[path.parent.name, key]
            row["en"] = source.replace('\\"', '"')
            if translation and code in LANGUAGES:
                row[code] = translation.replace('\\"', '"')
    yield from (("dialogs", row) for row in rows.values())


def select(rows: Iterable[tuple[str, Row]], held_out: set[str], least: int, most: int) -> list[Row]:
    """Shuffles rows of prose; without repeated and held-out ones, copies and odd lengths.

    Args:
        rows: each with what it is from, of which at most `ROWS_OF_EACH` are taken.
        held_out: letters of texts.
        least: fewest English words of a row.
        most: most of them.
    """
    found, seen, counts = [], set(), Counter()
    for name, row in rows:
        english = row.get("en", "")
        key = content(english)
        # X stands for what a program fills in.
        usable = least <= len(english.split()) <= most and len(re.findall(r"\bX\b", english)) < 2
        if key in seen or not usable or not is_prose(english) or counts[name] >= ROWS_OF_EACH:
            continue
        row = {
            code: " ".join(text.split())
            for code, text in row.items()
            if code == "en" or is_translation(text, english)
        }
        if len(row) > 1 and not held_out & {content(text) for text in row.values()}:
            seen.add(key)
            counts[name] += 1
            found.append(row)
    random.Random(0).shuffle(found)
    return found


def is_prose(text: str) -> bool:
    """Whether a text is words, with few other signs than those of sentences."""
    signs = re.sub(r"[\s.,;:!?'’\"«»„“”()-]", "", text)
    return text.isprintable() and sum(map(str.isalpha, signs)) >= 0.8 * max(len(signs), 1)


def is_translation(text: str, english: str) -> bool:
    """Whether a text is prose that is no copy and about as long as the English one."""
    length, other = len(english), len(text)
    in_proportion = length < 2 * other + 20 and 2 * other < 5 * length + 40
    return in_proportion and is_prose(text) and content(text) not in ("", content(english))


def write_table(data: Path, kind: str, rows: list[Row]) -> None:
    """Writes rows to a file of the kind in DATA/parallel, with a header."""
    lines = ["\t".join(row.get(code, "") for code in LANGUAGES) for row in rows]
    path = data / "parallel" / f"{kind}.{'-'.join(LANGUAGES)}.tsv.gz"
    text = "\n".join(["\t".join(LANGUAGES), *lines]) + "\n"
    path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
    counts = Counter(code for row in rows for code in row)
    print(f"{path}: {len(rows)} rows; " + ", ".join(f"{c} {n}" for c, n in counts.items()))


if __name__ == "__main__":
    main()
