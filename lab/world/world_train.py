"""Trains the tables of `world`: contrast on translations, beside the vectors of a teacher.

    python lab/world/world_train.py --data DIR --phase words --output DIR/words
    python lab/world/world_train.py --data DIR --phase pairs --init DIR/words --output DIR/pairs
    python lab/world/world_train.py --data DIR --phase topics --init DIR/joined --output DIR/topics

DIR holds what `world_prepare.py` and `world_teach.py` wrote. A sentence is the sum of the vectors
of its pieces and of known pairs and triples of them. A step has eight blocks of 256 translations,
each of one source and pair of languages, and 1,024 texts with the teacher's vectors, half of them
words.
"""

import argparse
import gzip
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array
from world_prepare import WORDS, ragged

from xling_jax.models.numpy_static import FeatureFinder, StaticOptions
from xling_jax.text.vocab import Vocab

WIDTH, FEATURE_WIDTH = 256, 128
BATCH, BLOCK, TAUGHT = 2048, 256, 1024
SCALE = 20.0
# The a of a / (a + p), by which frequent pieces begin smaller.
FREQUENCY = 2e-4
# Share of a step that dictionaries and names have, and translations that meet in English.
OF_WORDS, OF_PIVOT = 0.15, 0.12
WEIGHTS = {
    "europarl": 0.4,
    "osm": 0.15,
    "bitcoin": 0.5,
    "mediawiki": 0.6,
    "phpmanual": 0.2,
    "docs": 0.3,
    "pydocs": 0.6,
    "gnome": 0.6,
    "mozilla": 0.6,
    "wesnoth": 1.5,
    "stories": 4,
    "tatoeba": 1.5,
    "lohelp": 0.4,
}
# Steps, learning rate, margin, dropped pieces, whether there are features and own-side negatives.
PHASES = {
    "words": (1000, 5e-3, 0.1, 0.0, False),
    "pairs": (6000, 4e-3, 0.2, 0.1, True),
    "topics": (2600, 2.5e-3, 0.2, 0.1, True),
}
FEATURE_DROPOUT = 0.2


class Rows:
    """A table whose rows are summed, and Adam on those that a step used."""

    def __init__(self, values: np.ndarray):
        self.values = torch.from_numpy(values)
        self.first, self.second = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.steps = 0

    def sums(self, ids: np.ndarray, begins: np.ndarray, dropout: float, rng) -> torch.Tensor:
        """Those of [sums + 1] `begins`, some ids left out; `step` needs their gradients."""
        kept = np.ones(len(ids), np.float32)
        if dropout:
            kept = (rng.random(len(ids), np.float32) >= dropout).astype(np.float32) / (1 - dropout)
        self.used, columns = np.unique(ids, return_inverse=True)
        self.matrix = csr_array((kept, columns, begins), (len(begins) - 1, len(self.used)))
        self.summed = torch.from_numpy(self.matrix @ self.values[self.used].numpy())
        return self.summed.requires_grad_()

    def step(self, rate: float) -> None:
        self.steps += 1
        used = torch.from_numpy(self.used)
        gradient = torch.from_numpy(self.matrix.T.tocsr() @ self.summed.grad.numpy())
        first = self.first[used].lerp_(gradient, 0.1)
        second = self.second[used].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        self.first[used], self.second[used] = first, second
        scale = second.div(1 - 0.999**self.steps).sqrt_().add_(1e-8)
        self.values.index_add_(0, used, first / scale, alpha=-rate / (1 - 0.9**self.steps))


class Text:
    """Tokens and features of texts; `bags` has those of some, for `Rows.sums`."""

    def __init__(self, tokens, offsets, features, feature_ends):
        self._parts = (tokens, offsets), (features, feature_ends)

    def bags(self, texts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        return [ragged(values, offsets, texts) for values, offsets in self._parts]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--phase", choices=PHASES, required=True)
    parser.add_argument("--init", type=Path, help="directory of the tables to continue from")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="fewer than the phase has, for a try")
    args = parser.parse_args()
    torch.set_num_threads(1)
    arrays = np.load(args.data / "texts.npz")
    taught = np.load(args.data / "taught.npy").astype(np.float32)
    mean = taught.mean(axis=0)
    taught = unit(taught - mean)
    axes = np.linalg.eigh((taught.T @ taught).astype(np.float64))[1][:, ::-1][:, :WIDTH]
    if args.init:
        tokens = np.load(args.init / "tokens.npy")
        features = np.load(args.init / "features.npy")
    else:
        pieces = np.load(args.data / "teacher_pieces.npy", mmap_mode="r")
        tokens = pieces[arrays["teacher_ids"]].astype(np.float32)
        tokens = 4 * (tokens - tokens[3:].mean(axis=0)) @ axes
        tokens *= (FREQUENCY / (FREQUENCY + arrays["frequency"]))[:, None]
        tokens[:3] = 0
        features = np.zeros((len(arrays["feature_keys"]), FEATURE_WIDTH), np.float32)
    tables = train(
        args, arrays, taught @ axes.astype(np.float32), tokens.astype(np.float32), features
    )
    args.output.mkdir(parents=True, exist_ok=True)
    for name, table in zip(("tokens", "features"), tables):
        np.save(args.output / f"{name}.npy", table.values.numpy())


def train(args, arrays, targets, tokens, features) -> tuple[Rows, Rows]:
    """Runs one phase; `targets` are the teacher's vectors on its principal axes."""
    steps, top_rate, margin, dropout, has_features = PHASES[args.phase]
    steps, rng, tables = (
        args.steps or steps,
        np.random.default_rng(0),
        (Rows(tokens), Rows(features)),
    )
    # After topics were joined, the teacher is for what the dimensions were before.
    back = None
    if args.phase == "topics":
        back = torch.from_numpy(np.load(args.init / "axes.npy")[:WIDTH].T.copy())
    text = Text(*(arrays[n] for n in ("tokens", "offsets", "features", "feature_ends")))
    lesson, words, sentences = read_taught(args.data, arrays["feature_keys"])
    targets = torch.from_numpy(targets)
    draw = sampler(args.data, rng)
    begun = time.monotonic()
    for step in range(steps):
        rate = top_rate * 0.5 * (1 + np.cos(np.pi * step / steps))
        pairs = draw()
        chosen = np.concatenate(
            [rng.choice(words, TAUGHT // 2), rng.choice(sentences, TAUGHT // 2)]
        )
        vectors = 0
        both = zip(text.bags(pairs.T.ravel()), lesson.bags(chosen), tables)
        for number, ((ids, begins), (more, ends), table) in enumerate(both):
            if number and not has_features:
                break
            begins = np.concatenate([begins, begins[-1] + ends[1:]])
            rates = FEATURE_DROPOUT if number else dropout
            part = table.sums(np.concatenate([ids, more]), begins, rates, rng)
            vectors = vectors + F.pad(part, (0, WIDTH - part.shape[1]))
        vectors = F.normalize(vectors, dim=1)
        source, target, taught = vectors.split([BATCH, BATCH, TAUGHT])
        size = BATCH // 2 if has_features else BATCH
        halves = zip(*(v.split(size) for v in (source, target, torch.from_numpy(pairs))))
        losses = [contrast(*half, margin, has_features) for half in halves]
        if back is not None:
            taught = F.normalize(taught @ back, dim=1)
        loss = sum(losses) / len(losses) + teacher_loss(taught, targets[chosen])
        loss.backward()
        for table in tables[: 1 + has_features]:
            table.step(rate)
        if step % 100 == 99:
            seconds = (time.monotonic() - begun) / (step + 1)
            print(
                f"{args.phase} {step + 1}/{steps} loss {loss.item():.3f} {seconds:.3f} s",
                flush=True,
            )
    return tables


def contrast(source, target, pairs, margin: float, own_side: bool) -> torch.Tensor:
    """Additive-margin softmax both ways, against all translations that are not the same text.

    With `own_side` also against all other sentences on the side of the given one.
    """
    first, second = pairs.T
    same = ((first[:, None] == first) | (second[:, None] == second)).float() * -1e4
    shift = same.clone().fill_diagonal_(-SCALE * margin)
    scores = torch.addmm(shift, source, target.T, alpha=SCALE)
    losses = []
    for side, dim in ((source, 1), (target, 0)):
        total = scores.logsumexp(dim)
        if own_side:
            own = torch.addmm(same, side, side.T, alpha=SCALE).logsumexp(1)
            total = torch.logaddexp(total, own)
        losses.append((total - scores.diagonal()).mean())
    return sum(losses) / 2


def teacher_loss(vectors: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cosine to the teacher's vectors, and which of them is the text's own."""
    cosines = vectors @ F.normalize(targets, dim=1).T
    own = F.cross_entropy(SCALE * cosines, torch.arange(len(vectors)))
    return 5 * (1 - (vectors * targets).sum(1)).mean() + 0.5 * own


def sampler(data: Path, rng: np.random.Generator):
    """A function that draws a batch [BATCH, 2] of places of translations."""
    stored = np.load(data / "pairs.npz")
    pairs, sizes = stored["pairs"], stored["sizes"]
    sources = [name.split("|")[0] for name in stored["names"]]
    begins = np.concatenate([[0], np.cumsum(sizes)])
    kinds = np.array([1 if s.startswith(WORDS) else 2 if s == "pivot" else 0 for s in sources])
    weights = np.sqrt([WEIGHTS.get(source, 1) * size for source, size in zip(sources, sizes)])
    for kind, share in enumerate((1 - OF_WORDS - OF_PIVOT, OF_WORDS, OF_PIVOT)):
        weights[kinds == kind] *= share / max(weights[kinds == kind].sum(), 1e-9)
    weights /= weights.sum()

    def draw() -> np.ndarray:
        groups = rng.choice(len(weights), BATCH // BLOCK, p=weights)
        rows = [begins[group] + rng.integers(0, sizes[group], BLOCK) for group in groups]
        return pairs[np.concatenate(rows)]

    return draw


def read_taught(data: Path, keys: np.ndarray) -> tuple[Text, np.ndarray, np.ndarray]:
    """Taught texts, and which of them are words and which are sentences."""
    with gzip.open(data / "taught.tsv.gz", "rt", encoding="utf-8") as file:
        _, kinds, texts = zip(*(line.rstrip("\n").split("\t") for line in file))
    vocab = Vocab(data / "sentencepiece.model")
    ids, lengths = vocab.encode_flat(list(texts))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    options = StaticOptions(vocab.size, features=("pairs", "triples"), feature_rows=len(keys))
    features, ends = FeatureFinder(options, keys).window(ids, offsets)
    words = np.array(kinds) == "w"
    return Text(ids, offsets, features, ends), np.flatnonzero(words), np.flatnonzero(~words)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
