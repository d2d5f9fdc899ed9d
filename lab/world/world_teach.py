r"""What a teacher says of pieces, frequent words and sentences: vectors of 16 bits.

    python lab/world/world_teach.py --rows rows.tsv.gz --words words.tsv.gz --teacher E5 \\
        --output DIR

`teacher_pieces.npy` has a row for each id of the teacher's vocabulary, `taught.npy` one for each
line of `taught.tsv.gz`: language, `w` for a word or `s` for a sentence, text.
"""

import argparse
import collections
import gzip
import random
from pathlib import Path

import numpy as np
import torch
from world_teacher import Teacher

WORDS_OF_A_LANGUAGE, SENTENCES, ENGLISH_SENTENCES = 5000, 1000, 4500
MOST_TOKENS = 72
# Written text; of the large ones a part. Of messages there is as much as sentences lack.
WRITTEN = ("mono", "tatoeba", "tatoeba-pivot", "europarl", "bible", "stories")
NO_SENTENCES = ("freedict", "osm", "bitcoin", "cldr", "dict-", "idiom")
LARGE = ("europarl", "tatoeba", "phpmanual", "docs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("rows", "words", "teacher", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.output.mkdir(parents=True, exist_ok=True)
    teacher = Teacher(args.teacher)
    first, *_, last = teacher.tokenizer.encode("").ids
    prompt = [first, *teacher.tokenizer.encode("query:", add_special_tokens=False).ids]
    size = teacher.tokenizer.get_vocab_size()
    pieces = [np.array([*prompt, piece, last]) for piece in range(size)]
    np.save(args.output / "teacher_pieces.npy", teacher.encode_ids(pieces))
    texts = chosen(args.rows, args.words)
    vectors = teacher.encode([text for *_, text in texts], max_tokens=MOST_TOKENS)
    np.save(args.output / "taught.npy", vectors)
    with gzip.open(args.output / "taught.tsv.gz", "wt", encoding="utf-8") as file:
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


if __name__ == "__main__":
    main()
