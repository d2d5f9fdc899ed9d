"""What English lexicons say about words, as further dimensions of a static encoder; see `mini.sh`.

Training on translations gives words of one topic, or of one sentiment, no reason to be alike. Which
are, WordNet's glosses and the ratings of VADER (Hutto and Gilbert 2014) say for English, and the
encoder knows which tokens of the other languages mean the same. A sentence gets the mean of the
values of its tokens, as it gets that of their vectors: the encoder stays one without layers.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from scipy.special import softmax

from xling_jax.align.knn import top_k
from xling_jax.align.rows import normalize
from xling_jax.encode.model_directory import load_model
from xling_jax.files.whole import whole_file
from xling_jax.text.cooccurrence import Rows, cooccurrence_vectors
from xling_jax.text.vocabularies import Vocabulary

WORDNET = Path("/usr/share/wordnet")
# Of a sentence on average, relative to the length of its vector.
TOPICS_SHARE, SENTIMENT_SHARE = 0.7, 0.08
# WordNet's pointers to synsets of the same topic: hypernyms, instances, domains, derivations.
POINTERS = ("@", "@i", ";c", "-c", "#p", "%p", "+", "&")
FILES = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
# A token of the glosses is an English one if it is in so many of them.
LEAST = 30
NEIGHBORS, SHARPNESS = 10, 20.0
# The a of a / (a + p): down-weights frequent tokens.
FREQUENCY = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="a static encoder")
    parser.add_argument("--sample", required=True, type=Path, help="lines in all its languages")
    parser.add_argument("--wordnet", default=WORDNET, type=Path, help="its files (%(default)s)")
    parser.add_argument("--output", required=True, type=Path, help=".npy, for --token-vectors")
    args = parser.parse_args()
    spec = load_model(args.model)
    rows, factors = spec.static_form.tables(spec.stored)[0]
    tokens = (rows * factors[:, None])[: spec.vocab.size]
    sample = tokenize(args.sample.read_text(encoding="utf-8").splitlines(), spec.vocab)
    glosses = tokenize([*texts_of_synsets(args.wordnet)], spec.vocab)
    with whole_file(args.output) as file:
        np.save(file, word_dimensions(tokens, sample, glosses, *sentiment_of_tokens(spec.vocab)))


def word_dimensions(
    tokens: np.ndarray, sample: Rows, glosses: Rows, sentiment: np.ndarray, is_rated: np.ndarray
) -> np.ndarray:
    """Topics and sentiment of all tokens, scaled to their shares of a sentence.

    Args:
        tokens: [vocab, width], their vectors.
        sample: sentences in all languages, for the frequencies of tokens and for scale.
        glosses: the texts of `texts_of_synsets`, tokenized.
        sentiment: see `sentiment_of_tokens`.
        is_rated: likewise.

    Returns:
        [vocab, width + 2] float32.
    """
    size, width = tokens.shape
    topics = normalize(cooccurrence_vectors([(glosses, glosses)], size, width))
    is_english = np.bincount(glosses[0], minlength=size) >= LEAST
    frequencies = np.bincount(sample[0], minlength=size) / len(sample[0])
    rarity = FREQUENCY / (FREQUENCY + frequencies[:, None])
    topics = normalize(carry_over(tokens, topics, is_english)) * rarity
    sentiment = carry_over(tokens, sentiment, is_english | is_rated) * rarity
    length, scaled = np.linalg.norm(of_sentences(sample, tokens), axis=1).mean(), []
    for values, share in ((topics, TOPICS_SHARE), (sentiment, SENTIMENT_SHARE)):
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
    if not (directory / "data.noun").exists():
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
        sys.exit(
            "launch/mini.sh: the sentiment of words is from a package: pip install vaderSentiment"
        )
    return SentimentIntensityAnalyzer().lexicon


def sentiment_of_tokens(vocab: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """How good and how bad VADER's raters found each token.

    Returns:
        [vocab, 2] float32, both at least 0; and [vocab] bool, which are in the lexicon.
    """
    ratings = ratings_of_vader()
    sentiment, is_rated = np.zeros((vocab.size, 2), np.float32), np.zeros(vocab.size, bool)
    for tokens, rating in zip(vocab.encode(list(ratings)), ratings.values()):
        if len(tokens) == 1:
            sentiment[tokens[0]] = max(rating, 0), max(-rating, 0)
            is_rated[tokens[0]] = True
    return sentiment, is_rated


def carry_over(tokens: np.ndarray, values: np.ndarray, is_known: np.ndarray) -> np.ndarray:
    """Gives each token the weighted mean of the values of its nearest tokens among some.

    Args:
        tokens: [vocab, width], their vectors.
        values: [vocab, dims].
        is_known: [vocab] bool, whose values to take.

    Returns:
        [vocab, dims] float32, weighted by the softmax of cosines times `SHARPNESS`.
    """
    known, tokens = np.flatnonzero(is_known), normalize(tokens)
    cosines, nearest = top_k(tokens, tokens[known], NEIGHBORS)
    weights = softmax(SHARPNESS * cosines, axis=1)
    ends = np.arange(len(tokens) + 1) * weights.shape[1]
    shape = (len(tokens), len(values))
    return csr_array((weights.ravel(), known[nearest].ravel(), ends), shape) @ values


def of_sentences(sentences: Rows, values: np.ndarray) -> np.ndarray:
    """The mean of the values of the tokens of each sentence, [sentences, dims]."""
    tokens, offsets = sentences
    shares = 1 / np.maximum(np.diff(offsets), 1)
    shape = (len(shares), len(values))
    return csr_array((np.repeat(shares, np.diff(offsets)), tokens, offsets), shape) @ values


if __name__ == "__main__":
    main()
