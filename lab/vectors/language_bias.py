"""Search in a text of several languages: are lines in the language of the query preferred?

    python lab/vectors/language_bias.py --model mini --data pud.dev.tsv.gz --rows 400

Every sentence of an n-way table is searched among all others of all languages. Printed is, for each
number of principal components removed (`xling search --debias`), how often the first line found is
in the language of the query, and how many of its translations are among the first lines, one for
each other language. For comparison: with the mean of each language removed, and with LAWDR's
components of each language, both of which need to know the language of each line.
"""

import argparse

import numpy as np

import xling_jax
from xling_jax.align.rows import normalize
from xling_jax.documents.debias import gram_matrix, language_components, remove_components
from xling_jax.eval.retrieval import Retrieval


def measure(label: str, vectors: np.ndarray, language: np.ndarray, sentence: np.ndarray) -> None:
    """Prints a row for vectors [n, dim] of sentences [n] in languages [n]."""
    unit = normalize(vectors)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    others = len(np.unique(language)) - 1
    best = np.argpartition(-cosines, others - 1, axis=1)[:, :others]
    same = np.mean(language[cosines.argmax(axis=1)] == language)
    found = np.mean(sentence[best] == sentence[:, None])
    print(f"{label:32}{same:8.1%}{found:8.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--languages", default="en,de,fr,es,it")
    parser.add_argument("--rows", type=int, default=400)
    args = parser.parse_args()
    (data,) = Retrieval().load([args.data], args.languages.split(","))
    columns = [column[: args.rows] for part in data.parts for column in part.texts.values()]
    vectors = xling_jax.load(args.model).encode([text for column in columns for text in column])
    language = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
    sentence = np.concatenate([np.arange(len(column)) for column in columns])
    measure("no components removed", vectors, language, sentence)
    statistics = gram_matrix(vectors)
    for rank in (1, 2, 4, 8, 16, 32):
        rest = remove_components(vectors, language_components(statistics, rank))
        measure(f"{rank} of all lines", rest, language, sentence)
    centered, projected = vectors.copy(), vectors.copy()
    for code in range(len(columns)):
        own = vectors[language == code]
        centered[language == code] -= own.mean(axis=0)
        components = language_components(gram_matrix(own), 1)
        projected[language == code] = remove_components(own, components)
    measure("mean of each language", centered, language, sentence)
    measure("1 of each language (LAWDR)", projected, language, sentence)


if __name__ == "__main__":
    main()
