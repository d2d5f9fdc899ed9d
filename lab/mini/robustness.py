"""What a change of the text does to its vector: typos, capitals, markup, missing words and more.

    python lab/mini/robustness.py --data pud.dev.tsv.gz tatoeba.dev

The sentences of the given languages, up to 1,000 of each, are changed by rule. Per change: the
cosine between a sentence and what it has become, and the share of changed sentences that still find
their translation in the first other language of the file, by cosine, beside the share without the
change.
"""

import argparse
import functools
import random
import re
import unicodedata
from collections.abc import Callable, Iterator

import numpy as np

import xling_jax
from xling_jax.cli.options import words
from xling_jax.eval.results import markdown_table, percent
from xling_jax.eval.retrieval_data import load_retrieval_data

NUM_SENTENCES = 1000
Change = Callable[[str, random.Random], str]
Encode = Callable[[list[str]], np.ndarray]  # texts -> vectors of length one
TAGS = "b", "i", "em", "strong"


def without_accents(text: str) -> str:
    """Letters without their marks."""
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def one_typo(text: str, generator: random.Random) -> str:
    """Two neighboring letters of a word of five or more change places."""
    places = [m.start() + i for m in re.finditer(r"\w{5,}", text) for i in range(1, len(m[0]) - 2)]
    places = [place for place in places if text[place] != text[place + 1]]
    if not places:
        return text
    place = generator.choice(places)
    return text[:place] + text[place + 1] + text[place] + text[place + 2 :]


def typos_in_a_third(text: str, generator: random.Random) -> str:
    """A typo in every third word, if it is long enough for one."""
    found = [word if i % 3 else one_typo(word, generator) for i, word in enumerate(text.split())]
    return " ".join(found)


def shuffled(text: str, generator: random.Random) -> str:
    """The words in random order."""
    found = text.split()
    return " ".join(generator.sample(found, len(found)))


def without_a_word(text: str, generator: random.Random) -> str:
    """One word is missing."""
    found = text.split()
    if len(found) < 2:
        return text
    found.pop(generator.randrange(len(found)))
    return " ".join(found)


def other_digits(text: str, generator: random.Random) -> str:
    """Every digit becomes another one."""
    return re.sub(r"\d", lambda m: generator.choice("0123456789".replace(m[0], "")), text)


def tags_around_a_word(text: str, generator: random.Random) -> str:
    """A paragraph of HTML with one word in bold or the like."""
    found, tag = text.split(), generator.choice(TAGS)
    place = generator.randrange(len(found))
    found[place] = f"<{tag}>{found[place]}</{tag}>"
    return f"<p>{' '.join(found)}</p>"


def first_half(text: str, generator: random.Random) -> str:
    """The first half of the words."""
    del generator
    found = text.split()
    return " ".join(found[: (len(found) + 1) // 2])


CHANGES: dict[str, Change] = {
    "all capitals": lambda text, _: text.upper(),
    "no punctuation": lambda text, _: " ".join(re.sub(r"[^\w\s]", " ", text).split()),
    "no accents": lambda text, _: without_accents(text),
    "one typo": one_typo,
    "a typo in every third word, if long": typos_in_a_third,
    "one word missing": without_a_word,
    "other digits": other_digits,
    "words in random order": shuffled,
    "HTML around it": tags_around_a_word,
    "a URL appended": lambda text, _: f"{text} https://www.example.org/news?id=42",
    "the first half only": first_half,
}


def outcomes(
    change: Change, texts: dict[str, list[str]], vectors: dict[str, np.ndarray], encode: Encode
) -> Iterator[np.ndarray]:
    """Per language: for each changed sentence its cosine, whether it is found, and was before."""
    for code, plain in texts.items():
        target = vectors[next(other for other in texts if other != code)]
        generator = random.Random(0)
        changed = [change(text, generator) if text else "" for text in plain]
        places = [place for place, text in enumerate(plain) if text and changed[place] != text]
        if places:
            before, after = vectors[code][places], encode([changed[place] for place in places])
            found = [(rows @ target.T).argmax(axis=1) == places for rows in (after, before)]
            yield np.stack([np.einsum("nd,nd->n", before, after), *found])


def main() -> None:
    """Prints a table per file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="mini", help="a model (%(default)s)")
    parser.add_argument("--data", required=True, nargs="+", help="sets of translations")
    parser.add_argument("--languages", type=words, default=("en", "de", "fr", "es", "it"))
    args = parser.parse_args()
    encoder = xling_jax.load(args.model)
    encode = functools.partial(encoder.encode, normalize=True)
    for path in args.data:
        parts = [
            {code: found[:NUM_SENTENCES] for code, found in part.texts.items()}
            for part in load_retrieval_data(path, args.languages).parts
        ]
        encoded = [{code: encode(found) for code, found in texts.items()} for texts in parts]
        table = []
        for name, change in CHANGES.items():
            found = [
                rows
                for texts, vectors in zip(parts, encoded)
                for rows in outcomes(change, texts, vectors, encode)
            ]
            if not found:
                continue  # such as digits, where there are none
            rows = np.concatenate(found, axis=1)
            low, median, high = np.quantile(rows[0], (0.05, 0.5, 0.95))
            cosines = f"{median:.2f}", f"{low:.2f} to {high:.2f}"
            shares = [percent(share) for share in rows[1:].mean(axis=1)]
            table.append([name, f"{rows.shape[1]:,}", *cosines, *shares])
        header = ["change", "sentences", "cosine, median", "5 to 95 %", "found", "found before"]
        print(f"\n{path}\n", markdown_table(header, table), sep="\n")


if __name__ == "__main__":
    main()
