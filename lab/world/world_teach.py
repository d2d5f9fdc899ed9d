r"""What a teacher says of pieces, frequent words and sentences: vectors of 16 bits.

    python lab/world/world_teach.py --part taught --rows rows.tsv.gz --words words.tsv.gz \
        --teacher E5 --data DATA --output DIR
    python lab/world/world_teach.py --part running ...  # then

`teacher_pieces.npy` has a row for each id of the teacher's vocabulary, `taught.npy` one for each
line of `taught.tsv.gz`: language, `w` for a word or `s` for a sentence, text. `running.*` has
running text, encoded in chunks: run again, it continues.
"""

import argparse
import collections
import gzip
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from world_teacher import Teacher
from world_text import held_out, plain

WORDS_OF_A_LANGUAGE, SENTENCES, ENGLISH_SENTENCES = 5000, 1000, 4500
MOST_TOKENS = 72
# Written text; of the large ones a part. Of messages there is as much as sentences lack.
WRITTEN = ("mono", "tatoeba", "tatoeba-pivot", "europarl", "bible", "stories")
NO_SENTENCES = ("freedict", "osm", "bitcoin", "cldr", "dict-", "idiom")
LARGE = ("europarl", "tatoeba", "phpmanual", "docs")

# Running text: treebanks whole; of everyday text, of narratives and speeches, and of the rest six
# times the three fourths' power of what there is, at most this; of the LARGE from a fourth.
EVERYDAY = ("tatoeba", "tatoeba-pivot", "sent-ding", "stories", "dict-phrases", "idioms-phrases",
            "freedict", "dict-freedict")  # fmt: skip
NARRATIVE = ("europarl", "bible", "wesnoth", "games", "campaigns", "fillets", "freedink",
             "freedroid", "chatterbot", "question", "udhr")  # fmt: skip
NOT_RUNNING = ("osm", "bitcoin", "cldr", "dict-ding", "dict-wordnet", "idiom-meanings", "messages")
MOST = {"mono": 100_000, "everyday": 9000, "narrative": 6000, "other": 5000}
# Parts of sentences between punctuation, two to six words long, where Tatoeba has no training text.
PARTS, PARTS_OF = 2600, ("mono", "stories", "wesnoth", "tatoeba", "campaigns")
WITH_TATOEBA = ("ca", "de", "en", "es", "fr", "gl", "it", "nl", "pt", "ru")
UNSPACED = ("ja", "th", "zh")
PUNCTUATION = re.compile(r"[,.;:!?()«»\"„“”،。、؛؟…\[\]{}<>|·]+")
# Of all these, at random, as many as a core encodes in an hour.
RUNNING, CHUNK = 630_000, 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("taught", "running"), required=True)
    for name in ("rows", "words", "teacher", "data", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.output.mkdir(parents=True, exist_ok=True)
    teacher = Teacher(args.teacher)
    if args.part == "taught":
        np.save(args.output / "teacher_pieces.npy", of_pieces(teacher))
        texts = chosen(args.rows, args.words)
        vectors = teacher.encode([text for *_, text in texts], max_tokens=MOST_TOKENS)
        write(args.output / "taught", texts, vectors)
        return
    with gzip.open(args.output / "taught.tsv.gz", "rt", encoding="utf-8") as file:
        done = {line.rstrip("\n").split("\t")[2] for line in file}
    texts = running(args.rows, done, held_out(args.data))
    chunks = []
    for start in range(0, len(texts), CHUNK):
        chunks.append(args.output / f"running.{start // CHUNK:03}.npy")
        if not chunks[-1].exists():
            part = [text for *_, text in texts[start : start + CHUNK]]
            np.save(chunks[-1], teacher.encode(part, max_tokens=64))
    write(args.output / "running", texts, np.concatenate([np.load(chunk) for chunk in chunks]))


def of_pieces(teacher: Teacher) -> np.ndarray:
    first, *_, last = teacher.tokenizer.encode("").ids
    prompt = [first, *teacher.tokenizer.encode("query:", add_special_tokens=False).ids]
    pieces = range(teacher.tokenizer.get_vocab_size())
    return teacher.encode_ids([np.array([*prompt, piece, last]) for piece in pieces])


def write(path: Path, texts: list[tuple[str, str, str]], vectors: np.ndarray) -> None:
    np.save(path.with_suffix(".npy"), vectors)
    with gzip.open(path.with_suffix(".tsv.gz"), "wt", encoding="utf-8") as file:
        file.writelines("\t".join(row) + "\n" for row in texts)


def chosen(rows: Path, words: Path) -> list[tuple[str, str, str]]:
    """Language, kind and text of what the teacher encodes."""
    generator, found = random.Random(0), []
    counts = collections.Counter()
    with gzip.open(words, "rt", encoding="utf-8") as file:
        for language, word in (line.rstrip("\n").split("\t") for line in file):
            counts[language] += 1
            if counts[language] <= WORDS_OF_A_LANGUAGE:
                found.append((language, "w", word))
    written, others = collections.defaultdict(list), collections.defaultdict(list)
    with gzip.open(rows, "rt", encoding="utf-8") as file:
        for line in file:
            source, *cells = line.rstrip("\n").split("\t")
            if source.startswith(NO_SENTENCES) or (source in LARGE and generator.random() > 0.05):
                continue
            for language, text in (cell.split(":", 1) for cell in cells):
                dense = language in ("zh", "ja", "ko")
                if (6 if dense else 12) <= len(text) <= (120 if dense else 220):
                    (written if source in WRITTEN else others)[language].append(text)
    for language in sorted(written.keys() | others.keys()):
        total = ENGLISH_SENTENCES if language == "en" else SENTENCES
        for pool in (written[language], others[language]):
            generator.shuffle(pool)
        texts = written[language][: total * 2 // 3]
        texts += others[language][: total - len(texts)]
        found += [(language, "s", text) for text in texts]
    return found


def running(rows: Path, done: set[str], held_out: set[str]) -> list[tuple[str, str, str]]:
    """Sentences and parts of sentences, of all languages in random order."""
    generator = random.Random(7)
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    parts = collections.defaultdict(set)
    with gzip.open(rows, "rt", encoding="utf-8") as file:
        for line in file:
            source, *cells = line.rstrip("\n").split("\t")
            if source in NOT_RUNNING or (source in LARGE and generator.random() > 0.25):
                continue
            kind = source if source == "mono" else "other"
            kind = "everyday" if source in EVERYDAY else kind
            kind = "narrative" if source in NARRATIVE else kind
            for language, text in (cell.split(":", 1) for cell in cells):
                if source in PARTS_OF and language not in WITH_TATOEBA:
                    parts[language].update(phrases(language, text, generator))
                dense = language in (*UNSPACED, "ko")
                is_short = len(text) < (6 if dense else 12) or (not dense and text.count(" ") < 2)
                if is_short or len(text) > (110 if dense else 230) or text in done:
                    continue
                found[language, kind][source].add(text)
    texts = []
    for (language, kind), sources in sorted(found.items()):
        number = min(MOST[kind], int(6 * sum(map(len, sources.values())) ** 0.75))
        shares = {source: len(these) ** 0.5 for source, these in sources.items()}
        for source, these in sorted(sources.items()):
            share = int(number * shares[source] / sum(shares.values())) + 1
            these = sorted(these)
            texts += [(language, "s", t) for t in generator.sample(these, min(share, len(these)))]
    for language, these in sorted(parts.items()):
        these = sorted(these)
        texts += [(language, "s", t) for t in generator.sample(these, min(PARTS, len(these)))]
    texts = [row for row in texts if plain(row[2]) not in held_out]
    generator.shuffle(texts)
    return texts[:RUNNING]


def phrases(language: str, text: str, generator: random.Random) -> Iterator[str]:
    """A part of a sentence, if it has one without digits and signs."""
    parts = [part.strip(" -–—'") for part in PUNCTUATION.split(text)]
    parts = [part for part in parts if part and not re.search(r"[\d$%_=/]", part)]
    if parts:
        part = generator.choice(parts)
        words, number = part.split(), generator.randint(2, 6)
        if language in UNSPACED:
            if 3 <= len(part) <= 18:
                yield part
        elif len(words) > 1:
            start = generator.randrange(max(1, len(words) - number + 1))
            yield " ".join(words[start : start + number])


if __name__ == "__main__":
    main()
