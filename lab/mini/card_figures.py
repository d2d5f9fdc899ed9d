r"""Figures of the card of `mini`: the cosines that it quotes, and those of its list of failings.

    python lab/mini/card_figures.py --data DIR

DIR/parallel, DIR/retrieval and DIR/classification are as for `lab/mini/mini.sh`. First the quoted
examples of a card whose cosine has changed, with its new one (`--card`, by default that of the
packaged encoder); `--write` corrects it. Then figures of sets, in percent where a cosine is not
meant.
"""

import argparse
import functools
import itertools
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

import xling_jax
from xling_jax.corpora.specs import read_corpus
from xling_jax.encode.model_directory import SHIPPED
from xling_jax.eval.classification_data import load_classification_data
from xling_jax.eval.retrieval_data import load_retrieval_data

LANGUAGES = ("en", "de", "fr", "es", "it")
UMLAUTS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}
)
OTHERS = ("ina", "ast", "glg", "cat", "por", "oci", "lat", "nld", "ron", "pol", "tur")
SCRIPTS = ("rus", "cmn", "jpn", "ell")
# Pairs of English sentences with one translation.
NUM_PARAPHRASES = 20_000
# Sentences of PUD in a long text.
COUNTS = (5, 20)
DICTIONARIES = {
    "de": "dict-ding.en-de",
    "es": "dict-wordnet.en-es",
    "fr": "dict-freedict.en-fr",
    "it": "dict-wordnet.en-it",
}
# Words by how often they are in the English sentences of Tatoeba, from and below.
FREQUENCIES = {"common": (300, math.inf), "rare": (3, 30)}
# "one" and "other" 0.50
EXAMPLE = re.compile(r'"([^"]+)"\s+and\s+"([^"]+)"(\s+)(-?0\.\d\d|1\.00)')

Encode = Callable[[list[str]], np.ndarray]  # texts -> vectors of length one


def with_cosines(card: str, encode: Encode) -> str:
    """A card with the cosines of its quoted examples."""

    def renewed(match: re.Match) -> str:
        one, other = (" ".join(text.split()) for text in match.groups()[:2])
        found = f"{np.dot(*encode([one, other])):.2f}"
        if found != match[4]:
            print(f'"{one}" and "{other}" {match[4]} -> {found}')
        return match[0][: -len(match[4])] + found

    return EXAMPLE.sub(renewed, card)


def spread(directory: Path, encode: Encode) -> None:
    """Cosines of translations and of unrelated sentences."""
    texts = load_retrieval_data(directory / "retrieval/pud.dev.tsv.gz", LANGUAGES).parts[0].texts
    vectors = {code: encode(found) for code, found in texts.items()}
    right, unrelated = [], []
    for one, other in itertools.combinations(LANGUAGES, 2):
        cosines = vectors[one] @ vectors[other].T
        right.append(np.diag(cosines))
        unrelated.append(cosines[~np.eye(len(cosines), dtype=bool)])
    right, unrelated = np.concatenate(right), np.concatenate(unrelated)
    print(f"PUD, translations: median {np.median(right):.2f}, 5 %: {np.quantile(right, 0.05):.2f}")
    print(
        f"PUD, unrelated: mean {unrelated.mean():.2f}, 99.9 %: {np.quantile(unrelated, 0.999):.2f}"
    )
    for count in COUNTS:
        long_texts(texts, vectors, count, encode)


def long_texts(
    texts: dict[str, list[str]], vectors: dict[str, np.ndarray], count: int, encode: Encode
) -> None:
    """Texts of `count` sentences: whether they and their sentences are found."""
    starts = range(0, len(texts["en"]) - count + 1, count)
    long = {
        code: encode([" ".join(found[start : start + count]) for start in starts])
        for code, found in texts.items()
    }
    places = np.arange(len(starts) * count) // count
    right, unrelated, found = [], [], []
    inside, of_inside = {True: [], False: []}, {True: [], False: []}
    for one, other in itertools.product(LANGUAGES, repeat=2):
        of_sentences = vectors[one][: len(places)] @ long[other].T
        inside[one == other].append(np.mean(of_sentences.argmax(axis=1) == places))
        of_inside[one == other].append(of_sentences[np.arange(len(places)), places].mean())
        if one != other:
            cosines = long[one] @ long[other].T
            found.append(np.mean(cosines.argmax(axis=1) == np.arange(len(cosines))))
            right.append(np.diag(cosines))
            unrelated.append(cosines[~np.eye(len(cosines), dtype=bool)])
    print(
        f"{len(starts)} texts of {count} sentences: {np.mean(found):.1%} found; cosine of "
        f"translations {np.mean(right):.2f}, of unrelated texts {np.mean(unrelated):.2f}"
    )
    print(
        "a sentence and the text that contains it: in its language, cosine "
        f"{np.mean(of_inside[True]):.2f}, {np.mean(inside[True]):.0%} found; in another, "
        f"{np.mean(of_inside[False]):.2f}, {np.mean(inside[False]):.0%}"
    )


def topics(directory: Path, encode: Encode) -> None:
    """Cosines of sentences of one topic and of two, SIB-200."""
    data = load_classification_data(directory / "classification/sib200", LANGUAGES)
    texts = data.splits["dev"]
    vectors = {code: encode(part.texts) for code, part in texts.items()}
    same, others = [], []
    for one, other in itertools.combinations(LANGUAGES, 2):
        is_same = np.equal.outer(texts[one].labels, texts[other].labels)
        cosines = vectors[one] @ vectors[other].T
        is_other = ~np.eye(len(cosines), dtype=bool)  # the rows are translations
        same.append(cosines[is_same & is_other])
        others.append(cosines[~is_same])
    print(
        f"SIB-200: one topic {np.mean(np.concatenate(same)):.2f}, "
        f"two topics {np.mean(np.concatenate(others)):.2f}"
    )


def paraphrases(directory: Path, encode: Encode) -> None:
    """Cosines of two English sentences of Tatoeba with the same translation."""
    english = defaultdict(set)
    for code in ("de", "fr", "es"):
        for row in read_corpus(f"tsv:{directory}/parallel/tatoeba.en-{code}.tsv.gz", ("en", code)):
            if len(row.texts) == 2:
                english[code, row.texts[code]].add(row.texts["en"])
    generator = random.Random(0)
    groups = [sorted(found) for found in english.values() if len(found) > 1]
    chosen = generator.sample(groups, min(NUM_PARAPHRASES, len(groups)))
    pairs = [generator.sample(found, 2) for found in chosen]
    one, other = (encode([*side]) for side in zip(*pairs))
    low, median, high = np.quantile((one * other).sum(axis=1), (0.05, 0.5, 0.95))
    print(
        f"{len(pairs)} pairs of English sentences with the same translation: median {median:.2f} "
        f"(5 to 95 %: {low:.2f} to {high:.2f})"
    )


def words(directory: Path, encode: Encode) -> None:
    """Cosines of single English words with the nearest of their translations in a dictionary."""
    counts = Counter()
    for code in DICTIONARIES:
        for row in read_corpus(f"tsv:{directory}/parallel/tatoeba.en-{code}.tsv.gz", ("en", code)):
            counts.update(re.findall("[a-z]+", row.texts.get("en", "").lower()))
    for code, name in DICTIONARIES.items():
        rows = read_corpus(f"tsv:{directory}/parallel/{name}.tsv.gz", ("en", code))
        texts = [row.texts for row in rows if len(row.texts) == 2]
        texts = [found for found in texts if all(map(str.isalpha, found.values()))]
        for kind, (lowest, limit) in FREQUENCIES.items():
            pairs = [
                (found["en"].lower(), found[code])
                for found in texts
                if lowest <= counts[found["en"].lower()] < limit
            ]
            one, other = (encode([*side]) for side in zip(*pairs))
            nearest = defaultdict(lambda: -1.0)
            for (word, _), cosine in zip(pairs, (one * other).sum(axis=1)):
                nearest[word] = max(nearest[word], cosine)
            low, median = np.quantile([*nearest.values()], (0.05, 0.5))
            print(
                f"{len(nearest)} {kind} words and the nearest of their translations ({code}): "
                f"median {median:.2f}, 5 %: {low:.2f}"
            )


def errors(directory: Path, encode: Encode, change: Callable[[str], str]) -> dict[str, float]:
    """Tatoeba errors to English after a change of the other side, in percent."""
    found = {}
    for part in load_retrieval_data(directory / "retrieval/tatoeba.dev", LANGUAGES).parts:
        (code,) = part.texts.keys() - {"en"}
        cosines = encode([*map(change, part.texts[code])]) @ encode(part.texts["en"]).T
        found[code] = 100 * np.mean(cosines.argmax(axis=1) != np.arange(len(cosines)))
    return found


def other_languages(directory: Path, encode: Encode) -> None:
    """Tatoeba errors to English, cosines of translations and of any two sentences."""
    for code in ("deu", *OTHERS, *SCRIPTS):
        data = load_retrieval_data(directory / f"retrieval/tatoeba.dev/{code}-eng.tsv.gz")
        one, other = (encode(data.parts[0].texts[name]) for name in (code, "eng"))
        cosines, own = one @ other.T, one @ one.T
        error = np.mean(cosines.argmax(axis=1) != np.arange(len(cosines)))
        print(
            f"{code}: Tatoeba error {100 * error:.0f} %, translations median "
            f"{np.median(np.diag(cosines)):.2f}, two sentences of it "
            f"{own[~np.eye(len(own), dtype=bool)].mean():.2f}"
        )


def main() -> None:
    """Prints them all."""
    from robustness import without_accents

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="mini", help="a model (%(default)s)")
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--card", type=Path, default=SHIPPED["mini"] / "README.md")
    parser.add_argument("--write", action="store_true", help="correct the cosines of the card")
    args = parser.parse_args()
    if args.write and args.model != "mini" and args.card == SHIPPED["mini"] / "README.md":
        parser.error(f"--write: the card is that of mini, the model {args.model}; name its --card")
    encode = functools.partial(xling_jax.load(args.model).encode, normalize=True)
    card = with_cosines(args.card.read_text(encoding="utf-8"), encode)
    if args.write:
        args.card.write_text(card, encoding="utf-8")
    spread(args.data, encode)
    topics(args.data, encode)
    paraphrases(args.data, encode)
    words(args.data, encode)
    for name, change in {
        "without a change": str,
        "without accents": without_accents,
        "with ae, oe, ue, ss": lambda text: text.translate(UMLAUTS),
    }.items():
        found = errors(args.data, encode, change)
        print(f"Tatoeba {name}:", *(f"{code} {error:.1f}" for code, error in found.items()))
    other_languages(args.data, encode)


if __name__ == "__main__":
    main()
