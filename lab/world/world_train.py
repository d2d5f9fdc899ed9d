r"""Trains the tables of `world`: contrast on translations, beside the vectors of a teacher.

    python lab/world/world_train.py --data DIR --phase words --output DIR/words
    python lab/world/world_train.py --data DIR --phase pairs --init DIR/words --output DIR/pairs
    python lab/world/world_train.py --data DIR --phase running --init DIR/joined \
        --output DIR/running
    python lab/world/world_train.py --data DIR --phase rounded --init DIR/running \
        --output DIR/rounded

DIR holds what `world_prepare.py` and `world_teach.py` wrote. A sentence is the sum of the vectors
of its pieces and of known pairs and triples of them. A step has eight blocks of 256 translations,
each of one source and pair of languages, and 1,024 or 2,048 texts with the teacher's vectors, from
which the mean of their language is taken. A map, learned on the way, brings the sums to the
teacher's dimensions, and the similarities of sentences among each other are to be those of the
teacher's vectors. From `running` on, three fourths of these are running text, and languages with
many errors are drawn more often. `rounded` sums rows as they are in 4 bits.

Similarities are products in bfloat16, for processors that have them (AMX).
"""

import argparse
import gzip
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array
from world_prepare import WORDS, ragged

from xling_jax.models.numpy_static import FeatureFinder, StaticOptions
from xling_jax.models.row_storage import quantized
from xling_jax.text.vocab import Vocab

WIDTH, FEATURE_WIDTH = 256, 128
BATCH, BLOCK = 2048, 256
SCALE = 20.0
# Rows of a table that are changed together: as many as the cache of a core holds.
CACHED = 512
NAMES = "tokens", "features"
# The a of a / (a + p), by which frequent pieces begin smaller.
FREQUENCY = 2e-4
# Share of a step that dictionaries and names have, and translations that meet in English.
OF_WORDS, OF_PIVOT = 0.25, 0.12
# How much more often these are drawn, from `running` on.
OF_LANGUAGES = {"ar": 3.5, "he": 2.6, "ko": 2.6} | dict.fromkeys(("cs", "fi", "ja"), 2.0)
OF_LANGUAGES |= dict.fromkeys(("fa", "hu", "sk"), 1.8) | {"ro": 1.7, "el": 1.4, "uk": 1.4}
OF_LANGUAGES |= dict.fromkeys(("id", "pl", "vi"), 1.3) | dict.fromkeys(("bg", "sv", "zh"), 1.2)
# The large languages, whose pairs have a factor of their own.
LARGE = {"de", "en", "es", "fr", "it", "nl", "pt", "ru"}
WEIGHTS = {
    "europarl": 5,
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
    "tatoeba": 4,
    "lohelp": 0.4,
    "hass": 0.8,
    "gramps": 0.3,
    "gamesworld": 1.5,
    "smallgames": 0.7,
    "tuxpaint": 3,
    "dict-eduactiv8": 3,
    "dict-gcompris": 4,
    "dict-numbers": 0.5,
    "dict-cedict": 4,
    "dict-hanja": 2,
    "dict-sinoviet": 3,
    "dict-krdict": 4,
    "dict-jmdict": 2,
    "dict-rowordnet": 4,
    "dict-hebrew-wordnet": 6,
    "dict-apertium-rus-ukr": 4,
    "dict-apertium-ukr-eng": 4,
    "dict-apertium-es-ro": 3,
    "dict-apertium-eng-cat": 2,
    "bible-ar": 2,
    "bible-bg": 2,
    "bible-direct": 0.3,
    "bible-fa": 2,
    "bible-he": 2,
    "bible-ko": 2,
    "bible-vi": 2,
    "campaigns": 2,
    "apertium-tales": 2,
    "hedgewars": 1.5,
    "cataclysm": 0.3,
    "gcompris-help": 0.5,
    "serbian": 0.3,
    "times": 0.3,
    "chatterbot": 4,
    "question": 4,
    "fillets": 3,
    "freedink": 2,
    "freedroid": 1.5,
    "warzone": 0.7,
    "dict-aramorph": 8,
    "dict-apertium-more": 2,
}


class Phase(NamedTuple):
    steps: int
    rate: float
    margin: float = 0.2
    dropout: float = 0.1
    feature_dropout: float = 0.2
    has_features: bool = True
    own_side: bool = True  # negatives on the side of the given sentence
    files: tuple[str, ...] = ("taught", "running")
    taught: int = 2048
    words: float = 0.25  # share of the taught texts
    of_languages: float = 1.0  # power of the factors of `OF_LANGUAGES`
    of_large: float = 2.0  # factor of pairs among `LARGE` languages


_FIRST = {"files": ("taught",), "taught": 1024, "words": 0.5, "of_languages": 0.0}
PHASES = {
    "words": Phase(1000, 5e-3, 0.1, dropout=0.0, has_features=False, own_side=False, **_FIRST),
    "pairs": Phase(2500, 4e-3, **_FIRST),
    "running": Phase(10_000, 3.5e-3),
    "rounded": Phase(700, 1.2e-3, of_languages=0.5, of_large=12.0),
}
# What likeness among taught sentences weighs, and by what its cosines are multiplied.
LIKENESS, LIKENESS_SCALE = 2.0, 10.0


class Rows:
    """A table whose rows are summed, and Adam on those that a step used."""

    def __init__(self, values: np.ndarray, is_rounded: bool = False):
        self.values, self.is_rounded = torch.from_numpy(values), is_rounded
        self.first, self.second = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.steps = 0

    def sums(self, ids: np.ndarray, begins: np.ndarray, dropout: float, rng) -> torch.Tensor:
        """Those of [sums + 1] `begins`, some ids left out; `step` needs their gradients."""
        kept = np.ones(len(ids), np.float32)
        if dropout:
            kept = (rng.random(len(ids), np.float32) >= dropout).astype(np.float32) / (1 - dropout)
        used, columns = np.unique(ids.astype(np.int64), return_inverse=True)
        self.matrix = csr_array((kept, columns, begins), (len(begins) - 1, len(used)))
        self.used = torch.from_numpy(used)
        values = self.values.index_select(0, self.used).numpy()
        if self.is_rounded:
            values = quantized(values, "int4").vectors()
        self.summed = torch.from_numpy(self.matrix @ values)
        return self.summed.requires_grad_()

    def step(self, rate: float) -> None:
        self.steps += 1
        gradient = torch.from_numpy(self.matrix.T.tocsr() @ self.summed.grad.numpy())
        rate /= 1 - 0.9**self.steps
        for rows, part in zip(self.used.split(CACHED), gradient.split(CACHED)):
            first = self.first.index_select(0, rows).lerp_(part, 0.1)
            second = self.second.index_select(0, rows).mul_(0.999)
            second.addcmul_(part, part, value=0.001)
            self.first.index_copy_(0, rows, first)
            self.second.index_copy_(0, rows, second)
            scale = second.div_(1 - 0.999**self.steps).sqrt_().add_(1e-8)
            self.values.index_add_(0, rows, first.div_(scale), alpha=-rate)


class Text:
    """Tokens and features of texts; `bags` has those of some, for `Rows.sums`."""

    def __init__(self, tokens, offsets, features, feature_ends):
        self._parts = (tokens, offsets), (features, feature_ends)

    def bags(self, texts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        return [ragged(values, offsets, texts) for values, offsets in self._parts]


class Lesson:
    """What the teacher said of words and sentences; languages of these are drawn as their roots."""

    def __init__(self, data: Path, keys: np.ndarray, phase: Phase):
        rows, vectors = [], []
        for name in phase.files:
            vectors.append(np.load(data / f"{name}.npy").astype(np.float32))
            with gzip.open(data / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
                rows += [line.rstrip("\n").split("\t") for line in file]
        languages, kinds, texts = (np.array(column, object) for column in zip(*rows))
        vocab = Vocab(data / "sentencepiece.model")
        ids, lengths = vocab.encode_flat(list(texts))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        options = StaticOptions(vocab.size, features=("pairs", "triples"), feature_rows=len(keys))
        features, ends = FeatureFinder(options, keys).window(ids, offsets)
        self.text = Text(ids, offsets, features, ends)
        self.words, self.sentences = np.flatnonzero(kinds == "w"), np.flatnonzero(kinds != "w")
        self.number_of_words = int(phase.taught * phase.words)
        self.number_of_sentences = phase.taught - self.number_of_words
        vectors = np.concatenate(vectors)
        mean, counts = vectors.mean(axis=0), np.zeros(len(vectors))
        groups = languages + np.where(kinds == "w", "w", "s")
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            counts[rows] = len(rows)
            share = len(rows) / (len(rows) + 200)
            vectors[rows] -= share * vectors[rows].mean(axis=0) + (1 - share) * mean
        self.cumulative = np.cumsum(counts[self.sentences] ** -0.5)
        self.targets = torch.from_numpy(unit(vectors))

    def begin(self, tables: Sequence[Rows], rng: np.random.Generator) -> None:
        """The map begins as the one of least squares."""
        chosen, sums = rng.choice(len(self.targets), 30_000), 0
        for (ids, begins), table in zip(self.text.bags(chosen), tables):
            part = table.sums(ids, begins, 0, rng).detach()
            sums = sums + F.pad(part, (0, WIDTH - part.shape[1]))
        sums = F.normalize(sums, dim=1)
        square = sums.T @ sums + 10 * torch.eye(WIDTH)
        found = torch.linalg.solve(square, sums.T @ self.targets[chosen])
        self.map = (16 * found / found.norm()).requires_grad_()
        self.adam = torch.optim.Adam([self.map], lr=1e-3)

    def axes(self) -> np.ndarray:
        """Of the teacher's dimensions, the principal ones."""
        vectors = self.targets.numpy()
        axes = np.linalg.eigh((vectors.T @ vectors).astype(np.float64))[1][:, ::-1]
        return axes[:, :WIDTH].astype(np.float32)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        places = rng.random(self.number_of_sentences) * self.cumulative[-1]
        sentences = self.sentences[np.searchsorted(self.cumulative[:-1], places)]
        return np.concatenate([rng.choice(self.words, self.number_of_words), sentences])

    def loss(self, vectors: torch.Tensor, chosen: np.ndarray) -> torch.Tensor:
        targets, number = self.targets[chosen], self.number_of_words
        loss = teacher_loss(F.normalize(vectors @ self.map, dim=1), targets)
        return loss + LIKENESS * likeness_loss(vectors[number:], targets[number:])

    def step(self, share: float) -> None:
        """Of the map; `share` is of the learning rate."""
        self.adam.param_groups[0]["lr"] = 1e-3 * share
        self.adam.step()
        self.adam.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--phase", choices=PHASES, required=True)
    parser.add_argument("--init", type=Path, help="directory of the tables to continue from")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, help="fewer than the phase has, for a try")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    arrays = np.load(args.data / "texts.npz")
    phase = PHASES[args.phase]
    lesson = Lesson(args.data, arrays["feature_keys"], phase)
    if args.init:
        tables = [np.load(args.init / f"{name}.npy") for name in NAMES]
    else:
        pieces = np.load(args.data / "teacher_pieces.npy", mmap_mode="r")
        tokens = pieces[arrays["teacher_ids"]].astype(np.float32)
        tokens = 4 * (tokens - tokens[3:].mean(axis=0)) @ lesson.axes()
        tokens *= (FREQUENCY / (FREQUENCY + arrays["frequency"]))[:, None]
        tokens[:3] = 0
        tables = [tokens, np.zeros((len(arrays["feature_keys"]), FEATURE_WIDTH), np.float32)]
    tables = [Rows(t.astype(np.float32), args.phase == "rounded") for t in tables]
    train(args, arrays, lesson, tables, phase)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, table in zip(NAMES, tables):
        np.save(args.output / f"{name}.npy", table.values.numpy())


def train(args, arrays, lesson: Lesson, tables: list[Rows], phase: Phase) -> None:
    """Runs one phase."""
    steps, rng = args.steps or phase.steps, np.random.default_rng(0)
    text = Text(*(arrays[n] for n in ("tokens", "offsets", "features", "feature_ends")))
    draw = sampler(args.data, rng, phase)
    lesson.begin(tables, rng)
    used = tables[: 1 + phase.has_features]
    begun = time.monotonic()
    for step in range(steps):
        share = 0.5 * (1 + np.cos(np.pi * step / steps))
        pairs, chosen, vectors = draw(), lesson.draw(rng), 0
        both = zip(text.bags(pairs.T.ravel()), lesson.text.bags(chosen), used)
        for number, ((ids, begins), (more, ends), table) in enumerate(both):
            begins = np.concatenate([begins, begins[-1] + ends[1:]])
            dropout = phase.feature_dropout if number else phase.dropout
            part = table.sums(np.concatenate([ids, more]), begins, dropout, rng)
            vectors = vectors + F.pad(part, (0, WIDTH - part.shape[1]))
        vectors = F.normalize(vectors, dim=1)
        source, target, taught = vectors.split([BATCH, BATCH, len(chosen)])
        halves = zip(*(v.split(BATCH // 2) for v in (source, target, torch.from_numpy(pairs))))
        losses = [contrast(*half, phase.margin, phase.own_side) for half in halves]
        loss = sum(losses) / len(losses) + lesson.loss(taught, chosen)
        loss.backward()
        for table in used:
            table.step(phase.rate * share)
        lesson.step(share)
        if step % 100 == 99:
            seconds = (time.monotonic() - begun) / (step + 1)
            print(
                f"{args.phase} {step + 1}/{steps} loss {loss.item():.3f} {seconds:.3f} s",
                flush=True,
            )


def contrast(source, target, pairs, margin: float, own_side: bool) -> torch.Tensor:
    """Additive-margin softmax both ways, against all translations that are not the same text.

    With `own_side` also against all other sentences on the side of the given one.
    """
    first, second = pairs.T
    same = ((first[:, None] == first) | (second[:, None] == second)).float() * -1e4
    shift = same.clone().fill_diagonal_(-SCALE * margin)
    scores = SCALE * products(source, target) + shift
    losses = []
    for side, dim in ((source, 1), (target, 0)):
        total = scores.logsumexp(dim)
        if own_side:
            own = (SCALE * products(side, side) + same).logsumexp(1)
            total = torch.logaddexp(total, own)
        losses.append((total - scores.diagonal()).mean())
    return sum(losses) / 2


def teacher_loss(vectors: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cosine to the teacher's vectors, and which of them is the text's own."""
    own = F.cross_entropy(SCALE * products(vectors, targets), torch.arange(len(vectors)))
    return 5 * (1 - (vectors * targets).sum(1)).mean() + 0.5 * own


def likeness_loss(vectors: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """How far what the vectors resemble among themselves is from what the teacher's do."""
    own = torch.eye(len(vectors)) * -1e4
    found = F.log_softmax(LIKENESS_SCALE * products(vectors, vectors) + own, dim=1)
    wanted = F.softmax(LIKENESS_SCALE * products(targets, targets) + own, dim=1)
    return F.kl_div(found, wanted, reduction="batchmean")


def products(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Of all rows with all rows."""
    return (first.bfloat16() @ second.bfloat16().T).float()


def sampler(data: Path, rng: np.random.Generator, phase: Phase):
    """A function that draws a batch [BATCH, 2] of places of translations."""
    stored = np.load(data / "pairs.npz")
    pairs, sizes = stored["pairs"], stored["sizes"]
    names = [name.split("|") for name in stored["names"]]
    sources = [name[0] for name in names]
    begins = np.concatenate([[0], np.cumsum(sizes)])
    kinds = np.array([1 if s.startswith(WORDS) else 2 if s == "pivot" else 0 for s in sources])
    weights = np.sqrt([WEIGHTS.get(source, 1) * size for source, size in zip(sources, sizes)])
    weights[[LARGE.issuperset(codes) for _, *codes in names]] *= phase.of_large
    factors = [[OF_LANGUAGES.get(code, 1.0) for code in codes] for _, *codes in names]
    powers = phase.of_languages * np.where(["en" in name[1:] for name in names], 1, 0.5)
    weights *= np.array([np.prod(row) for row in factors]) ** powers
    for kind, share in enumerate((1 - OF_WORDS - OF_PIVOT, OF_WORDS, OF_PIVOT)):
        weights[kinds == kind] *= share / max(weights[kinds == kind].sum(), 1e-9)
    weights /= weights.sum()

    def draw() -> np.ndarray:
        groups = rng.choice(len(weights), BATCH // BLOCK, p=weights)
        rows = [begins[group] + rng.integers(0, sizes[group], BLOCK) for group in groups]
        return pairs[np.concatenate(rows)]

    return draw


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
