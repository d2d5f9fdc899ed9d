import itertools
import threading
import time

import numpy as np
import pytest

from xling_jax.train import batch_plan
from xling_jax.train.batch_plan import (
    BatchPlan,
    Bucket,
    LengthCounts,
    choose_bucket_lengths,
    make_buckets,
    padding_efficiency,
)

BUCKETS = (Bucket(4, 6), Bucket(8, 3), Bucket(16, 2))


def random_lengths(**rows):
    """pair -> lengths of 3 to 16, and one row too long for every bucket."""
    random = np.random.default_rng(0)
    return {pair: np.append(random.integers(3, 17, n - 1), 40) for pair, n in rows.items()}


def make_plan(lengths=None, seed=5, **settings):
    lengths = lengths or random_lengths(ab=61, ba=61, ac=23)
    return BatchPlan(lengths, BUCKETS, seed=seed, **settings)


def same(one, other):
    return one[:3] == other[:3] and (one.rows == other.rows).all() and one.epoch == other.epoch


def epochs_of(plan, pair, count):
    """Rows of the pair's micro-batches, epoch by epoch."""
    epochs = [[] for _ in range(count)]
    needed, index = count * plan.batches_per_epoch[pair], 0
    while needed:
        entry = plan[index]
        index += 1
        if plan.pairs[entry.pair] == pair:
            epochs[entry.epoch].append(entry)
            needed -= 1
    return epochs


def test_every_example_that_fits_is_used_once_per_epoch_of_its_pair():
    plan = make_plan()
    for pair, rows in (("ab", 60), ("ba", 60), ("ac", 22)):
        for epoch in epochs_of(plan, pair, 3):
            used = np.concatenate([entry.rows for entry in epoch])
            assert sorted(used[used >= 0]) == list(range(rows))
        assert plan.num_skipped[pair] == 1


def test_rows_stay_within_the_length_of_their_bucket():
    lengths = random_lengths(ab=61, ba=61, ac=23)
    plan = make_plan(lengths)
    for index in range(100):
        entry = plan[index]
        assert len(entry.rows) == entry.bucket.batch_size
        rows = entry.rows[entry.rows >= 0]
        assert (lengths[plan.pairs[entry.pair]][rows] <= entry.bucket.length).all()


def test_only_the_last_batch_of_an_epoch_has_padding_rows():
    (epoch,) = epochs_of(make_plan(), "ac", 1)
    padded = [entry for entry in epoch if (entry.rows < 0).any()]
    assert len(padded) <= 1
    assert all(entry.bucket == BUCKETS[-1] for entry in padded)


def test_no_batch_has_the_rows_of_one_of_another_epoch_or_pair():
    plan = make_plan({"ab": np.full(60, 4), "ba": np.full(60, 4)})
    batches_of = lambda *which: {frozenset(entry.rows.tolist()) for entry in plan.one_pass(*which)}
    first = batches_of(0, 0)
    assert len(first) == 10
    assert not first & batches_of(0, 1) and not first & batches_of(1, 0)


def test_draws_of_pairs_do_not_repeat_after_a_block(monkeypatch):
    monkeypatch.setattr(batch_plan, "_DRAW_BLOCK", 64)
    plan = make_plan()
    pairs = [plan[index].pair for index in range(128)]
    assert pairs[:64] != pairs[64:]


def test_the_plan_is_a_function_of_seed_and_number():
    plan = make_plan()
    sequential = [plan[index] for index in range(60)]
    fresh = make_plan()
    assert all(same(fresh[index], sequential[index]) for index in reversed(range(60)))
    other = make_plan(seed=6)
    assert not all(same(other[index], sequential[index]) for index in range(60))


def test_an_epoch_draws_as_many_rows_as_there_are_whatever_a_batch_holds():
    """Pairs of short and of long sentences, which have more and fewer rows in a batch."""
    buckets = (Bucket(4, 16), Bucket(16, 4))
    lengths = {"ab": np.full(1600, 4), "cd": np.full(800, 16)}
    for exponent in (0.0, 1.0):
        plan = BatchPlan(lengths, buckets, seed=5, sampling_exponent=exponent)
        assert plan.batches_per_epoch == {"ab": 100, "cd": 200}
        drawn = sum((plan[index].rows >= 0).sum() for index in range(round(plan.epoch)))
        assert abs(drawn - 2400) < 200  # 300 batches draw 3,000 on average, with 1.0 3,600
    one = make_plan(random_lengths(ab=61))
    assert one.epoch == pytest.approx(one.batches_per_epoch["ab"])


def test_threads_that_ask_at_the_same_time_get_the_same_plan(monkeypatch):
    monkeypatch.setattr(batch_plan, "_DRAW_BLOCK", 8)
    expected = [make_plan()[index] for index in range(40, 48)]
    draws = BatchPlan._draws

    def slow_draws(plan, block):
        time.sleep(0.002)
        return draws(plan, block)

    monkeypatch.setattr(BatchPlan, "_draws", slow_draws)
    plan, found = make_plan(), {}
    ask = lambda index: found.update({index: plan[index]})
    threads = [threading.Thread(target=ask, args=(index,)) for index in range(40, 48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(found[40 + n], entry) for n, entry in enumerate(expected))


@pytest.mark.parametrize(
    "exponent, shares", [(0.0, (1 / 3, 1 / 3, 1 / 3)), (1.0, (0.7, 0.2, 0.1)), (0.5, None)]
)
def test_pairs_are_drawn_by_their_size_to_the_power_of_the_exponent(exponent, shares):
    sizes = {"ab": 70, "ac": 20, "bc": 10}
    plan = make_plan(
        {pair: np.full(size, 4) for pair, size in sizes.items()}, sampling_exponent=exponent
    )
    if shares is None:
        powers = np.sqrt(list(sizes.values()))
        shares = powers / powers.sum()
    drawn = np.bincount([plan[index].pair for index in range(2000)], minlength=3) / 2000
    np.testing.assert_allclose(drawn, shares, atol=0.04)


def test_buckets_are_the_largest_batches_within_max_tokens():
    assert make_buckets((8, 16, 24), max_tokens=200, batch_multiple=4) == (
        Bucket(8, 24),
        Bucket(16, 12),
        Bucket(24, 8),
    )


@pytest.mark.parametrize("lengths", [(), (2, 8), (8, 8), (16, 8)])
def test_bucket_lengths_must_ascend_from_three(lengths):
    with pytest.raises(ValueError, match="bucket_lengths"):
        make_buckets(lengths, 1000, 1)


def test_max_tokens_too_small_for_the_longest_bucket_names_what_would_do():
    with pytest.raises(ValueError, match="use at least 512"):
        make_buckets((8, 64), max_tokens=500, batch_multiple=8)


def drawn_sides(rows, longest=60, mismatch=0.15, seed=0):
    """[2, rows] lengths of sources and their translations, as of sentences."""
    random = np.random.default_rng(seed)
    source = random.gamma(3.0, longest / 10, rows)
    sides = np.stack([source, source * random.lognormal(0, mismatch, rows)])
    return np.clip(sides.round().astype(int), 1, longest)


def count_lengths(sides):
    return LengthCounts(np.bincount(sides.max(axis=0)), sides.sum() / 2)


def test_expected_efficiency_is_that_of_the_batches_of_the_plan():
    sides = {"ab": drawn_sides(997), "ac": drawn_sides(203, seed=1)}
    buckets = make_buckets((8, 20, 60), max_tokens=480, batch_multiple=4)
    longer = {pair: lengths.max(axis=0) for pair, lengths in sides.items()}
    for exponent in (0.0, 1.0):
        plan = BatchPlan(longer, buckets, seed=0, sampling_exponent=exponent)
        real = padded = 0
        for index in range(3000):
            entry = plan[index]
            real += sides[plan.pairs[entry.pair]][:, entry.rows[entry.rows >= 0]].sum()
            padded += 2 * entry.bucket.length * entry.bucket.batch_size
        counts = {pair: count_lengths(lengths) for pair, lengths in sides.items()}
        expected = padding_efficiency(counts, buckets, exponent)
        np.testing.assert_allclose(real / padded, expected, rtol=3e-3)


def test_the_chosen_lengths_are_the_fewest_and_best_that_keep_padding_below_15_percent():
    counts = {"ab": count_lengths(drawn_sides(20_000, longest=14, mismatch=0.02))}
    buckets_of = lambda lengths: make_buckets(lengths, max_tokens=280, batch_multiple=1)
    chosen = choose_bucket_lengths(counts, buckets_of, 0.0)
    efficiency = lambda lengths: padding_efficiency(counts, buckets_of(lengths), 0.0)
    lists = lambda n: [(*part, 14) for part in itertools.combinations(range(3, 14), n - 1)]
    best = {n: max(map(efficiency, lists(n))) for n in range(1, len(chosen) + 1)}
    assert efficiency(chosen) >= 0.85 > best[len(chosen) - 1]
    # All lists tried; the difference is of rows that do not fill a batch.
    np.testing.assert_allclose(efficiency(chosen), best[len(chosen)], rtol=1e-3)


def test_text_whose_sides_differ_too_much_takes_lengths_until_more_change_little():
    sides = drawn_sides(20_000)
    sides[1] = np.maximum(sides[0] // 2, 1)  # three quarters are real at best
    counts = {"ab": count_lengths(sides)}
    buckets_of = lambda lengths: make_buckets(lengths, max_tokens=960, batch_multiple=4)
    chosen = choose_bucket_lengths(counts, buckets_of, 0.0)
    assert 4 < len(chosen) < 32 and chosen[-1] == sides.max()
    best = padding_efficiency(counts, buckets_of(range(3, 61)), 0.0)
    assert 0.95 * best < padding_efficiency(counts, buckets_of(chosen), 0.0) < best < 0.75


def test_a_short_run_has_no_more_lengths_than_its_updates_are_worth():
    rows = np.bincount(np.random.default_rng(0).integers(4, 60, 5000))
    counts = {"a": LengthCounts(rows, float(rows @ np.arange(len(rows))))}
    chosen = lambda most: choose_bucket_lengths(
        counts, lambda lengths: make_buckets(lengths, 600, 1), 0.0, most
    )
    assert len(chosen(32)) > 2 and len(chosen(2)) == 2 and chosen(1) == (59,)


def test_a_pair_without_a_row_that_fits_is_named():
    with pytest.raises(ValueError, match=r"pair bc.*16 tokens"):
        make_plan({"ab": np.full(5, 4), "bc": np.full(5, 30)})


def test_a_batch_size_holds_at_every_length():
    assert make_buckets((8, 200), max_tokens=0, batch_multiple=4, batch_size=12) == (
        Bucket(8, 12),
        Bucket(200, 12),
    )
    with pytest.raises(ValueError, match="batch_size=10 must be a multiple of batch_multiple=4"):
        make_buckets((8, 200), max_tokens=0, batch_multiple=4, batch_size=10)
