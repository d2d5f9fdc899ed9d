"""Which rows are kept and where they go: as one process that reads everything decides."""

import numpy as np
import pytest

from xling_jax.corpora import pair_text, pair_tokens
from xling_jax.corpora.beam import rows
from xling_jax.corpora.pair_text import RowCounter
from xling_jax.corpora.readers.base import Row


def cut(rng, items: list, longest: int) -> list[list]:
    ends = np.cumsum(rng.integers(1, longest, len(items)))
    ends = [*ends[ends < len(items)], len(items)]
    return [items[start:end] for start, end in zip([0, *ends], ends)]


@pytest.mark.parametrize("seed", range(30))
def test_chunks_end_where_those_of_one_reader_would(monkeypatch, seed):
    monkeypatch.setattr(pair_text, "CHUNK_ROWS", 40)
    monkeypatch.setattr(pair_text, "CHUNK_CHARS", 900)
    rng = np.random.default_rng(seed)
    sizes = rng.choice(
        [1, 10, 30, 200, 900, 2000], rng.integers(1, 700), p=(0.3, 0.3, 0.3, 0.08, 0.01, 0.01)
    )
    texts = [Row({"de": "x" * (size - 1), "en": "y"}, "f", 1) for size in sizes]
    expected = [len(chunk) for chunk in RowCounter("f").chunks(texts)]
    pieces = cut(rng, sizes.tolist(), rng.choice([3, 60, 500]))
    found = [(0, n, np.asarray(p, "<u4").tobytes()) for n, p in enumerate(pieces)]
    rng.shuffle(found)
    chunk_of = []
    for (_, _, number), (first, begins) in rows.mark_chunks(5, found):
        begins = np.frombuffer(begins, "<u4")
        chunk_of += (
            first + np.searchsorted(begins, np.arange(len(pieces[number])), "right")
        ).tolist()
    assert np.bincount(chunk_of).tolist() == expected


@pytest.mark.parametrize("seed", range(10))
def test_shards_are_those_of_one_process(monkeypatch, seed):
    """Rows in chunks, chunks cut into pieces elsewhere: the same rows in the same shards."""
    monkeypatch.setattr(pair_tokens, "SHARD_ROWS", 50)
    rng = np.random.default_rng(seed)
    expected, kept, row = [], [], 0
    for corpus in range(2):
        chunks = [rng.random(rng.integers(0, 40)) < rng.choice([0.0, 0.5, 1.0]) for _ in range(20)]
        numbered = []
        for number, keep in enumerate(chunks):
            names = range(row, row + len(keep))
            numbered += zip(names, keep, [number] * len(keep))
            row += len(keep)
        members = []
        for number in range(len(chunks)):
            chosen = [name for name, keep, of in numbered if keep and of == number]
            members.append((len(chosen), chosen))
        expected += [(corpus, sum(group, [])) for group in pair_tokens.grouped(members)]
        for number, piece in enumerate(cut(rng, numbered, 30)):
            of = np.asarray([one[2] for one in piece])
            values, starts = np.unique(of, return_index=True)
            ends = zip(values.tolist(), [*starts[1:].tolist(), len(piece)])
            bits = np.packbits([one[1] for one in piece]).tobytes()
            path = ",".join(str(one[0]) for one in piece)
            kept.append(((corpus, 0, number), path, len(piece), None, bits, tuple(ends)))
    rng.shuffle(kept)
    found = []
    for corpus, stretches in rows.plan_shards([tuple(one) for one in kept]):
        chosen = []
        for stretch in stretches:
            names = np.asarray(stretch.path.split(","), int)
            chosen += names[stretch.mask()].tolist()
        found.append((corpus, chosen))
    assert found == expected


def test_the_first_of_equal_hashes_is_kept_in_whatever_order_pieces_come():
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 60, 50).astype("<u8") for _ in range(4)]
    expected = pair_tokens.first_occurrences(columns)
    found = [
        ((number // 2, 0, number % 2), column.tobytes(), np.arange(50, dtype="<u4").tobytes())
        for number, column in enumerate(columns)
    ]
    duplicates = dict(rows.find_duplicates((True, "de-en", 0), found[::-1]))
    for number, first in enumerate(expected):
        pair, packed = duplicates[number // 2, 0, number % 2]
        assert pair == "de-en"
        assert np.frombuffer(packed, "<u4").tolist() == np.flatnonzero(~first).tolist()


def test_smallest_hashes_of_groups_are_those_of_all():
    rng = np.random.default_rng(1)
    values = rng.integers(0, 1 << 60, 500).astype(np.uint64)
    values[100:200] = values[:100]
    pieces = [((0, 0, 0), values[values % 2 == bit].tobytes(), b"") for bit in (0, 1)]
    parts = [one for p in pieces for _, one in rows.smallest_hashes(7, (True, "a-b", 0), [p])]
    merged = rows.merge_smallest(7, [rows.merge_smallest(7, parts[:1]), *parts[1:]])
    assert merged[0] == len(np.unique(values))
    assert np.frombuffer(merged[1], "<u8").tolist() == np.unique(values)[:7].tolist()
    assert not list(rows.smallest_hashes(7, (False, "a-b", 0), pieces))
