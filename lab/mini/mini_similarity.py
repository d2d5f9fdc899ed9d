"""A linear map of an encoder's vectors after which their cosines order texts as a teacher's do.

    python lab/mini/mini_similarity.py --model M --teacher E5 --data DIR/parallel --output map.npy

Cosines of translations are high in any good encoder; how near two other sentences are is what a
static one learns least of. For batches of lines in all languages, the map minimizes the divergence
of softmax(cos(Wu, Wv) / 0.05) from softmax of the teacher's cosines / 0.02 over the other lines of
the batch, and beside it the cross-entropy of translations. The teacher sees lines of the training
text, and captions of scenes made from phrases of our own, captions.tsv, of which that text has
none. `reshape.py --linear` applies the map to the tables.
"""

import argparse
import csv
import gzip
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from mini_text import NOT_PUBLISHABLE

import xling_jax
from xling_jax.align.rows import l2_normalize
from xling_jax.losses.contrastive import normalized

LINES, CAPTIONS, PAIRS, BATCH, UPDATES, RATE = 27_000, 3_000, 200_000, 512, 200, 5e-4
TEACHER_TEMPERATURE, TEMPERATURE, SCALE, WEIGHT = 0.02, 0.05, 20.0, 3.0
SHARE = 0.7  # of the map in its mean with none, which keeps more of topics and sentiment
FILE_ROWS = 3_000  # of each file, so that the large ones do not drown the others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--teacher", required=True, help="an encoder, such as multilingual-e5-small"
    )
    parser.add_argument("--data", required=True, type=Path, help="parallel text, *.tsv.gz")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()
    encoder = xling_jax.load(args.model)
    draw = random.Random(0)
    rows = list(translations(args.data, set(encoder.languages), draw))
    draw.shuffle(rows)
    pairs = [draw.sample(row, 2) for row in rows[:PAIRS]]
    lines = [line for row in rows for line in row if 20 <= len(line) <= 160]
    lines = draw.sample(lines, min(LINES, len(lines)))
    lines += captions(encoder.languages, draw)
    teacher = xling_jax.load(args.teacher).encode(lines, normalize=True, show_progress=True)
    sides = [l2_normalize(encoder.encode(list(side))) for side in zip(*pairs)]
    map_ = learn(l2_normalize(encoder.encode(lines)), teacher, *sides)
    np.save(args.output, map_)


def translations(folder: Path, languages: set[str], draw: random.Random) -> Iterator[list[str]]:
    """Yields rows of two languages and more, up to `FILE_ROWS` of a file."""
    for path in sorted(folder.glob("*.tsv.gz")):
        if path.name.startswith(NOT_PUBLISHABLE):
            continue
        with gzip.open(path, "rt", encoding="utf-8") as file:
            codes, *rows = (line.rstrip("\n").split("\t") for line in file)
        for row in draw.sample(rows, min(FILE_ROWS, len(rows))):
            known = [text for code, text in zip(codes, row) if code in languages and text]
            if len(known) > 1:
                yield known


def captions(languages: Sequence[str], draw: random.Random) -> list[str]:
    """Who does what, half of them with a place, such as: A dog is running in the snow."""
    with open(Path(__file__).with_name("captions.tsv"), encoding="utf-8", newline="") as file:
        phrases = list(csv.DictReader(file, delimiter="\t"))
    made = []
    for _ in range(CAPTIONS):
        language, parts = draw.choice(languages), ["who", "does", "where"][: draw.choice([2, 3])]
        words = [draw.choice([p[language] for p in phrases if p["part"] == n]) for n in parts]
        text = " ".join(words)
        made.append(f"{text[0].upper()}{text[1:]}.")
    return made


def learn(
    vectors: np.ndarray, teacher: np.ndarray, source: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """The map [dim, dim] float32, from unit vectors and the teacher's of the same lines."""
    optimizer = optax.adam(optax.linear_schedule(RATE, 0.0, UPDATES))
    others = ~np.eye(BATCH, dtype=bool)

    def loss(map_, vectors, teacher, source, target):
        cosines = lambda u, v: normalized(u @ map_) @ normalized(v @ map_).T
        own = jnp.where(others, cosines(vectors, vectors) / TEMPERATURE, -jnp.inf)
        wanted = jnp.where(others, teacher @ teacher.T / TEACHER_TEMPERATURE, -jnp.inf)
        wanted = jax.nn.log_softmax(wanted)
        differences = jnp.where(others, wanted - jax.nn.log_softmax(own), 0)
        divergence = (jnp.exp(wanted) * differences).sum(1).mean()
        logits, right = SCALE * cosines(source, target), jnp.arange(BATCH)
        of = optax.softmax_cross_entropy_with_integer_labels
        return WEIGHT * divergence + of(logits, right).mean() + of(logits.T, right).mean()

    @jax.jit
    def update(map_, state, *batch):
        changes, state = optimizer.update(jax.grad(loss)(map_, *batch), state)
        return optax.apply_updates(map_, changes), state

    map_ = jnp.eye(vectors.shape[1])
    state, draw = optimizer.init(map_), np.random.default_rng(0)
    for _ in range(UPDATES):
        i, j = draw.integers(len(vectors), size=BATCH), draw.integers(len(source), size=BATCH)
        map_, state = update(map_, state, vectors[i], teacher[i], source[j], target[j])
    return SHARE * np.asarray(map_) + (1 - SHARE) * np.eye(len(map_), dtype=np.float32)


if __name__ == "__main__":
    main()
