"""Text as people type it in a hurry, or as it stands in web pages; `mini_text.py` trains on it."""

import random
import re
import unicodedata

INLINE_TAGS = ("a", "b", "code", "em", "i", "span", "strong")
BLOCK_TAGS = ("div", "h1", "h2", "li", "p", "td")
DOMAINS = ("com", "net", "org", "eu", "de", "es", "fr", "it", "co.uk")
UMLAUTS = {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}


def careless(text: str, kind: str, code: str, words: list[str], generator: random.Random) -> str:
    """A text after a change of a kind; itself, where the change finds nothing to do."""
    if kind == "accents":
        return unaccented(text, code == "de" and generator.random() < 0.5)
    if kind == "punctuation":
        return " ".join(re.sub(r"[^\w\s'’-]|(?<!\w)[-'’]|[-'’](?!\w)", " ", text).split()) or text
    if kind == "typo":
        return with_typo(text, generator)
    if kind == "markup":
        return with_markup(text, words, generator)
    if kind != "address":
        raise ValueError(f"kind={kind!r} must be accents, punctuation, typo, markup or address")
    address = address_of(words, generator)
    return f"{address} {text}" if generator.random() < 0.3 else f"{text} {address}"


def unaccented(text: str, with_e: bool) -> str:
    """Drops accents; with_e writes umlauts with an e."""
    if with_e:
        text = "".join(UMLAUTS.get(character, character) for character in text)
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def with_typo(text: str, generator: random.Random) -> str:
    """A letter within a word of four or more is missing, doubled, or behind the next one."""
    inner = [
        m.start() + i for m in re.finditer(r"[^\W\d_]{4,}", text) for i in range(1, len(m[0]) - 1)
    ]
    if not inner:
        return text
    place = generator.choice(inner)
    letter, following = text[place], text[place + 1]
    instead, taken = generator.choice([("", 1), (letter * 2, 1), (following + letter, 2)])
    return text[:place] + instead + text[place + taken :]


def with_markup(text: str, words: list[str], generator: random.Random) -> str:
    """HTML around a few words, around all of them, or both."""
    found, tag = text.split(), generator.choice(INLINE_TAGS)
    if generator.random() < 0.7:
        start = generator.randrange(len(found))
        end = min(len(found) - 1, start + generator.choice([0, 0, 1, 2]))
        attribute = ""
        if tag == "a":
            attribute = f' href="{address_of(words, generator)}"'
        elif generator.random() < 0.3:
            attribute = f' class="{generator.choice(words)}"'
        found[start] = f"<{tag}{attribute}>{found[start]}"
        found[end] += f"</{tag}>"
    block = generator.choice(BLOCK_TAGS)
    if generator.random() < 0.6:
        return f"<{block}>{' '.join(found)}</{block}>"
    return " ".join(found) + generator.choice(["", "<br>", "<br/>", "&nbsp;"])


def address_of(words: list[str], generator: random.Random) -> str:
    """A made-up address of a page or a mailbox, or the name of a user."""
    one, two, three = (generator.choice(words) for _ in range(3))
    host = f"{one}.{generator.choice(DOMAINS)}"
    pages = (f"https://www.{host}", f"http://{host}", f"https://{host}", f"www.{host}")
    page = generator.choice(pages)
    number = generator.randrange(10_000)
    ends = (
        "",
        f"/{two}",
        f"/{two}/{three}.html",
        f"/{two}?id={number}",
        f"/{two}-{three}/{number}",
    )
    choices = (
        page + generator.choice(ends),
        f"{two}@{host}",
        f"@{two}{generator.choice(['', number])}",
    )
    return generator.choices(choices, (8, 2, 3))[0]
