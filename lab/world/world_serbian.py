"""Writes Serbian in its other script, and Croatian in Cyrillic, by rule."""

import re
from collections.abc import Iterator

from world_messages import Row

_CYRILLIC = "абвгдђежзијклљмнњопрстћуфхцчџш"
_LATIN = "a b v g d đ e ž z i j k l lj m n nj o p r s t ć u f h c č dž š"
TO_LATIN = dict(zip(_CYRILLIC, _LATIN.split()))
TO_CYRILLIC = {latin: letter for letter, latin in TO_LATIN.items()}
# Two letters that are two sounds, as in injekcija and nadživeti.
_APART = re.compile(
    r"(?i)(?<=\bkon)(?=jug|junk)|(?<=\bin)(?=jek)|(?<=\btan)(?=jug)|"
    r"(?<=\bnad)(?=ž[ein])|(?<=\bod)(?=živ|žal)|(?<=\bpod)(?=žan)"
)


def to_latin(text: str) -> str:
    def letter(found: re.Match) -> str:
        latin = TO_LATIN[found[0].lower()]
        return latin if found[0].islower() else latin.capitalize()

    return re.sub(f"[{_CYRILLIC}{_CYRILLIC.upper()}]", letter, text)


def to_cyrillic(text: str, kept: set[str]) -> str:
    """But for words that are foreign, or among those kept."""

    def word(found: re.Match) -> str:
        if re.search("[qwxyäöüéè]", found[0].lower()) or found[0].lower() in kept:
            return found[0]
        return re.sub("(?i)lj|nj|dž|[a-zčćđšž]", letter, _APART.sub("\u2060", found[0])).replace(
            "\u2060", ""
        )

    def letter(found: re.Match) -> str:
        cyrillic = TO_CYRILLIC[found[0].lower()]
        return cyrillic if found[0].islower() else cyrillic.upper()

    return re.sub("[A-Za-z\u00c0-\u024f]+", word, text)


def other_script(rows: Iterator[Row]) -> Iterator[Row]:
    """The rows, and beside those of English and Serbian or Croatian another one."""
    for source, texts in rows:
        yield source, texts
        language = "sr" if "sr" in texts else "hr"
        if texts.keys() >= {"en", language} and len(texts[language]) <= 300:
            text, english = texts[language], texts["en"]
            if re.search(f"[{_CYRILLIC}]", text):
                text = to_latin(text)
            else:
                text = to_cyrillic(text, set(re.findall("[a-z]{4,}", english.lower())))
            yield "serbian", {"en": english, "sr": text}
