"""Files of translation units in XML, TMX and XLIFF, read as a stream.

Uses expat directly rather than `xml.etree`: expat knows the line of every element, builds no tree
that would have to be pruned, and text can be repaired before it is parsed, so that a broken byte
costs one unit and not the file.
"""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from xml.parsers import expat

from xling_jax.corpora.readers.base import Reader, Row
from xling_jax.files.lines import (
    BROKEN_UTF8,
    LINE_TOO_LONG,
    MAX_LINE_BYTES,
    NUL_BYTE,
    XML,
    read_chunks,
)
from xling_jax.text import languages as languages_lib

# In XLIFF, inside of which are other sources and targets: matches of a memory, alternatives, binary
# data.
_ASIDE = frozenset({"alt-trans", "matches", "bin-unit", "glossary", "changeTrack"})
# Of targets that nobody has translated.
_UNTRANSLATED = frozenset({"new", "needs-translation", "initial"})

_GAP = "\ufdd1"  # a noncharacter, as below
_BETWEEN_LETTERS = re.compile(rf"(?<=\w){_GAP}+(?=\w)")
# XML allows no NUL, other control characters, U+FFFE and U+FFFF, and real files have them. NUL
# becomes this noncharacter, which XML allows and no text has, so that its unit can be marked as
# broken; the others become spaces.
_NUL_MARK = "\ufdd0"
_BROKEN_MARK = "\N{REPLACEMENT CHARACTER}"
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")  # some encodings yield them, XML has none
_REFERENCE = re.compile(r"&#(?:x([0-9a-fA-F]{1,8})|([0-9]{1,10}));")
_MAX_REFERENCE_LENGTH = len("&#x0010ffff;")
# An XML file begins with "<", so that its second byte tells UTF-16 from the rest. The order counts:
# the mark of UTF-32 begins with that of UTF-16.
_FIRST_BYTES = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
_DECLARED_ENCODING = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")


class UnitReader(Reader):
    """Files of units that a pattern matches; a subclass has the parser of a format.

    The language of a text is the one that `languages.match_code` finds for its tag.
    """

    parser: "type[_UnitParser]"

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads a row from each unit, with the line at which it begins.

        Units with bytes that are not of the encoding, with NUL bytes, or with a text of more than
        `MAX_LINE_BYTES` characters are rows with a problem. UTF-16 is recognized without a byte
        order mark.
        """
        return (row for path in self.files() for row in self.parser(path, languages).rows())


class _UnitParser:
    """Gathers the rows of one file with handlers of expat.

    A subclass knows a format: its `begin(name, attributes)` and `end(name)` are called for each
    element that is not native.

    Attributes:
        root: the outermost element of the format.
        holder: the elements with the texts, for messages.
        single: elements that are never inside one of the same name.
        native: elements inside a text that hold markup of the original document.
        alone: those that stand for something, such as a line break; a space takes their place
            between letters.
    """

    root: str
    holder: str
    single: frozenset[str]
    native: frozenset[str]
    alone: frozenset[str]

    def __init__(self, path: str, languages: Sequence[str]):
        self._path, self._languages = path, languages
        self._tags: dict[str, str | None] = {}  # language as in the file -> the one that is meant
        self._rows: list[Row] = []
        self._texts: dict[str, str] = {}
        self._unit_line = self._length = self._native_depth = 0
        self._problem: str | None = None
        self._text: list[str] | None = None
        self._found_root, self._open = False, set()

    def rows(self) -> Iterator[Row]:
        """Yields the rows. ValueError names the file and, for broken XML, the line."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._add
        # Entities may read other files and grow without bounds; no translation memory needs them.
        # One that is not declared would be left out of its text, where a document type is named.
        entity = "entity {!r:.60} is {}".format
        parser.EntityDeclHandler = lambda name, *_: self._refuse(entity(name, "declared"))
        parser.SkippedEntityHandler = lambda name, _: self._refuse(entity(name, "unknown"))
        self._line: Callable[[], int] = lambda: parser.CurrentLineNumber
        has_pair = False
        try:
            for text in _read_text(self._path):
                parser.Parse(text, False)
                rows, self._rows = self._rows, []
                has_pair = has_pair or any(len(row.texts) > 1 for row in rows)
                yield from rows
            parser.Parse("", True)
        except expat.ExpatError as error:
            raise ValueError(
                f"{self._path}:{error.lineno}: not well-formed XML "
                f"({expat.ErrorString(error.code)}); fix the file or export it again"
            ) from error
        except UnicodeError as error:
            raise ValueError(
                f"{self._path}: is not in the encoding it declares ({error}); convert it to UTF-8"
            ) from error
        if not has_pair:
            found = f"{', '.join(sorted(self._tags)) or 'no language':.200}"
            if len(set(self._tags.values()) - {None}) > 1:
                found += f", but not both with text in {self.holder}"
            wanted = ", ".join(self._languages)
            raise ValueError(
                f"{self._path}: no translation unit has two of {wanted}; found {found}"
            )

    def match(self, tag: str) -> str | None:
        """The language that a tag means."""
        if tag not in self._tags:
            self._tags[tag] = languages_lib.match_code(tag, self._languages)
        return self._tags[tag]

    def begin_unit(self) -> None:
        """A unit begins."""
        self._texts, self._problem, self._unit_line = {}, None, self._line()

    def end_unit(self) -> None:
        """A unit is a row."""
        texts = {} if self._problem else self._texts
        self._rows.append(Row(texts, self._path, self._unit_line, self._problem))
        self._unit_line = 0

    def begin_text(self, language: str | None) -> None:
        """A text begins; the first in a language counts."""
        if self._unit_line and language and language not in self._texts:
            self._text, self._length, self._text_language = [], 0, language

    def end_text(self) -> None:
        """The text ends; it counts unless it is blank."""
        if self._text is None:
            return
        text, self._text = "".join(self._text), None
        text = _BETWEEN_LETTERS.sub(" ", text).replace(_GAP, "") if _GAP in text else text
        if _NUL_MARK in text:
            self._problem = self._problem or NUL_BYTE
        elif _BROKEN_MARK in text:
            self._problem = self._problem or BROKEN_UTF8
        elif text and not text.isspace():
            self._texts[self._text_language] = text

    def _refuse(self, reason: str) -> None:
        raise ValueError(f"{self._path}:{self._line()}: {reason}; export the file again")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self._found_root and name != self.root:
            way_out = f"convert the file to {self.root.upper()}"
            if name in ("tmx", "xliff"):
                way_out = f"read it as {name.replace('xliff', 'xlf')}:{self._path}"
            raise ValueError(f"{self._path}: is <{name:.60}>, not <{self.root}>; {way_out}")
        self._found_root = True
        if name in self.native:
            if name in self.alone and self._text and not self._native_depth:
                self._text.append(_GAP)
            self._native_depth += 1
            return
        if name in self.single:
            if name in self._open:
                self._refuse(f"<{name}> is inside another")
            self._open.add(name)
        self.begin(name, attributes)

    def _end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        if name in self.native:
            self._native_depth -= 1
            return
        self._open.discard(name)
        self.end(name)

    def _add(self, data: str) -> None:
        if self._text is None or self._native_depth:
            return
        self._length += len(data)
        if self._length > MAX_LINE_BYTES:
            self._problem = LINE_TOO_LONG  # no more of it is kept
        else:
            self._text.append(data)


class _TmxParser(_UnitParser):
    """Of several variants in one language the first with text counts; "hi" holds text."""

    root, holder = "tmx", "<seg>"
    single = frozenset({"tu", "tuv", "seg"})
    native = frozenset({"bpt", "ept", "it", "ph", "ut"})
    alone = frozenset({"it", "ph"})
    _language: str | None = None

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self.begin_unit()
        elif name == "tuv":
            self._language = self.match(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg":
            self.begin_text(self._language)

    def end(self, name: str) -> None:
        if name == "seg":
            self.end_text()
        elif name == "tu":
            self.end_unit()
        elif name == "tuv":
            self._language = None


class _XliffParser(_UnitParser):
    """A row for each <trans-unit> of version 1, or <segment> of version 2.

    Targets in a state that says they are not translated are left out.
    """

    root, holder = "xliff", "<source> and <target>"
    single = frozenset({"trans-unit", "segment"})
    native = frozenset({"bpt", "ept", "it", "ph", "x", "bx", "ex", "sc", "ec", "cp"})
    alone = frozenset({"it", "ph", "x", "cp"})
    _aside = 0  # elements around that hold other sources and targets
    _state = ""
    _sides: dict[str, str | None] = {"source": None, "target": None}  # never changed in place

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        if name in ("xliff", "file"):
            for side, short in (("source", "srcLang"), ("target", "trgLang")):
                if tag := attributes.get(short) or attributes.get(f"{side}-language"):
                    self._sides = self._sides | {side: self.match(tag)}
        elif name in _ASIDE:
            self._aside += 1
        elif self._aside:
            return
        elif name in ("trans-unit", "segment"):
            self.begin_unit()
            self._state = attributes.get("state", "")
        elif name in self._sides:
            own = attributes.get("xml:lang")
            language = self.match(own) if own else self._sides[name]
            is_text = name == "source" or attributes.get("state", self._state) not in _UNTRANSLATED
            self.begin_text(language if is_text else None)

    def end(self, name: str) -> None:
        if name in _ASIDE:
            self._aside -= 1
        elif self._aside:
            return
        elif name in ("trans-unit", "segment"):
            self.end_unit()
        elif name in self._sides:
            self.end_text()


class TmxReader(UnitReader):
    """`tmx:GLOB`, translation memories (TMX 1.4): a variant of a unit for each language."""

    parser = _TmxParser


class XliffReader(UnitReader):
    """`xlf:GLOB`, files of translators (XLIFF 1.2 and 2): a source and a target language."""

    parser = _XliffParser


def _read_text(path: str) -> Iterator[str]:
    """Decodes a file and replaces what XML forbids."""
    decoder = None
    held = ""  # may be the beginning of a character reference
    for chunk in read_chunks(path, XML):
        decoder = decoder or codecs.getincrementaldecoder(_find_encoding(path, chunk))("replace")
        text = held + decoder.decode(chunk)
        start = text.rfind("&", -_MAX_REFERENCE_LENGTH)
        if start == -1 or ";" in text[start:]:
            start = len(text)
        held = text[start:]
        yield _repair(text[:start])
    if decoder:
        yield _repair(held + decoder.decode(b"", final=True))


def _find_encoding(path: str, head: bytes) -> str:
    """Returns the encoding of an XML file, by its first bytes or by what they declare."""
    for begin, encoding in _FIRST_BYTES.items():
        if head.startswith(begin):
            return encoding
    declared = _DECLARED_ENCODING.match(head.removeprefix(codecs.BOM_UTF8))
    encoding = declared[1].decode("ascii") if declared else "utf-8"
    try:
        if "<?xml".encode(encoding) != b"<?xml":  # LookupError for what is no text, such as zlib
            raise LookupError
        encoding = codecs.lookup(encoding).name
    except (LookupError, UnicodeError) as error:
        raise ValueError(
            f"{path}:1: unknown encoding {encoding!r:.60}, or not that of the file; convert the "
            "file to UTF-8"
        ) from error
    return "utf-8-sig" if encoding == "utf-8" else encoding


def _repair(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", _NUL_MARK)
    if "&#" in text:
        text = _REFERENCE.sub(_repair_reference, text)
    return _SURROGATE.sub(_BROKEN_MARK, _CONTROL.sub(" ", text))


def _repair_reference(match: re.Match) -> str:
    """Replaces a reference to a character that XML forbids, such as `&#x1;`."""
    number = int(match[1], 16) if match[1] else int(match[2])
    is_legal = (number >= 0x20 and not 0xD800 <= number < 0xE000) or number in (9, 10, 13)
    return match[0] if is_legal and number not in (0xFFFE, 0xFFFF) else " "
