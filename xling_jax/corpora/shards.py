"""Token shards: written whole or not at all, and read through memory maps.

A pair of languages `a-b` (a < b) has a directory for each shard, which holds for each language a
flat array of token ids and the offsets of its rows:

    DIR/de-en/00000/de.tokens.npy    [total_tokens] uint16 or int32, no special tokens
    DIR/de-en/00000/de.offsets.npy   [rows + 1] int64, row i is tokens[offsets[i]:offsets[i + 1]]

Row i of one language translates row i of the other. Pairs held out for the validation loss are in
`DIR/validation/de-en/`.
"""

import concurrent.futures
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from xling_jax.files.hashes import hash_file
from xling_jax.files.threads import num_cores
from xling_jax.files.untrusted import one_line
from xling_jax.files.whole import naming_errors, read_json, whole_directory

VALIDATION = "validation"
_DAMAGED = "damaged token shard"
# NumPy parses headers as Python, which fails at times in several threads of Python 3.11.
_ONE_HEADER = threading.Lock()


def pair_name(first: str, second: str) -> str:
    """Directory name of an unordered pair: codes in alphabetical order, joined by a hyphen."""
    return "-".join(sorted((first, second)))


def token_dtype(vocab_size: int) -> np.dtype:
    """Smallest dtype that holds every id of a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


def write_shard(
    directory: str | os.PathLike, columns: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    """Writes a shard, language code -> (flat tokens, offsets), whole or not at all."""
    with whole_directory(directory) as temporary, naming_errors(directory):
        for language, (tokens, offsets) in columns.items():
            np.save(temporary / f"{language}.tokens.npy", tokens)
            np.save(temporary / f"{language}.offsets.npy", offsets)


def file_hashes(directory: Path) -> dict[str, str]:
    """The SHA-256 of each array in a directory, by the name of its file; for its record."""
    return {path.name: hash_file(path) for path in sorted(directory.glob("*.npy"))}


class DamagedData(ValueError):
    """Prepared data that are not what was written.

    Attributes:
        directory: remove it and prepare again to make them anew.
    """

    def __init__(self, path: Path, problem: str, directory: Path):
        super().__init__(f"{path}: {problem}; remove {directory} and run the same command again")
        self.directory = directory


def recorded_hashes(record: Path, directory: Path) -> dict[str, str]:
    """`file_hashes` in a record; none if an earlier version wrote it, which had none."""
    if not record.exists():
        return {}
    if (found := read_json(record)) is None:
        raise DamagedData(record, "damaged record", directory)
    return found.get("hashes") or {}


def prepared_array(
    path: Path, what: str, directory: Path, expected_hash: str | None = None
) -> np.ndarray:
    """Maps a prepared array; `DamagedData` if it is not the one with the hash.

    `what` begins the message of an error, `directory` is what to remove. The hash is from
    `file_hashes`; None for what earlier versions prepared.
    """
    try:
        if expected_hash is not None and hash_file(path) != expected_hash:
            raise ValueError("its content is not what was written")
        with _ONE_HEADER:
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, which fails in many ways
        raise DamagedData(path, f"{what}: {one_line(error, 200)}", directory) from error


class PairTokens:
    """The rows of one language pair over all its shards in `DIR/a-b`, memory-mapped.

    Ids must be below `vocab_size`; None checks none. ValueError if there are no shards,
    `DamagedData` if one is damaged.

    Attributes:
        languages: the two codes in alphabetical order.
        lengths: language -> [rows] int32, number of tokens of each row without special tokens.
    """

    def __init__(self, directory: str | os.PathLike, vocab_size: int | None = None):
        self.directory, self._vocab_size = Path(directory), vocab_size
        self.languages = tuple(self.directory.name.split("-"))
        if len(self.languages) != 2:
            raise ValueError(f"{directory}: must be the directory of a pair of languages")
        shards = sorted(p for p in self.directory.iterdir() if p.is_dir() and p.name.isdigit())
        if not shards:
            raise ValueError(f"{directory}: no token shards; run `xling prepare` again")
        self._tokens: dict[str, list[np.ndarray]] = {}
        self._offsets: dict[str, list[np.ndarray]] = {}
        self.lengths: dict[str, np.ndarray] = {}
        records = {shard: shard.with_suffix(".json") for shard in shards}
        self._hashes = {s: recorded_hashes(r, self.directory) for s, r in records.items()}
        for language in self.languages:
            tokens = self._load_all(shard / f"{language}.tokens.npy" for shard in shards)
            offsets = self._load_all(shard / f"{language}.offsets.npy" for shard in shards)
            lengths = [np.diff(ends) for ends in offsets]
            for shard, flat, ends, rows in zip(shards, tokens, offsets, lengths):
                whole = len(ends) and ends[0] == 0 and ends[-1] == len(flat)
                if not whole or (rows < 0).any():
                    raise self._damaged(shard, f"tokens and offsets of {language} do not match")
            self._tokens[language], self._offsets[language] = tokens, offsets
            self.lengths[language] = np.concatenate(lengths).astype(np.int32)
        sizes, others = ([len(o) - 1 for o in self._offsets[code]] for code in self.languages)
        for shard, size, other in zip(shards, sizes, others):
            if size != other:
                raise self._damaged(shard, f"{size} rows on one side, {other} on the other")
        self._starts = np.concatenate([[0], np.cumsum(sizes)])

    def _load_all(self, paths: Iterable[Path]) -> list[np.ndarray]:
        with concurrent.futures.ThreadPoolExecutor(num_cores()) as pool:
            return list(pool.map(self._load, paths))

    def _load(self, path: Path) -> np.ndarray:
        kinds = ("i8",) if path.name.endswith(".offsets.npy") else ("u2", "i4")
        expected = self._hashes[path.parent].get(path.name)
        array = prepared_array(path, _DAMAGED, self.directory, expected)
        if array.ndim != 1 or array.dtype.str[1:] not in kinds:
            raise self._damaged(path, f"found {array.dtype} {list(array.shape)}")
        return array

    def _damaged(self, path: Path, problem: str) -> DamagedData:
        return DamagedData(path, f"{_DAMAGED}: {problem}", self.directory)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def shards(self, language: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the tokens [sum of lengths] and offsets [rows + 1] of each shard."""
        for tokens, offsets in zip(self._tokens[language], self._offsets[language]):
            yield np.asarray(tokens), np.asarray(offsets)

    def gather(self, language: str, rows: np.ndarray, width: int, fill: int) -> np.ndarray:
        """Reads rows of a language into a padded array, [n, width] int32.

        `rows` are [n] int64 row numbers, -1 for a row of `fill`; longer rows are truncated.
        """
        out = np.full((len(rows), width), fill, np.int32)
        shard_of = np.searchsorted(self._starts, rows, side="right") - 1
        column = np.arange(width)
        for shard in np.unique(shard_of[rows >= 0]):
            where = np.flatnonzero((shard_of == shard) & (rows >= 0))
            local = rows[where] - self._starts[shard]
            tokens, offsets = self._tokens[language][shard], self._offsets[language][shard]
            if len(tokens) == 0:
                continue
            begin = np.asarray(offsets[local])
            length = np.minimum(np.asarray(offsets[local + 1]) - begin, width)
            index = np.minimum(begin[:, None] + column, len(tokens) - 1)
            out[where] = np.where(column < length[:, None], tokens[index].astype(np.int32), fill)
        if self._vocab_size and out.size and not 0 <= out.min() <= out.max() < self._vocab_size:
            raise self._damaged(
                self.directory,
                f"ids {out.min()} to {out.max()}, the vocabulary has {self._vocab_size}",
            )
        return out
