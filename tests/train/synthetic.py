"""A small made-up corpus as token shards, and an experiment to train on it."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from xling_jax.config import load
from xling_jax.corpora.shards import pair_name, write_shard
from xling_jax.train.callbacks import Callback
from xling_jax.train.experiment import Experiment
from xling_jax.train.loop import Corpus
from xling_jax.train.training import VocabFacts

VOCAB_SIZE = 60
LANGUAGES = ("aa", "bb", "cc")


def write_corpus(
    directory: Path, rows: int = 200, seed: int = 0, languages: Sequence[str] = LANGUAGES
) -> Corpus:
    """Three languages, ciphers of one another: word w of language k is 4 + (w + 17 k) % 56."""
    random = np.random.default_rng(seed)
    for pair in itertools.combinations(range(len(languages)), 2):
        words = [random.integers(0, 56, random.integers(1, 20)) for _ in range(rows)]
        name = pair_name(*(languages[number] for number in pair))
        for shard, part in enumerate((words[: rows // 2], words[rows // 2 :])):
            tokens = {n: [4 + (sentence + 17 * n) % 56 for sentence in part] for n in pair}
            columns = {languages[number]: pack_rows(ids) for number, ids in tokens.items()}
            write_shard(directory / name / f"{shard:05d}", columns)
    facts = VocabFacts(VOCAB_SIZE, "vocab", {"bos": 0, "pad": 1, "eos": 2, "mask": 3})
    return Corpus(str(directory), "data", facts)


def pack_rows(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Joins rows of ids into the two arrays of a column of `write_shard`."""
    tokens = np.array([*itertools.chain(*rows)], np.uint16)
    return tokens, np.cumsum([0, *map(len, rows)])


class OnStep(Callback):
    """Calls a function with the number of each update."""

    def __init__(self, function: Callable[[int], object]):
        self._function = function

    def on_step(self, step: int, total_steps: int, compiling_s: float) -> None:
        self._function(step)


def smoke_experiment(values: Mapping[str, Any] = MappingProxyType({}), **train: Any) -> Experiment:
    """Seconds on a CPU.

    Args:
        values: dotted keys of the config -> values.
        **train: of the `train` section.
    """
    given = {
        "languages": LANGUAGES,
        "data.pairs": ("aa-bb", "bb-aa", "aa-cc", "cc-bb"),
        "data.bucket_lengths": (8, 16, 24),
        "data.max_tokens": 384,
        "data.reader": "numpy",
        "objective.translation.weight": 1.0,
    }
    given |= {f"train.{name}": value for name, value in train.items()}
    return load("ct_laser:smoke").replace({**given, **values})
