import numpy as np
import pytest

from xling_jax.encode.jax_backend import BatchShapes, plan_batches

SHAPES = BatchShapes(max_length_tokens=100, batch_tokens=1024)


@pytest.mark.parametrize(
    ("num_sentences", "num_devices"), [(0, 1), (1, 8), (8, 1), (9, 8), (100, 1), (5000, 8)]
)
def test_every_sentence_once_in_a_listed_shape_that_holds_it(num_sentences, num_devices):
    shapes = BatchShapes(max_length_tokens=100, batch_tokens=1024, num_devices=num_devices)
    lengths = np.random.default_rng(0).integers(0, 101, num_sentences)
    seen = []
    for members, (rows, length) in plan_batches(lengths, shapes):
        assert (rows, length) in shapes.all()
        assert 0 < len(members) <= rows
        assert lengths[members].max() <= length
        assert rows % num_devices == 0
        seen.extend(members)
    assert sorted(seen) == list(range(num_sentences))


def shapes_of(shapes):
    """length -> rows of its shapes."""
    found = {}
    for rows, length in shapes.all():
        found.setdefault(length, []).append(rows)
    return found


def test_full_batches_hold_the_tokens_asked_for_and_small_ones_few_rows():
    assert shapes_of(SHAPES) == {
        **{8: [128], 12: [85], 16: [8, 64], 24: [42], 32: [8, 32], 48: [21]},
        **{64: [8, 16], 96: [10], 100: [8, 10]},
    }
    of_accelerator = shapes_of(BatchShapes(max_length_tokens=100, batch_tokens=65536))
    assert of_accelerator[24] == [2730] and of_accelerator[32] == [8, 256, 2048]
    small = BatchShapes(max_length_tokens=100, batch_tokens=1024, batch_size=3)
    assert {*map(tuple, shapes_of(small).values())} == {(3,)}


def test_long_inputs_share_a_batch_as_far_as_their_attention_fits():
    shapes = BatchShapes(max_length_tokens=8192, batch_tokens=32768)
    assert shapes.lengths[-5:] == (2048, 3072, 4096, 6144, 8192)
    rows = shapes_of(shapes)
    assert rows[2048] == [8, 16] and BatchShapes(4096, 1024).full(2048) == 8
    assert [rows[length] for length in (3072, 4096, 8192)] == [[1, 7], [1, 4], [1]]


def test_batches_are_filled_by_more_than_half():
    def planned(num_sentences, length, shapes):
        return [shape for _, shape in plan_batches(np.full(num_sentences, length), shapes)]

    assert planned(33, 16, SHAPES) == [(64, 16)]
    assert planned(32, 16, SHAPES) == [(8, 16)] * 4
    larger = BatchShapes(max_length_tokens=100, batch_tokens=8192)
    assert planned(17, 32, larger) == [(32, 32)]
    assert planned(16, 32, larger) == [(8, 32)] * 2
    # 8 rows of the coarser length 32 are more tokens than 9 of 24.
    assert planned(2, 20, BatchShapes(100, 1024, batch_size=9)) == [(9, 24)]


def test_a_sentence_alone_takes_a_single_row_where_there_is_one():
    alone = np.array([20])
    assert [shape for _, shape in plan_batches(alone, SHAPES)] == [(8, 32)]
    single = BatchShapes(max_length_tokens=9000, batch_tokens=1024, has_single_row=True)
    for length, longest in ((1, 16), (17, 32), (2048, 2048), (2049, 3072), (8500, 9000)):
        ((members, shape),) = plan_batches(np.array([length]), single)
        assert shape == (1, longest) in single.all() and list(members) == [0]
    assert (1, 16) not in [shape for _, shape in plan_batches(np.array([5, 6]), single)]
    devices = BatchShapes(100, 1024, num_devices=4, has_single_row=True)
    assert [shape for _, shape in plan_batches(alone, devices)] == [(4, 32)]
