"""What lexicons know of English words, as further dimensions of a static encoder; see `mini.sh`.

Training on translations gives words of one topic, or of one tone, no reason to be alike. WordNet's
glosses and the ratings of VADER (Hutto and Gilbert 2014) know about English words, and the encoder
knows which tokens of the other languages mean the same. A sentence gets the mean of the values of
its tokens, as it gets that of their vectors: the encoder stays one without layers.
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from xling_jax.encode.model_directory import load_model
from xling_jax.files.whole import whole_file
from xling_jax.text.cooccurrence import Rows, cooccurrence_vectors
from xling_jax.text.vocabularies import Vocabulary

WORDNET = Path("/usr/share/wordnet")
# Of a sentence on average, relative to the length of its vector.
TOPICS_SHARE, TONE_SHARE = 0.7, 0.08
# WordNet's pointers to synsets of the same topic: hypernyms, instances, domains, derivations.
POINTERS = ("@", "@i", ";c", "-c", "#p", "%p", "+", "&")
FILES = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
# A token of the glosses is an English one if it is in so many of them.
LEAST = 30
NEIGHBORS, SHARPNESS = 10, 20.0
# The a of a / (a + p): down-weights frequent tokens.
FREQUENCY = 1e-3
ROWS_AT_A_TIME = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="a static encoder")
    parser.add_argument("--sample", required=True, type=Path, help="lines in all its languages")
    parser.add_argument("--wordnet", default=WORDNET, type=Path, help="its files (%(default)s)")
    parser.add_argument("--output", required=True, type=Path, help=".npy, for --token-vectors")
    args = parser.parse_args()
    spec = load_model(args.model)
    rows, factors = dataclasses.replace(spec.static_form, storage="float32").tables(spec.params)
    tokens = (rows * factors[:, None])[: spec.vocab.size]
    sample = tokenize(args.sample.read_text(encoding="utf-8").splitlines(), spec.vocab)
    glosses = tokenize([*texts_of_synsets(args.wordnet)], spec.vocab)
    with whole_file(args.output) as file:
        np.save(file, word_dimensions(tokens, sample, glosses, *tone_of_tokens(spec.vocab)))


def word_dimensions(
    tokens: np.ndarray, sample: Rows, glosses: Rows, tone: np.ndarray, is_rated: np.ndarray
) -> np.ndarray:
    """Topics and tone of all tokens, scaled to their shares of a sentence.

    Args:
        tokens: [vocab, width], their vectors.
        sample: sentences in all languages, for the frequencies of tokens and for scale.
        glosses: the texts of `texts_of_synsets`, tokenized.
        tone: see `tone_of_tokens`.
        is_rated: likewise.

    Returns:
        [vocab, width + 2] float32.
    """
    size, width = tokens.shape
    topics = unit(cooccurrence_vectors([(glosses, glosses)], size, width))
    is_english = np.bincount(glosses[0], minlength=size) >= LEAST
    frequencies = np.bincount(sample[0], minlength=size) / len(sample[0])
    rarity = FREQUENCY / (FREQUENCY + frequencies[:, None])
    topics = unit(carry_over(tokens, topics, is_english)) * rarity
    tone = carry_over(tokens, tone, is_english | is_rated) * rarity
    length, scaled = np.linalg.norm(of_sentences(sample, tokens), axis=1).mean(), []
    for values, share in ((topics, TOPICS_SHARE), (tone, TONE_SHARE)):
        sentences = of_sentences(sample, values)
        # Without what all sentences have in common, which would bring unrelated ones together.
        common = sentences.mean(axis=0)
        own = np.linalg.norm(sentences - common, axis=1).mean()
        scaled.append((values - common) * (share * length / own))
    return np.hstack(scaled).astype(np.float32)


def tokenize(texts: list[str], vocab: Vocabulary) -> Rows:
    """The tokens of all texts in one array, and where each begins and the last ends."""
    tokens, lengths = vocab.encode_flat(texts)
    return tokens, np.concatenate([[0], np.cumsum(lengths)])


def texts_of_synsets(directory: Path) -> Iterator[str]:
    """WordNet's synsets: their words, the gloss, and the words of synsets of the same topic."""
    if not directory.is_dir():
        sys.exit("launch/mini.sh: topics come from WordNet's glosses: apt install wordnet-base")
    words, synsets = {}, []
    for kind in sorted({*FILES.values()}):
        for line in (directory / f"data.{kind}").read_text(encoding="utf-8").splitlines():
            if line.startswith(" "):  # the license
                continue
            fields, _, gloss = line.partition(" | ")
            place, _, _, count, *fields = fields.split()
            end = 2 * int(count, 16)
            names = fields[:end:2]
            # "galore(ip)": where an adjective may stand.
            names = [re.sub(r"\(.*\)", "", name).replace("_", " ") for name in names]
            words[kind, place] = ", ".join(names)
            pointers = fields[end + 1 :][: 4 * int(fields[end])]  # verbs have frames behind
            synsets.append((kind, place, gloss.strip(), pointers))
    for kind, place, gloss, pointers in synsets:
        near = [
            words[FILES[kind_of], place_of]
            for sign, place_of, kind_of, _ in zip(*[iter(pointers)] * 4)
            if sign in POINTERS
        ]
        yield "; ".join([words[kind, place], gloss, *near])


def ratings_of_vader() -> dict[str, float]:
    """English words, slang and emoticons, from -4 to 4."""
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ImportError:
        sys.exit("launch/mini.sh: the tone of words is from a package: pip install vaderSentiment")
    return SentimentIntensityAnalyzer().lexicon


def tone_of_tokens(vocab: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """How good and how bad VADER's raters found each token.

    Returns:
        [vocab, 2] float32, both at least 0; and [vocab] bool, which are in the lexicon.
    """
    ratings = ratings_of_vader()
    tone, is_rated = np.zeros((vocab.size, 2), np.float32), np.zeros(vocab.size, bool)
    for tokens, rating in zip(vocab.encode(list(ratings)), ratings.values()):
        if len(tokens) == 1:
            tone[tokens[0]] = max(rating, 0), max(-rating, 0)
            is_rated[tokens[0]] = True
    return tone, is_rated


def carry_over(tokens: np.ndarray, values: np.ndarray, is_known: np.ndarray) -> np.ndarray:
    """Gives each token the weighted mean of the values of its nearest tokens among some.

    Args:
        tokens: [vocab, width], their vectors.
        values: [vocab, dims].
        is_known: [vocab] bool, whose values to take.

    Returns:
        [vocab, dims] float32, weighted by the softmax of cosines times `SHARPNESS`.
    """
    known = np.flatnonzero(is_known)
    tokens, carried = unit(tokens), np.zeros(values.shape, np.float32)
    for begin in range(0, len(tokens), ROWS_AT_A_TIME):
        cosines = tokens[begin : begin + ROWS_AT_A_TIME] @ tokens[known].T
        nearest = np.argpartition(-cosines, NEIGHBORS, axis=1)[:, :NEIGHBORS]
        cosines = np.take_along_axis(cosines, nearest, axis=1)
        weights = np.exp(SHARPNESS * (cosines - cosines.max(axis=1, keepdims=True)))
        weights /= weights.sum(axis=1, keepdims=True)
        part = np.einsum("tn,tnd->td", weights, values[known[nearest]])
        carried[begin : begin + ROWS_AT_A_TIME] = part
    return carried


def of_sentences(sentences: Rows, values: np.ndarray) -> np.ndarray:
    """The mean of the values of the tokens of each sentence, [sentences, dims]."""
    tokens, offsets = sentences
    shares = 1 / np.maximum(np.diff(offsets), 1)
    shape = (len(shares), len(values))
    return csr_array((np.repeat(shares, np.diff(offsets)), tokens, offsets), shape) @ values


def unit(vectors: np.ndarray) -> np.ndarray:
    """[any, dim], each scaled to length 1; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


if __name__ == "__main__":
    main()
