"""The text inside software messages: markup, entities, placeholders and keyboard accelerators.

A message of a user interface is a template: "Delete <b>%(name)s</b>?", "_Open file". This module
turns the versions of one message into plain sentences that an encoder can learn from. Finding and
joining messages is the work of `gettext.py`.
"""

import html
import re

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
