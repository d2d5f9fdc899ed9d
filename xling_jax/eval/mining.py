"""Bitext mining as in the BUCC shared task: are the translations in two texts found?

The rules of the task and of LASER's `bucc.py`: pairs are mined one to one, pairs of repeated texts
are removed, and the best threshold on the training part is used on the test part.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.align import mining
from xling_jax.align.knn import BACKENDS
from xling_jax.align.margin import MARGINS
from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.eval.results import markdown_table, percent
from xling_jax.eval.tasks import Task
from xling_jax.files.hashes import hash_texts
from xling_jax.files.lines import COMPRESSED, read_lines
from xling_jax.options import option

# Where the threshold is tuned and where it is tested, the preferred split first.
_TRAIN_SPLITS, _TEST_SPLITS = ("training", "train", "sample"), ("test",)


@dataclass(frozen=True)
class Mining(Task):
    """Bitext mining by the rules of BUCC: precision, recall and F1 on the test part.

    The threshold is the best one on the training part. Without test pairs the scores are those of
    the training part, and the table says so.
    """

    margin: str = option("ratio", "how cosines are compared", MARGINS)
    k: int = option(4, "neighbors of the margin", positive=True)
    retrieval: str = option(
        "max", "how pairs are chosen from the candidates, see xling mine", mining.RETRIEVALS
    )
    memory_mb: float = option(512, "memory for the search", positive=True)
    backend: str = option(
        "auto", "search backend; auto: JAX on an accelerator, else NumPy", BACKENDS
    )

    title = "Bitext mining"
    data_help = (
        "directories with BUCC's files PAIR.training.LANG, PAIR.training.gold, and those of test"
    )
    examples = """example:
  xling evaluate mining --model runs/quickstart --data bucc2018/ --output runs/mining
"""
    columns = {"f1": "F1", "precision": "precision", "recall": "recall"}
    primary = "f1"

    def load(self, paths: Sequence[str], languages: Sequence[str] | None) -> list[MiningData]:
        """See `load_mining_data`."""
        return [data for path in paths for data in load_mining_data(path, languages)]

    def measure(
        self, encoder: Any, data: MiningData, directory: Path | None = None
    ) -> dict[str, MiningResult]:
        """Both parts of a language pair, with the threshold tuned on the training part."""
        mined = self.mine(encoder.encode, data.train)
        gold = data.train.gold
        threshold = tune_threshold(mined.scores, _correct(mined, gold), len(gold))
        train = test = measure_pairs(mined, gold, threshold)
        if data.has_test:
            test = measure_pairs(self.mine(encoder.encode, data.test), data.test.gold, threshold)
        return {data.name: MiningResult(train, test, threshold)}

    def mine(self, encode: Encode, text: MiningText) -> mining.MinedPairs:
        """Mines pairs of rows, best first, without those of repeated texts; encodes each once."""
        # A blank sentence is never a translation.
        rows = [{t: row for row, t in enumerate(side) if t.strip()} for side in text.texts]
        vectors, ids = encode_unique(encode, rows)
        found = mining.mine(*(vectors[ids(side)] for side in rows), **dataclasses.asdict(self))
        once = []
        for side, distinct in zip(text.texts, rows):
            counts = Counter(side)
            once.append(np.array([counts[t] == 1 for t in distinct], bool))
        found = found.take(once[0][found.source] & once[1][found.target])
        source, target = (np.array([*side.values()], np.int64) for side in rows)
        return mining.MinedPairs(source[found.source], target[found.target], found.scores)

    def options(self, encoder: Any, outcomes: Mapping[str, MiningResult]) -> dict[str, Any]:
        """The options, and how the threshold was selected."""
        selection = "threshold with the best F1 on the training part"
        return super().options(encoder, outcomes) | {"selection": selection}

    def tables(self, data: Sequence[MiningData], outcomes: Mapping[str, MiningResult]) -> list[str]:
        """One table with a row for each language pair."""
        rows = []
        for one in data:
            result = outcomes[one.name]
            scores = [result.test[name] for name in ("precision", "recall", "f1")]
            shares = [percent(score, decimals=2) for score in (*scores, result.train["f1"])]
            row = [one.name, *shares, f"{result.threshold:.3f}", one.test.name]
            rows.append([*row, f"{result.test['num_gold']}"])
        header = ["pair", "precision", "recall", "F1", "train F1", "threshold", "measured on"]
        text = f"## Bitext mining, %\n\n{markdown_table([*header, 'pairs'], rows)}\n"
        if untested := ", ".join(one.name for one in data if not one.has_test):
            text += (
                f"\nNo test pairs for {untested}: measured on the text that the threshold was "
                "tuned on.\n"
            )
        return [text]


@dataclass(frozen=True)
class MiningText:
    """Two texts, such as `fr-en.training`, and in `gold` the rows that are translations."""

    name: str
    languages: tuple[str, str]
    texts: tuple[list[str], list[str]]
    gold: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class MiningData:
    """One language pair: text to tune the threshold on and, the same if there is none, to test."""

    name: str
    train: MiningText
    test: MiningText
    path: str

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of the two."""
        return self.train.languages

    @property
    def has_test(self) -> bool:
        """True if the threshold is tested on other text than it was tuned on."""
        return self.test is not self.train

    @property
    def description(self) -> dict[str, Any]:
        """Plain values for results.json; the hash is of sentences and gold pairs."""
        columns = []
        for part in (self.train, self.test) if self.has_test else (self.train,):
            columns += zip(part.languages, part.texts)
            columns.append(("gold", [f"{i} {j}" for i, j in sorted(part.gold)]))
        return {
            "name": self.name,
            "path": self.path,
            "sha256": hash_texts(columns),
            "languages": list(self.languages),
            "tuned_on": self.train.name,
            "measured_on": self.test.name,
            "num_rows": [len(column) for column in self.test.texts],
            "num_gold": len(self.test.gold),
        }


@dataclass(frozen=True)
class MiningResult:
    """Scores of one language pair, on both parts with the threshold tuned on the training part.

    Those of a part are as of `measure_pairs`; the test part may be the training part.
    """

    train: dict[str, float]
    test: dict[str, float]
    threshold: float

    def scores(self) -> dict[str, float]:
        """`f1`, `precision`, `recall`, `train_f1` and `threshold`."""
        scores = {metric: self.test[metric] for metric in ("f1", "precision", "recall")}
        return scores | {"train_f1": self.train["f1"], "threshold": self.threshold}

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return vars(self)


def load_mining_data(path: str | Path, languages: Sequence[str] | None = None) -> list[MiningData]:
    """Reads the files of BUCC, by language pair; parts without gold pairs are left out.

    A directory has, itself or in its subdirectories, for each part `PAIR.SPLIT.LANG` of two
    languages, lines `id<TAB>sentence`, and `PAIR.SPLIT.gold`, lines `id<TAB>id`; the split is
    `training` (or `train`, `sample`) or `test`. Files may be compressed. With `languages`, only
    pairs of these.

    Raises:
        ValueError, OSError: if a file breaks a rule (named with line), or there is none.
    """
    place = Path(path).expanduser()
    found: dict[str, dict[str, list[Path]]] = {}  # PAIR.SPLIT -> language, or "gold" -> files
    for file in sorted((*place.glob("*"), *place.glob("*/*"))):
        name, _, kind = re.sub(rf"({COMPRESSED})$", "", file.name).rpartition(".")
        found.setdefault(name, {}).setdefault(kind, []).append(file)
    parts: dict[str, dict[str, tuple[str, Path, dict[str, Path]]]] = {}
    for name, copies in found.items():
        if "gold" not in copies:
            continue
        for first, *others in copies.values():
            if others:
                raise ValueError(f"{others[0]}: holds the same part as {first}; remove one of them")
        files = {kind: first for kind, (first,) in copies.items()}
        gold = files.pop("gold")
        if len(files) != 2:
            codes = ", ".join(files) or "none"
            raise ValueError(f"{gold}: needs two texts beside it, {name}.LANG; found {codes}")
        pair, _, split = name.rpartition(".")
        if split not in (*_TRAIN_SPLITS, *_TEST_SPLITS):
            pair, split = name, _TRAIN_SPLITS[0]
        if languages is None or files.keys() <= {*languages}:
            first = name.partition("-")[0]  # fr-en.training: French, against the alphabet
            texts = dict(sorted(files.items(), key=lambda item: item[0] != first))
            parts.setdefault(pair, {})[split] = (name, gold, texts)
    if not parts:
        wanted = "" if languages is None else f" of {', '.join(languages)}"
        raise ValueError(f"{place}: must hold BUCC files, such as fr-en.training.gold{wanted}")
    sets = []
    for pair, splits in sorted(parts.items()):
        train, test = (
            next((_read_part(*splits[name]) for name in names if name in splits), None)
            for names in (_TRAIN_SPLITS, _TEST_SPLITS)
        )
        if train is None:
            rule = f"{pair} must have a training part, {pair}.training.gold"
            raise ValueError(f"{path}: {rule}; found {', '.join(splits)}")
        sets.append(MiningData(pair, train, test or train, str(path)))
    return sets


def tune_threshold(scores: np.ndarray, correct: np.ndarray, num_gold: int) -> float:
    """The threshold with the best F1 on a ranked list; the highest of equally good ones.

    As in LASER's `bucc.py`, the list is cut after each pair in turn, and the threshold is midway
    between the last pair kept and the next, the last score if all are kept, 0 if no pair is right.
    Choice: pairs of equal scores are kept or cut together; LASER may cut between them, and then
    keeps them all.

    Args:
        scores: [p] float, descending.
        correct: [p] bool, whether each pair is right.
        num_gold: right pairs in all, found or not.
    """
    scores = np.asarray(scores, np.float64)
    num_correct = np.cumsum(correct)
    if not len(scores) or not num_correct[-1]:
        return 0.0
    f1 = 2 * num_correct / (np.arange(1, len(scores) + 1) + num_gold)
    f1[:-1][scores[:-1] == scores[1:]] = -1
    best = int(f1.argmax())
    return float(scores[best : best + 2].mean())


def measure_pairs(
    pairs: mining.MinedPairs, gold: frozenset[tuple[int, int]], threshold: float
) -> dict[str, float]:
    """Extracts the pairs that score at least `threshold`, and compares them with the gold pairs.

    Returns `precision`, 0 if none is extracted, `recall` and `f1`, and the counts `num_gold`,
    `num_extracted` and `num_correct`.
    """
    kept = pairs.take(pairs.scores.astype(np.float64) >= threshold)
    num_correct = int(_correct(kept, gold).sum())
    return {
        "precision": num_correct / len(kept) if len(kept) else 0.0,
        "recall": num_correct / len(gold),
        "f1": 2 * num_correct / (len(kept) + len(gold)),
        "num_gold": len(gold),
        "num_extracted": len(kept),
        "num_correct": num_correct,
    }


def _correct(pairs: mining.MinedPairs, gold: frozenset[tuple[int, int]]) -> np.ndarray:
    rows = zip(pairs.source.tolist(), pairs.target.tolist())
    return np.fromiter((pair in gold for pair in rows), bool, len(pairs))


def _read_part(name: str, gold: Path, files: Mapping[str, Path]) -> MiningText:
    texts: list[list[str]] = []
    rows: list[dict[str, int]] = []
    for path in files.values():
        texts.append([])
        rows.append({})
        for number, line in enumerate(read_lines(path), 1):
            sentence_id, tab, text = line.partition("\t")
            if not tab:
                raise ValueError(f"{path}:{number}: a line must be id<TAB>sentence; found no tab")
            if sentence_id in rows[-1]:
                rule = f"duplicate id {sentence_id!r:.60}; give each sentence its own"
                raise ValueError(f"{path}:{number}: {rule}")
            rows[-1][sentence_id] = len(texts[-1])
            texts[-1].append(text)
    lines = read_lines(gold)
    written = [line.split("\t") for line in lines]
    known = lambda cells: len(cells) == 2 and cells[0] in rows[0] and cells[1] in rows[1]
    # In some releases the columns are in another order than the languages of the name. Decided for
    # the whole file: ids of both sides may be the same, such as line numbers.
    swapped = [cells[::-1] for cells in written]
    given = max(written, swapped, key=lambda order: sum(map(known, order)))
    pairs = set()
    for number, (line, cells) in enumerate(zip(lines, given), 1):
        if not known(cells):
            rule = f"a pair must be the ids of a {' and a '.join(files)} sentence"
            raise ValueError(f"{gold}:{number}: {rule}; found {line[:80]!r}")
        pairs.add((rows[0][cells[0]], rows[1][cells[1]]))
    if not pairs:
        raise ValueError(f"{gold}: must hold pairs id<TAB>id; the file is empty")
    return MiningText(name, tuple(files), tuple(texts), frozenset(pairs))
