"""Measures encoders on the development sets, language by language, to and from English.

    python lab/world/world_measure.py --data DATA --model world mini OUT/e5 --output scores.tsv

Tatoeba: error by cosine, mean of both directions. SIB-200, PUD, Europarl: P@1 by cosine and by
margin. Topics: accuracy of a logistic regression on SIB-200's training part in each of its
languages, tested on the other part in each; a language has the mean over those trained on.
"""

import argparse
import csv
import functools
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from world_text import LANGUAGES, language_of

import xling_jax

Encode = Callable[[list[str]], np.ndarray]
NEIGHBORS = 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", nargs="+", required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    with args.output.open("w", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["model", "measure", "language", "percent"])
        for name in args.model:
            encoder = xling_jax.load(name)
            encode = functools.partial(encoder.encode, normalize=True)
            for measure, language, value in scores(encode, args.data):
                writer.writerow([Path(name).name, measure, language, f"{value:.2f}"])


def scores(encode: Encode, data: Path) -> Iterator[tuple[str, str, float]]:
    """Measure, language, percent."""
    for path in sorted((data / "retrieval/tatoeba.dev").glob("*-eng.tsv.gz")):
        if (code := language_of(path.name.split("-")[0])) in LANGUAGES:
            columns = read_columns(path)
            english = columns.pop("eng")
            (other,) = columns.values()
            yield "tatoeba_error", code, 100 - p_at_1(encode(other), encode(english))
    sib = {p.name.split(".")[1]: p for p in sorted((data / "classification/sib200").glob("train*"))}
    rows = {code: read_columns(path) for code, path in sib.items()}
    for code, path in sib.items():
        more = read_columns(path.with_name(path.name.replace("train", "dev")))
        rows[code] = {name: rows[code][name] + more[name] for name in more}
    order = {code: np.argsort([int(i) for i in r["id"]]) for code, r in rows.items()}
    vectors = {code: encode(r["text"]) for code, r in rows.items()}
    labels = {code: np.array(r["label"]) for code, r in rows.items()}
    for code in sorted(sib.keys() - {"en"}):
        pair = vectors[code][order[code]], vectors["en"][order["en"]]
        yield "sib200_cosine", code, p_at_1(*pair)
        yield "sib200_margin", code, p_at_1(*pair, margin=True)
    trained = {
        c: LogisticRegression(max_iter=300).fit(v[:701], labels[c][:701])
        for c, v in vectors.items()
    }
    for code, v in vectors.items():
        right = [model.score(v[701:], labels[code][701:]) for model in trained.values()]
        yield "sib200_topics", code, 100 * float(np.mean(right))
    for name in ("pud", "europarl"):
        columns = read_columns(data / f"retrieval/{name}.dev.tsv.gz")
        columns.pop("id", None)
        vectors = {code: encode(texts) for code, texts in columns.items()}
        for code in sorted(vectors.keys() - {"en"}):
            pair = vectors[code], vectors["en"]
            yield f"{name}_cosine", code, p_at_1(*pair)
            yield f"{name}_margin", code, p_at_1(*pair, margin=True)


def p_at_1(source: np.ndarray, target: np.ndarray, margin: bool = False) -> float:
    """Percent of rows whose nearest neighbor is their translation, mean of both directions."""
    cosines = source @ target.T
    if margin:
        means = [np.sort(c, axis=1)[:, -NEIGHBORS:].mean(axis=1) for c in (cosines, cosines.T)]
        cosines = cosines / (means[0][:, None] + means[1]) * 2
    own = np.arange(len(cosines))
    return 50 * sum(float((c.argmax(axis=1) == own).mean()) for c in (cosines, cosines.T))


def read_columns(path: Path) -> dict[str, list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return dict(zip(rows[0], map(list, zip(*rows[1:]))))


if __name__ == "__main__":
    main()
