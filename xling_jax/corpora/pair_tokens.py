"""From cleaned text to token shards: exact duplicates out, pieces in, one pair after the other.

A pair is built in a hidden directory, shard by shard, and takes its name when it is whole; an
interrupted run goes on behind the last whole shard. What a shard holds is planned beforehand from
the text alone, so neither interruption nor the number of processes changes a byte.
"""

import dataclasses
import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from xling_jax.corpora.pair_text import Member, PairText
from xling_jax.corpora.shards import token_dtype, write_shard
from xling_jax.files.whole import (
    naming_errors,
    read_json,
    replace_directory,
    sync_tree,
    write_json,
)
from xling_jax.files.workers import map_in_order
from xling_jax.text.vocab import Vocab

SHARD_ROWS = 100_000

# Rows whose hashes are sorted at a time, at about 40 bytes each.
_DEDUPLICATION_ROWS = 1 << 22
_BLOCK_ROWS = 1 << 20

Keep = Mapping[str, np.ndarray]


def first_occurrences(
    columns: Sequence[np.ndarray], max_rows: int = _DEDUPLICATION_ROWS
) -> list[np.ndarray]:
    """Marks the first of equal rows over several columns of hashes.

    Args:
        columns: [rows] uint64 each, may be memory-mapped.
        max_rows: about how many hashes to hold in memory; more are done in several passes, each
            over one range of hash values.

    Returns:
        [rows] bool for each column: False where the same hash stands before.
    """
    total = sum(map(len, columns))
    keep = np.zeros(total, bool)
    bits = max(0, (max(total, 1) - 1) // max_rows).bit_length()
    for part in range(1 << bits):
        values, positions, start = [], [], 0
        for column in columns:
            for begin in range(0, len(column), _BLOCK_ROWS):
                block = np.asarray(column[begin : begin + _BLOCK_ROWS], np.uint64)
                if bits:
                    where = np.flatnonzero(block >> np.uint64(64 - bits) == part)
                    block = block[where]
                else:
                    where = np.arange(len(block))
                values.append(block)
                positions.append(where + (start + begin))
            start += len(column)
        if values:
            _, first = np.unique(np.concatenate(values), return_index=True)
            keep[np.concatenate(positions)[first]] = True
    return np.split(keep, np.cumsum([len(column) for column in columns])[:-1])


@dataclasses.dataclass(frozen=True)
class PairPlan:
    """What one pair is made of.

    Args:
        pair: two codes in alphabetical order, joined by a hyphen.
        fingerprint: of everything the tokens depend on.
        corpora: name and text of each corpus that has the pair, in the order of the config.
        keep: gives the rows of each corpus to keep, [rows] bool; called only when needed.
    """

    pair: str
    fingerprint: str
    corpora: tuple[tuple[str, PairText], ...]
    keep: Callable[[], Sequence[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Shard:
    """Members of one corpus that become one shard.

    Attributes:
        directory: where the pair is built.
        pair: the pair's name.
        number: of the shard, from 0.
        corpus: name of the corpus.
        parts: the members, with the rows to keep of each, [rows] bool.
    """

    directory: Path
    pair: str
    number: int
    corpus: str
    parts: tuple[tuple[Member, np.ndarray], ...]

    @property
    def name(self) -> str:
        """Name of the shard's directory."""
        return f"{self.number:05d}"

    def counts(self) -> dict | None:
        """Counts of a whole shard, None while there is none."""
        return read_json(self.directory / f"{self.name}.json")


class MemberTokenizer:
    """Tokenises one gzip member; runs in a worker process.

    Args:
        vocab: the vocabulary.
        max_tokens: most pieces of a side; 0 for any.
    """

    def __init__(self, vocab: Vocab, max_tokens: int):
        self._vocab, self._max_tokens = vocab, max_tokens

    def __call__(self, part: tuple[Member, np.ndarray]) -> "Tokens":
        """Returns the tokens of the rows to keep that are short enough on both sides."""
        member, keep = part
        rows = [row for row, kept in zip(member.read(), keep, strict=True) if kept]
        dtype = token_dtype(self._vocab.size)
        # One thread: the processes are as many as the cores already.
        sides = [
            self._vocab.encode([row[side] for row in rows], num_threads=1) for side in range(2)
        ]
        lengths = np.asarray([[len(ids) for ids in side] for side in sides], np.int64)
        lengths = lengths.reshape(2, len(rows))
        # Text of nothing but characters that SentencePiece's own normalisation removes is empty.
        fits = (lengths > 0).all(axis=0)
        if self._max_tokens:
            fits &= (lengths <= self._max_tokens).all(axis=0)
        flat = tuple(
            np.concatenate(
                [ids for ids, fit in zip(side, fits, strict=True) if fit] or [[]]
            ).astype(dtype)
            for side in sides
        )
        return Tokens(flat, lengths[:, fits], int(len(rows) - fits.sum()))


@dataclasses.dataclass
class Tokens:
    """Tokens of both sides: flat ids, [2, rows] lengths, and the number of rows left out."""

    flat: tuple[np.ndarray, np.ndarray]
    lengths: np.ndarray
    num_too_many: int


def pair_summary(directory: Path, fingerprint: str) -> dict | None:
    """Returns the counts of a finished pair, None if it is missing or another one."""
    content = read_json(directory / "pair.json")
    return content if content and content.get("fingerprint") == fingerprint else None


def write_pair_tokens(
    directory: Path,
    plans: Sequence[PairPlan],
    vocab: Vocab,
    *,
    max_tokens: int,
    num_workers: int,
    progress: Callable[..., Iterable],
) -> None:
    """Tokenises pairs into shards, `DIR/a-b/00000` and so on; writes only what is missing.

    Args:
        directory: holds a directory for each pair.
        plans: the pairs.
        vocab: the vocabulary.
        max_tokens: most pieces of a side; longer rows are left out and counted; 0 for any.
        num_workers: processes; the bytes do not depend on it.
        progress: wraps an iterable: `progress(items, desc, total)`.

    Raises:
        OSError: from the file system, with a path.
        ValueError: if a pair has no rows.
    """
    shards = unfinished_shards(directory, plans)
    plans = [plan for plan in plans if plan.pair in shards]
    for plan in plans:
        _remove_partial_builds(directory, plan)
    missing = [s for plan in plans for s in shards[plan.pair] if s.counts() is None]
    results = map_in_order(
        MemberTokenizer(vocab, max_tokens),
        (part for shard in missing for part in shard.parts),
        num_workers,
    )
    pending = iter(progress(missing, "tokenise shards", len(missing)))
    for plan in plans:
        partial = _partial(directory, plan)
        partial.mkdir(parents=True, exist_ok=True)
        for _ in range(sum(shard.pair == plan.pair for shard in missing)):
            shard = next(pending)
            write_tokens(partial, shard, list(itertools.islice(results, len(shard.parts))))
        _finish(directory, plan, shards[plan.pair])
    # Lets the wrapper and the processes end.
    for _ in itertools.chain(pending, results):
        pass


def unfinished_shards(directory: Path, plans: Sequence[PairPlan]) -> dict[str, list[Shard]]:
    """Plans the shards of the pairs that are not finished; pair -> all its shards."""
    return {
        plan.pair: list(_plan_shards(directory, plan))
        for plan in plans
        if not pair_summary(directory / plan.pair, plan.fingerprint)
    }


def _plan_shards(directory: Path, plan: PairPlan) -> Iterator[Shard]:
    """Groups consecutive members of a corpus until about `SHARD_ROWS` rows are kept."""
    partial, number = _partial(directory, plan), 0
    for (corpus, text), keep in zip(plan.corpora, plan.keep(), strict=True):
        parts, num_rows = [], 0
        for member in text.members(plan.pair):
            part = keep[member.first_row : member.first_row + member.num_rows]
            num_kept = int(part.sum())
            if parts and num_rows + num_kept > SHARD_ROWS:
                yield Shard(partial, plan.pair, number, corpus, tuple(parts))
                parts, num_rows, number = [], 0, number + 1
            if num_kept:
                parts.append((member, part))
                num_rows += num_kept
        if parts:
            yield Shard(partial, plan.pair, number, corpus, tuple(parts))
            number += 1


def _partial(directory: Path, plan: PairPlan) -> Path:
    return directory / f".{plan.pair}.{plan.fingerprint}.partial"


def _remove_partial_builds(directory: Path, plan: PairPlan) -> None:
    """Removes what interrupted runs with other settings left of a pair."""
    for path in directory.glob(f".{plan.pair}.*.partial"):
        if path != _partial(directory, plan):
            shutil.rmtree(path, ignore_errors=True)


def write_tokens(directory: Path, shard: Shard, tokens: Sequence[Tokens]) -> None:
    """Writes one shard, then its counts, whose presence says that the shard is whole.

    Args:
        directory: where to write.
        shard: the shard.
        tokens: what `MemberTokenizer` made of each of its parts.

    Raises:
        OSError: from the file system, with a path.
    """
    lengths = np.concatenate([part.lengths for part in tokens], axis=1)
    offsets = np.zeros((2, lengths.shape[1] + 1), np.int64)
    np.cumsum(lengths, axis=1, out=offsets[:, 1:])
    languages = shard.pair.split("-")
    if lengths.shape[1]:
        shard_directory = directory / shard.name
        columns = {
            language: (np.concatenate([part.flat[side] for part in tokens]), offsets[side])
            for side, language in enumerate(languages)
        }
        with naming_errors(shard_directory):
            write_shard(shard_directory, columns)
            sync_tree(shard_directory)
    counts = {
        "rows": lengths.shape[1],
        "too_many_tokens": sum(part.num_too_many for part in tokens),
        "tokens": dict(zip(languages, lengths.sum(axis=1).tolist(), strict=True)),
    }
    write_json(directory / f"{shard.name}.json", counts)


def _finish(directory: Path, plan: PairPlan, shards: Sequence[Shard]) -> None:
    """Sums the counts of a pair's shards and gives the pair its name."""
    partial = _partial(directory, plan)
    tokens = dict.fromkeys(plan.pair.split("-"), 0)
    corpora = {}
    for (name, text), keep in zip(plan.corpora, plan.keep(), strict=True):
        duplicates = text.num_rows.get(plan.pair, 0) - int(keep.sum())
        corpora[name] = {"duplicate": duplicates, "too_many_tokens": 0, "rows": 0}
    for shard in shards:
        counts = shard.counts()
        for language, number in counts["tokens"].items():
            tokens[language] += number
        for key in ("too_many_tokens", "rows"):
            corpora[shard.corpus][key] += counts[key]
    num_rows = sum(counts["rows"] for counts in corpora.values())
    if not num_rows:
        raise ValueError(
            f"data.pairs: nothing is left of {plan.pair} after cleaning; relax the cleaning "
            "section, add a corpus that has the pair, or take it out of data.pairs"
        )
    summary = {"rows": num_rows, "tokens": tokens, "corpora": corpora}
    write_json(partial / "pair.json", {"fingerprint": plan.fingerprint, **summary})
    replace_directory(partial, directory / plan.pair)
