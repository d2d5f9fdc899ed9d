r"""Vocabulary, tokens, pairs and pieces' features of the text of `world_text.py`, as arrays.

    python lab/world/world_prepare.py --rows rows.tsv.gz --words words.tsv.gz --teacher E5 \
        --output DIR

The vocabulary is the teacher's, XLM-R's, in lower case: pieces that differ in case become one whose
probability is the sum of theirs, and those that the text uses most stay.
"""

import argparse
import collections
import gzip
import json
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sentencepiece import sentencepiece_model_pb2 as sentencepiece_model

from xling_jax.encode.model_directory import SHIPPED
from xling_jax.models.numpy_static import FeatureFinder, StaticOptions, choose_keys
from xling_jax.text.vocab import Vocab

PIECES, FEATURES, FEATURE_ROWS = 160_000, ("pairs", "triples"), 100_000
MOST_TOKENS = 160
# Words and names: no text whose pairs of pieces are counted.
WORDS = ("freedict", "cldr", "dict-", "idiom")
# Rows of a source; of dictionaries, with English and without.
LIMITS = {"europarl": 160_000, "phpmanual": 50_000, "dict-ding": 100_000, "docs": 60_000}
DICTIONARY_LIMITS = 50_000, 12_000
# Of a source and pair of languages, rows in which pairs of pieces are counted.
COUNTED, COUNTED_EVERYDAY = 6000, 40_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("rows", "words", "teacher", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    texts, languages, pairs = read_pairs(args.rows)
    with gzip.open(args.words, "rt", encoding="utf-8") as file:
        words = [line.rstrip("\n").split("\t")[1] for line in file]
    model, teacher_ids = lowercased(args.teacher / "tokenizer.json")
    full = Vocab(model.SerializeToString())
    counts = [
        np.bincount(ids, minlength=full.size)
        for ids, _ in (encoded(full, t) for t in (texts, words))
    ]
    keep = most_used(model, *counts)
    pieces = [model.pieces[i] for i in keep]
    del model.pieces[:]
    model.pieces.extend(pieces)
    model.trainer_spec.vocab_size = len(pieces)
    vocab = Vocab(model.SerializeToString())
    (args.output / "sentencepiece.model").write_bytes(vocab.model_bytes)
    tokens, offsets = encoded(vocab, texts)
    options = StaticOptions(vocab.size, features=FEATURES, feature_rows=FEATURE_ROWS)
    keys, share = choose_keys(options, chunks(tokens, offsets, counted(pairs)))
    print(f"{share:.1%} of the pairs and triples of pieces have a row")
    finder, rows, ends = FeatureFinder(options, keys), [], [np.zeros(1, np.int64)]
    for part in chunks(tokens, offsets, np.arange(len(texts))):
        found, place = finder.window(*part)
        ends.append(place[1:] + ends[-1][-1])
        rows.append(found)
    features, feature_ends = np.concatenate(rows), np.concatenate(ends)
    np.savez(
        args.output / "texts.npz",
        tokens=tokens, offsets=offsets, feature_keys=keys, features=features,
        feature_ends=feature_ends, teacher_ids=teacher_ids[keep],
        frequency=frequencies(tokens, offsets, np.array(languages), vocab.size),
    )  # fmt: skip
    names = sorted(pairs)
    np.savez(
        args.output / "pairs.npz",
        names=np.array(["|".join(name) for name in names]),
        sizes=np.array([len(pairs[name]) for name in names]),
        pairs=np.concatenate([np.array(pairs[name], np.int32) for name in names]),
    )


def read_pairs(path: Path) -> tuple[list[str], list[str], dict[tuple, list[tuple[int, int]]]]:
    """Texts, their languages, and places of translations by (source, language, language).

    Translations of one English message into two other languages are pairs of the source `pivot`.
    """
    generator, rows = random.Random(1), collections.defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            source, *cells = line.rstrip("\n").split("\t")
            row = dict(cell.split(":", 1) for cell in cells)
            if len(row) > 1 and "skin tone" not in row.get("en", ""):
                of_words = source == "freedict"
                rows[source, *(sorted(row) if of_words else ())].append(row)
    places, texts, languages = {}, [], []
    pairs, of_english = collections.defaultdict(list), collections.defaultdict(list)

    def place(language: str, text: str) -> int:
        if (language, text) not in places:
            places[language, text] = len(texts)
            texts.append(text)
            languages.append(language)
        return places[language, text]

    for (source, *codes), found in rows.items():
        generator.shuffle(found)
        limit = DICTIONARY_LIMITS["en" not in codes] if codes else LIMITS.get(source)
        for row in found[:limit]:
            ids = {code: place(code, text) for code, text in sorted(row.items())}
            both = [(a, b) for a in ids for b in ids if a < b]
            if len(both) > 15:  # names in fifty languages
                both = [p for p in both if "en" in p] + generator.sample(both, 12)
            for a, b in both:
                pairs[source, a, b].append((ids[a], ids[b]))
            if len(row) == 2 and "en" in row and not source.startswith(WORDS):
                of_english[ids["en"]] += [(code, i) for code, i in ids.items() if code != "en"]
    for others in of_english.values():
        for _ in range(min(len(others) - 1, 6)):
            one, other = sorted(generator.sample(others, 2))
            if one[0] != other[0]:
                pairs["pivot", "", ""].append((one[1], other[1]))
    return texts, languages, pairs


def lowercased(tokenizer: Path) -> tuple[sentencepiece_model.ModelProto, np.ndarray]:
    """The teacher's pieces in lower case, by probability, and the likeliest id of each there."""
    pieces = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]
    variants = collections.defaultdict(list)
    for number, (piece, score) in enumerate(pieces):
        if not (piece.startswith("<") and piece.endswith(">")):
            lower = unicodedata.normalize("NFC", piece.lower())
            variants[lower].append((score, number))
    model = sentencepiece_model.ModelProto()
    model.ParseFromString((SHIPPED["mini"] / "sentencepiece.model").read_bytes())
    del model.pieces[3:]  # the special ones stay, and the normalization, that of XLM-R
    scored = [
        (float(np.logaddexp.reduce([score for score, _ in found])), lower, max(found)[1])
        for lower, found in variants.items()
    ]
    scored.sort(key=lambda item: -item[0])
    for score, piece, _ in scored:
        model.pieces.add(piece=piece, score=score)
    return model, np.array([0, 0, 0, *(number for *_, number in scored)])


def most_used(
    model: sentencepiece_model.ModelProto, in_texts: np.ndarray, in_words: np.ndarray
) -> np.ndarray:
    """Ascending ids of the pieces to keep; characters come first."""
    used = in_texts + 5.0 * in_words
    single = np.array([len(piece.piece.lstrip("▁")) < 2 for piece in model.pieces])
    used[single & (used > 0)] += 1e3
    used[:3] = np.inf
    first = np.argsort(-used, kind="stable")[:PIECES]
    return np.sort(first[used[first] > 0])


def encoded(vocab: Vocab, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ids [sum of lengths] int32 and [texts + 1] where each text begins."""
    ids = [np.array(t[:MOST_TOKENS], np.int32) for t in vocab.split(texts, 1)]
    return np.concatenate(ids), np.cumsum([0, *map(len, ids)])


def counted(pairs: dict[tuple, list[tuple[int, int]]]) -> np.ndarray:
    """Texts in which pairs of pieces are counted, so that no source outweighs the others."""
    found = set()
    for (source, *_), rows in pairs.items():
        if not source.startswith(WORDS):
            limit = COUNTED_EVERYDAY if source == "tatoeba" else COUNTED
            found.update(i for row in rows[:limit] for i in row)
    return np.array(sorted(found))


def chunks(
    tokens: np.ndarray, offsets: np.ndarray, texts: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(texts), 200_000):
        yield ragged(tokens, offsets, texts[start : start + 200_000])


def ragged(
    values: np.ndarray, offsets: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The values of some rows, one after another, and [rows + 1] where each begins."""
    lengths = offsets[rows + 1] - offsets[rows]
    begins = np.concatenate([[0], np.cumsum(lengths)])
    return values[np.repeat(offsets[rows] - begins[:-1], lengths) + np.arange(begins[-1])], begins


def frequencies(
    tokens: np.ndarray, offsets: np.ndarray, languages: np.ndarray, size: int
) -> np.ndarray:
    """[size], how frequent each piece is in the language that it is most frequent in."""
    codes, language = np.unique(languages, return_inverse=True)
    of_tokens = np.repeat(language, np.diff(offsets))
    most = np.zeros(size)
    for number in range(len(codes)):
        count = np.bincount(tokens[of_tokens == number], minlength=size)
        most = np.maximum(most, count / max(count.sum(), 1))
    return most


if __name__ == "__main__":
    main()
