"""Made-up text in seven languages: what `--scale smoke` reads where it is given no data.

Words are numbers spelled in syllables of each language, so translations exist and topics show.
"""

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from xling_jax.files.whole import whole_directory

LANGUAGES = ("de", "en", "es", "fr", "it", "pt", "ru")
_NUM_WORDS, _NUM_TOPICS = 120, 4
_PROBING = ("SST2", "MR", "CR", "MPQA", "SUBJ", "TREC")


def write(directory: Path) -> None:
    """Writes parallel, retrieval, labeled and probing text and documents; whole or not at all."""
    if directory.exists():
        return
    with whole_directory(directory) as place:
        rng = random.Random(0)
        lexicon = {code: [*_words(code)] for code in LANGUAGES}

        def spell(words: Sequence[int], code: str) -> str:
            return " ".join(lexicon[code][word] for word in words).capitalize() + "."

        def sentences(count: int, topic: int | None = None) -> list[list[int]]:
            chosen = range(_NUM_WORDS) if topic is None else range(topic, _NUM_WORDS, _NUM_TOPICS)
            return [rng.choices(chosen, k=rng.randint(5, 9)) for _ in range(count)]

        for name, count in (
            ("parallel/europarl.all", 200),
            ("parallel/tatoeba.all", 300),
            ("retrieval/europarl.dev", 60),
        ):
            rows = [[spell(s, code) for code in LANGUAGES] for s in sentences(count)]
            _write(place / f"{name}.tsv.gz", map("\t".join, [LANGUAGES, *rows]))
        for split, count in (("train", 10), ("dev", 5), ("test", 5)):
            texts = [(topic, s) for topic in range(_NUM_TOPICS) for s in sentences(count, topic)]
            for code in LANGUAGES:
                lines = (f"{topic}\t{spell(s, code)} {spell(s[::-1], code)}" for topic, s in texts)
                _write(place / f"classification/mldoc/{split}.{code}.tsv", lines)
        for name in _PROBING:
            texts = [(part, label, s) for part, n in (("tr", 12), ("va", 6), ("te", 6))
                     for label in (0, 1) for s in sentences(n, label)]  # fmt: skip
            lines = (f"{part}\t{label}\t{spell(s, 'en')}" for part, label, s in texts)
            _write(place / f"probing/{name}.txt", lines)
        documents = [sentences(12) for _ in range(24)]
        records = {
            code: [
                {"id": f"{number}", "lang": code, "domain": f"site{number % 2}",
                 "url": f"http://site{number % 2}/{code}/{number}" if number % 3 else f"{number}",
                 "sentences": [spell(s, code) for s in text]}
                for number, text in enumerate(documents)
            ]
            for code in ("en", "fr", "de")
        }  # fmt: skip
        for name, codes in (("wmt16.en", ["en"]), ("wmt16.fr", ["fr"]), ("wmt19", records)):
            lines = (json.dumps(one, ensure_ascii=False) for code in codes for one in records[code])
            _write(place / f"docs/{name}.jsonl.gz", lines)
        _write(place / "docs/wmt16.pairs.tsv", (f"{n}\t{n}" for n in range(len(documents))))


def _words(code: str) -> Iterator[str]:
    """Different words of a language, by its own syllables."""
    letters = ("бвгдлмн", "аеио") if code == "ru" else ("bdfgklmnprst", "aeiou")
    rng = random.Random(code)
    seen: set[str] = set()
    while len(seen) < _NUM_WORDS:
        word = "".join(rng.choice(part) for _ in range(rng.randint(2, 3)) for part in letters)
        if word not in seen:
            seen.add(word)
            yield word


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
