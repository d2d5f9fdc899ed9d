import dataclasses
import sys

import numpy as np
import pytest

from tests.train.synthetic import LANGUAGES, write_corpus
from xling_jax.corpora.shards import PairTokens
from xling_jax.train.batches import (
    DataOptions,
    Direction,
    TranslationBatches,
    read_batches,
)
from xling_jax.train.options import Epoch

BOS, PAD, EOS = 0, 1, 2
PAIRS = ("aa-bb", "bb-aa", "cc-aa")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shards")
    write_corpus(directory, rows=50)
    return directory


def batches(directory, **changes):
    data = {"pairs": PAIRS, "bucket_lengths": (8, 16, 24), "max_tokens": 192, "batch_multiple": 4}
    known = {field.name for field in dataclasses.fields(DataOptions)}
    data |= {name: changes.pop(name) for name in known & changes.keys()}
    settings = {"languages": LANGUAGES, "prefix": (BOS,), "suffix": (EOS,), "pad_id": PAD}
    return TranslationBatches(directory, DataOptions(**data), seed=3, **settings, **changes)


def test_an_epoch_has_the_updates_that_draw_as_many_pairs_as_there_are(directory):
    data = batches(directory)
    rows = [[(e.rows >= 0).sum() for e in data.plan.one_pass(n)] for n in range(len(PAIRS))]
    micro_batches = sum(map(sum, rows)) / np.mean([*map(np.mean, rows)])  # pairs are equally likely
    for accumulation_steps in (1, 4):
        epoch = data.epoch(accumulation_steps)
        assert epoch == Epoch(pytest.approx(micro_batches / accumulation_steps), 150)


def equal(one, other):
    return one.keys() == other.keys() and all(
        one[k].dtype == other[k].dtype and np.array_equal(one[k], other[k]) for k in one
    )


def expected_tokens(directory, data, entry, side, row):
    """Of a row of the corpus, cut to its bucket; and whether it was cut."""
    direction = data.directions[entry.pair]
    language, words, is_cut = getattr(direction, side), [], False
    if row >= 0:
        corpus = PairTokens(directory / "-".join(sorted((direction.source, direction.target))))
        length = int(corpus.lengths[language][row])
        kept = min(length, entry.bucket.length - 2)
        words = [BOS, *corpus.gather(language, np.array([row]), length, PAD)[0][:kept], EOS]
        is_cut = kept < length
    return words + [PAD] * (entry.bucket.length - len(words)), is_cut


def test_a_batch_holds_the_planned_rows_between_their_special_tokens(directory):
    data = batches(directory)
    for index in range(20):
        entry, batch = data.plan[index], data[index]
        for side in ("source", "target"):
            for row, tokens in zip(entry.rows, batch[f"{side}_tokens"]):
                expected = expected_tokens(directory, data, entry, side, row)
                assert (tokens.tolist(), False) == expected
        target = data.directions[entry.pair].target
        assert set(batch["target_language"]) == {LANGUAGES.index(target)}
        assert "source_language" not in batch


@pytest.mark.parametrize("processes", [2, 4])
def test_slices_of_all_processes_make_the_global_batch(directory, processes):
    whole = batches(directory)
    parts = [
        batches(directory, process_index=number, process_count=processes)
        for number in range(processes)
    ]
    for index in range(10):
        slices = [part[index] for part in parts]
        joined = {k: np.concatenate([part[k] for part in slices]) for k in slices[0]}
        assert equal(joined, whole[index])


def test_both_directions_carry_the_source_language_too(directory):
    data = batches(directory, both_directions=True)
    assert data.directions == (Direction("aa", "bb", both=True), Direction("cc", "aa"))
    for index in range(10):
        batch, both = data[index], data.directions[data.plan[index].pair].both
        assert ("source_language" in batch) == both
        if both:
            assert set(batch["source_language"]) == {0}
            assert set(batch["target_language"]) == {1}


@pytest.mark.parametrize("reader", ["numpy", pytest.param("tf.data", marks=pytest.mark.slow)])
def test_readers_give_the_batches_in_order_byte_for_byte(directory, reader):
    if reader == "tf.data":
        pytest.importorskip("tensorflow")
    data = batches(directory, both_directions=True)
    read = list(read_batches(data, 4, 19, reader=reader))
    assert len(read) == 15
    fresh = batches(directory, both_directions=True)
    assert all(equal(batch, fresh[index]) for index, batch in enumerate(read, 4))


def test_auto_reads_without_tensorflow(directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    data = batches(directory)
    (batch,) = read_batches(data, 0, 1, reader="auto")
    assert equal(batch, data[0])
    with pytest.raises(ImportError, match="data.reader='numpy'"):
        list(read_batches(data, 0, 1, reader="tf.data"))


def test_without_bucket_lengths_the_text_tells_which(directory):
    settings = {"bucket_lengths": (), "longest_bucket": 16}
    data, cut = batches(directory, **settings), batches(directory, **settings, truncate=True)
    other = batches(directory, **settings, process_index=1, process_count=4)
    assert other.plan.buckets == data.plan.buckets
    assert set(data.plan.shapes) == {data.plan[index].bucket for index in range(200)}
    assert data.plan.buckets[-1].length == cut.plan.buckets[-1].length == 16
    assert sum(data.plan.num_skipped.values()) > sum(cut.plan.num_skipped.values()) == 0


def test_longer_sentences_are_left_out_or_cut_to_the_longest_bucket(directory):
    changes = {"bucket_lengths": (6, 8), "max_tokens": 64}
    whole, cut = batches(directory, **changes), batches(directory, **changes, truncate=True)
    assert sum(whole.plan.num_skipped.values()) > 0
    assert sum(cut.plan.num_skipped.values()) == 0
    full = 0
    for index in range(40):
        entry, batch = cut.plan[index], cut[index]
        for row, tokens in zip(entry.rows, batch["source_tokens"]):
            expected, is_cut = expected_tokens(directory, cut, entry, "source", row)
            assert tokens.tolist() == expected
            full += is_cut
    assert full > 0
    assert 0 < cut.efficiency <= 1
