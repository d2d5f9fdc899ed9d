r"""Trains the tables of `world`: contrast on translations, beside the vectors of a teacher.

    python lab/world/world_train.py --data DIR --phase words --output DIR/words
    python lab/world/world_train.py --data DIR --phase pairs --init DIR/words --output DIR/pairs
    python lab/world/world_train.py --data DIR --phase topics --init DIR/joined \
        --axes DIR/joined/axes.npy --output DIR/topics
    python lab/world/world_train.py --data DIR --phase running --init DIR/apart --output DIR/running
    python lab/world/world_train.py --data DIR --phase again --init DIR/rejoined --output DIR/again
    python lab/world/world_train.py --data DIR --phase dictionaries --init DIR/begun \
        --output DIR/dictionaries
    python lab/world/world_train.py --data DIR --phase last --init DIR/dictionaries \
        --output DIR/last
    python lab/world/world_train.py --data DIR --phase everyday --init DIR/late \
        --output DIR/everyday
    python lab/world/world_train.py --data DIR --phase rounded --init DIR/mean --output DIR/rounded

DIR holds what `world_prepare.py` and `world_teach.py` wrote. A sentence is the sum of the vectors
of its pieces and of known pairs and triples of them. A step has eight blocks of 256 translations,
each of one source and pair of languages, and 1,024 texts with the teacher's vectors, half of them
words.

The phases from `running` on have 2,048 taught texts, three fourths of them running text, with the
mean vector of their language taken off. A map, learned on the way, brings the sums to the teacher's
dimensions, and their similarities among each other are to be those of the teacher's vectors. In the
last four, dictionaries and everyday text have more of a step; from `everyday` on so do languages
with many errors. `rounded` sums rows as they are in 4 bits.
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
from xling_jax.models.row_storage import quantized
from xling_jax.text.vocab import Vocab

WIDTH, FEATURE_WIDTH = 256, 128
BATCH, BLOCK, TAUGHT = 2048, 256, 1024
SCALE = 20.0
NAMES = "tokens", "features"
# The a of a / (a + p), by which frequent pieces begin smaller.
FREQUENCY = 2e-4
# Share of a step that dictionaries and names have, and translations that meet in English.
OF_WORDS, OF_PIVOT = 0.15, 0.12
# The same in the last phases, with other weights of sources, and of pairs among large languages.
LAST_PHASES = "dictionaries", "last", "everyday", "rounded"
OF_WORDS_LAST, LAST_WEIGHTS = 0.25, {"europarl": 4, "tatoeba": 2}
# The same in some phases, and the power of the factors of `OF_LANGUAGES`.
OF_PHASES = {
    "everyday": ({"europarl": 5, "tatoeba": 3}, 1.5, 1.0),
    "rounded": ({"europarl": 5, "tatoeba": 8}, 2.5, 0.7),
}
# How much more often these are drawn then.
OF_LANGUAGES = {"ar": 3.5, "he": 2.6, "ko": 2.6} | dict.fromkeys(("cs", "fi", "ja"), 2.0)
OF_LANGUAGES |= dict.fromkeys(("fa", "hu", "sk"), 1.8) | {"ro": 1.7, "el": 1.4, "uk": 1.4}
OF_LANGUAGES |= dict.fromkeys(("id", "pl", "vi"), 1.3) | dict.fromkeys(("bg", "sv", "zh"), 1.2)
LARGE_LANGUAGES, OF_LARGE_LANGUAGES = {"de", "en", "es", "fr", "it", "nl", "pt", "ru"}, 1.5
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
# Steps, learning rate, margin, dropped pieces, whether there are features and own-side negatives.
PHASES = {
    "words": (1000, 5e-3, 0.1, 0.0, False),
    "pairs": (6000, 4e-3, 0.2, 0.1, True),
    "topics": (2600, 2.5e-3, 0.2, 0.1, True),
    "running": (3300, 3e-3, 0.2, 0.1, True),
    "again": (1000, 1.5e-3, 0.2, 0.1, True),
    "dictionaries": (5000, 3e-3, 0.2, 0.1, True),
    "last": (4000, 2.5e-3, 0.2, 0.1, True),
    "everyday": (6500, 3e-3, 0.2, 0.1, True),
    "rounded": (900, 8e-4, 0.2, 0.1, True),
}
# With running text.
RUNNING_PHASES = "running", "again", *LAST_PHASES
# Taught texts of a step of these, the share of words, and what likeness among them weighs
# and by what its cosines are multiplied.
RUNNING, RUNNING_WORDS, LIKENESS, LIKENESS_SCALE = 2048, 0.25, 2.0, 10.0
FEATURE_DROPOUT = 0.2


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
        self.used, columns = np.unique(ids, return_inverse=True)
        self.matrix = csr_array((kept, columns, begins), (len(begins) - 1, len(self.used)))
        values = self.values[self.used].numpy()
        if self.is_rounded:
            values = quantized(values, "int4").vectors()
        self.summed = torch.from_numpy(self.matrix @ values)
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


class Lesson:
    """What the teacher said of words and sentences, for the phases before the last.

    Its vectors are those on principal axes; after topics were joined, `back` brings sums there.
    """

    files, taught, of_words = ("taught",), TAUGHT, 0.5

    def __init__(self, data: Path, keys: np.ndarray, axes: Path | None):
        rows, vectors = [], []
        for name in self.files:
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
        self.targets = self.centered(np.concatenate(vectors), languages, kinds)
        self.back = torch.from_numpy(np.load(axes)[:WIDTH].T.copy()) if axes else None

    def centered(self, vectors, languages, kinds) -> torch.Tensor:
        vectors = unit(vectors - vectors.mean(axis=0))
        axes = np.linalg.eigh((vectors.T @ vectors).astype(np.float64))[1][:, ::-1][:, :WIDTH]
        self.axes = axes.astype(np.float32)
        return torch.from_numpy(vectors @ self.axes)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        number = int(self.taught * self.of_words)
        sentences = self.draw_sentences(rng, self.taught - number)
        return np.concatenate([rng.choice(self.words, number), sentences])

    def draw_sentences(self, rng: np.random.Generator, number: int) -> np.ndarray:
        return rng.choice(self.sentences, number)

    def loss(self, vectors: torch.Tensor, chosen: np.ndarray) -> torch.Tensor:
        if self.back is not None:
            vectors = F.normalize(vectors @ self.back, dim=1)
        return teacher_loss(vectors, self.targets[chosen])

    def step(self, share: float) -> None:
        """Nothing to learn here; `share` is of the learning rate."""


class RunningLesson(Lesson):
    """With running text, in all dimensions of the teacher; languages are drawn as their roots."""

    files, taught, of_words = ("taught", "running"), RUNNING, RUNNING_WORDS

    def begin(self, tables: tuple[Rows, Rows], rng: np.random.Generator) -> None:
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

    def centered(self, vectors, languages, kinds) -> torch.Tensor:
        mean, counts = vectors.mean(axis=0), np.zeros(len(vectors))
        groups = languages + np.where(kinds == "w", "w", "s")
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            counts[rows] = len(rows)
            share = len(rows) / (len(rows) + 200)
            vectors[rows] -= share * vectors[rows].mean(axis=0) + (1 - share) * mean
        self.cumulative = np.cumsum(counts[self.sentences] ** -0.5)
        return torch.from_numpy(unit(vectors))

    def draw_sentences(self, rng: np.random.Generator, number: int) -> np.ndarray:
        places = rng.random(number) * self.cumulative[-1]
        return self.sentences[np.searchsorted(self.cumulative[:-1], places)]

    def loss(self, vectors: torch.Tensor, chosen: np.ndarray) -> torch.Tensor:
        targets, number = self.targets[chosen], int(self.taught * self.of_words)
        loss = teacher_loss(F.normalize(vectors @ self.map, dim=1), targets)
        return loss + LIKENESS * likeness_loss(vectors[number:], targets[number:])

    def step(self, share: float) -> None:
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
    parser.add_argument("--axes", type=Path, help="to which topics were rotated")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="fewer than the phase has, for a try")
    args = parser.parse_args()
    torch.set_num_threads(1)
    arrays = np.load(args.data / "texts.npz")
    kind, axes = (RunningLesson, None) if args.phase in RUNNING_PHASES else (Lesson, args.axes)
    lesson = kind(args.data, arrays["feature_keys"], axes)
    if args.init:
        tables = [np.load(args.init / f"{name}.npy") for name in NAMES]
    else:
        pieces = np.load(args.data / "teacher_pieces.npy", mmap_mode="r")
        tokens = pieces[arrays["teacher_ids"]].astype(np.float32)
        tokens = 4 * (tokens - tokens[3:].mean(axis=0)) @ lesson.axes
        tokens *= (FREQUENCY / (FREQUENCY + arrays["frequency"]))[:, None]
        tokens[:3] = 0
        tables = [tokens, np.zeros((len(arrays["feature_keys"]), FEATURE_WIDTH), np.float32)]
    tables = train(args, arrays, lesson, [table.astype(np.float32) for table in tables])
    args.output.mkdir(parents=True, exist_ok=True)
    for name, table in zip(NAMES, tables):
        np.save(args.output / f"{name}.npy", table.values.numpy())


def train(args, arrays, lesson: Lesson, values: list[np.ndarray]) -> list[Rows]:
    """Runs one phase."""
    steps, top_rate, margin, dropout, has_features = PHASES[args.phase]
    steps, rng = args.steps or steps, np.random.default_rng(0)
    tables = [Rows(table, args.phase == "rounded") for table in values]
    text = Text(*(arrays[n] for n in ("tokens", "offsets", "features", "feature_ends")))
    draw = sampler(args.data, rng, args.phase)
    if isinstance(lesson, RunningLesson):
        lesson.begin(tables, rng)
    begun = time.monotonic()
    for step in range(steps):
        share = 0.5 * (1 + np.cos(np.pi * step / steps))
        pairs, chosen, vectors = draw(), lesson.draw(rng), 0
        both = zip(text.bags(pairs.T.ravel()), lesson.text.bags(chosen), tables)
        for number, ((ids, begins), (more, ends), table) in enumerate(both):
            if number and not has_features:
                break
            begins = np.concatenate([begins, begins[-1] + ends[1:]])
            rates = FEATURE_DROPOUT if number else dropout
            part = table.sums(np.concatenate([ids, more]), begins, rates, rng)
            vectors = vectors + F.pad(part, (0, WIDTH - part.shape[1]))
        vectors = F.normalize(vectors, dim=1)
        source, target, taught = vectors.split([BATCH, BATCH, len(chosen)])
        size = BATCH // 2 if has_features else BATCH
        halves = zip(*(v.split(size) for v in (source, target, torch.from_numpy(pairs))))
        losses = [contrast(*half, margin, has_features) for half in halves]
        loss = sum(losses) / len(losses) + lesson.loss(taught, chosen)
        loss.backward()
        for table in tables[: 1 + has_features]:
            table.step(top_rate * share)
        lesson.step(share)
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


def likeness_loss(vectors: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """How far what the vectors resemble among themselves is from what the teacher's do."""
    own = torch.eye(len(vectors)) * -1e4
    found = F.log_softmax(LIKENESS_SCALE * (vectors @ vectors.T) + own, dim=1)
    wanted = F.softmax(LIKENESS_SCALE * (targets @ targets.T) + own, dim=1)
    return F.kl_div(found, wanted, reduction="batchmean")


def sampler(data: Path, rng: np.random.Generator, phase: str):
    """A function that draws a batch [BATCH, 2] of places of translations."""
    stored = np.load(data / "pairs.npz")
    pairs, sizes = stored["pairs"], stored["sizes"]
    names = [name.split("|") for name in stored["names"]]
    sources = [name[0] for name in names]
    begins = np.concatenate([[0], np.cumsum(sizes)])
    kinds = np.array([1 if s.startswith(WORDS) else 2 if s == "pivot" else 0 for s in sources])
    is_last = phase in LAST_PHASES
    more, of_large, power = OF_PHASES.get(phase, (LAST_WEIGHTS, OF_LARGE_LANGUAGES, 0.0))
    of_sources = WEIGHTS | more if is_last else WEIGHTS
    weights = np.sqrt([of_sources.get(source, 1) * size for source, size in zip(sources, sizes)])
    if is_last:
        weights[[LARGE_LANGUAGES.issuperset(codes) for _, *codes in names]] *= of_large
        factors = [[OF_LANGUAGES.get(code, 1.0) for code in codes] for _, *codes in names]
        powers = np.where(["en" in name[1:] for name in names], power, power / 2)
        weights *= np.array([np.prod(row) for row in factors]) ** powers
    of_words = OF_WORDS_LAST if is_last else OF_WORDS
    for kind, share in enumerate((1 - of_words - OF_PIVOT, of_words, OF_PIVOT)):
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
