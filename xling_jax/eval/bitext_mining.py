"""Bitext mining as in the BUCC shared task: are a text's translations found among other text?

The rules of the task and of LASER's `bucc.py`: pairs are mined one to one, pairs of texts that
repeat are removed, the threshold that is best on the training part is used on the test part.
Works on embeddings through an `encode` function. Writes and prints nothing.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xling_jax.align import mining
from xling_jax.eval.retrieval import Encode, encode_unique
from xling_jax.files.hashes import hash_texts
from xling_jax.files.lines import COMPRESSED, read_lines

_GOLD = re.compile(rf"(?P<name>.+)\.gold({COMPRESSED})?")
# Where the threshold is tuned and where it is judged, the better place first.
_TRAIN_SPLITS, _TEST_SPLITS = ("training", "train", "sample"), ("test",)


@dataclass(frozen=True)
class MiningText:
    """Two texts and the pairs in them that are translations.

    Attributes:
        name: begins the names of the files, such as `fr-en.training`.
        languages: of the two texts.
        ids: for each text the names of its n sentences.
        texts: for each text its n sentences.
        gold: rows of the pairs, [(row of the first text, row of the second)].
    """

    name: str
    languages: tuple[str, str]
    ids: tuple[list[str], list[str]]
    texts: tuple[list[str], list[str]]
    gold: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class MiningData:
    """One language pair.

    Attributes:
        name: begins the names of its metrics, such as `fr-en`.
        train: what the threshold is tuned on.
        test: what is measured with it; the same object as `train` where there is no test part.
    """

    name: str
    train: MiningText
    test: MiningText

    @property
    def has_test(self) -> bool:
        """Whether the threshold is judged on text that it was not tuned on."""
        return self.test is not self.train

    @property
    def fingerprint(self) -> str:
        """SHA-256 of sentences and gold pairs; not of file names or compression."""
        return hash_texts(
            item
            for part in ((self.train, self.test) if self.has_test else (self.train,))
            for item in [
                *zip(part.languages, part.texts),
                ("gold", [f"{i} {j}" for i, j in sorted(part.gold)]),
            ]
        )


@dataclass(frozen=True)
class MiningScores:
    """How many pairs were found.

    Attributes:
        num_gold: pairs there are.
        num_extracted: pairs that score above the threshold.
        num_correct: gold pairs among these.
    """

    num_gold: int
    num_extracted: int
    num_correct: int

    @property
    def precision(self) -> float:
        """Share of what was extracted that is right; 0 if nothing was."""
        return self.num_correct / self.num_extracted if self.num_extracted else 0.0

    @property
    def recall(self) -> float:
        """Share of the gold pairs that was extracted."""
        return self.num_correct / self.num_gold

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.num_correct / (self.num_extracted + self.num_gold)


@dataclass(frozen=True)
class MiningResult:
    """What was measured on one language pair.

    Attributes:
        threshold: tuned on the training part; pairs that score at least this are extracted.
        train: with it on the training part.
        test: with it on the test part, which may be the training part.
    """

    threshold: float
    train: MiningScores
    test: MiningScores


def load_mining_data(
    path: str | Path, languages: Sequence[str] | None = None
) -> tuple[MiningData, ...]:
    """Reads the files of BUCC.

    Args:
        path: a directory with, in it or in its directories, for each part `PAIR.SPLIT.LANG` for
            two languages, lines `id<TAB>sentence`, and `PAIR.SPLIT.gold`, lines `id<TAB>id`; the
            split is `training` (or `train`, `sample`) or `test`. Files may be compressed.
        languages: pairs of these only; None takes all.

    Returns:
        The language pairs, by name. Parts without gold pairs are not read.

    Raises:
        ValueError: if a file breaks a rule (it and the line are named) or there is nothing.
        OSError: if a file cannot be read.
    """
    place = Path(path).expanduser()
    files = sorted(file for file in (*place.glob("*"), *place.glob("*/*")) if file.is_file())
    parts: dict[str, dict[str, tuple[Path, str, tuple[str, str]]]] = {}
    for file in files:
        match = _GOLD.fullmatch(file.name)
        if not match:
            continue
        pair, _, split = match["name"].rpartition(".")
        if split not in (*_TRAIN_SPLITS, *_TEST_SPLITS):
            pair, split = match["name"], _TRAIN_SPLITS[0]
        codes = _languages_of(file, match["name"], files)
        if languages is None or set(codes) <= set(languages):
            parts.setdefault(pair, {})[split] = file, match["name"], codes
    if not parts:
        wanted = "" if languages is None else f" of {', '.join(languages)}"
        raise ValueError(f"{place}: must hold BUCC files, such as fr-en.training.gold{wanted}")
    return tuple(_read_pair(place, pair, splits) for pair, splits in sorted(parts.items()))


def mine_pairs(
    encode: Encode,
    text: MiningText,
    *,
    k: int = mining.MARGIN_NEIGHBORS,
    margin: str = "ratio",
    retrieval: str = "max",
    memory_mb: float = 256,
    backend: str = "numpy",
) -> mining.MinedPairs:
    """Mines one part: all pairs, ranked, without those whose text repeats.

    Args:
        encode: texts to [n, dim] embeddings; called once, with each text once.
        text: what to mine.
        k: see `mining.mine`, as the others.
        margin: see there.
        retrieval: see there.
        memory_mb: see there.
        backend: see there.

    Returns:
        Pairs of rows, best first.

    Raises:
        ValueError: as `mining.mine`.
    """
    # A blank sentence is nobody's translation.
    counts = [Counter(filter(str.strip, column)) for column in text.texts]
    unique = [list(count) for count in counts]
    vectors, ids = encode_unique(encode, unique)
    found = mining.mine(
        *(vectors[ids(side)] for side in unique),
        k=k,
        margin=margin,
        retrieval=retrieval,
        memory_mb=memory_mb,
        backend=backend,
    )
    once = [np.array([count[t] == 1 for t in count], bool) for count in counts]
    found = found.take(once[0][found.source] & once[1][found.target])
    rows = []
    for column, side in zip(text.texts, unique):
        row_of = {t: row for row, t in enumerate(column)}
        rows.append(np.array([row_of[t] for t in side], np.int64))
    return mining.MinedPairs(rows[0][found.source], rows[1][found.target], found.scores)


def tune_threshold(scores: np.ndarray, correct: np.ndarray, num_gold: int) -> float:
    """The threshold with the best F1 on a ranked list.

    As LASER's `bucc.py`: the list is cut behind each pair, and the threshold lies midway between
    the last pair kept and the next. Choice: pairs of equal scores are kept or cut together, where
    LASER may cut between them and then keeps them all.

    Args:
        scores: [p] float, descending.
        correct: [p] bool, whether each pair is right.
        num_gold: right pairs there are, found or not.

    Returns:
        The threshold: pairs that score at least this are kept. The first of equally good ones
        in the list; the last score itself if all are kept; 0 if no pair is right.
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
) -> MiningScores:
    """Counts the pairs that score at least `threshold`, and the right ones among them."""
    kept = pairs.take(pairs.scores.astype(np.float64) >= threshold)
    return MiningScores(len(gold), len(kept), int(_correct(kept, gold).sum()))


def measure_mining(encode: Encode, data: MiningData, **settings) -> MiningResult:
    """Mines both parts of a language pair and measures them.

    Args:
        encode: texts to [n, dim] embeddings.
        data: the language pair.
        **settings: see `mine_pairs`.

    Returns:
        The threshold tuned on the training part, and the scores with it.

    Raises:
        ValueError: as `mine_pairs`.
    """
    mined = mine_pairs(encode, data.train, **settings)
    correct = _correct(mined, data.train.gold)
    threshold = tune_threshold(mined.scores, correct, len(data.train.gold))
    train = test = measure_pairs(mined, data.train.gold, threshold)
    if data.has_test:
        mined = mine_pairs(encode, data.test, **settings)
        test = measure_pairs(mined, data.test.gold, threshold)
    return MiningResult(threshold, train, test)


def evaluate_mining(encode: Encode, data: MiningData, **settings) -> dict[str, float]:
    """Measures mining as named numbers, for training loops and tables.

    Args:
        encode: texts to [n, dim] embeddings.
        data: the language pair.
        **settings: see `mine_pairs`.

    Returns:
        `NAME/f1` (the primary one), `NAME/precision`, `NAME/recall` on the test part,
        `NAME/train_f1` and `NAME/threshold`.

    Raises:
        ValueError: as `mine_pairs`.
    """
    return named_metrics(data.name, measure_mining(encode, data, **settings))


def named_metrics(name: str, result: MiningResult) -> dict[str, float]:
    """The numbers of `evaluate_mining` from a result."""
    return {
        f"{name}/f1": result.test.f1,
        f"{name}/precision": result.test.precision,
        f"{name}/recall": result.test.recall,
        f"{name}/train_f1": result.train.f1,
        f"{name}/threshold": result.threshold,
    }


def _correct(pairs: mining.MinedPairs, gold: frozenset[tuple[int, int]]) -> np.ndarray:
    rows = zip(pairs.source.tolist(), pairs.target.tolist())
    return np.fromiter((pair in gold for pair in rows), bool, len(pairs))


def _read_pair(
    place: Path, pair: str, splits: Mapping[str, tuple[Path, str, tuple[str, str]]]
) -> MiningData:
    """Training and test part of a language pair, from the arguments of `_read_part` for each."""
    train = next((split for split in _TRAIN_SPLITS if split in splits), None)
    if train is None:
        raise ValueError(
            f"{place}: {pair} must have a training part to tune the threshold on, "
            f"{pair}.training.gold; found {', '.join(splits)}"
        )
    text = _read_part(*splits[train])
    test = next((split for split in _TEST_SPLITS if split in splits), None)
    return MiningData(pair, text, _read_part(*splits[test]) if test else text)


def _languages_of(gold: Path, name: str, files: Sequence[Path]) -> tuple[str, str]:
    """The languages of the two texts beside a gold file, in the order that its name tells."""
    pattern = re.compile(rf"{re.escape(name)}\.(?P<language>[A-Za-z_]+?)({COMPRESSED})?")
    matches = [pattern.fullmatch(file.name) for file in files if file.parent == gold.parent]
    codes = {match["language"] for match in matches if match} - {"gold"}
    if len(codes) != 2:
        found = ", ".join(sorted(codes)) or "none"
        raise ValueError(f"{gold}: needs two texts beside it, {name}.LANG; found {found}")
    # fr-en.training: French first, whatever the alphabet says.
    first = name.split(".")[0].split("-")[0]
    return tuple(sorted(codes, key=lambda code: (code != first, code)))


def _read_part(gold: Path, name: str, languages: tuple[str, str]) -> MiningText:
    sides = [_read_sentences(gold, f"{name}.{code}") for code in languages]
    rows = [{sentence_id: row for row, sentence_id in enumerate(ids)} for ids, _ in sides]
    pairs = set()
    for number, line in enumerate(read_lines(gold), 1):
        cells = line.split("\t")
        # Some releases name the languages in one order and the columns in the other.
        if len(cells) == 2 and cells[0] in rows[1]:
            cells.reverse()
        if len(cells) != 2 or cells[0] not in rows[0] or cells[1] not in rows[1]:
            raise ValueError(
                f"{gold}:{number}: a pair must be the ids of a {languages[0]} and a "
                f"{languages[1]} sentence; found {line[:80]!r}"
            )
        pairs.add((rows[0][cells[0]], rows[1][cells[1]]))
    if not pairs:
        raise ValueError(f"{gold}: must hold pairs id<TAB>id; the file is empty")
    ids, texts = zip(*sides)
    return MiningText(name, languages, ids, texts, frozenset(pairs))


def _read_sentences(gold: Path, name: str) -> tuple[list[str], list[str]]:
    """Ids and sentences of the text of a name, maybe compressed, beside the gold pairs."""
    pattern = re.compile(rf"{re.escape(name)}({COMPRESSED})?")
    path = next(file for file in sorted(gold.parent.iterdir()) if pattern.fullmatch(file.name))
    ids: list[str] = []
    texts: list[str] = []
    for number, line in enumerate(read_lines(path), 1):
        sentence_id, tab, text = line.partition("\t")
        if not tab:
            raise ValueError(f"{path}:{number}: a line must be id<TAB>sentence; found no tab")
        ids.append(sentence_id)
        texts.append(text)
    twice = [sentence_id for sentence_id, count in Counter(ids).items() if count > 1]
    if twice:
        raise ValueError(f"{path}: an id may stand once only; {twice[0]!r} stands more often")
    return ids, texts
