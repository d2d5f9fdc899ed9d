"""Wheels as the notebooks fetch them, made from a few words: nothing is downloaded in a test.

Every product of `quickstart_text.PRODUCTS` gets the messages "VERB NOUN WHEN" with its own nouns,
in eight languages, enough for the sizes that `write_text` promises.
"""

import hashlib
import itertools
import zipfile
from pathlib import Path

import polib

from xling_jax.corpora.quickstart_text import PRODUCTS

_WORDS = Path(__file__).with_name("words.tsv")
_VERB_LAST = ("de", "nl")


def write_wheels(directory: Path, requirements: Path) -> None:
    """Writes the wheels and the requirements file that pins them."""
    rows = [line.split("\t") for line in _WORDS.read_text(encoding="utf-8").splitlines()]
    _, *languages = rows[0]
    parts = {part: [row[1:] for row in group] for part, group in itertools.groupby(rows[1:], _part)}
    pins = []
    for product, start in PRODUCTS.items():
        messages = [
            [_message(*words) for words in zip(languages, noun, verb, when)]
            for noun, verb, when in itertools.product(parts[product], parts["verb"], parts["when"])
        ]
        wheel = directory / f"{product}-1-py3-none-any.whl"
        _write_wheel(wheel, start, languages, messages)
        pins.append(f"{product}==1 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    requirements.write_text("\n".join(pins) + "\n", encoding="utf-8")


def _part(row: list[str]) -> str:
    return row[0]


def _message(language: str, noun: str, verb: str, when: str) -> str:
    words = (noun, when, verb) if language in _VERB_LAST else (verb, noun, when)
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."


def _write_wheel(path: Path, start: str, languages: list[str], messages: list[list[str]]) -> None:
    """Writes a catalogue a language but the first, which message ids are in."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for column, language in enumerate(languages[1:], start=1):
            catalogue = polib.POFile()
            catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
            catalogue += [polib.POEntry(msgid=m[0], msgstr=m[column]) for m in messages]
            name = start.replace("*", language)
            name = name if "LC_MESSAGES" in name else f"{name}locale/{language}/LC_MESSAGES/x"
            archive.writestr(f"{name}.mo", catalogue.to_binary())
