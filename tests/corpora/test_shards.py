import concurrent.futures
import gc
import sys
import time

import numpy as np
import pytest

from tests.train.synthetic import pack_rows
from xling_jax.corpora.shards import PairTokens, prepared_array, token_dtype, write_shard

PAD = 1


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    draw = lambda: [random.integers(4, 60000, n) for n in random.integers(0, 9, 23)]
    return {"de": draw(), "en": draw()}


@pytest.fixture
def pair(tmp_path, rows):
    """The rows over three shards, one of them empty."""
    for shard, (start, stop) in enumerate([(0, 10), (10, 10), (10, 23)]):
        columns = {k: pack_rows(v[start:stop]) for k, v in rows.items()}
        write_shard(tmp_path / "de-en" / f"{shard:05d}", columns)
    return PairTokens(tmp_path / "de-en")


def test_rows_come_back_padded_and_cut_whatever_their_shard(pair, rows):
    order = np.array([22, 3, -1, 10, 9, 0, 10])
    found = pair.gather("en", order, 6, PAD)
    for row, number in zip(found, order):
        tokens = [] if number < 0 else list(rows["en"][number][:6])
        assert row.tolist() == tokens + [PAD] * (6 - len(tokens))
    assert found.dtype == np.int32 and len(pair) == 23
    assert pair.lengths["de"].tolist() == [len(row) for row in rows["de"]]


def test_a_directory_without_shards_says_what_to_do(tmp_path):
    (tmp_path / "de-en" / "00000.tmp").mkdir(parents=True)
    with pytest.raises(ValueError, match="xling prepare"):
        PairTokens(tmp_path / "de-en")


def test_threads_that_change_while_a_header_is_parsed_damage_nothing(tmp_path):
    """As with JAX, which calls Python when garbage is collected; CPython issue 106905."""
    np.save(path := tmp_path / "a.npy", np.arange(3))
    yields, interval, threshold = (
        lambda *_: time.sleep(0),
        sys.getswitchinterval(),
        gc.get_threshold(),
    )
    gc.callbacks.append(yields)
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            read = lambda _: prepared_array(path, "damaged", tmp_path).sum()
            assert {*pool.map(read, range(3000))} == {3}
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        gc.callbacks.remove(yields)


def test_the_smallest_dtype_holds_every_id():
    assert token_dtype(65536) == np.uint16
    assert token_dtype(65537) == np.int32
