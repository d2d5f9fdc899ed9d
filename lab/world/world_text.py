"""Reads what `world` is trained on: parallel text, dictionaries, names, word lists, sentences.

Every reader yields rows (source, {language: text}); `rows.tsv.gz` holds them all, a text to a cell,
and `words.tsv.gz` the frequent words of each language.
Text that may not stand behind published weights is left out, and so is every held-out set.
"""

import argparse
import collections
import gzip
import itertools
import json
import random
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from world_arabic import arabic
from world_dictionaries import dictionaries, zipf, zipf_scale
from world_messages import Row, messages
from world_serbian import other_script
from world_stories import stories, times

from xling_jax.text.languages import to_iso639_1

_CODES = (
    "af ar be bg bn ca cs cy da de el en es et eu fa fi fr ga gl he hi hr hu hy id is it ja ka kk "
    "ko lt lv mk nb nl pl pt ro ru sk sl sq sr sv sw ta te th tr uk ur vi zh"
)
LANGUAGES = tuple(_CODES.split())
# Not for published weights, or public test sets; see the notes of the data.
LEFT_OUT = ("multi30k.", "news.", "news2.", "idioms.en-de", "xquad.", "tico19.")
WORDS_OF_A_LANGUAGE = 12_000
MOST_CHARACTERS = 600
# Of the texts in dictionaries, and of paragraphs in games.
SHORT = 60, 200
# A file of everyday sentences, a mode of Apertium, its language, rows.
TRANSLATED = (
    ("tatoeba.en-es", "spa-cat", "ca", 16_000),
    ("tatoeba.en-es", "es-gl", "gl", 10_000),
    ("tatoeba.en-nl", "nld-afr", "af", 10_000),
    ("tatoeba.en-ru", "rus-ukr", "uk", 20_000),
    ("tatoeba.en-es", "es-ro", "ro", 45_000),
    ("tatoeba.en-ru", "rus-bel", "be", 20_000),
)
# The same of games, by the language that is translated.
GAMES_TRANSLATED = (
    ("ru", "rus-ukr", "uk", 30_000), ("es", "es-ro", "ro", 30_000), ("bg", "bul-mkd", "mk", 30_000)
)  # fmt: skip
# Of these, the words of a sentence that `wordfreq` may lack; their modes are in a folder here, as
# the packages have none that works.
ROUGH, MODES = {"uk": 0, "ro": 1, "be": 0, "mk": 0}, Path(__file__).parent
# Of stories: the least words of the English text, the most characters of either, the most rows of
# a language, and of one that has everyday text.
STORY = 1, 400, 15_000, 4_000
STORIES = {
    "cataclysm": (2, 400, 15_000, 4_000), "campaigns": (2, 400, 15_000, 3_000),
    "flare": (2, 400, 15_000, 4_000), "freedroid": (2, 400, 8_000, 4_000),
    "hedgewars": (2, 400, 15_000, 4_000), "warzone": (3, 400, 4_000, 1_000),
    "gcompris-help": (3, 400, 4_000, 1_000), "paint": (1, 400, 600, 300),
    "times": (1, 400, 800, 500), "udhr": (1, 600, 400, 400), "bible-direct": (1, 200, 1_200, 1_200),
}  # fmt: skip
BIBLE = 1, 260, 20_000, 6_000
RICH = {"de", "en", "es", "fr", "it", "nl", "pt", "ru"}
# Sources in which texts with a person or a question go first.
SPOKEN_FIRST, SPOKEN = (
    ("cataclysm", "bible-"),
    re.compile(r"\b(I|you|we|my|your|me|us|he|she|they|him|her|our|don't|I'm|it's)\b|\?"),
)
_TAGS = re.compile(
    r"</?(?:i|b|u|big|small|span|color|good|bad|info|header|bold|italic|ref|format|text|img|p|br|"
    r"em|strong|a|color_\w+)\b[^<>]*>", re.I,
)  # fmt: skip
_MARKUP = re.compile(r"[%<>{}\\@#=|`\[\]$\ufffd*_^]|http|&\w+;|^\W*$")
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？؟۔।])[\"'”’»」』)]*(?:\s+|(?<=[。！？])(?=\S))")
# How many English characters one stands for.
_SIZES = {"zh": 3.2, "ja": 2.2, "ko": 1.9, "he": 1.25, "ar": 1.2, "fa": 1.15}

_SCRIPTS = {
    "ARABIC": "ar fa ur", "CYRILLIC": "be bg kk mk ru sr uk", "GREEK": "el", "HEBREW": "he",
    "DEVANAGARI": "hi", "BENGALI": "bn", "ARMENIAN": "hy", "GEORGIAN": "ka", "HANGUL": "ko",
    "TAMIL": "ta", "TELUGU": "te", "THAI": "th",
}  # fmt: skip
_SCRIPT = {code: name for name, codes in _SCRIPTS.items() for code in codes.split()}


def in_script(text: str, language: str) -> bool:
    """True if most letters are of the script that the language is written in."""
    letters = [c for c in text if c.isalpha()]
    if not letters:
        return False
    wanted = _SCRIPT.get(language, "LATIN")
    if language in ("zh", "ja"):
        wanted = ("CJK", "HIRAGANA", "KATAKANA")
    right = sum(unicodedata.name(c, "").startswith(wanted) for c in letters)
    return right > 0.5 * len(letters)


def language_of(code: str) -> str:
    """The language of a column or file: of zh_hant and cmn zh, of sr_latn sr, of nor nb."""
    code = to_iso639_1(code)
    return {"no": "nb", "cmn": "zh", "pes": "fa", "lvs": "lv"}.get(code, code)


def parallel(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("*.tsv.gz")):
        if path.name.startswith(LEFT_OUT):
            continue
        source = path.name.split(".")[0]
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            columns = [language_of(c) for c in next(file).rstrip("\n").split("\t")]
            for line in file:
                cells = line.rstrip("\n").split("\t")
                texts = {c: text for c, text in zip(columns, cells) if c in LANGUAGES and text}
                if len(texts) > 1:
                    yield source, texts


def mono(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("*.txt.gz")):
        language = path.name.split(".")[0]
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield "mono", {language: line.strip()}


def freedict(folder: Path) -> Iterator[Row]:
    """Translations of words, from dictd files: the first line of an entry is the headword."""
    for path in sorted(folder.rglob("freedict-*.dict.dz")):
        first, second = map(language_of, path.name.split(".")[0].split("-")[1:])
        if first not in LANGUAGES or second not in LANGUAGES or first == "ja":
            continue  # entries of Japanese have another form
        text = gzip.decompress(path.read_bytes())
        index = path.with_name(path.name.replace(".dict.dz", ".index")).read_text("utf-8")
        spans = {
            tuple(line.split("\t")[1:3]) for line in index.splitlines() if line.count("\t") == 2
        }
        for start, size in sorted((_base64(a), _base64(b)) for a, b in spans):
            lines = text[start : start + size].decode("utf-8", "replace").split("\n")
            head = _word(re.split(r"[/<\[]", lines[0])[0])
            senses = [line for line in lines[1:] if re.match(r"\s*\d+\. ", line)] or lines[1:2]
            for sense in senses[:6]:
                sense = re.sub(r"^\s*\d+\. ", "", sense)
                for part in re.split(r"[,;]", re.split(r" \d\. |<", sense)[0])[:3]:
                    part = _word(part)
                    is_short = all(0 < len(w) < 60 and len(w.split()) < 6 for w in (head, part))
                    if is_short and in_script(head, first) and in_script(part, second):
                        yield "freedict", {first: head, second: part}


def _word(text: str) -> str:
    text = re.sub(r"\([^)]*\)|\{[^}]*\}|\[[^\]]*\]|/[^/]*/|\"[^\"]*\"", " ", text)
    # Stress marks of dictionaries are not written elsewhere.
    return unicodedata.normalize(
        "NFC", " ".join(re.sub("[\u0301\u0300](?<=[а-яА-Я].)", "", text).split())
    )


def _base64(digits: str) -> int:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    value = 0
    for digit in digits:
        value = value * 64 + alphabet.index(digit)
    return value


def cldr(folder: Path) -> Iterator[Row]:
    """Names and keywords of emoji and symbols, languages and territories."""
    tables = collections.defaultdict(dict)
    for path in sorted(folder.rglob("annotations.json")):
        language = language_of(path.parent.name)
        if language not in LANGUAGES:
            continue
        found = json.loads(path.read_text("utf-8"))
        found = found.get("annotations", found.get("annotationsDerived")).get("annotations", {})
        for symbol, names in found.items():
            if names.get("tts"):
                tables["cldr", symbol, "tts"][language] = names["tts"][0]
            if len(names.get("default", ())) > 1:
                tables["cldr", symbol, "default"][language] = ", ".join(names["default"][:12])
    for name, key in (("territories", "territories"), ("languages", "languages")):
        for path in sorted(folder.rglob(f"{name}.json")):
            language = language_of(path.parent.name)
            if language in LANGUAGES:
                found = json.loads(path.read_text("utf-8"))["main"][path.parent.name]
                for code, text in found["localeDisplayNames"][key].items():
                    if "-alt-" not in code and text != code:
                        tables["cldr", code, name][language] = text
    for (source, _, _), texts in sorted(tables.items()):
        if len(texts) > 1:
            yield source, texts


def apertium(folder: Path) -> Iterator[Row]:
    """Everyday English sentences, translated by rules from their Spanish, Dutch or Russian."""
    for name, mode, language, count in TRANSLATED:
        with gzip.open(folder / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file][1:]
        random.Random(3).shuffle(rows)
        for english, text in _translated(rows[:count], mode, language):
            yield "apertium", {"en": english, language: text}


def translated_games(rows: list[Row]) -> Iterator[Row]:
    """English of games, translated by rules from what it is in a near language."""
    for source, mode, language, count in GAMES_TRANSLATED:
        found = [
            (texts["en"], texts[source])
            for name, texts in rows
            if not name.startswith("bible-")
            and texts.keys() == {"en", source}
            and len(texts[source]) < 140
        ]
        random.Random(3).shuffle(found)
        for english, text in _translated(found[:count], mode, language):
            yield "apertium-tales", {"en": english, language: text}


def _translated(rows: list, mode: str, language: str) -> Iterator[tuple[str, str]]:
    options = ["-d", MODES] if language in ROUGH else ["-u"]
    command = ["apertium", *options, "-f", "line", mode]
    text = "".join(f"{other}\n" for _, other in rows)
    if mode.startswith("rus-"):
        text = text.replace("ё", "е").replace("Ё", "Е")
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    for (english, _), line in zip(rows, result.stdout.splitlines(), strict=True):
        if line.strip() and (language not in ROUGH or _is_known(line, language)):
            yield english, line.replace("*", "").strip()


def _is_known(line: str, language: str) -> bool:
    """True of a sentence whose words are Apertium's, but for one, and those of `wordfreq`."""
    if not zipf_scale(language):
        return not re.search("[@#*]", line)
    first, *words = re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)*", line) or [""]
    words = [first, *(word for word in words if not word[0].isupper())]
    missing = sum(not zipf(word.replace("’", "'"), language) for word in words)
    marked = "[@#*]" if len(line.split()) < 4 else r"[@#]|\*.*\*"
    return not re.search(marked, line) and missing <= ROUGH[language]


def held_out(data: Path) -> set[str]:
    """Every cell of the development sets, so that no training text is one of them."""
    paths = [*(data / "retrieval").rglob("*.gz"), *(data / "classification/sib200").glob("*.gz")]
    found = set()
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found.update(plain(cell) for line in file for cell in line.rstrip("\n").split("\t"))
    return found


def plain(text: str) -> str:
    return text.casefold().strip(".!?。！？ ")


def short_texts(rows: Iterator[Row], held_out: set[str]) -> Iterator[Row]:
    """Those of two languages of ours whose texts are short, differ and are in their scripts."""
    for source, texts in rows:
        texts = {language_of(code): _tidy(text) for code, text in texts.items()}
        longest = SHORT[source in ("gamesworld", "apertium-tales")]
        if (
            len(texts) == len(set(texts.values())) == 2
            and all(
                code in LANGUAGES and len(text) <= longest and in_script(text, code)
                for code, text in texts.items()
            )
            and not held_out.issuperset(map(plain, texts.values()))
        ):
            yield source, texts


def sentences(rows: Iterator[Row], held_out: set[str]) -> Iterator[Row]:
    """Texts of stories, split where both languages have as many sentences, without markup."""
    seen = set()
    for source, texts in rows:
        words, longest, *_ = _limits(source)
        texts = {language_of(code): _tidy(_TAGS.sub("", text)) for code, text in texts.items()}
        plain_text = source not in ("times", "udhr")
        if (
            len(texts) != 2
            or not set(LANGUAGES).issuperset(texts)
            or (plain_text and any(map(_MARKUP.search, texts.values())))
        ):
            continue
        for part in [texts] if source == "times" else _parts(texts):
            if (
                _are_translations(part)
                and max(map(len, part.values())) <= longest
                and len(part.get("en", "").split()) >= words * ("en" in part)
                and not held_out.issuperset(map(plain, part.values()))
                and (key := hash((source, *map(_letters, part.values()), *part))) not in seen
            ):
                seen.add(key)
                yield source, part


def _limits(source: str) -> tuple[int, int, int, int]:
    return STORIES.get(source, BIBLE if source.startswith("bible-") else STORY)


def _parts(texts: dict[str, str]) -> list[dict[str, str]]:
    """A dictionary for each sentence, or the whole; very short ones stay with the next."""
    split = [[part for part in _SENTENCE_END.split(t) if part.strip()] for t in texts.values()]
    pairs = [dict(zip(texts, pair)) for pair in zip(*split)]
    if len(split[0]) != len(split[1]) or not all(map(_are_translations, pairs)):
        return [texts]
    found = []
    for pair in pairs:
        if found and len(next(reversed(found[-1].values()))) < 12:
            pair = {code: f"{text} {pair[code]}" for code, text in found.pop().items()}
        found.append(pair)
    return [{code: _tidy(text) for code, text in part.items()} for part in found]


def _are_translations(texts: dict[str, str]) -> bool:
    """True of two texts in their scripts that differ and have fitting lengths."""
    sizes = [len(text) * _SIZES.get(code, 1) for code, text in texts.items()]
    return (
        all(sizes)
        and len({_letters(text) for text in texts.values()}) == 2
        and all(code == "sr" or in_script(text, code) for code, text in texts.items())
        and max(sizes) < 2.6 * min(sizes) + 25
    )


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def at_most(rows: list[Row]) -> Iterator[Row]:
    """A random choice of so many rows of a source and its languages."""
    groups = collections.defaultdict(list)
    for source, texts in rows:
        groups[source, tuple(sorted(texts))].append(texts)
    for (source, languages), found in sorted(groups.items()):
        random.Random(7).shuffle(found)
        if source.startswith(SPOKEN_FIRST) and "en" in languages:
            found.sort(key=lambda texts: not SPOKEN.search(texts["en"]))
        *_, most, most_rich = _limits(source)
        for texts in found[: most_rich if RICH.issuperset(languages) else most]:
            yield source, texts


def _tidy(text: str) -> str:
    text = re.sub("[¹²³\u00ad\u200b\u200e\u200f\ufeff]", "", unicodedata.normalize("NFC", text))
    return " ".join(text.split()).strip(" ,;")


def frequent_words(count: int) -> Iterator[tuple[str, str]]:
    """Language and word of the most frequent words, in the order of `wordfreq`."""
    import wordfreq

    known = wordfreq.available_languages("best")
    for language in LANGUAGES:
        code = {"hr": "sh", "sr": ""}.get(language, language)
        if code in known:
            found = 0
            for word in wordfreq.iter_wordlist(code, "best"):
                if in_script(word, language) and "0" not in word:
                    yield language, word
                    found += 1
                    if found == count:
                        break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="world/ and parallel/")
    parser.add_argument("--packages", type=Path, required=True, help="what world.sh unpacks")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    development = held_out(args.data)
    told = list(sentences(stories(args.packages), development))
    others = [code for code in LANGUAGES if code != "en"]
    readers = (
        parallel(args.data / "world/parallel"),
        parallel(args.data / "parallel"),
        mono(args.data / "world/mono"),
        freedict(args.packages),
        cldr(args.packages),
        apertium(args.data / "parallel"),
        short_texts(dictionaries(args.packages), development),
        short_texts(messages(args.packages), development),
        short_texts(arabic(args.packages), development),
        at_most([*told, *sentences(times(others), development)]),
        short_texts(translated_games(told), development),
    )
    with gzip.open(args.output / "words.tsv.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{code}\t{word}\n" for code, word in frequent_words(WORDS_OF_A_LANGUAGE))
    counts, seen = collections.Counter(), set()
    unfinished = args.output / "rows.part"
    with gzip.open(unfinished, "wt", encoding="utf-8", newline="\n", compresslevel=1) as file:
        for source, texts in other_script(itertools.chain(*readers)):
            texts = {k: v for k, v in sorted(texts.items()) if len(v) <= MOST_CHARACTERS}
            if texts and (key := hash(tuple(texts.items()))) not in seen:
                seen.add(key)
                counts[source] += 1
                file.write("\t".join([source, *(f"{k}:{v}" for k, v in texts.items())]) + "\n")
    unfinished.rename(args.output / "rows.tsv.gz")
    for source, count in counts.most_common():
        print(f"{count:>9,} {source}")


if __name__ == "__main__":
    main()
