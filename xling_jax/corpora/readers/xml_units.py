"""Files of translation units in XML, read as a stream.

Uses expat directly rather than `xml.etree`: expat knows the line of every element, builds no tree
that would have to be pruned, and text can be repaired before it is parsed, so that a broken byte
costs one unit and not the file.
"""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from xml.parsers import expat

from xling_jax.corpora.readers.base import Reader, Row
from xling_jax.files.lines import BROKEN_UTF8, LINE_TOO_LONG, MAX_LINE_BYTES, NUL_BYTE, read_chunks
from xling_jax.text import languages as languages_lib

_GAP = "\ufdd1"  # a noncharacter, as below
_BETWEEN_LETTERS = re.compile(rf"(?<=\w){_GAP}+(?=\w)")
# XML allows neither NUL nor other control characters, and real files have both. NUL becomes this
# noncharacter, which XML allows and no text has, so that its unit can be marked as broken; the
# others become spaces.
_NUL_MARK = "\ufdd0"
_BROKEN_MARK = "\N{REPLACEMENT CHARACTER}"
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f]")
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
    """Files of units that a pattern matches; a subclass has the collector of a format.

    The language of a text is the one that `languages.match_code` finds for its tag.
    """

    collector: "type[UnitCollector]"

    def read(self, languages: Sequence[str]) -> Iterator[Row]:
        """Reads a row from each unit, with the line at which it begins.

        Units with bytes that are not of the encoding, with NUL bytes, or with a text of more than
        `MAX_LINE_BYTES` characters are rows with a problem. UTF-16 is recognized without a byte
        order mark.
        """
        return (row for path in self.files() for row in self._read_file(path, languages))

    def languages(self) -> tuple[str, ...]:
        """The languages of all units; reads the files."""
        tags: dict[str, None] = {}
        for path in self.files():
            collector = self.collector(path, ())
            for _ in collector.parse():
                pass
            tags |= dict.fromkeys(collector.tags)
        codes = dict.fromkeys(map(languages_lib.to_iso639_1, tags))
        return tuple(filter(languages_lib.is_code, codes))

    def _read_file(self, path: str, languages: Sequence[str]) -> Iterator[Row]:
        collector = self.collector(path, languages)
        yield from collector.parse()
        if not collector.has_pair:
            found = f"{', '.join(sorted(collector.tags)) or 'no language':.200}"
            if len(set(collector.tags.values()) - {None}) > 1:
                found += f", but not both with text in {collector.holder}"
            raise ValueError(
                f"{path}: no translation unit has two of {', '.join(languages)}; found {found}"
            )


class UnitCollector:
    """Expat handlers that gather the rows of one file. A subclass knows the elements of a format.

    Attributes:
        root: the outermost element of the format.
        holder: the elements with the texts, for messages.
        native: elements inside a text that hold markup of the original document.
        alone: those that stand for something, such as a line break; a space takes their place
            between letters.
        has_pair: whether a unit with two texts was found.
        tags: language as in the file -> the one that is meant, or None.
    """

    root: str
    holder: str
    native: frozenset[str]
    alone: frozenset[str]

    def __init__(self, path: str, languages: Sequence[str]):
        self.path, self._languages = path, languages
        self.has_pair = False
        self.tags: dict[str, str | None] = {}
        self._rows: list[Row] = []
        self._texts: dict[str, str] = {}
        self._unit_line = self._length = self._code_depth = 0
        self._problem: str | None = None
        self._text: list[str] | None = None
        self._found_root = ""

    def parse(self) -> Iterator[Row]:
        """The rows. Raises as `UnitReader.read`."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._add
        # Entities may read other files and grow without bounds; no translation memory needs them.
        # One that is not declared would be left out of its text, where a document type is named.
        entity = "entity {!r:.60} is {}".format
        parser.EntityDeclHandler = lambda name, *_: self.refuse(entity(name, "declared"))
        parser.SkippedEntityHandler = lambda name, _: self.refuse(entity(name, "unknown"))
        self.line: Callable[[], int] = lambda: parser.CurrentLineNumber
        try:
            for text in _read_text(self.path):
                parser.Parse(text, False)
                yield from self._take_rows()
            parser.Parse("", True)
        except expat.ExpatError as error:
            raise ValueError(
                f"{self.path}:{error.lineno}: not well-formed XML "
                f"({expat.ErrorString(error.code)}); fix the file or export it again"
            ) from error
        except UnicodeError as error:
            raise ValueError(
                f"{self.path}: is not in the encoding it declares ({error}); convert it to UTF-8"
            ) from error

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Begins an element that is not native code."""
        raise NotImplementedError

    def end(self, name: str) -> None:
        """Ends an element that is not native code."""
        raise NotImplementedError

    def refuse(self, reason: str) -> None:
        """Raises ValueError with the line."""
        raise ValueError(f"{self.path}:{self.line()}: {reason}; export the file again")

    def match(self, tag: str) -> str | None:
        """The language that a tag means."""
        if tag not in self.tags:
            self.tags[tag] = languages_lib.match_code(tag, self._languages)
        return self.tags[tag]

    def begin_unit(self) -> None:
        """A unit begins."""
        if self._unit_line:
            self.refuse(f"a unit is inside that of line {self._unit_line}")
        self._texts, self._problem, self._unit_line = {}, None, self.line()

    def end_unit(self) -> None:
        """A unit is a row."""
        texts = {} if self._problem else self._texts
        self.has_pair = self.has_pair or len(texts) > 1
        self._rows.append(Row(texts, self.path, self._unit_line, self._problem))
        self._unit_line = 0

    def begin_text(self, language: str | None) -> None:
        """A text begins; the first in a language counts."""
        if self._text is not None:
            self.refuse("a segment is inside another")
        if self._unit_line and language and language not in self._texts:
            self._text, self._length = [], 0

    def end_text(self, language: str | None) -> None:
        """A text is that of a language, unless it is blank."""
        if self._text is None:
            return
        text, self._text = "".join(self._text), None
        if _GAP in text:
            text = _BETWEEN_LETTERS.sub(" ", text).replace(_GAP, "")
        if _NUL_MARK in text:
            self._problem = self._problem or NUL_BYTE
        elif _BROKEN_MARK in text:
            self._problem = self._problem or BROKEN_UTF8
        elif text and not text.isspace():
            self._texts[language] = text

    def _take_rows(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if not self._found_root:
            self._found_root = name
            if name != self.root:
                way_out = (
                    f"read it as {name.replace('xliff', 'xlf')}:{self.path}"
                    if name in ("tmx", "xliff")
                    else f"convert the file to {self.root.upper()}"
                )
                raise ValueError(f"{self.path}: is <{name:.60}>, not <{self.root}>; {way_out}")
        if name in self.native:
            if name in self.alone and self._text and not self._code_depth:
                self._text.append(_GAP)
            self._code_depth += 1
        else:
            self.start(name, attributes)

    def _end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        if name in self.native:
            self._code_depth -= 1
        else:
            self.end(name)

    def _add(self, data: str) -> None:
        if self._text is None or self._code_depth:
            return
        self._length += len(data)
        if self._length > MAX_LINE_BYTES:
            self._problem = LINE_TOO_LONG  # no more of it is kept
        else:
            self._text.append(data)


def _read_text(path: str) -> Iterator[str]:
    """Decodes a file and replaces what XML forbids."""
    decoder = None
    held = ""  # may be the beginning of a character reference
    for chunk in read_chunks(path):
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
