"""Reads translated software messages from gettext catalogs (`.po`, `.mo`).

Catalogs come from a directory tree, or from a wheel (or a directory of wheels) that need not be
installed. The catalogs of a program in several languages are joined, so that a message gives one
row with every language that translates it. A message is a template, "Delete <b>%(name)s</b>?",
"_Open file"; its versions become plain sentences that an encoder can learn from.
"""

import functools
import gettext
import html
import logging
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import polib

from xling_jax.corpora.readers.base import Reader, Row
from xling_jax.files.lines import BROKEN_UTF8, NUL_BYTE
from xling_jax.files.untrusted import open_archive, read_member

_logger = logging.getLogger(__name__)

_ARCHIVES = (".whl", ".zip")
_CATALOGUES = (".po", ".mo")
_TAG = r"[A-Za-z]{2,3}(?:[_-](?:[A-Z][a-z]{3}|[A-Z]{2}|\d{3}))?(?:@\w+)?"
# polib splits text with str.splitlines, which also breaks at these, inside a message.
_FALSE_LINE_ENDS = re.compile("[\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
# What the error handler "surrogateescape" makes of a byte that is not text.
_BROKEN_BYTE = re.compile("[\udc80-\udcff]")
# The number to ask a plural rule for "many": in Slavic languages 2 to 4 have a separate form.
_MANY = 5
# The language of message ids.
_SOURCE = "en"


# Only names that exist in HTML or Pango are tags: "Usage: copy <source> <target>" keeps its words.
_BLOCK_TAGS = "address article blockquote br dd div dl dt h1 h2 h3 h4 h5 h6 hr li ol p pre section"
_BLOCK_TAGS += " table tbody td tfoot th thead tr ul"
_INLINE_TAGS = "a abbr acronym b big bdi bdo button cite code del dfn em font i img input ins kbd"
_INLINE_TAGS += " label mark q s samp small span strike strong sub sup svg path time tt u var wbr"
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_BLOCK = re.compile(rf"</?(?:{'|'.join(_BLOCK_TAGS.split())})(?:\s[^<>]*)?/?>", re.IGNORECASE)
# React style translations number their tags: "<0>Open</0>".
_INLINE = re.compile(rf"</?(?:{'|'.join(_INLINE_TAGS.split())}|\d+)(?:\s[^<>]*)?/?>", re.IGNORECASE)
# html.unescape alone also accepts entities without semicolon, and "&copy file" is an accelerator.
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")

# A message that chooses its words by number: its text exists only after formatting.
_ICU_CHOICE = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")

_PLACEHOLDER = re.compile(
    r"""
    (?P<percent>%%)
    | \{\{[^{}]*\}\} | \{%[^{}]*%\}                               # {{ name }}, {% tag %}
    | [$%]\{[^{}]*\} | \$[a-z_]\w*                                # ${name}, %{name}, $name
    | %\(\w[^()]*\)(?:[-\#0+]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa](?![^\W\d_]))?   # %(name)s, %(n)05.2f
    | %(?:\d+\$)?[-\#0+]*\d*(?:\.\d+)?(?:hh?|ll?|[Lqjzt])?
      [diouxXeEfFgGcrsaAbBpHIjmMSUwWyYZn@](?![^\W\d_])            # %s, %1$s, %.2f, %Y
    | %L?\d{1,2}(?!\d)                                            # %1 of Qt
    | \{\s*[\w.\[\]-]*\s*(?:![rsa])?(?::[^{}]*)?\}                # {}, {0}, {name!r:>10}
    """,
    re.VERBOSE,
)

_SPACE = re.compile(r"\s+")


class _Catalog(NamedTuple):
    """A catalog file and how to get its bytes."""

    name: str
    inner_path: str
    read: Callable[[], bytes]


class _Entry(NamedTuple):
    """A translated entry of one catalog: the singular or the plural of a message."""

    source: str
    text: str
    line: int
    default: str | None = None


class GettextReader(Reader):
    """`gettext:PATH`, catalogs of software messages, whose ids are in English.

    PATH is a directory (of catalog trees or wheels), or a glob of wheels, zips, `.po` and `.mo`.
    """

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads a row from each message that at least two of the languages have.

        Fuzzy, obsolete and untranslated entries are left out. A message with plural forms gives two
        rows: the form for 1 and the form for 5 of each language, picked by its own plural rule.
        Markup, placeholders and accelerators are handled as `clean_message` says.
        `de` also takes a catalog named `de_DE`, or `de_AT` where there is neither.

        Rows are in the order of the catalog paths and of the entries in them; their line is that of
        the entry in a `.po`, or the number of the entry in a `.mo`.
        """
        return (row for _, row in self.messages(languages))

    def messages(self, languages: Sequence[str]) -> Iterator[tuple[str, Row]]:
        """As `read`, each row with the path of its catalogs, `*` standing for the language."""
        groups = _group(self._find(), languages)
        found = {_SOURCE}.union(*groups.values()) & {*languages}
        if len(found) < 2:
            raise ValueError(
                f"{self.spec}: needs catalogs for at least two of {', '.join(languages)}; found "
                f"{', '.join(sorted(found)) or 'none'}; check the codes"
            )
        return (
            (name, row) for name in sorted(groups) for row in _join(name, groups[name], languages)
        )

    def files(self, languages: Sequence[str] | None = None) -> list[str]:
        """Lists the files that hold catalogs of any language."""
        return sorted({catalog.name.split("!", 1)[0] for catalog in self._find()})

    def _find(self) -> list[_Catalog]:
        """Every catalog under the path, whatever its language, sorted by path."""
        where = self.path
        if os.path.isdir(where):
            paths = [
                (str(file), file.relative_to(where).as_posix())
                for file in sorted(Path(where).rglob("*"))
                if file.suffix.lower() in _CATALOGUES + _ARCHIVES and file.is_file()
            ]
        else:  # the language may stand in the full path of a catalog: de/LC_MESSAGES/x.mo
            inner = lambda path: "/".join(Path(path).absolute().parts[-3:])
            paths = [(path, inner(path)) for path in Reader.files(self)]
        found = []
        for file, inner_path in paths:
            if file.lower().endswith(_ARCHIVES):
                found += _members(file)
            else:
                found.append(_Catalog(file, inner_path, Path(file).read_bytes))
        if not found:
            raise FileNotFoundError(
                f"{self.spec}: no .po or .mo file here; give a directory or a wheel with catalogs"
            )
        return found


def _members(archive: str) -> Iterator[_Catalog]:
    # One handle for all members, because the directory of a big wheel takes long to read. It closes
    # with the last catalog that refers to it.
    opened = open_archive(archive)
    for name in sorted(opened.namelist()):
        if name.lower().endswith(_CATALOGUES):
            # What a wheel holds under NAME-VERSION.data/data is installed without that prefix.
            inner = re.sub(r"^[^/]+\.data/(?:data|purelib|platlib)/", "", name)
            read = functools.partial(read_member, opened, name)
            yield _Catalog(f"{archive}!{name}", inner, read)


def _group(catalogs: list[_Catalog], languages: Sequence[str]) -> dict[str, dict[str, _Catalog]]:
    """Returns starred path -> language -> the best catalog for it."""
    ranked: dict[str, dict[str, tuple[tuple, _Catalog]]] = {}
    for catalog in catalogs:
        path = PurePosixPath(catalog.inner_path)
        for tag in _tags(path):
            ranks = [(_rank(tag, language), language) for language in languages]
            rank, language = min((r for r in ranks if r[0] is not None), default=(None, ""))
            if rank is None:
                continue
            best = ranked.setdefault(_star(path, tag), {})
            # Of a .po and a .mo the .po: it marks what is fuzzy, and lines can be named.
            key = (rank, tag, path.suffix != ".po", catalog.name)
            if language not in best or key < best[language][0]:
                best[language] = (key, catalog)
            break
    return {
        name: {language: found for language, (_, found) in best.items()}
        for name, best in ranked.items()
    }


def _tags(path: PurePosixPath) -> Sequence[str]:
    """What may be the language of a catalog by its path, likeliest first."""
    parts = path.parts
    if "LC_MESSAGES" in parts[1:]:
        return [parts[parts.index("LC_MESSAGES", 1) - 1]]
    ending = re.search(rf"(?:^|[-._])({_TAG})$", path.stem)
    return [path.stem, ending[1]] if ending else []


def _rank(tag: str, language: str) -> int | None:
    """Orders the catalogs that can serve a language: `de`, then `de_DE`, then `de_AT`."""
    tag, language = (code.lower().replace("-", "_") for code in (tag, language))
    if tag == language:
        return 0
    if tag == f"{language}_{language}":
        return 1
    return 2 if re.fullmatch(rf"{re.escape(language)}_[a-z]{{2}}", tag) else None


def _star(path: PurePosixPath, tag: str) -> str:
    """Returns the path without suffix and with `*` for the language, equal for all languages."""
    ending = re.compile(rf"(^|[-._]){re.escape(tag)}$")
    return "/".join(ending.sub(r"\1*", part) for part in path.with_suffix("").parts)


def _join(name: str, group: dict[str, _Catalog], languages: Sequence[str]) -> Iterator[Row]:
    """Yields the messages of one program's catalogs, by (context, id, plural or not)."""
    entries = {language: _entries(catalog) for language, catalog in group.items()}
    # The English catalog last: it often holds ids that nobody has translated yet.
    order = sorted(group, key=lambda language: language == _SOURCE)
    keys = dict.fromkeys(key for language in order for key in entries[language])
    dropped = 0
    for key in keys:
        versions = {code: entries[code][key] for code in order if key in entries[code]}
        texts = {language: entry.text for language, entry in versions.items()}
        if _SOURCE in languages and _SOURCE not in texts:
            first = next(iter(versions.values()))
            default = next((e.default for e in versions.values() if e.default), None)
            if default or not is_symbolic(first.source):
                texts[_SOURCE] = default or first.source
        origin = next(iter(versions))
        file, line = group[origin].name, versions[origin].line
        joined = "".join(texts.values())
        if _BROKEN_BYTE.search(joined) or "\0" in joined:
            problem = BROKEN_UTF8 if _BROKEN_BYTE.search(joined) else NUL_BYTE
            yield Row({}, file, line, problem)
            continue
        texts = clean_message(texts)
        if len(texts) >= 2:
            yield Row({lang: texts[lang] for lang in languages if lang in texts}, file, line)
        else:
            dropped += 1
    _logger.debug("%s: %d of %d messages in two languages", name, len(keys) - dropped, len(keys))


def _entries(catalog: _Catalog) -> dict[tuple, _Entry]:
    """Returns (context, id, is plural) -> entry for what is translated in one catalog."""
    data = catalog.read()
    parse = _parse_mo if catalog.name.lower().endswith(".mo") else _parse_po
    try:
        return _translated(*parse(data), catalog.name)
    except (OSError, ValueError, LookupError, struct.error) as error:
        raise ValueError(
            f"{catalog.name}: not a valid gettext catalog ({error}); fix the file or leave it out"
        ) from None


def _translated(
    parsed: polib.POFile | polib.MOFile, decode: Callable[[str], str], name: str
) -> dict[tuple, _Entry]:
    """See `_entries`; `decode` raises ValueError for text that is not in its encoding."""
    one, many = _plural_forms(parsed.metadata.get("Plural-Forms", ""), name)
    entries: dict[tuple, _Entry] = {}
    for number, entry in enumerate(parsed, start=1):
        flags = getattr(entry, "flags", ())
        if getattr(entry, "obsolete", False) or "fuzzy" in flags:
            continue
        line = getattr(entry, "linenum", None) or number
        context, message_id = decode(entry.msgctxt or ""), decode(entry.msgid)
        default = _zope_default(getattr(entry, "comment", ""))
        forms = entry.msgstr_plural
        singular = forms.get(one, "") if forms else entry.msgstr
        if singular:
            found = _Entry(message_id, decode(singular), line, default)
            entries.setdefault((context, message_id, False), found)
        if forms and entry.msgid_plural and forms.get(many):
            found = _Entry(decode(entry.msgid_plural), decode(forms[many]), line)
            entries.setdefault((context, message_id, True), found)
    return entries


def _parse_po(data: bytes) -> tuple[polib.POFile, Callable[[str], str]]:
    charset = re.search(rb"charset=([\w.:-]+)", data)
    try:
        text = data.decode(charset[1].decode("ascii") if charset else "utf-8", "surrogateescape")
    except LookupError:  # a template's "charset=CHARSET"
        text = data.decode("utf-8", "surrogateescape")
    text = _FALSE_LINE_ENDS.sub(" ", text.removeprefix("\ufeff"))
    # polib opens a text that is the name of a file; no name ends in a newline and a blank.
    return polib.pofile(text + "\n ", encoding="utf-8"), str


def _parse_mo(data: bytes) -> tuple[polib.MOFile, Callable[[str], str]]:
    # polib fails at the first broken byte; latin-1 passes any byte on to `decode`.
    parsed = polib.mofile(data, encoding="latin-1")
    charset = re.search(r"charset=([\w.:-]+)", parsed.metadata.get("Content-Type", ""))
    encoding = charset[1] if charset else "utf-8"
    "".encode(encoding)  # LookupError for an unknown one
    return parsed, lambda text: text.encode("latin-1").decode(encoding, "surrogateescape")


def _plural_forms(rule: str, name: str) -> tuple[int, int]:
    """Returns the indices of the forms for 1 and for many, by the rule in a catalog's header."""
    expression = re.search(r"plural\s*=\s*([^;]+)", rule)
    try:
        choose = gettext.c2py(expression[1].strip()) if expression else lambda n: int(n != 1)
        return choose(1), choose(_MANY)
    except (ValueError, ZeroDivisionError):
        _logger.warning("%s: invalid plural rule %r; using n != 1", name, rule)
        return 0, 1


def _zope_default(comment: str) -> str | None:
    """Returns the source text that Zope and Plone keep in a comment next to a symbolic id."""
    if found := re.search(r'Default: "(.*)"', comment, re.DOTALL):
        return re.sub(r'\s*"?\n"?', " ", found[1]).replace('\\"', '"').replace("\\n", " ")
    return None


def clean_message(texts: dict[str, str]) -> dict[str, str]:
    """Returns the versions of one message, language -> text, as plain sentences.

    In this order: HTML and Pango tags are removed (a block tag or `<br>` leaves a space), entities
    become characters, placeholders of printf, Python, JavaScript, Qt, Zope and Django templates
    become X, accelerator marks are removed, runs of white space become one space. A language is
    left out if no letter remains beside placeholders, or for an ICU plural or select form.

    Choice: one placeholder word for all rather than none: the sentence stays whole ("Delete X?"),
    and the names and types of arguments, which are the same in every language, do not give the
    translation away.
    """
    plain = {}
    has_words = set()
    for language, text in texts.items():
        if _ICU_CHOICE.search(text):
            continue
        text = _drop_markup(text)
        if any(c.isalpha() for c in _PLACEHOLDER.sub(" ", text)):
            has_words.add(language)
        # Neighbors such as "{day}{month}" become one word; a catalog cannot hold NUL.
        text = _PLACEHOLDER.sub(lambda m: "%" if m["percent"] else "\0", text)
        plain[language] = re.sub("\0+", "X", text)
    for mark in "_&":
        plain = _drop_accelerators(plain, mark)
    plain = {language: _SPACE.sub(" ", text).strip() for language, text in plain.items()}
    return {language: text for language, text in plain.items() if language in has_words and text}


def is_symbolic(message_id: str) -> bool:
    """True if a message id is a key ("label_add_item", "error.404") and not source text."""
    return re.fullmatch(r"\w+(?:[._:][A-Za-z]\w*)+|\w+_\w+", message_id, re.ASCII) is not None


def _drop_markup(text: str) -> str:
    if "<" in text:
        text = _COMMENT.sub(" ", text)
        text = _INLINE.sub("", _BLOCK.sub(" ", text))
    # Entities last: "&lt;b&gt;" is text about a tag.
    return _ENTITY.sub(lambda m: html.unescape(m[0]), text) if "&" in text else text


def _drop_accelerators(texts: dict[str, str], mark: str) -> dict[str, str]:
    """Removes accelerator marks where the versions of the message show that they are such.

    A mark before a word ("_File", "&Datei") is an accelerator. Inside a word ("E_xit", "Q&uit") it
    is one unless all versions that have it have the same word, as "file_name" or "AT&T". Two marks
    in one text are never accelerators.
    """
    in_word = re.compile(rf"\w*{mark}(?=[^\W_])\w*")
    suffix = re.compile(rf"\s*\({mark}\w\)")  # "ファイル(_F)"
    found = {language: in_word.findall(text) for language, text in texts.items() if mark in text}
    if not any(found.values()):
        return {language: text.replace("&&", "&") for language, text in texts.items()}
    if any(len(words) > 1 for words in found.values()):
        return texts
    words = {words[0] for words in found.values() if words}
    if len(words) == 1 and not next(iter(words)).startswith(mark):
        return texts
    drop = re.compile(rf"{mark}(?=[^\W_])")
    return {language: drop.sub("", suffix.sub("", text)) for language, text in texts.items()}
